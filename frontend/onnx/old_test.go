package onnx

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// Forms of operators that opsets 1 to 6 have and 7 no longer; expected values are worked out by their definitions in
// ONNX's Changelog.md.
func TestOldOpsets(t *testing.T) {
	for _, c := range []struct {
		name  string
		opset int64
		inits []*onnxpb.TensorProto
		node  *onnxpb.NodeProto
		want  []float64
		dims  string
	}{
		{"broadcast along axis", 6, []*onnxpb.TensorProto{tensorOf("c", []int64{2}, 10.0, 20.0)},
			nodeOf("Add", "n", list("x", "c"), list("y"), "broadcast", 1, "axis", 0), []float64{11, 12, 13, 24, 25, 26}, "[2 3]"},
		{"broadcast of the end", 1, []*onnxpb.TensorProto{tensorOf("c", []int64{3}, 1.0, 2.0, 3.0)},
			nodeOf("Mul", "n", list("x", "c"), list("y"), "broadcast", 1), []float64{1, 4, 9, 4, 10, 18}, "[2 3]"},
		{"reshape by attribute", 1, nil, nodeOf("Reshape", "n", list("x"), list("y"), "shape", []int64{3, -1}), []float64{1, 2, 3, 4, 5, 6}, "[3 2]"},
		{"tile along one axis", 1, []*onnxpb.TensorProto{tensorOf("k", nil, 2.0), tensorOf("d", nil, 1.0)},
			nodeOf("Tile", "n", list("x", "k", "d"), list("y")), []float64{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}, "[2 6]"},
		{"pads named paddings", 1, nil, nodeOf("Pad", "n", list("x"), list("y"), "paddings", []int64{0, 1, 0, 0}), []float64{0, 1, 2, 3, 0, 4, 5, 6}, "[2 4]"},
		{"concat along 1", 1, nil, nodeOf("Concat", "n", list("x", "x"), list("y")), []float64{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}, "[2 6]"},
		{"dropout of a test", 6, nil, nodeOf("Dropout", "n", list("x"), list("y"), "is_test", 1), []float64{1, 2, 3, 4, 5, 6}, "[2 3]"},
		{"cast to a name", 1, nil, nodeOf("Cast", "n", list("x"), list("y"), "to", "INT32"), []float64{1, 2, 3, 4, 5, 6}, "[2 3]"},
		{"slopes by channel", 6, []*onnxpb.TensorProto{tensorOf("c", []int64{3}, -1.0, -2.0, -3.0)},
			nodeOf("PRelu", "n", list("m", "c"), list("y")), []float64{1, 4, 9, 4, 10, 18}, "[2 3]"},
		{"consumed", 1, nil, nodeOf("Relu", "n", list("x"), list("y"), "consumed_inputs", []int64{0}), []float64{1, 2, 3, 4, 5, 6}, "[2 3]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := graphOf(c.opset, f32, []any{2, 3}, c.inits, nodeOf("Neg", "neg", list("x"), list("m")), c.node)
			y := evaluate(t, m, Options{}, floatsOf([]int{2, 3}, 1, 2, 3, 4, 5, 6))
			if fmt.Sprint(y.Type.Dims) != c.dims {
				t.Fatalf("result is %s, want %s", y.Type, c.dims)
			}
			for i, want := range c.want {
				got := 0.0
				if y.F != nil {
					got = y.F[i]
				} else {
					got = float64(y.I[i])
				}
				if got != want {
					t.Errorf("element %d is %g, want %g", i, got, want)
				}
			}
		})
	}
	m := graphOf(6, f32, []any{2, 3}, []*onnxpb.TensorProto{tensorOf("c", []int64{3}, 1.0, 2.0, 3.0)},
		nodeOf("Add", "n", list("x", "c"), list("y")))
	parsed, err := Parse(encode(m), "", Options{})
	if err == nil {
		_, err = parsed.Import()
	}
	if err == nil || !strings.Contains(err.Error(), "Add, opset 6") || !strings.Contains(err.Error(), "without broadcast") {
		t.Errorf("dims that differ without broadcast: %v", err)
	}
}

// Upsample before opset 9 has its scales in attributes.
func TestOldUpsample(t *testing.T) {
	for opset, attrs := range map[int64][]any{1: {"height_scale", float32(1), "width_scale", float32(2)}, 7: {"scales", []float32{1, 1, 1, 2}}} {
		n := nodeOf("Upsample", "n", list("x"), list("y"))
		if opset == 7 {
			n.Attribute = []*onnxpb.AttributeProto{{Name: ptr("scales"), Type: ptr(onnxpb.AttributeProto_FLOATS), Floats: attrs[1].([]float32)}}
		} else {
			n = nodeOf("Upsample", "n", list("x"), list("y"), attrs...)
		}
		y := evaluate(t, graphOf(opset, f32, []any{1, 1, 1, 2}, nil, n), Options{}, floatsOf([]int{1, 1, 1, 2}, 3, 4))
		for i, want := range []float64{3, 3, 4, 4} {
			if y.Type.Elems() != 4 || y.F[i] != want {
				t.Errorf("opset %d: %v %v", opset, y.Type, y.F)
				break
			}
		}
	}
}

// Dimensions without a name, or with one that says nothing, are bound as INPUT[k]; those of size 0 are empty unless bound.
func TestNamelessDims(t *testing.T) {
	neg := nodeOf("Neg", "n", list("x"), list("y"))
	m := graphOf(17, f32, []any{"?", "?", 2}, nil, neg)
	y := evaluate(t, m, Options{Dims: map[string]int{"x[0]": 1, "x[1]": 3}}, floatsOf([]int{1, 3, 2}, 1, 2, 3, 4, 5, 6))
	if got := y.Type.String(); got != "f32[1,3,2]" {
		t.Errorf("the result is %s", got)
	}
	m = graphOf(17, f32, []any{2, 0, 2}, nil, nodeOf("ReduceSum", "n", list("x"), list("y"), "keepdims", 0))
	if y := evaluate(t, m, Options{}, floatsOf([]int{2, 0, 2})); len(y.F) != 1 || y.F[0] != 0 {
		t.Errorf("the sum of nothing is %v", y.F)
	}
	if y := evaluate(t, m, Options{Dims: map[string]int{"x[1]": 1}}, floatsOf([]int{2, 1, 2}, 1, 2, 3, 4)); y.F[0] != 10 {
		t.Errorf("the sum of a dimension of 0 that was bound is %v", y.F)
	}
	parsed, err := Parse(encode(graphOf(17, f32, []any{2, "?"}, nil, neg)), "", Options{})
	if err == nil {
		_, err = parsed.Import()
	}
	if err == nil || !strings.Contains(err.Error(), "give --dim x[1]=N") {
		t.Errorf("a dimension that nothing binds: %v", err)
	}
}
