package interp

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
)

// Part is the k-th of n equal parts of dim.
func Part(x *ir.Array, dim, n, k int) *ir.Array {
	dims := slices.Clone(x.Type.Dims)
	size := dims[dim] / n
	dims[dim] = size
	out := ir.NewArray(ir.T(x.Type.DType, dims...))
	inner := ir.Product(dims[dim+1:])
	for o := range ir.Product(dims[:dim]) {
		from, to := (o*size*n+k*size)*inner, o*size*inner
		if out.F != nil {
			copy(out.F[to:to+size*inner], x.F[from:])
		} else {
			copy(out.I[to:to+size*inner], x.I[from:])
		}
	}
	return out
}

// Join puts parts together along dim.
func Join(dim int, parts []*ir.Array) *ir.Array {
	dims := slices.Clone(parts[0].Type.Dims)
	dims[dim] = 0
	for _, p := range parts {
		dims[dim] += p.Type.Dims[dim]
	}
	out := &ir.Array{Type: ir.T(parts[0].Type.DType, dims...)}
	inner := ir.Product(dims[dim+1:])
	for o := range ir.Product(dims[:dim]) {
		for _, p := range parts {
			n := p.Type.Dims[dim] * inner
			if p.F != nil {
				out.F = append(out.F, p.F[o*n:(o+1)*n]...)
			} else {
				out.I = append(out.I, p.I[o*n:(o+1)*n]...)
			}
		}
	}
	return out
}

// Shard is what rank (in micro-batch micro) holds of the whole array x. Each rank has a share of a partial sum;
// of integers the first has all.
func Shard(m mesh.Mesh, s mesh.Sharding, rank, micro int, x *ir.Array) *ir.Array {
	coord := func(axis string) int {
		if axis == mesh.TimeAxis {
			return micro
		}
		return m.Coord(rank, axis)
	}
	for d := range x.Type.Dims {
		for _, axis := range s.Axes(d) {
			x = Part(x, d, m.Size(axis), coord(axis))
		}
	}
	for _, axis := range s.Partial {
		x = share(x, coord(axis), m.Size(axis))
	}
	return x
}

// share is what the k-th of n holds of a partial sum: -x/2, and the first what is missing to x, so that an op that is
// not linear is found out.
func share(x *ir.Array, k, n int) *ir.Array {
	out := copyOf(x)
	for i := range out.F {
		if out.F[i] /= 2; k > 0 {
			out.F[i] = -out.F[i]
		} else {
			out.F[i] *= float64(n + 1)
		}
	}
	if k > 0 {
		clear(out.I)
	}
	return out
}

// Unshard puts the parts of all ranks together (one micro-batch: s must not name mesh.TimeAxis). Partial sums are
// added. It fails when ranks that should hold the same hold different values, beyond tol (see Differ).
func Unshard(m mesh.Mesh, s mesh.Sharding, parts []*ir.Array, tol float64) (*ir.Array, error) {
	parts = slices.Clone(parts)
	merge := func(axis string, f func(group []*ir.Array) (*ir.Array, error)) error {
		next := make([]*ir.Array, len(parts))
		for r := range parts {
			var group []*ir.Array
			for _, q := range m.Group(r, axis) {
				group = append(group, parts[q])
			}
			var err error
			if next[r], err = f(group); err != nil {
				return fmt.Errorf("rank %d, axis %s: %w", r, axis, err)
			}
		}
		parts = next
		return nil
	}
	for _, axis := range s.Partial {
		merge(axis, func(g []*ir.Array) (*ir.Array, error) { return combine("sum", g), nil })
	}
	for d := range s.Dims {
		for _, axis := range slices.Backward(s.Dims[d]) {
			merge(axis, func(g []*ir.Array) (*ir.Array, error) { return Join(d, g), nil })
		}
	}
	for r, p := range parts {
		if err := Differ(parts[0], p, tol); err != nil {
			return nil, fmt.Errorf("ranks 0 and %d: %w", r, err)
		}
	}
	return parts[0], nil
}
