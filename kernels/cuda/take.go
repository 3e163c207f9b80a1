package cuda

import (
	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	templates["GatherRows"] = template{takeTypes, func(c Call) (*Plan, error) {
		return takePlan(c, 1, c.Ints[0], 4*c.Ints[1], c.Ints[2]), nil
	}}
	templates["Take"] = template{takeTypes, func(c Call) (*Plan, error) {
		return takePlan(c, c.Ints[0], c.Ints[1], c.Ints[2], c.Ints[3]), nil
	}}
}

func takeTypes(types []dtype.DType) bool {
	return len(types) == 3 && types[0] == types[2] && (types[1] == dtype.I64 || types[1] == dtype.I32)
}

// takePlan copies rows of so many bytes, by the widest accesses that divide them. Where an index is out of range, that row
// alone becomes zero.
func takePlan(c Call, outer, size, bytes, n int) *Plan {
	const threads = 256
	unit := widest(bytes)
	units := bytes / unit
	if outer*n*units == 0 {
		return &Plan{}
	}
	k := kernelOf("take", "gather", "take", threads, []param{{"const void", "table", Ref{Arg: 0}}, {"const " + cType(c.Types, 1), "idx", Ref{Arg: 1}},
		{"void", "out", Ref{Arg: 2}}, status}, cType(c.Types, 1), outer, size, units, n, unit, threads)
	k.Include, k.Grid = []string{"take.cuh"}, [3]int{divUp(outer*n*units, threads), 1, 1}
	return &Plan{Kernels: []Kernel{k}}
}

// widest is the widest access, of 16 bytes at most, that divides a run of bytes.
func widest(bytes int) int {
	for n := 16; n > 1; n /= 2 {
		if bytes%n == 0 {
			return n
		}
	}
	return 1
}
