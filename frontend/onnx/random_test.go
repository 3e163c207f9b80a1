package onnx

import (
	"math"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
)

// draw imports a graph of the nodes, whose results are its outputs, and gives those in the given step.
func draw(t *testing.T, step int64, args map[string]*ir.Array, nodes ...*onnxpb.NodeProto) []*ir.Array {
	t.Helper()
	g := &onnxpb.GraphProto{Name: ptr("g"), Node: nodes}
	for name, a := range args {
		dims := make([]any, len(a.Type.Dims))
		for i, d := range a.Type.Dims {
			dims[i] = d
		}
		g.Input = append(g.Input, portOf(name, onnxpb.TensorProto_FLOAT, dims...))
	}
	for _, n := range nodes {
		g.Output = append(g.Output, portOf(n.Output[0], onnxpb.TensorProto_UNDEFINED))
	}
	model, err := Parse(encode(modelOf(22, g)), "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	mod, err := model.Import()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*ir.Array{"step": {Type: ir.T(dtype.I64), I: []int64{step}}}
	for name, a := range args {
		all[name] = a
	}
	out, err := interp.Run(mod.Funcs[0], all)
	if err != nil {
		t.Fatal(err)
	}
	return out.All
}

// moments are the mean and the standard deviation.
func moments(x []float64) (mean, std float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		std += (v - mean) * (v - mean) / float64(len(x))
	}
	return mean, math.Sqrt(std)
}

// TestRandomDistributions checks moments to five standard errors, and which draws are alike.
func TestRandomDistributions(t *testing.T) {
	const n = 1 << 14
	shape := []int64{128, 128}
	nodes := []*onnxpb.NodeProto{
		nodeOf("RandomNormal", "a", nil, []string{"a"}, "shape", shape, "mean", float32(2), "scale", float32(3)),
		nodeOf("RandomNormal", "b", nil, []string{"b"}, "shape", shape, "mean", float32(2), "scale", float32(3)),
		nodeOf("RandomUniform", "c", nil, []string{"c"}, "shape", shape, "low", float32(-1), "high", float32(3), "seed", float32(7)),
		nodeOf("RandomUniform", "d", nil, []string{"d"}, "shape", shape, "low", float32(-1), "high", float32(3), "seed", float32(7)),
		nodeOf("RandomUniform", "e", nil, []string{"e"}, "shape", shape, "low", float32(-1), "high", float32(3), "seed", float32(8)),
	}
	first, next := draw(t, 0, nil, nodes...), draw(t, 1, nil, nodes...)
	for i, want := range [][2]float64{{2, 3}, {2, 3}, {1, 4 / math.Sqrt(12)}, {1, 4 / math.Sqrt(12)}, {1, 4 / math.Sqrt(12)}} {
		mean, std := moments(first[i].F)
		if math.Abs(mean-want[0]) > 5*want[1]/math.Sqrt(n) || math.Abs(std-want[1]) > 5*want[1]/math.Sqrt(2*n) {
			t.Errorf("%s: mean %g and deviation %g, want %v", nodes[i].GetName(), mean, std, want)
		}
		if slices.Equal(first[i].F, next[i].F) {
			t.Errorf("%s draws the same numbers in two steps", nodes[i].GetName())
		}
	}
	if slices.Equal(first[0].F, first[1].F) || slices.Equal(first[2].F, first[4].F) || !slices.Equal(first[2].F, first[3].F) {
		t.Error("nodes without a seed draw alike, or those with one seed do not")
	}
	lo, hi := slices.Min(first[2].F), slices.Max(first[2].F)
	if lo < -1 || hi >= 3 {
		t.Errorf("uniform numbers from %g to %g", lo, hi)
	}
}

// TestRandomChoices checks how often classes and ones are drawn, to five standard errors.
func TestRandomChoices(t *testing.T) {
	const n = 1 << 14
	p := []float64{0.5, 0, 0.3, 0.2}
	logits, ones := ir.NewArray(ir.T(dtype.F32, 1, len(p))), ir.NewArray(ir.T(dtype.F32, 3, n))
	for i, v := range p {
		logits.F[i] = math.Log(v) + 1.5 // need not be normalized
	}
	chance := []float64{0, 0.25, 1}
	for i := range ones.F {
		ones.F[i] = chance[i/n]
	}
	out := draw(t, 3, map[string]*ir.Array{"l": logits, "p": ones},
		nodeOf("Multinomial", "m", []string{"l"}, []string{"m"}, "sample_size", n, "dtype", 7),
		nodeOf("Bernoulli", "b", []string{"p"}, []string{"b"}))
	for c, want := range p {
		got := 0.0
		for _, v := range out[0].I {
			if v == int64(c) {
				got += 1.0 / n
			}
		}
		if math.Abs(got-want) > 5*math.Sqrt(want*(1-want)/n) {
			t.Errorf("class %d is drawn with frequency %g, want %g", c, got, want)
		}
	}
	for i, want := range chance {
		if mean, _ := moments(out[1].F[i*n : (i+1)*n]); math.Abs(mean-want) > 5*math.Sqrt(want*(1-want)/n) {
			t.Errorf("ones with frequency %g, want %g", mean, want)
		}
	}
}
