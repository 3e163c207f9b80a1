package roles

import (
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

func TestRotaryAndMasks(t *testing.T) {
	table := func(rows, cols int, f func(i, j int) float64) *ir.Array {
		a := ir.NewArray(ir.T(dtype.F32, rows, cols))
		for i := range a.F {
			a.F[i] = f(i/cols, i%cols)
		}
		return a
	}
	w := func(j int) float64 { return math.Pow(10000, -float64(j%8)/8) }
	for _, c := range []struct {
		name  string
		a     *ir.Array
		table bool
	}{
		{"cos", table(32, 16, func(i, j int) float64 { return math.Cos(float64(i) * w(j)) }), true},
		{"sin", table(32, 16, func(i, j int) float64 { return math.Sin(float64(i) * w(j)) }), true},
		{"positions", table(32, 16, func(i, j int) float64 {
			if j%2 == 1 {
				return math.Cos(float64(i) * w(j/2))
			}
			return math.Sin(float64(i) * w(j/2))
		}), true},
		{"weights", table(32, 16, func(i, j int) float64 { return math.Sin(float64(i*j + 1)) }), false},
		{"lower ones", table(8, 8, func(i, j int) float64 { return float64(fold.BoolInt(j <= i)) }), true},
		{"all ones", table(8, 8, func(int, int) float64 { return 1 }), false},
		{"mask", table(8, 8, func(i, j int) float64 { return -1e9 * float64(fold.BoolInt(j > i)) }), true},
		{"small negatives", table(8, 8, func(i, j int) float64 { return -0.1 * float64(i+j) }), false},
	} {
		if got := tableLike(c.a) != ""; got != c.table {
			t.Errorf("%s: table %v, %q", c.name, got, tableLike(c.a))
		}
	}
}
