package cuda

import (
	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	real := func(types []dtype.DType) bool {
		return len(types) == 2 && types[0] == types[1] && (types[0] == dtype.F32 || types[0] == dtype.F64)
	}
	templates["Det"] = template{real, func(c Call) (*Plan, error) { return matricesPlan(c, "det", 1), nil }}
	templates["Cofactor"] = template{real, func(c Call) (*Plan, error) { return matricesPlan(c, "cofactor", 2), nil }}
}

// matricesPlan gives each matrix a block, and room for so many matrices of double.
func matricesPlan(c Call, name string, room int) *Plan {
	batch, n := c.Ints[1], c.Ints[2]
	if batch == 0 {
		return &Plan{}
	}
	threads := min(max(divUp(n*n, 32)*32, 32), 256)
	k := kernelOf(name, "matrices", name, threads, append(operands(c.Types, 1, "x", "y"), param{"double", "work", Ref{Arg: Workspace}}),
		cType(c.Types, 0), n, threads)
	k.Include, k.Grid = []string{"det.cuh"}, [3]int{batch, 1, 1}
	return &Plan{Kernels: []Kernel{k}, Workspace: divUp(8*room*batch*n*n, 64) * 64}
}
