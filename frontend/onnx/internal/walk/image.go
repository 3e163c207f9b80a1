package walk

import (
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// movers are operators that only move elements: applied to a value that has an image, they move the image as well. The
// number says how many operands hold data, -1 all.
var movers = map[string]int{
	"Identity": 1, "Reshape": 1, "Flatten": 1, "Squeeze": 1, "Unsqueeze": 1, "Transpose": 1, "Slice": 1, "Split": 1,
	"Expand": 1, "Tile": 1, "Concat": -1, "Gather": 1, "GatherElements": 1, "GatherND": 1, "DepthToSpace": 1,
	"SpaceToDepth": 1,
}

// move applies a mover to images; nil when it is none or no operand has an image.
func (w *Walker) move(n *model.Node, r *Row, in []*Val) []*Val {
	count, ok := movers[n.Op]
	if count < 0 {
		count = len(in)
	}
	var of *Val // the first operand with an image gives the types
	for _, x := range in[:min(count, len(in))] {
		if x != nil && x.Image != nil && of == nil {
			of = x
		}
	}
	if !ok || of == nil {
		return nil
	}
	images := append([]*Val(nil), in...)
	for i, x := range in[:count] {
		image := x.Image
		if image == nil {
			image = ops.Cast(w.B, w.Value(x), of.Image.Type.DType)
		}
		images[i] = Results(image)[0]
	}
	var out []*Val
	for _, x := range r.Rule(w, n, images) {
		out = append(out, Quantized(ops.Cast(w.B, w.Value(x), of.Type.DType), x.Value))
	}
	return out
}

// Quantized is a value in a narrow type together with the same numbers in a type that carries gradients.
func Quantized(v, image *ir.Value) *Val { return &Val{Type: v.Type, Value: v, Image: image} }
