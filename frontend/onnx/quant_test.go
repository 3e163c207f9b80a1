package onnx

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// graphOf is a model of opset and nodes that reads x, of type typ and dims, and gives y.
func graphOf(opset int64, typ onnxpb.TensorProto_DataType, dims []any, inits []*onnxpb.TensorProto, nodes ...*onnxpb.NodeProto) *onnxpb.ModelProto {
	return modelOf(opset, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", typ, dims...)},
		Output:      []*onnxpb.ValueInfoProto{portOf("y", onnxpb.TensorProto_UNDEFINED)},
		Initializer: inits, Node: nodes,
	})
}

// typed is a scalar or vector tensor of a type whose values are in int32_data.
func typed(name string, typ onnxpb.TensorProto_DataType, values ...int32) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Name: ptr(name), DataType: ptr(int32(typ)), Int32Data: values}
}

// evaluate imports a model and runs it on x.
func evaluate(t *testing.T, m *onnxpb.ModelProto, opts Options, x *ir.Array) *ir.Array {
	t.Helper()
	f := forwardOf(t, m, opts)
	out, err := interp.Run(f, map[string]*ir.Array{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	return out.All[0]
}

func forwardOf(t *testing.T, m *onnxpb.ModelProto, opts Options) *ir.Func {
	t.Helper()
	parsed, err := Parse(encode(m), "", opts)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := parsed.Import()
	if err != nil {
		t.Fatal(err)
	}
	return mod.Funcs[0]
}

func floatsOf(dims []int, v ...float64) *ir.Array {
	return ir.Floats(ir.T(dtype.F32, dims...), v...).Array()
}

// Elements of 4 and 2 bits share bytes, the first in the low bits, in raw_data and in int32_data; signed ones extend.
func TestPackedTensors(t *testing.T) {
	raw := func(b ...byte) *onnxpb.Bytes { v := onnxpb.Bytes(b); return &v }
	for _, c := range []struct {
		typ  onnxpb.TensorProto_DataType
		data []byte
		n    int64
		want []float64
	}{
		{onnxpb.TensorProto_INT4, []byte{0x8f, 0x07}, 3, []float64{-1, -8, 7}},
		{onnxpb.TensorProto_UINT4, []byte{0x8f, 0x07}, 3, []float64{15, 8, 7}},
		{onnxpb.TensorProto_INT2, []byte{0b11_10_01_00, 0b10}, 5, []float64{0, 1, -2, -1, -2}},
		{onnxpb.TensorProto_UINT2, []byte{0b11_10_01_00, 0b10}, 5, []float64{0, 1, 2, 3, 2}},
		{onnxpb.TensorProto_FLOAT4E2M1, []byte{0xf7, 0x01}, 3, []float64{6, -6, 0.5}},
		{onnxpb.TensorProto_FLOAT8E4M3FN, []byte{0x7e, 0x81}, 2, []float64{448, -math.Ldexp(1, -9)}},
		{onnxpb.TensorProto_FLOAT8E5M2, []byte{0x7c, 0x3c}, 2, []float64{math.Inf(1), 1}},
		{onnxpb.TensorProto_FLOAT8E8M0, []byte{0x7f, 0}, 2, []float64{1, math.Ldexp(1, -127)}},
	} {
		p := &onnxpb.TensorProto{Name: ptr("t"), DataType: ptr(int32(c.typ)), Dims: []int64{c.n}, RawData: raw(c.data...)}
		q := &onnxpb.TensorProto{Name: ptr("t"), DataType: ptr(int32(c.typ)), Dims: []int64{c.n}}
		for _, b := range c.data {
			q.Int32Data = append(q.Int32Data, int32(b))
		}
		for form, p := range map[string]*onnxpb.TensorProto{"raw_data": p, "int32_data": q} {
			x, err := (&model.File{}).NewTensor(p)
			if err != nil {
				t.Fatalf("%s in %s: %v", c.typ, form, err)
			}
			y, err := x.IR()
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range c.want {
				if got := y.At(i); got != want {
					t.Errorf("%s in %s: element %d is %g, want %g", c.typ, form, i, got, want)
				}
			}
		}
		p.RawData = raw(append(c.data, 0)...)
		if _, err := (&model.File{}).NewTensor(p); err == nil || !strings.Contains(err.Error(), "raw data has") {
			t.Errorf("%s with a byte too much: error %v", c.typ, err)
		}
	}
}

// The gradient of a quantised value passes through operators that move elements, and a scale that is trained gets LSQ's
// gradient: sum(x*y) of torch._fake_quantize_learnable_per_tensor_affine.
func TestQuantisedGradients(t *testing.T) {
	m := graphOf(17, f32, []any{2, 3}, []*onnxpb.TensorProto{tensorOf("s", nil, 0.5), typed("z", onnxpb.TensorProto_UINT8, 2)},
		nodeOf("QuantizeLinear", "q", list("x", "s", "z"), list("a")),
		nodeOf("Transpose", "t", list("a"), list("b")),
		nodeOf("Concat", "c", list("b", "b"), list("d"), "axis", 0),
		nodeOf("DequantizeLinear", "dq", list("d", "s", "z"), list("y")))
	f := forwardOf(t, m, Options{Train: []string{"s"}})
	x := floatsOf([]int{2, 3}, 0.1, -0.8, 0.9, 200, -7, 1.3) // -7/0.5+2 and 200/0.5+2 lie outside [0,255]
	dx, ds := gradients(t, f, x)
	for i, want := range []float64{2, 2, 2, 0, 0, 2} { // each element is read twice
		if dx.F[i] != want {
			t.Errorf("dy/dx[%d] is %g, want %g", i, dx.F[i], want)
		}
	}
	// Inside, round(x/s) - x/s; outside, the end of the range less the zero point.
	want := 0.0
	for _, v := range []float64{0.1, -0.8, 0.9, 1.3} {
		want += math.RoundToEven(v/0.5) - v/0.5
	}
	want += 253 - 2
	if got := ds.F[0]; math.Abs(got-2*want) > 1e-3 {
		t.Errorf("dy/ds is %g, want %g", got, 2*want)
	}
}

// gradients differentiates the sum of f's result by its input x and by its one parameter.
func gradients(t *testing.T, f *ir.Func, x *ir.Array) (dx, dp *ir.Array) {
	t.Helper()
	b := ir.NewBuilder(f)
	grad := map[*ir.Value]*ir.Value{f.Results[0].Value: ops.ScalarLike(b, f.Results[0].Value, 1)}
	tape := slices.Clone(f.Ops)
	for _, op := range slices.Backward(tape) {
		dy := make([]*ir.Value, len(op.Out))
		for i, v := range op.Out {
			dy[i] = grad[v]
		}
		if dy[0] == nil || op.Def.Rules.VJP == nil {
			continue
		}
		for i, g := range op.Def.Rules.VJP(b, op, dy) {
			if old := grad[op.In[i]]; g != nil && old != nil {
				g = ops.Add(b, old, g)
			}
			if g != nil {
				grad[op.In[i]] = g
			}
		}
	}
	f.Results = nil
	for _, p := range f.Params {
		if grad[p] == nil {
			t.Fatalf("%q has no gradient", p.Name)
		}
		b.Result(p.Name, grad[p])
	}
	out, err := interp.Run(f, map[string]*ir.Array{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	return out.Named["x"], out.Named["s"]
}

// Weights that are stored quantised stay as they are; a scale is no parameter unless it is asked for.
func TestQuantisedRoles(t *testing.T) {
	m := graphOf(19, f32, []any{2, 2}, []*onnxpb.TensorProto{
		tensorOf("s", []int64{2}, 0.5, 0.25), {Name: ptr("w8"), DataType: ptr(int32(onnxpb.TensorProto_FLOAT8E4M3FN)), Dims: []int64{2, 2},
			Int32Data: []int32{0x38, 0x40, 0xb8, 0x30}}, tensorOf("w", []int64{2, 2}, 1.0, 2.0, 3.0, 4.5)},
		nodeOf("DequantizeLinear", "dq", list("w8", "s"), list("a")),
		nodeOf("QuantizeLinear", "q", list("w", "s"), list("b"), "axis", 0),
		nodeOf("DequantizeLinear", "dq2", list("b", "s"), list("c"), "axis", 0),
		nodeOf("MatMul", "mm", list("x", "a"), list("d")),
		nodeOf("MatMul", "mm2", list("d", "c"), list("y")))
	parsed, err := Parse(encode(m), "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	mod, err := parsed.Import()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range mod.Funcs[0].Params {
		names = append(names, p.Name+" "+p.Role.String())
	}
	if got := strings.Join(names, ", "); got != "x input, w param" {
		t.Errorf("parameters: %s", got)
	}
	if w := strings.Join(parsed.Warnings, "\n"); !strings.Contains(w, "stores as f8_e4m3 stay as they are") {
		t.Errorf("warnings: %s", w)
	}
	out, err := interp.Run(mod.Funcs[0], map[string]*ir.Array{"x": floatsOf([]int{2, 2}, 1, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	// w8 is [[1,2],[-1,0.5]] times s per column; w is quantised exactly: unsigned, so the largest is 255*s.
	for i, want := range []float64{0.5*1 + 0.5*3, 0.5*2 + 0.5*4.5, -0.5*1 + 0.125*3, -0.5*2 + 0.125*4.5} {
		if got := out.All[0].F[i]; got != want {
			t.Errorf("element %d is %g, want %g", i, got, want)
		}
	}
}

// TestQuantisedShapes: products that do not fit are told as those of floats are.
func TestQuantisedShapes(t *testing.T) {
	bytes := func(name string, dims ...int64) *onnxpb.TensorProto {
		raw := onnxpb.Bytes{1, 2, 3, 4, 5, 6}
		return &onnxpb.TensorProto{Name: ptr(name), DataType: ptr(int32(onnxpb.TensorProto_INT8)), Dims: dims, RawData: &raw}
	}
	zero := typed("z", onnxpb.TensorProto_INT8, 0)
	m := graphOf(17, onnxpb.TensorProto_INT8, []any{3, 4}, []*onnxpb.TensorProto{bytes("w", 2, 3), zero}, nodeOf("MatMulInteger", "mm", list("x", "w", "z", "z"), list("y")))
	want := "operand 1 has inner dimension 2, operand 0 has 4"
	if err := importBytes(encode(m), Options{}); !strings.Contains(errText(err), want) || strings.Contains(errText(err), "BUG") {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
