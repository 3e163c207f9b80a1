package cuda

import (
	"fmt"
	"math"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	templates["CappedSum"] = template{func(types []dtype.DType) bool {
		return len(types) == 2 && types[0] == dtype.F32 && types[1] == dtype.F32
	}, cappedPlan}
}

// cappedPlan gives each row a block.
func cappedPlan(c Call) (*Plan, error) {
	rows, n := c.Ints[0], c.Ints[1]
	if rows == 0 {
		return &Plan{}, nil
	}
	threads := min(max(divUp(n, 32)*32, 32), 256)
	k := kernelOf("capped_sum", "reduction", "capped_sum", threads, operands(c.Types, 1, "x", "y"), n, fmt.Sprintf("%#xu", math.Float32bits(float32(c.Floats[0]))), threads)
	k.Include, k.Grid = []string{"capped.cuh"}, [3]int{rows, 1, 1}
	return &Plan{Kernels: []Kernel{k}}, nil
}
