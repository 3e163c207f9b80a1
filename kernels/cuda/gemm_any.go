package cuda

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	templates["GemmAny"] = template{func(types []dtype.DType) bool {
		d := types[0]
		return len(types) == 4 && slices.Contains(elemTypes[:12], d) && d != dtype.F16 && d != dtype.BF16 && types[1] == d && types[3] == d &&
			(types[2] == d || types[2] == dtype.Invalid)
	}, gemmAnyPlan}
}

// gemmAnyPlan gives each tile of 16 x 16 a block.
func gemmAnyPlan(c Call) (*Plan, error) {
	n := c.Ints
	blocks := n[0] * divUp(n[1], 16) * divUp(n[2], 16)
	if blocks == 0 {
		return &Plan{}, nil
	}
	p := operands(c.Types, 3, "a", "b", "bias", "c")
	p[2].typ = p[0].typ
	k := kernelOf("gemm_any", "gemm", "gemm_any", 256, p, cType(c.Types, 0), n[1], n[2], n[3], n[4] == 1, n[5] == 1, n[6], n[7], n[8])
	k.Include, k.Grid = []string{"gemm_any.cuh"}, [3]int{blocks, 1, 1}
	return &Plan{Kernels: []Kernel{k}}, nil
}
