package fold

import (
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// castNames are the element types as operators before opset 6 spell them.
var castNames = map[string]int32{
	"FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7, "STRING": 8, "BOOL": 9,
	"FLOAT16": 10, "DOUBLE": 11, "UINT32": 12, "UINT64": 13,
}

// CastType is the element type that attribute "to" of a cast names.
func CastType(n *model.Node) dtype.DType {
	code := int32(0)
	if a := n.Attrs["to"]; a != nil && a.GetType() == onnxpb.AttributeProto_STRING { // before opset 6
		code = castNames[string(a.S)]
	} else {
		code = int32(n.Int("to", 0))
	}
	d, err := model.DTypeOf(code)
	if err != nil {
		n.Fail("it cannot cast to that type: %v", err)
	}
	return d
}

// Saturates reports whether casts to 8-bit floats give the largest value for what is larger.
func Saturates(n *model.Node) bool { return n.Int("saturate", 1) != 0 }

// RoundMode is how a cast to float8e8m0 rounds.
func RoundMode(n *model.Node) dtype.Rounding {
	switch m := dtype.Rounding(n.Str("round_mode", "up")); m {
	case dtype.RoundUp, dtype.RoundDown, dtype.RoundNearest:
		return m
	default:
		n.Fail("round_mode is %q, but must be up, down or nearest", m)
		return m
	}
}

// Cast converts to element type d as ONNX Cast does: floats truncate towards zero, nonzero is true.
func Cast(n *model.Node, a *ir.Array, d dtype.DType) *ir.Array {
	if a.Type.DType == d {
		return a
	}
	out := n.Array(a.Type.With(d))
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
			out.F[i] = small(n, out.F[i], d)
		}
	}
	return Settle(out)
}

// small rounds x to a float type of 8 bits or fewer by the attributes of the node.
func small(n *model.Node, x float64, d dtype.DType) float64 {
	if d == dtype.F8E8M0 {
		return d.Decode(dtype.EncodeE8M0(x, Saturates(n), RoundMode(n)))
	}
	return d.Decode(d.Encode(x, Saturates(n)))
}
