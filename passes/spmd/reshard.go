package spmd

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// version is a value of the whole program as the rank has it: laid out in one way.
type version struct {
	sharding mesh.Sharding
	value    *ir.Value
}

// get is global value v laid out as to, for why (see ir.Op.Why).
func (s *splitter) get(v *ir.Value, to mesh.Sharding, why string) *ir.Value {
	if v.Sharding.Equal(to) {
		return s.local[v]
	}
	for _, m := range s.made[v] {
		if m.sharding.Equal(to) {
			return m.value
		}
	}
	w := s.rematerialise(v, to)
	if w == nil {
		from := s.nearest(v, to)
		w = s.change(from.value, from.sharding, to, v.Name, why)
	}
	s.made[v] = append(s.made[v], version{to, w})
	return w
}

// nearest is the version of v from which to is reached with the fewest bytes.
func (s *splitter) nearest(v *ir.Value, to mesh.Sharding) version {
	best := version{v.Sharding, s.local[v]}
	wire, steps := s.distance(best, to)
	for _, m := range s.made[v] {
		if w, n := s.distance(m, to); w < wire || w == wire && n < steps {
			best, wire, steps = m, w, n
		}
	}
	return best
}

func (s *splitter) distance(from version, to mesh.Sharding) (float64, int) {
	for _, axis := range to.Partial { // what was summed up cannot be taken apart again
		if !slices.Contains(from.sharding.Partial, axis) {
			return 1e300, 0
		}
	}
	t := from.value.Type
	return cost(s.m, route(s.m, from.sharding, to, len(t.Dims)), t.Bytes())
}

// change lays x, which is laid out as from, out as to. The results are called by name; the collectives carry why.
func (s *splitter) change(x *ir.Value, from, to mesh.Sharding, name, why string) *ir.Value {
	now := mesh.Sharding{Dims: make([][]string, len(x.Type.Dims)), Partial: slices.Clone(from.Partial)}
	for d := range now.Dims {
		now.Dims[d] = slices.Clone(from.Axes(d))
	}
	for _, v := range route(s.m, from, to, len(x.Type.Dims)) {
		first := len(s.b.F.Ops)
		suffix := ""
		switch v.kind {
		case reduce:
			x, suffix = ops.AllReduce(s.b, v.axis, "sum", x)[0], ".sum"
		case scatter:
			x, suffix = s.scatter(x, v.axis, v.dim), ".part"
		case take:
			x, suffix = ops.ShardSlice(s.b, x, v.axis, v.dim, s.m.Size(v.axis)), ".part"
		case exchange:
			x, suffix = s.exchange(x, v.axis, v.dim, v.join), ".moved"
		case gather:
			x, suffix = s.gather(x, v.axis, v.dim), ".whole"
		}
		now = after(now, v)
		s.b.Rename(x, name+suffix)
		x.Sharding = clean(mesh.Sharding{Dims: slices.Clone(now.Dims), Partial: slices.Clone(now.Partial)})
		for _, op := range s.b.F.Ops[first:] {
			if op.Def.Rules.Collective != "" {
				op.Why = reason(why, v, name)
			}
		}
	}
	return x
}

// reason is why, or what the move does when nobody says more.
func reason(why string, v move, name string) string {
	if why != "" {
		return why
	}
	switch v.kind {
	case reduce:
		if v.axis == mesh.TensorAxis {
			return fmt.Sprintf("tensor parallelism: adds up the ranks' partial results of %s", name)
		}
		return fmt.Sprintf("sums up %s over %s", name, v.axis)
	case scatter:
		return fmt.Sprintf("sums up %s over %s, of which each rank needs a part", name, v.axis)
	case exchange:
		return fmt.Sprintf("%s is in parts along another dimension than it is needed", name)
	case gather:
		return fmt.Sprintf("%s is in parts and needed whole", name)
	}
	return ""
}

// after is layout s when v was done.
func after(s mesh.Sharding, v move) mesh.Sharding {
	drop := func(axes []string) []string {
		return slices.DeleteFunc(slices.Clone(axes), func(a string) bool { return a == v.axis })
	}
	s.Dims = slices.Clone(s.Dims)
	switch v.kind {
	case reduce, scatter:
		s.Partial = drop(s.Partial)
	case gather:
		s.Dims[v.dim] = drop(s.Dims[v.dim])
	case exchange:
		s.Dims[v.join] = drop(s.Dims[v.join])
	}
	if v.kind == scatter || v.kind == take || v.kind == exchange {
		s.Dims[v.dim] = append(slices.Clone(s.Dims[v.dim]), v.axis)
	}
	return s
}

// gather joins the parts along axis in dim d. Ranks' parts follow each other in memory, so dims that are slower
// than d go behind it for the while.
func (s *splitter) gather(x *ir.Value, axis string, d int) *ir.Value {
	n := s.m.Size(axis)
	if ir.Product(x.Type.Dims[:d]) == 1 {
		return ops.AllGather(s.b, x, axis, d, n)
	}
	return s.fromFront(ops.AllGather(s.b, s.toFront(x, d), axis, 0, n), d)
}

// scatter sums up over axis and leaves each rank its part of dim d.
func (s *splitter) scatter(x *ir.Value, axis string, d int) *ir.Value {
	n := s.m.Size(axis)
	if ir.Product(x.Type.Dims[:d]) == 1 {
		return ops.ReduceScatter(s.b, x, axis, d, n, "sum")
	}
	return s.fromFront(ops.ReduceScatter(s.b, s.toFront(x, d), axis, 0, n, "sum"), d)
}

// exchange splits dim split over axis, where until now dim join was split. What goes to one rank follows what goes to
// another in memory, and so does what comes from them.
func (s *splitter) exchange(x *ir.Value, axis string, split, join int) *ir.Value {
	n := s.m.Size(axis)
	dims := slices.Clone(x.Type.Dims)
	dims[split] /= n
	x = s.toFront(ops.Reshape(s.b, x, slices.Insert(slices.Clone(dims), split, n)), split)
	x = s.fromFront(ops.AllToAll(s.b, x, axis, 0, 0, n), join)
	dims[join] *= n
	return ops.Reshape(s.b, x, dims)
}

// toFront makes dim d the slowest.
func (s *splitter) toFront(x *ir.Value, d int) *ir.Value {
	dims := x.Type.Dims
	if ir.Product(dims[:d]) == 1 {
		return ops.Reshape(s.b, x, slices.Concat([]int{dims[d]}, dims[:d], dims[d+1:]))
	}
	all := ops.AllDims(x)
	return ops.Transpose(s.b, x, slices.Concat([]int{d}, all[:d], all[d+1:]))
}

// fromFront makes the slowest dim dim d.
func (s *splitter) fromFront(x *ir.Value, d int) *ir.Value {
	dims := x.Type.Dims
	if ir.Product(dims[1:d+1]) == 1 {
		return ops.Reshape(s.b, x, slices.Concat(dims[1:d+1], dims[:1], dims[d+1:]))
	}
	all := ops.AllDims(x)
	return ops.Transpose(s.b, x, slices.Concat(all[1:d+1], all[:1], all[d+1:]))
}
