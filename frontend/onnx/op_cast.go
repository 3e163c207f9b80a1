package onnx

import (
	"math"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var castRows = []row{
	{op: "Cast", since: 1, min: 1, max: 1, rule: func(w *walker, n *node, in []*val) []*val {
		return w.cast(n, in[0], n.castTo())
	}},
	{op: "CastLike", since: 15, min: 2, max: 2, rule: func(w *walker, n *node, in []*val) []*val {
		if a := w.array(in[0]); a != nil { // only the type of the other operand matters
			return known(n.castArray(a, in[1].t.DType))
		}
		return w.cast(n, in[0], in[1].t.DType)
	}},
	{op: "BitCast", since: 26, min: 1, max: 1, rule: func(w *walker, n *node, in []*val) []*val {
		return outs(ops.Bitcast(w.b, w.value(in[0]), n.castTo()))
	}},
	{op: "BitwiseAnd", since: 18, min: 2, max: 2, rule: bitwise(ops.And)},
	{op: "BitwiseOr", since: 18, min: 2, max: 2, rule: bitwise(ops.Or)},
	{op: "BitwiseXor", since: 18, min: 2, max: 2, rule: bitwise(ops.Xor)},
	{op: "BitwiseNot", since: 18, min: 1, max: 1, rule: func(w *walker, n *node, in []*val) []*val {
		n.wantInt(in[0].t)
		return outs(ops.BitNot(w.b, w.value(in[0])))
	}},
	{op: "BitShift", since: 11, min: 2, max: 2, rule: func(w *walker, n *node, in []*val) []*val {
		n.wantInt(in[0].t)
		if n.shiftsLeft() {
			return map2(ops.ShiftLeft)(w, n, in)
		}
		return map2(ops.ShiftRight)(w, n, in)
	}},
}

func init() {
	for op, f := range map[string]folder{
		"Cast": func(n *node, in []*ir.Array) []*ir.Array { return []*ir.Array{n.castArray(in[0], n.castTo())} },
		"CastLike": func(n *node, in []*ir.Array) []*ir.Array {
			return []*ir.Array{n.castArray(in[0], in[1].Type.DType)}
		},
		"BitCast": func(n *node, in []*ir.Array) []*ir.Array {
			t := in[0].Type.With(n.castTo())
			if t.DType.Bits() != in[0].Type.DType.Bits() {
				n.fail("operand 0 is %s, which has not as many bits as %s", in[0].Type, t.DType)
			}
			return []*ir.Array{(&ir.Tensor{Type: t, Data: in[0].Tensor().Data}).Array()}
		},
		"BitwiseAnd": pointwise(nil, func(a, b int64) int64 { return a & b }),
		"BitwiseOr":  pointwise(nil, func(a, b int64) int64 { return a | b }),
		"BitwiseXor": pointwise(nil, func(a, b int64) int64 { return a ^ b }),
		"BitwiseNot": unary(nil, func(a int64) int64 { return ^a }),
		"BitShift":   foldShift,
	} {
		folders[op] = f
	}
}

func (n *node) wantInt(t ir.Type) {
	if !t.DType.IsInt() {
		n.fail("operand 0 is %s, want integers", t)
	}
}

func bitwise(f func(b *ir.Builder, x, y *ir.Value) *ir.Value) rule {
	two := map2(f)
	return func(w *walker, n *node, in []*val) []*val {
		n.wantInt(in[0].t)
		return two(w, n, in)
	}
}

func (n *node) shiftsLeft() bool {
	switch d := n.str("direction", ""); d {
	case "LEFT":
		return true
	case "RIGHT":
	default:
		n.fail("direction is %q, want LEFT or RIGHT", d)
	}
	return false
}

// foldShift shifts unsigned integers; by their number of bits and more gives 0, as NumPy does.
func foldShift(n *node, in []*ir.Array) []*ir.Array {
	left, bits := n.shiftsLeft(), int64(in[0].Type.DType.Bits())
	return pointwise(nil, func(x, y int64) int64 {
		switch {
		case y < 0 || y >= bits:
			return 0
		case left:
			return x << y
		}
		return int64(uint64(x) >> y)
	})(n, in)
}

// castNames are the element types as operators before opset 6 spell them.
var castNames = map[string]int32{
	"FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7, "STRING": 8, "BOOL": 9,
	"FLOAT16": 10, "DOUBLE": 11, "UINT32": 12, "UINT64": 13,
}

func (n *node) castTo() dtype.DType {
	code := int32(0)
	if a := n.attrs["to"]; a != nil && a.GetType() == onnxpb.AttributeProto_STRING { // before opset 6
		code = castNames[string(a.S)]
	} else {
		code = int32(n.int("to", 0))
	}
	d, err := convertType(code)
	if err != nil {
		n.fail("the result %v", err)
	}
	return d
}

// saturates reports whether casts to 8-bit floats give the largest value for what is larger.
func (n *node) saturates() bool { return n.int("saturate", 1) != 0 }

// roundMode is how a cast to float8e8m0 rounds.
func (n *node) roundMode() dtype.Rounding {
	switch m := dtype.Rounding(n.str("round_mode", "up")); m {
	case dtype.RoundUp, dtype.RoundDown, dtype.RoundNearest:
		return m
	default:
		n.fail("round_mode is %q, want up, down or nearest", m)
		return m
	}
}

// castArray converts to element type d as ONNX Cast does: floats truncate towards zero, nonzero is true.
func (n *node) castArray(a *ir.Array, d dtype.DType) *ir.Array {
	if a.Type.DType == d {
		return a
	}
	out := n.array(a.Type.With(d))
	for i := range a.Type.Elems() {
		switch {
		case a.F != nil && out.F != nil:
			out.F[i] = a.F[i]
		case a.F != nil && d == dtype.Bool:
			if a.F[i] != 0 {
				out.I[i] = 1
			}
		case a.F != nil:
			out.I[i] = d.Truncate(a.F[i])
		case out.F != nil && a.Type.DType == dtype.U64:
			out.F[i] = float64(uint64(a.I[i]))
		case out.F != nil:
			out.F[i] = float64(a.I[i])
		case d == dtype.Bool:
			if a.I[i] != 0 {
				out.I[i] = 1
			}
		default:
			out.I[i] = a.I[i]
		}
		if d.IsSmallFloat() {
			out.F[i] = n.small(out.F[i], d)
		}
	}
	return settle(out)
}

// small rounds x to a float type of 8 bits or fewer by the attributes of the node.
func (n *node) small(x float64, d dtype.DType) float64 {
	if d == dtype.F8E8M0 {
		return d.Decode(dtype.EncodeE8M0(x, n.saturates(), n.roundMode()))
	}
	return d.Decode(d.Encode(x, n.saturates()))
}

// cast converts x. Rounding to an 8-bit float and back passes the gradient straight through, within the range that the
// type has: what reads the result as a wider float gets its image, and not the 8-bit value, whose gradient would be
// rounded to 8 bits too.
func (w *walker) cast(n *node, x *val, d dtype.DType) []*val {
	if x.image != nil && d.IsFloat() && !d.IsSmallFloat() {
		return outs(ops.Cast(w.b, x.image, d))
	}
	v := w.value(x)
	switch {
	case !d.IsSmallFloat() || v.Type.DType == d:
		return outs(ops.Cast(w.b, v, d))
	case !v.Type.DType.IsFloat() || v.Type.DType.IsSmallFloat():
		v = ops.Cast(w.b, v, dtype.F32)
	}
	if d == dtype.F8E8M0 {
		return outs(w.castE8M0(n, v))
	}
	return []*val{w.narrow(v, d, n.saturates())}
}

// narrow rounds the float v to the small type d and keeps v's rounded form as the image.
func (w *walker) narrow(v *ir.Value, d dtype.DType, saturate bool) *val {
	if saturate {
		v = w.within(v, d)
	}
	image := ops.CastThrough(w.b, v, d)
	return quantized(ops.Cast(w.b, image, d), image)
}

// quantized is a value in a narrow type together with the same numbers in a type that carries gradients.
func quantized(v, image *ir.Value) *val { return &val{t: v.Type, v: v, image: image} }

// castE8M0 rounds to powers of two. The cast of ir/ops rounds up and saturates; the other modes clear the mantissa first.
func (w *walker) castE8M0(n *node, v *ir.Value) *ir.Value {
	v = ops.Cast(w.b, v, dtype.F32)
	mode := n.roundMode()
	if mode != dtype.RoundUp {
		bits := ops.Bitcast(w.b, ops.Abs(w.b, v), dtype.I32)
		if mode == dtype.RoundNearest {
			bits = ops.AddScalar(w.b, bits, 1<<22)
		}
		bits = ops.And(w.b, bits, ops.ScalarLike(w.b, bits, 0x7f800000))
		v = ops.Where(w.b, ops.IsNaN(w.b, v), v, ops.Bitcast(w.b, bits, dtype.F32))
	}
	if !n.saturates() {
		lo, hi := dtype.F8E8M0.Range()
		out := ops.Or(w.b, ops.Lt(w.b, v, ops.ScalarLike(w.b, v, lo)), ops.Gt(w.b, v, ops.ScalarLike(w.b, v, hi)))
		v = ops.Where(w.b, out, ops.ScalarLike(w.b, v, math.NaN()), v)
	}
	return ops.Cast(w.b, v, dtype.F8E8M0)
}

// movers are operators that only move elements: applied to a value that has an image, they move the image as well. The
// number says how many operands hold data, -1 all.
var movers = map[string]int{
	"Identity": 1, "Reshape": 1, "Flatten": 1, "Squeeze": 1, "Unsqueeze": 1, "Transpose": 1, "Slice": 1, "Split": 1,
	"Expand": 1, "Tile": 1, "Concat": -1, "Gather": 1, "GatherElements": 1, "GatherND": 1, "DepthToSpace": 1,
	"SpaceToDepth": 1,
}

// move applies a mover to images; nil when it is none or no operand has an image.
func (w *walker) move(n *node, r *row, in []*val) []*val {
	count, ok := movers[n.op]
	if count < 0 {
		count = len(in)
	}
	var of *val // the first operand with an image gives the types
	for _, x := range in[:min(count, len(in))] {
		if x != nil && x.image != nil && of == nil {
			of = x
		}
	}
	if !ok || of == nil {
		return nil
	}
	images := append([]*val(nil), in...)
	for i, x := range in[:count] {
		image := x.image
		if image == nil {
			image = ops.Cast(w.b, w.value(x), of.image.Type.DType)
		}
		images[i] = outs(image)[0]
	}
	var out []*val
	for _, x := range r.rule(w, n, images) {
		out = append(out, quantized(ops.Cast(w.b, w.value(x), of.t.DType), x.v))
	}
	return out
}
