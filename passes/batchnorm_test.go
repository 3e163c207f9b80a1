package passes_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// normInits are the operands of batch normalizations over two channels whose names begin with prefix.
func normInits(prefix string) []*onnxpb.TensorProto {
	return []*onnxpb.TensorProto{tensor(prefix+"g", []int64{2}, 1.5, 2), tensor(prefix+"b", []int64{2}, 0.5, 1),
		tensor(prefix+"mean", []int64{2}, 1, -1), tensor(prefix+"var", []int64{2}, 4, 9)}
}

// samples is an input of four samples and two channels.
func samples() map[string]*ir.Array {
	return map[string]*ir.Array{"x": {Type: ir.T(dtype.F32, 4, 2), F: []float64{1, 2, -3, 4, 0.5, -1, 2, 6}}}
}

// attribute sets an integer attribute.
func attribute(n *onnxpb.NodeProto, name string, v int64) *onnxpb.NodeProto {
	n.Attribute = append(n.Attribute, &onnxpb.AttributeProto{Name: &name, Type: ref(onnxpb.AttributeProto_INT), I: &v})
	return n
}

// TestInferenceFormIsMeant: beside a batch normalization that trains, in whichever form its opset has for that, one in
// inference form normalizes by its running statistics and keeps them; its scale and bias are trained.
func TestInferenceFormIsMeant(t *testing.T) {
	for _, c := range []struct {
		opset         int64
		trains, keeps func(n *onnxpb.NodeProto)
	}{
		{17, func(n *onnxpb.NodeProto) { attribute(n, "training_mode", 1) }, func(n *onnxpb.NodeProto) {}},
		{9, func(n *onnxpb.NodeProto) { n.Output = append(n.Output, "m", "v", "sm", "sv") }, func(n *onnxpb.NodeProto) {}},
		{6, func(n *onnxpb.NodeProto) {}, func(n *onnxpb.NodeProto) { attribute(n, "is_test", 1) }},
	} {
		t.Run(fmt.Sprint("opset ", c.opset), func(t *testing.T) {
			first := node("BatchNormalization", "h", "x", "1g", "1b", "1mean", "1var")
			second := node("BatchNormalization", "y", "h", "2g", "2b", "2mean", "2var")
			c.trains(first)
			c.keeps(second)
			m := graph(port("x", onnxpb.TensorProto_FLOAT, 4, 2), "y", append(normInits("1"), normInits("2")...), first, second)
			m.OpsetImport[0].Version = &c.opset
			out := step(t, m, onnx.Options{}, samples())
			x, y := samples()["x"].F, out.Named["out0"].F
			for ch := range 2 {
				mean, variance := 0.0, 0.0
				for i := range 4 {
					mean += x[2*i+ch] / 4
				}
				for i := range 4 {
					variance += (x[2*i+ch] - mean) * (x[2*i+ch] - mean) / 4
				}
				for i := range 4 {
					g, b := []float64{1.5, 2}[ch], []float64{0.5, 1}[ch]
					h := (x[2*i+ch]-mean)/math.Sqrt(variance+1e-5)*g + b
					want := (h-[]float64{1, -1}[ch])/math.Sqrt([]float64{4, 9}[ch]+1e-5)*g + b
					if math.Abs(y[2*i+ch]-want) > 1e-6 { // the attribute epsilon is an f32
						t.Fatalf("output %d is %g, want %g", 2*i+ch, y[2*i+ch], want)
					}
				}
			}
			got := strings.Join(slices.Sorted(maps.Keys(out.Updates)), " ")
			if got != "1b 1g 1mean 1var 2b 2g step" {
				t.Errorf("updates %s", got)
			}
		})
	}
	alone := graph(port("x", onnxpb.TensorProto_FLOAT, 4, 2), "y", normInits(""), node("BatchNormalization", "y", "x", "g", "b", "mean", "var"))
	if out := step(t, alone, onnx.Options{}, samples()); out.Updates["mean"] == nil {
		t.Error("a file in which all are in inference form is not trained in training form")
	}
}

// computed are graphs whose normalization takes operands from other nodes: what trains them, what must stay, and nodes.
var computed = []struct {
	name    string
	trained string
	inits   []*onnxpb.TensorProto
	nodes   []*onnxpb.NodeProto
}{
	{"all", "step w", nil, []*onnxpb.NodeProto{node("ReduceMean", "mu", "h"), node("ReduceMean", "va", "hh"), node("Add", "ga", "mu", "va"), node("Exp", "be", "mu"),
		node("BatchNormalization", "y", "x", "ga", "be", "mu", "va")}},
	{"mean of the file", "b g step w", normInits("")[:3], []*onnxpb.NodeProto{node("ReduceMean", "va", "hh"), node("BatchNormalization", "y", "x", "g", "b", "mean", "va")}},
	{"variance of the file", "b g step w", slices.Delete(normInits(""), 2, 3), []*onnxpb.NodeProto{node("ReduceMean", "mu", "h"),
		node("BatchNormalization", "y", "x", "g", "b", "mu", "var")}},
	{"looked up", "b g step table w", append(normInits("")[:2], tensor("table", []int64{16}, 1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2)), []*onnxpb.NodeProto{
		node("ReduceMean", "mh", "hh"), node("Cast", "i", "mh"), node("Gather", "va", "table", "i"), node("ReduceMean", "mu", "h"),
		node("BatchNormalization", "y", "x", "g", "b", "mu", "va")}},
}

// TestComputedStatistics: operands that nodes compute are used as they are, beside running statistics of the file which
// then stay, and gradients reach what they are computed from. The gradient of each trained element is compared with central
// differences of the loss in float64, of step 1e-4: the formula's error is of its square.
func TestComputedStatistics(t *testing.T) {
	for _, c := range computed {
		t.Run(c.name, func(t *testing.T) {
			inits := append([]*onnxpb.TensorProto{tensor("w", []int64{2, 2}, 0.5, -0.25, 0.75, 1)}, c.inits...)
			nodes := slices.Concat([]*onnxpb.NodeProto{node("MatMul", "h", "x", "w"), node("Mul", "hh", "h", "h")}, c.nodes)
			for _, n := range nodes {
				switch {
				case len(n.Attribute) > 0: // of an earlier run
				case *n.OpType == "Cast":
					attribute(n, "to", int64(onnxpb.TensorProto_INT64))
				case *n.OpType == "ReduceMean":
					attribute(n, "keepdims", 0)
					n.Attribute = append(n.Attribute, &onnxpb.AttributeProto{Name: ref("axes"), Type: ref(onnxpb.AttributeProto_INTS), Ints: []int64{0}})
				}
			}
			m := graph(port("x", onnxpb.TensorProto_FLOAT, 4, 2), "y", inits, nodes...)
			out := step(t, m, onnx.Options{}, samples())
			if got := strings.Join(slices.Sorted(maps.Keys(out.Updates)), " "); got != c.trained {
				t.Fatalf("updates %s, want %s", got, c.trained)
			}
			loss := func(i, k int, by float32) float64 {
				inits[i].FloatData[k] += by
				defer func() { inits[i].FloatData[k] -= by }()
				o := step(t, m, onnx.Options{}, samples())
				return o.Named["loss_sum"].F[0] / o.Named["count"].F[0]
			}
			for i, p := range inits {
				g := out.Named["grad/"+*p.Name]
				if g == nil {
					continue
				}
				for k := range g.F {
					const by = 1.0 / 8192 // exact in f32
					want := (loss(i, k, by) - loss(i, k, -by)) / (2 * by)
					if math.Abs(g.F[k]-want) > 1e-4*max(1, math.Abs(want)) {
						t.Errorf("gradient %d of %s is %g, want %g", k, *p.Name, g.F[k], want)
					}
				}
			}
		})
	}
}

// TestStatisticsStay: --train leaves running statistics what they are, --freeze keeps them, of the rules the later holds.
func TestStatisticsStay(t *testing.T) {
	all, only, stay := onnx.RoleRule{Train: true, Glob: "*"}, onnx.RoleRule{Train: true, Glob: "mean"}, onnx.RoleRule{Glob: "mean"}
	for _, c := range []struct {
		rules []onnx.RoleRule
		want  string
	}{
		{nil, "b g mean step var"},
		{[]onnx.RoleRule{all}, "b g mean step var"},
		{[]onnx.RoleRule{only}, "b g mean step var"},
		{[]onnx.RoleRule{stay}, "b g step"}, // the node is in evaluation mode, its scale and shift are trained
		{[]onnx.RoleRule{{Glob: "*"}, {Train: true, Glob: "g"}}, "g step"},
		{[]onnx.RoleRule{stay, all}, "b g mean step var"},
		{[]onnx.RoleRule{all, stay}, "b g step"},
	} {
		m := graph(port("x", onnxpb.TensorProto_FLOAT, 4, 2), "y", normInits(""),
			attribute(node("BatchNormalization", "y", "x", "g", "b", "mean", "var"), "training_mode", 1))
		out := step(t, m, onnx.Options{Roles: c.rules}, samples())
		if got := strings.Join(slices.Sorted(maps.Keys(out.Updates)), " "); got != c.want {
			t.Errorf("%v updates %s, want %s", c.rules, got, c.want)
		}
		if g := out.Named["grad/mean"]; g != nil {
			t.Errorf("%v: the mean has a gradient", c.rules)
		}
	}
}

// TestMomentum: ONNX's momentum is what the old statistics keep; the variance moves by the sample variance, as in PyTorch,
// or by the batch's own in a graph that reads the new one, as in ONNX. n is 4.
func TestMomentum(t *testing.T) {
	x, mean, variance := samples()["x"].F, 0.0, 0.0 // of channel 0
	for i := range 4 {
		mean += x[2*i] / 4
	}
	for i := range 4 {
		variance += (x[2*i] - mean) * (x[2*i] - mean) / 4
	}
	for _, m := range []float64{0, 0.25, 1} {
		n := attribute(node("BatchNormalization", "y", "x", "g", "b", "mean", "var"), "training_mode", 1)
		n.Attribute = append(n.Attribute, &onnxpb.AttributeProto{Name: ref("momentum"), Type: ref(onnxpb.AttributeProto_FLOAT), F: ref(float32(m))})
		model := graph(port("x", onnxpb.TensorProto_FLOAT, 4, 2), "y", normInits(""), n)
		out := step(t, model, onnx.Options{}, samples())
		for name, want := range map[string]float64{"mean": m*1 + (1-m)*mean, "var": m*4 + (1-m)*variance*4/3} {
			if got := out.Updates[name].F[0]; math.Abs(got-want) > 1e-6 { // its factors are f32
				t.Errorf("momentum %g: the %s becomes %g, want %g", m, name, got, want)
			}
		}
		n.Output = append(n.Output, "", "v")
		model.Graph.Output = append(model.Graph.Output, &onnxpb.ValueInfoProto{Name: ref("v"), Type: port("v", onnxpb.TensorProto_FLOAT, 2).Type})
		out = step(t, model, onnx.Options{}, samples())
		if got, want := out.Named["out1"].F[0], m*4+(1-m)*variance; math.Abs(got-want) > 1e-6 {
			t.Errorf("momentum %g: the graph reads a variance of %g, want %g", m, got, want)
		}
	}
}

// TestOneValue: a batch with one value for each channel has no variance, and is refused.
func TestOneValue(t *testing.T) {
	model := graph(port("x", onnxpb.TensorProto_FLOAT, 4, 2), "y", normInits(""),
		attribute(node("BatchNormalization", "y", "x", "g", "b", "mean", "var"), "training_mode", 1))
	for _, c := range []struct {
		opt     pass.Options
		refused bool
	}{{pass.Options{DP: 2}, false}, {pass.Options{DP: 4}, true}, {pass.Options{DP: 2, Microbatches: 2}, true}, {pass.Options{DP: 4, SyncBN: true}, false}} {
		data, err := model.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		m, err := onnx.Parse(data, "", onnx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		mod, err := m.Import()
		if err != nil {
			t.Fatal(err)
		}
		c.opt.Loss, c.opt.StopAfter, c.opt.Optimizer.LR = "mse", "simplify", 0.1
		err = passes.Run(&pass.Context{Module: mod, Opt: &c.opt}, passes.Table)
		if refused := err != nil && strings.Contains(err.Error(), "one value for each channel"); refused != c.refused || err != nil && !refused {
			t.Errorf("dp %d, %d micro-batches, global %v: %v", c.opt.DP, c.opt.Microbatches, c.opt.SyncBN, err)
		}
	}
}
