package grad

import (
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// lossy forgets the gradient of its operand; square has no rule of its own, only a decomposition.
var lossy, square = ir.NewOp("grad_test_lossy"), ir.NewOp("grad_test_square")

func init() {
	same := func(op *ir.Op) ([]ir.Type, error) { return []ir.Type{op.In[0].Type}, nil }
	lossy.Define(ir.Rules{Operands: 1, Infer: same,
		VJP: func(*ir.Builder, *ir.Op, []*ir.Value) []*ir.Value { return []*ir.Value{nil} }})
	square.Define(ir.Rules{Operands: 1, Infer: same,
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value { return []*ir.Value{ops.Mul(b, op.In[0], op.In[0])} }})
}

// reverse differentiates the sum of what make builds from x with respect to x, and evaluates it at 3.
func reverse(make func(b *ir.Builder, x *ir.Value) *ir.Value) (float64, error) {
	f := &ir.Func{Name: "f"}
	b := ir.NewBuilder(f)
	x := b.Param("x", ir.T(dtype.F32), ir.Param)
	y := make(b, x)
	program := append([]*ir.Op{}, f.Ops...)
	active := map[*ir.Value]bool{x: true}
	Spread(active, program)
	r := New(b, active, nil)
	r.Add(y, ops.ScalarLike(b, y, 1))
	for i := len(program) - 1; i >= 0; i-- {
		if err := r.Step(program[i]); err != nil {
			return 0, err
		}
	}
	b.Result("dx", r.Of(x))
	f.DCE()
	out, err := interp.Run(f, map[string]*ir.Array{"x": ir.Floats(ir.T(dtype.F32), 3).Array()})
	if err != nil {
		return 0, err
	}
	return out.Named["dx"].F[0], nil
}

// Contributions of all readers add up, also through the parts of an op that has no rule.
func TestReverse(t *testing.T) {
	got, err := reverse(func(b *ir.Builder, x *ir.Value) *ir.Value {
		return ops.Add(b, ops.Mul(b, b.Emit(square, nil, x), x), ops.MulScalar(b, x, 5)) // x^3 + 5x
	})
	if err != nil || got != 3*9+5 {
		t.Errorf("%g, %v", got, err)
	}
}

// A gradient that an op does not give is an error where a parameter waits for it, not silence.
func TestLostGradient(t *testing.T) {
	_, err := reverse(func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(lossy, nil, x) })
	if err == nil || !strings.Contains(err.Error(), `grad_test_lossy has no gradient for operand 0, "x"`) {
		t.Error(err)
	}
}
