package cost_test

import (
	"fmt"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/cost"
	_ "github.com/gtc-compiler/gtc/ir/ops" // those of the texts
)

// TestCounts: a product is a multiplication and an addition for each of its points, an element-wise op its operations for each
// element, a reduction one for each element it reads; what moves elements, and what is done by other ranks, none. Bytes are
// those of distinct operands and of results, none for views.
func TestCounts(t *testing.T) {
	for _, c := range []struct {
		op    string
		flops int64
		bytes int64
	}{
		{"matmul %x, %w : f32[4,5]", 2 * 4 * 6 * 5, 4 * (4*6 + 6*5 + 4*5)},
		{"matmul %h, %g {transA=true} : f16[6,6]", 2 * 6 * 4 * 6, 2 * (24 + 24 + 36)},
		{"add %x, %x : f32[4,6]", 24, 4 * (24 + 24)},
		{"mul %x, %y : f32[4,6]", 24, 4 * (24 + 24 + 24)},
		{"exp %x : f32[4,6]", 24, 4 * (24 + 24)},
		{"sigmoid %x : f32[4,6]", 24, 4 * (24 + 24)}, // one function
		{"reduce_sum %x {dims=[1]} : f32[4,1]", 24, 4 * (24 + 4)},
		{"transpose %x {perm=[1,0]} : f32[6,4]", 0, 0},
		{"reshape %x {dims=[24]} : f32[24]", 0, 0},
		{"expand %r {dims=[4,6]} : f32[4,6]", 0, 0},
		{"concat %x, %y {dim=0} : f32[8,6]", 0, 4 * (24 + 24 + 48)},
		{`all_reduce %x {axis="dp", op="sum"} : f32[4,6]`, 0, 4 * (24 + 24)},
		{"conv %image, %kernel {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], groups=1} : f32[2,8,5,5]", 2 * 2 * 8 * 5 * 5 * 3 * 3 * 3, 4 * (2*3*25 + 8*3*9 + 2*8*25)},
	} {
		m, err := ir.Parse("mesh @m = [dp=2]\nfunc @f(%x: f32[4,6], %y: f32[4,6], %w: f32[6,5], %h: f16[4,6], %g: f16[4,6], %r: f32[1,6], %image: f32[2,3,5,5], %kernel: f32[8,3,3,3]) {\n  %v = " + c.op + "\n  return\n}\n")
		if err == nil {
			err = m.Verify()
		}
		if err != nil {
			t.Errorf("%s: %v", c.op, err)
			continue
		}
		op := m.Funcs[0].Ops[0]
		if f, b := cost.Flops(op), cost.Bytes(op); f != c.flops || b != c.bytes {
			t.Errorf("%s: %d operations, %d bytes, want %d, %d", c.op, f, b, c.flops, c.bytes)
		}
		if cost.FuncFlops(m.Funcs[0]) != c.flops {
			t.Errorf("%s: the function's are %d", c.op, cost.FuncFlops(m.Funcs[0]))
		}
	}
}

// TestParts: an op that has no kernel costs what it is made of, and grows as they do.
func TestParts(t *testing.T) {
	flops := func(rows int) int64 {
		m, err := ir.Parse(fmt.Sprintf("func @f(%%x: f32[%d,16]) {\n  %%v = softmax %%x {dim=1} : f32[%d,16]\n  return\n}\n", rows, rows))
		if err != nil {
			t.Fatal(err)
		}
		return cost.Flops(m.Funcs[0].Ops[0])
	}
	if one, four := flops(1), flops(4); one < 3*16 || four != 4*one {
		t.Errorf("softmax of 16 takes %d operations, of 4 rows %d", one, four)
	}
}
