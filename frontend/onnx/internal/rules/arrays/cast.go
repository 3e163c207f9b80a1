package arrays

import (
	"math"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var castRows = []walk.Row{
	{Op: "Cast", Since: 1, Min: 1, Max: 1, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		return cast(w, n, in[0], fold.CastType(n))
	}},
	{Op: "CastLike", Since: 15, Min: 2, Max: 2, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		if a := w.Array(in[0]); a != nil { // only the type of the other operand matters
			return walk.Known(fold.Cast(n, a, in[1].Type.DType))
		}
		return cast(w, n, in[0], in[1].Type.DType)
	}},
	{Op: "BitCast", Since: 26, Min: 1, Max: 1, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		return walk.Results(ops.Bitcast(w.B, w.Value(in[0]), fold.CastType(n)))
	}},
	{Op: "BitwiseAnd", Since: 18, Min: 2, Max: 2, Rule: bitwise(ops.And)},
	{Op: "BitwiseOr", Since: 18, Min: 2, Max: 2, Rule: bitwise(ops.Or)},
	{Op: "BitwiseXor", Since: 18, Min: 2, Max: 2, Rule: bitwise(ops.Xor)},
	{Op: "BitwiseNot", Since: 18, Min: 1, Max: 1, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		wantInt(n, in[0].Type)
		return walk.Results(ops.BitNot(w.B, w.Value(in[0])))
	}},
	{Op: "BitShift", Since: 11, Min: 2, Max: 2, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		wantInt(n, in[0].Type)
		if shiftsLeft(n) {
			return Map2(ops.ShiftLeft)(w, n, in)
		}
		return Map2(ops.ShiftRight)(w, n, in)
	}},
}

func init() {
	for op, f := range map[string]fold.Func{
		"Cast": func(n *model.Node, in []*ir.Array) []*ir.Array {
			return []*ir.Array{fold.Cast(n, in[0], fold.CastType(n))}
		},
		"CastLike": func(n *model.Node, in []*ir.Array) []*ir.Array {
			return []*ir.Array{fold.Cast(n, in[0], in[1].Type.DType)}
		},
		"BitCast": func(n *model.Node, in []*ir.Array) []*ir.Array {
			t := in[0].Type.With(fold.CastType(n))
			if t.DType.Bits() != in[0].Type.DType.Bits() {
				n.Fail("operand 0 is %s, whose elements have not as many bits as %s", in[0].Type, t.DType)
			}
			return []*ir.Array{(&ir.Tensor{Type: t, Data: in[0].Tensor().Data}).Array()}
		},
		"BitwiseAnd": fold.Pointwise(nil, func(a, b int64) int64 { return a & b }),
		"BitwiseOr":  fold.Pointwise(nil, func(a, b int64) int64 { return a | b }),
		"BitwiseXor": fold.Pointwise(nil, func(a, b int64) int64 { return a ^ b }),
		"BitwiseNot": fold.Unary(nil, func(a int64) int64 { return ^a }),
		"BitShift":   foldShift,
	} {
		fold.Funcs[op] = f
	}
}

func wantInt(n *model.Node, t ir.Type) {
	if !t.DType.IsInt() {
		n.Fail("operand 0 is %s, but must hold integers", t)
	}
}

func bitwise(f func(b *ir.Builder, x, y *ir.Value) *ir.Value) walk.Rule {
	two := Map2(f)
	return func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		wantInt(n, in[0].Type)
		return two(w, n, in)
	}
}

func shiftsLeft(n *model.Node) bool {
	switch d := n.Str("direction", ""); d {
	case "LEFT":
		return true
	case "RIGHT":
	default:
		n.Fail("direction is %q, but must be LEFT or RIGHT", d)
	}
	return false
}

// foldShift shifts unsigned integers; by their number of bits and more gives 0, as NumPy does.
func foldShift(n *model.Node, in []*ir.Array) []*ir.Array {
	left, bits := shiftsLeft(n), int64(in[0].Type.DType.Bits())
	return fold.Pointwise(nil, func(x, y int64) int64 {
		switch {
		case y < 0 || y >= bits:
			return 0
		case left:
			return x << y
		}
		return int64(uint64(x) >> y)
	})(n, in)
}

// cast converts x. Rounding to an 8-bit float and back passes the gradient straight through, within the range that the
// type has: what reads the result as a wider float gets its image, and not the 8-bit value, whose gradient would be
// rounded to 8 bits too.
func cast(w *walk.Walker, n *model.Node, x *walk.Val, d dtype.DType) []*walk.Val {
	if x.Image != nil && d.IsFloat() && !d.IsSmallFloat() {
		return walk.Results(ops.Cast(w.B, x.Image, d))
	}
	v := w.Value(x)
	switch {
	case !d.IsSmallFloat() || v.Type.DType == d:
		return walk.Results(ops.Cast(w.B, v, d))
	case !v.Type.DType.IsFloat() || v.Type.DType.IsSmallFloat():
		v = ops.Cast(w.B, v, dtype.F32)
	}
	if d == dtype.F8E8M0 {
		return walk.Results(castE8M0(w, n, v))
	}
	return []*walk.Val{Narrow(w, v, d, fold.Saturates(n))}
}

// Narrow rounds the float v to the small type d and keeps v's rounded form as the image.
func Narrow(w *walk.Walker, v *ir.Value, d dtype.DType, saturate bool) *walk.Val {
	if saturate {
		v = Within(w, v, d)
	}
	image := ops.CastThrough(w.B, v, d)
	return walk.Quantized(ops.Cast(w.B, image, d), image)
}

// castE8M0 rounds to powers of two. The cast of ir/ops rounds up and saturates; the other modes clear the mantissa first.
func castE8M0(w *walk.Walker, n *model.Node, v *ir.Value) *ir.Value {
	v = ops.Cast(w.B, v, dtype.F32)
	mode := fold.RoundMode(n)
	if mode != dtype.RoundUp {
		bits := ops.Bitcast(w.B, ops.Abs(w.B, v), dtype.I32)
		if mode == dtype.RoundNearest {
			bits = ops.AddScalar(w.B, bits, 1<<22)
		}
		bits = ops.And(w.B, bits, ops.ScalarLike(w.B, bits, 0x7f800000))
		v = ops.Where(w.B, ops.IsNaN(w.B, v), v, ops.Bitcast(w.B, bits, dtype.F32))
	}
	if !fold.Saturates(n) {
		lo, hi := dtype.F8E8M0.Range()
		out := ops.Or(w.B, ops.Lt(w.B, v, ops.ScalarLike(w.B, v, lo)), ops.Gt(w.B, v, ops.ScalarLike(w.B, v, hi)))
		v = ops.Where(w.B, out, ops.ScalarLike(w.B, v, math.NaN()), v)
	}
	return ops.Cast(w.B, v, dtype.F8E8M0)
}

// Within clips v to the range of d. The ends are within, as in torch.fake_quantize, whose values lie on them: they get a
// gradient, which those of a clip do not.
func Within(w *walk.Walker, v *ir.Value, d dtype.DType) *ir.Value {
	lo, hi := d.Range()
	inside := ops.And(w.B, ops.Ge(w.B, v, ops.ScalarLike(w.B, v, lo)), ops.Le(w.B, v, ops.ScalarLike(w.B, v, hi)))
	return ops.Where(w.B, inside, v, ops.Clip(w.B, v, lo, hi))
}
