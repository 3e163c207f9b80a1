package onnx

import (
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// waves holds scale*sin(i+shift).
func waves(scale, shift float64, dims ...int) *ir.Array {
	a := ir.NewArray(ir.T(dtype.F32, dims...))
	for i := range a.F {
		a.F[i] = scale * math.Sin(float64(i)+shift)
	}
	return a
}

// checksum is sum(x[i]*cos(i)).
func checksum(x []float64) float64 {
	sum := 0.0
	for i, v := range x {
		sum += v * math.Cos(float64(i))
	}
	return sum
}

// TestRecurrentAgainstPyTorch compares a bidirectional layer on sequences of different lengths, and its gradients, with
// PyTorch 2.15 in float64: torch.nn.LSTM, GRU and RNN (input 2, hidden 2, 4 time steps, batch 3) on a packed sequence of
// lengths 4, 2, 3, with parameters brought from ONNX's order of gates (iofc, zrh) to PyTorch's (ifgo, rzn) inside the
// differentiated function. Every tensor is scale*sin(i+shift); the loss is the sum over results k of
// sum_i result_k[i]*cos(k+1+i); the numbers are the loss and the checksums of the gradients of X, W, R, B, h0 and c0.
func TestRecurrentAgainstPyTorch(t *testing.T) {
	const steps, batch, size = 4, 3, 2
	want := map[string][]float64{
		"LSTM": {0.5651538504, -1.0545682973, 1.3551607594, 0.0075619216, 1.7562801808, 0.1283251775, 0.2858458624},
		"GRU":  {2.8169587898, -1.1258281437, 1.6963248732, 0.0292395247, -3.9575124293, 3.9120566396},
		"RNN":  {-3.5561291999, 4.7525384235, -2.9941304817, -3.1618274903, 3.3925150843, 2.9192079856},
	}
	gates := map[string]int{"LSTM": 4, "GRU": 3, "RNN": 1}
	for op, sums := range want {
		for _, lens := range []bool{false, true} { // known when compiling, and at run time
			g := gates[op]
			args := map[string]*ir.Array{"X": waves(1, 0, steps, batch, size), "W": waves(0.8, 1, 2, g*size, size),
				"R": waves(0.7, 2, 2, g*size, size), "B": waves(0.5, 3, 2, 2*g*size), "h0": waves(0.6, 4, 2, batch, size),
				"k0": waves(1, 1+math.Pi/2, steps, 2, batch, size), "k1": waves(1, 2+math.Pi/2, 2, batch, size),
				"k2": waves(1, 3+math.Pi/2, 2, batch, size), "c0": waves(0.9, 5, 2, batch, size)}
			names := list("X", "W", "R", "B", "lens", "h0")
			results := list("y0", "y1")
			if op == "LSTM" {
				names, results = append(names, "c0"), append(results, "y2")
			}
			m, o := recurrentModel(op, names, results, args), Options{}
			known := &ir.Array{Type: ir.T(dtype.I32, batch), I: []int64{4, 2, 3}}
			if lens {
				args["lens"] = known
			} else {
				o.Fixed = map[string]*ir.Tensor{"lens": known.Tensor()}
			}
			out := resultsOf(t, m, o, args)
			got := []float64{out[0].F[0]}
			for _, x := range out[1:] {
				got = append(got, checksum(x.F))
			}
			closeTo(t, op, got, 1e-9, sums...)
		}
	}
}

// recurrentModel is one recurrent node, the loss and a Gradient of it.
func recurrentModel(op string, names, results []string, args map[string]*ir.Array) *onnxpb.ModelProto {
	attrs := []any{"hidden_size", 2, "direction", "bidirectional"}
	if op == "GRU" {
		attrs = append(attrs, "linear_before_reset", 1)
	}
	g := &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{nodeOf(op, "rnn", names, results, attrs...)}}
	g.Input = append(g.Input, portOf("lens", onnxpb.TensorProto_INT32, 3))
	for name, a := range args {
		if name == "c0" && op != "LSTM" || name == "k2" && op != "LSTM" {
			delete(args, name)
			continue
		}
		dims := make([]any, len(a.Type.Dims))
		for i, d := range a.Type.Dims {
			dims[i] = d
		}
		g.Input = append(g.Input, portOf(name, f32, dims...))
	}
	terms := list()
	for i, y := range results {
		k := string(rune('0' + i))
		g.Node = append(g.Node, nodeOf("Mul", "mul"+k, list(y, "k"+k), list("p"+k)),
			nodeOf("ReduceSum", "sum"+k, list("p"+k), list("s"+k), "keepdims", 0))
		terms = append(terms, "s"+k)
	}
	g.Node = append(g.Node, nodeOf("Sum", "loss", terms, list("loss")))
	g.Output = append(g.Output, portOf("loss", f32))
	var xs, ds []string
	for _, name := range names {
		if name != "lens" {
			xs, ds = append(xs, name), append(ds, "d"+name)
			g.Output = append(g.Output, portOf("d"+name, f32))
		}
	}
	g.Node = append(g.Node, gradNode("loss", xs, ds...))
	return modelOf(14, g)
}

// TestRecurrentForms holds the numbers of ONNX Runtime 1.30 for what PyTorch does not have: activations with alpha and
// beta, clip, peepholes, coupled gates and the reset gate before the product. Inputs as above with one direction,
// reversed; the numbers are the checksums of the results.
func TestRecurrentForms(t *testing.T) {
	for _, c := range recurrentForms {
		t.Run(c.name, func(t *testing.T) {
			args := map[string]*ir.Array{"X": waves(1, 0, 3, 2, 2), "W": waves(0.8, 1, 1, c.gates*2, 2), "R": waves(0.7, 2, 1, c.gates*2, 2),
				"B": waves(0.5, 3, 1, 4*c.gates)}
			names := list("X", "W", "R", "B")
			results := list("y", "h")
			if c.op == "LSTM" {
				args["P"], names, results = waves(0.9, 4, 1, 6), append(names, "", "", "", "P"), append(results, "c")
			}
			g := &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{nodeOf(c.op, "rnn", names, results,
				append([]any{"hidden_size", 2, "direction", "reverse"}, c.attrs...)...)}}
			for name, a := range args {
				dims := make([]any, len(a.Type.Dims))
				for i, d := range a.Type.Dims {
					dims[i] = d
				}
				g.Input = append(g.Input, portOf(name, f32, dims...))
			}
			for _, r := range results {
				g.Output = append(g.Output, portOf(r, f32))
			}
			var got []float64
			for _, x := range resultsOf(t, modelOf(14, g), Options{}, args) {
				got = append(got, checksum(x.F))
			}
			closeTo(t, c.name, got, 2e-6, c.want...)
		})
	}
}

// recurrentForms are the cases of TestRecurrentForms.
var recurrentForms = []struct {
	name, op string
	gates    int
	attrs    []any
	want     []float64
}{
	{"LSTM peepholes, clip, coupled", "LSTM", 4, []any{"clip", float32(0.4), "input_forget", 1},
		[]float64{0.0436617, 0.0869149, 0.1990214}},
	{"LSTM activations", "LSTM", 4, []any{"activations", list("HardSigmoid", "ScaledTanh", "Elu"), "activation_alpha", []float32{0.3, 0.8, 0.7}, "activation_beta", []float32{0.4, 0.9}},
		[]float64{-0.0189898, 0.0410500, 0.1521576}},
	{"GRU reset first", "GRU", 3, []any{"activations", list("Sigmoid", "LeakyRelu"), "activation_alpha", []float32{0.2}, "clip", float32(0.9)},
		[]float64{0.3618451, 0.1045024}},
	{"GRU reset last", "GRU", 3, []any{"activations", list("HardSigmoid", "Softsign"), "linear_before_reset", 1},
		[]float64{0.3088572, 0.1228673}},
	{"RNN Affine", "RNN", 1, []any{"activations", list("Affine"), "activation_alpha", []float32{0.6}, "activation_beta", []float32{0.1}},
		[]float64{0.6332795, -0.2781975}},
	{"RNN ThresholdedRelu", "RNN", 1, []any{"activations", list("ThresholdedRelu"), "activation_alpha", []float32{0.25}},
		[]float64{-0.2083168, -0.1272876}},
	{"RNN Softplus", "RNN", 1, []any{"activations", list("Softplus")},
		[]float64{0.3117415, 0.2681048}},
}
