package cuda

import (
	"fmt"
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	moved := func(types []dtype.DType) bool { return len(types) == 2 && types[0] == types[1] }
	templates["Transpose"] = template{moved, func(c Call) (*Plan, error) {
		n := c.Ints[0]
		return transposePlan(c.Ints[1:1+n], c.Ints[7:7+n], c.Ints[13])
	}}
	templates["Copy"] = template{moved, func(c Call) (*Plan, error) { return copyPlan(c.Ints[0]), nil }}
	templates["Fill"] = template{func(types []dtype.DType) bool { return len(types) == 1 && types[0] == dtype.F32 }, fillPlan}
}

// dim is one dim of a permutation: its extent and the elements between its indices in the input and in the output.
type dim struct{ size, in, out int }

// permuted lists the dims of the output, outermost first: those of one element are dropped, neighbours that stay
// neighbours merged.
func permuted(dims, perm []int) []dim {
	strides, s := make([]int, len(dims)), 1
	for i := len(dims) - 1; i >= 0; i-- {
		strides[i] = s
		s *= dims[i]
	}
	var out []dim
	for _, p := range perm {
		d := dim{size: dims[p], in: strides[p]}
		switch last := len(out) - 1; {
		case d.size == 1:
		case last >= 0 && out[last].in == d.size*d.in:
			out[last] = dim{size: out[last].size * d.size, in: d.in}
		default:
			out = append(out, d)
		}
	}
	s = 1
	for i := len(out) - 1; i >= 0; i-- {
		out[i].out = s
		s *= out[i].size
	}
	return out
}

// outerDims is the type name for dims that are not run over inside of a block; 4 at most are left.
func outerDims(dims []dim, unit int) string {
	for len(dims) < 4 {
		dims = append([]dim{{1, 0, 0}}, dims...)
	}
	name := "gtc::outer_dims<"
	for i, d := range dims {
		if i > 0 {
			name += ", "
		}
		name += fmt.Sprintf("%d, %d, %d", d.size, d.in/unit, d.out/unit)
	}
	return name + ">"
}

func transposePlan(dims, perm []int, bytes int) (*Plan, error) {
	if widest(bytes) != bytes || bytes > 8 || len(dims) != len(perm) || len(dims) > 6 {
		return nil, fmt.Errorf("BUG: transpose of %v by %v with elements of %d bytes", dims, perm, bytes)
	}
	total := bytes
	for _, d := range dims {
		total *= d
	}
	ds := permuted(dims, perm)
	if total == 0 {
		return &Plan{}, nil
	}
	if len(ds) == 0 || len(ds) == 1 && ds[0].in == 1 {
		return copyPlan(total), nil
	}
	if ds[len(ds)-1].in == 1 {
		return runsPlan(ds, bytes, runAccess(ds, bytes), total), nil
	}
	return planesPlan(ds, bytes), nil
}

// runAccess is the widest access, in bytes, that divides runs of the last dim and everything between them.
func runAccess(ds []dim, bytes int) int {
	access := widest(ds[len(ds)-1].size * bytes)
	for _, d := range ds[:len(ds)-1] {
		access = min(access, widest(d.in*bytes))
	}
	return max(access, bytes)
}

// runsPlan copies runs of the last dim. Of six dims of which none merge, the first is run over by launches.
func runsPlan(ds []dim, bytes, access, total int) *Plan {
	const threads = 256
	last, outer, unit := ds[len(ds)-1], ds[:len(ds)-1], access/bytes
	if len(outer) > 4 {
		return &Plan{Kernels: byFirst(outer[0], bytes, func() Kernel { return runsPlan(ds[1:], bytes, access, total/ds[0].size).Kernels[0] })}
	}
	k := kernelOf("transpose", "transpose", "transpose_runs", threads, []param{{"const void", "from", Ref{Arg: 0}}, {"void", "to", Ref{Arg: 1}}},
		access, last.size/unit, total/access, outerDims(outer, unit), threads)
	k.Include, k.Grid = []string{"transpose.cuh"}, [3]int{divUp(total/access, threads), 1, 1}
	return &Plan{Kernels: []Kernel{k}}
}

// byFirst repeats a kernel for each index of the outermost dim.
func byFirst(d dim, bytes int, kernel func() Kernel) []Kernel {
	var out []Kernel
	for i := range d.size {
		k := kernel()
		k.Args = slices.Clone(k.Args)
		k.Args[0].Offset, k.Args[1].Offset = i*d.in*bytes, i*d.out*bytes
		out = append(out, k)
	}
	return out
}

// planesPlan turns the last dim of the output over against the dim that is contiguous in the input.
func planesPlan(ds []dim, bytes int) *Plan {
	last := ds[len(ds)-1]
	r := slices.IndexFunc(ds, func(d dim) bool { return d.in == 1 })
	rows := ds[r]
	outer := slices.Delete(slices.Clone(ds[:len(ds)-1]), r, r+1)
	tile := 32
	if bytes <= 2 {
		tile = 64
	}
	blocks := divUp(rows.size, tile) * divUp(last.size, tile)
	for _, d := range outer {
		blocks *= d.size
	}
	k := kernelOf("transpose", "transpose", "transpose_plane", 256, []param{{"const void", "from", Ref{Arg: 0}}, {"void", "to", Ref{Arg: 1}}},
		bytes, rows.size, last.size, last.in, rows.out, outerDims(outer, 1))
	k.Include, k.Grid = []string{"transpose.cuh"}, [3]int{blocks, 1, 1}
	return &Plan{Kernels: []Kernel{k}}
}

func copyPlan(bytes int) *Plan {
	const threads = 256
	if bytes == 0 {
		return &Plan{}
	}
	unit := widest(bytes)
	k := kernelOf("copy", "pointwise", "copy_units", threads, []param{{"const void", "from", Ref{Arg: 0}}, {"void", "to", Ref{Arg: 1}}},
		unit, bytes/unit, threads)
	k.Include, k.Grid = []string{"transpose.cuh"}, [3]int{divUp(bytes/unit, threads), 1, 1}
	return &Plan{Kernels: []Kernel{k}}
}

func fillPlan(c Call) (*Plan, error) {
	const threads = 256
	if c.Ints[0] == 0 {
		return &Plan{}, nil
	}
	k := kernelOf("fill", "pointwise", "fill_units", threads, []param{{"gtc::u32", "out", Ref{Arg: 0}}}, c.Ints[0],
		fmt.Sprintf("%du", math.Float32bits(float32(c.Floats[0]))), threads)
	k.Include, k.Grid = []string{"transpose.cuh"}, [3]int{divUp(c.Ints[0], threads), 1, 1}
	return &Plan{Kernels: []Kernel{k}}, nil
}
