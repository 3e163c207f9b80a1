package onnx

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
)

const (
	i64Type  = onnxpb.TensorProto_INT64
	boolType = onnxpb.TensorProto_BOOL
)

// resultsOf imports a model and interprets it; results come in order.
func resultsOf(t *testing.T, p *onnxpb.ModelProto, o Options, args map[string]*ir.Array) []*ir.Array {
	t.Helper()
	out, err := interp.Run(imported(t, p, o), args)
	if err != nil {
		t.Fatal(err)
	}
	return out.All
}

func truth(b bool) *ir.Array {
	return &ir.Array{Type: ir.T(dtype.Bool), I: []int64{int64(fold.BoolInt(b))}}
}

// closeTo compares with numbers that have as many digits as tol says.
func closeTo(t *testing.T, what string, got []float64, tol float64, want ...float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
	for i, x := range want {
		if !(math.Abs(got[i]-x) <= tol) && got[i] != x {
			t.Errorf("%s is %v, want %v", what, got, want)
			return
		}
	}
}

// subgraphOf makes a subgraph: nodes, then names of inputs and results, all of unknown type.
func subgraphOf(in, out []string, nodes ...*onnxpb.NodeProto) *onnxpb.GraphProto {
	g := &onnxpb.GraphProto{Node: nodes}
	for _, name := range in {
		g.Input = append(g.Input, &onnxpb.ValueInfoProto{Name: ptr(name)})
	}
	for _, name := range out {
		g.Output = append(g.Output, &onnxpb.ValueInfoProto{Name: ptr(name)})
	}
	return g
}

// gradNode is a Gradient of y with respect to xs, at the same xs.
func gradNode(y string, xs []string, out ...string) *onnxpb.NodeProto {
	n := nodeOf("Gradient", "grad", xs, out, "xs", xs, "y", y)
	n.Domain = ptr(model.TrainingDomain)
	return n
}

// branchModel is y = sum(c ? sqrt(x)*w : x*x) with gradients; at x = 0 the derivative of sqrt is infinite.
func branchModel() *onnxpb.ModelProto {
	return modelOf(17, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{portOf("x", f32, 3), portOf("w", f32, 3), portOf("c", boolType)},
		Output: []*onnxpb.ValueInfoProto{portOf("y", f32), portOf("dx", f32, 3), portOf("dw", f32, 3)},
		Node: []*onnxpb.NodeProto{
			nodeOf("If", "if", list("c"), list("z"),
				"then_branch", subgraphOf(nil, list("a"), nodeOf("Sqrt", "sqrt", list("x"), list("r")), nodeOf("Mul", "mul", list("r", "w"), list("a"))),
				"else_branch", subgraphOf(nil, list("b"), nodeOf("Mul", "square", list("x", "x"), list("b")))),
			nodeOf("ReduceSum", "sum", list("z"), list("y"), "keepdims", 0),
			gradNode("y", list("x", "w"), "dx", "dw"),
		},
	})
}

func TestIfAtRunTime(t *testing.T) {
	args := map[string]*ir.Array{"x": floatsOf([]int{3}, 0, 1, 4), "w": floatsOf([]int{3}, 1, 2, 3), "c": truth(false)}
	out := resultsOf(t, branchModel(), Options{}, args)
	closeTo(t, "y", out[0].F, 0, 17)
	closeTo(t, "dx of the branch taken, no NaN of the other", out[1].F, 0, 0, 2, 8)
	closeTo(t, "dw", out[2].F, 0, 0, 0, 0)
	args["c"] = truth(true)
	out = resultsOf(t, branchModel(), Options{}, args)
	closeTo(t, "y", out[0].F, 0, 8)
	closeTo(t, "dx", out[1].F[1:], 1e-12, 1, 0.75)
	closeTo(t, "dw", out[2].F, 0, 0, 1, 2)
}

func TestIfOfDifferentTypes(t *testing.T) {
	m := branchModel()
	m.Graph.Node[0].Attribute[1].G.Node[0] = nodeOf("ReduceSum", "less", list("x"), list("b"))
	err := importBytes(encode(m), Options{})
	if err == nil || !strings.Contains(err.Error(), "the results of its branches are f32[3] and f32[1], but must have the same type where the condition is not known") {
		t.Error(err)
	}
}

// loopModel adds x to v until the sum of v reaches lim, at most trips times; the body reads x from outside.
func loopModel(trips int64, extra ...string) *onnxpb.ModelProto {
	body := subgraphOf(list("i", "go", "v"), append(list("more", "v2"), extra...),
		nodeOf("Add", "add", list("v", "x"), list("v2")),
		nodeOf("ReduceSum", "total", list("v2"), list("s"), "keepdims", 0),
		nodeOf("Less", "less", list("s", "lim"), list("more")))
	return modelOf(17, &onnxpb.GraphProto{
		Input: []*onnxpb.ValueInfoProto{portOf("x", f32, 2), portOf("lim", f32), portOf("v0", f32, 2)},
		Output: []*onnxpb.ValueInfoProto{portOf("v", f32, 2), portOf("y", f32), portOf("dx", f32, 2),
			portOf("dv", f32, 2)},
		Initializer: []*onnxpb.TensorProto{tensorOf("trips", nil, trips)},
		Node: []*onnxpb.NodeProto{
			nodeOf("Loop", "loop", list("trips", "", "v0"), append(list("v"), extra...), "body", body),
			nodeOf("ReduceSum", "sum", list("v"), list("y"), "keepdims", 0),
			gradNode("y", list("x", "v0"), "dx", "dv"),
		},
	})
}

// The condition ends the loop after 3 of 6 steps: later ones are computed and do not count, in gradients either.
func TestLoopWithConditionAtRunTime(t *testing.T) {
	args := map[string]*ir.Array{"x": floatsOf([]int{2}, 1, 2), "lim": floatsOf(nil, 8), "v0": floatsOf([]int{2}, 0, 0)}
	out := resultsOf(t, loopModel(6), Options{}, args)
	closeTo(t, "v", out[0].F, 0, 3, 6)
	closeTo(t, "dx", out[2].F, 0, 3, 3)
	closeTo(t, "dv", out[3].F, 0, 1, 1)
	args["lim"] = floatsOf(nil, 1e9)
	closeTo(t, "v after all steps", resultsOf(t, loopModel(6), Options{}, args)[0].F, 0, 6, 12)
	out = resultsOf(t, loopModel(0), Options{}, args)
	closeTo(t, "v after no step", out[0].F, 0, 0, 0)
	closeTo(t, "dx after no step", out[2].F, 0, 0, 0)
}

func TestLoopsWithoutEnd(t *testing.T) {
	forever := func(change func(m *onnxpb.ModelProto)) *onnxpb.ModelProto {
		m := loopModel(math.MaxInt64)
		change(m)
		return m
	}
	body := func(m *onnxpb.ModelProto) *onnxpb.GraphProto { return m.Graph.Node[0].Attribute[0].G }
	cases := []struct {
		name  string
		model *onnxpb.ModelProto
		want  string
	}{
		{"condition of run time", forever(func(*onnxpb.ModelProto) {}), "nothing bounds the number of steps"},
		{"count of run time", forever(func(m *onnxpb.ModelProto) {
			m.Graph.Initializer = nil
			m.Graph.Input = append(m.Graph.Input, portOf("trips", i64Type))
		}), `operand 0, "trips", must be known when compiling`},
		{"always", forever(func(m *onnxpb.ModelProto) {
			body(m).Node[2] = nodeOf("Identity", "same", list("go"), list("more"))
		}), "it comes to more than"},
		{"always, of constants", forever(func(m *onnxpb.ModelProto) {
			body(m).Node = []*onnxpb.NodeProto{nodeOf("Identity", "same", list("go"), list("more")),
				nodeOf("Identity", "v", list("v"), list("v2"))}
		}), "once loops are unrolled"},
		{"scan output", loopModel(3, "s"), "the number of steps depends on the model's inputs"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			err := importBytes(encode(c.model), Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if d := time.Since(start); d > 20*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

// A weight that only the body of a Scan reads is a parameter like any other, also when it is an initializer of the body.
func TestScanTrainsWhatItsBodyReads(t *testing.T) {
	body := subgraphOf(list("h", "x"), list("h2", "y"),
		nodeOf("MatMul", "mm", list("x", "w"), list("xw")),
		nodeOf("Add", "add", list("h", "xw"), list("s")),
		nodeOf("Tanh", "tanh", list("s"), list("h2")),
		nodeOf("Identity", "out", list("h2"), list("y")))
	m := modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("xs", f32, 2, 5, 3), portOf("h0", f32, 2, 4)},
		Output:      []*onnxpb.ValueInfoProto{portOf("h", f32, 2, 4), portOf("ys", f32, 2, 4, 5)},
		Initializer: []*onnxpb.TensorProto{ramp("w", 0.1, 3, 4)},
		Node: []*onnxpb.NodeProto{nodeOf("Scan", "scan", list("h0", "xs"), list("h", "ys"), "body", body, "num_scan_inputs", 1,
			"scan_input_axes", []int64{1}, "scan_input_directions", []int64{1}, "scan_output_axes", []int64{-1})},
	})
	f := imported(t, m, Options{})
	if got := paramNames(f, ir.Param); got != "w" {
		t.Errorf("parameters %s", got)
	}
	body.Initializer, m.Graph.Initializer = m.Graph.Initializer, nil
	if got := paramNames(imported(t, m, Options{}), ir.Param); got != "w" {
		t.Errorf("parameters %s when the body holds it", got)
	}
	parsed, err := Parse(encode(m), "", Options{})
	if err == nil {
		_, err = parsed.Import()
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := parsed.Export(map[string][]byte{"w": make([]byte, 48)}, false)
	if err != nil {
		t.Fatal(err)
	}
	again := &onnxpb.ModelProto{}
	if err := again.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	if w := imported(t, again, Options{}).Params[2]; w.Name != "w" || w.Init.Array().F[0] != 0 {
		t.Errorf("exported, %q holds %v", w.Name, w.Init.Array().F)
	}
	if got := f.Results[1].Value.Type; !slices.Equal(got.Dims, []int{2, 4, 5}) {
		t.Errorf("scan output is %s", got)
	}
	if !strings.Contains(opNames(f), "matmul") || strings.Count(opNames(f), "tanh") != 5 {
		t.Errorf("ops %s", opNames(f))
	}
}

// Weights stacked for a Scan over layers are parameters because of what the body does with a slice; a state that starts at
// zero is none.
func TestScanOverStackedWeights(t *testing.T) {
	body := subgraphOf(list("h", "acc", "w", "b"), list("h2", "acc2"),
		nodeOf("MatMul", "mm", list("h", "w"), list("hw")),
		nodeOf("Add", "bias", list("hw", "b"), list("s")),
		nodeOf("Tanh", "tanh", list("s"), list("h2")),
		nodeOf("MatMul", "mix", list("acc", "w"), list("aw")),
		nodeOf("Add", "sum", list("aw", "h2"), list("acc2")))
	zeros := tensorOf("start", []int64{2, 4}, make([]float64, 8)...)
	m := modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", f32, 2, 4)},
		Output:      []*onnxpb.ValueInfoProto{portOf("h", f32, 2, 4), portOf("acc", f32, 2, 4)},
		Initializer: []*onnxpb.TensorProto{ramp("layers.weight", 0.01, 3, 4, 4), ramp("layers.bias", 0.1, 3, 4), zeros},
		Node: []*onnxpb.NodeProto{nodeOf("Scan", "scan", list("x", "start", "layers.weight", "layers.bias"), list("h", "acc"),
			"body", body, "num_scan_inputs", 2)},
	})
	if got := paramNames(imported(t, m, Options{}), ir.Param); got != "layers.weight layers.bias" {
		t.Errorf("parameters %s", got)
	}
}

// sequenceType is the type of a sequence or an optional of f32 tensors.
func sequenceType(name string, optional bool) *onnxpb.ValueInfoProto {
	elem := portOf("", f32).Type
	t := &onnxpb.TypeProto{Value: &onnxpb.TypeProto_SequenceType{SequenceType: &onnxpb.TypeProto_Sequence{ElemType: elem}}}
	if optional {
		t = &onnxpb.TypeProto{Value: &onnxpb.TypeProto_OptionalType{OptionalType: &onnxpb.TypeProto_Optional{ElemType: elem}}}
	}
	return &onnxpb.ValueInfoProto{Name: ptr(name), Type: t}
}

// The elements of a sequence become inputs and results of the program; an optional's absence is known.
func TestSequencesAtTheBoundary(t *testing.T) {
	m := modelOf(18, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{sequenceType("s", false), sequenceType("o", true)},
		Output: []*onnxpb.ValueInfoProto{sequenceType("twice", false), portOf("has", boolType)},
		Node: []*onnxpb.NodeProto{
			nodeOf("OptionalHasElement", "has", list("o"), list("has")),
			nodeOf("SequenceMap", "map", list("s"), list("twice"),
				"body", subgraphOf(list("e"), list("e2"), nodeOf("Add", "add", list("e", "e"), list("e2")))),
		},
	})
	element := func(dims ...int) *ir.Tensor { return &ir.Tensor{Type: ir.T(dtype.F32, dims...)} }
	o := Options{Contents: map[string]*Contents{"s": {Sequence: true, Elements: []*ir.Tensor{element(2), element(1)}}, "o": {Absent: true}}}
	out := resultsOf(t, m, o, map[string]*ir.Array{"s.0": floatsOf([]int{2}, 1, 2), "s.1": floatsOf([]int{1}, 3)})
	if len(out) != 3 {
		t.Fatalf("%d results", len(out))
	}
	closeTo(t, "element 0", out[0].F, 0, 2, 4)
	closeTo(t, "element 1", out[1].F, 0, 6)
	if out[2].I[0] != 0 {
		t.Error("the optional holds something")
	}
	err := importBytes(encode(m), Options{})
	if err == nil || !strings.Contains(err.Error(), `input "s" is a sequence(tensor(float)): a program takes tensors only`) {
		t.Error(err)
	}
}

// callsOf makes functions f0 … f<depth>, each of which calls the next one several times.
func callsOf(depth, times int, inBranch bool) *onnxpb.ModelProto {
	m := modelOf(17, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{portOf("x", f32, 2), portOf("c", boolType)},
		Output: []*onnxpb.ValueInfoProto{portOf("y", f32, 2)},
		Node:   []*onnxpb.NodeProto{nodeOf("F0", "call", list("x", "c"), list("y"))},
	})
	m.Graph.Node[0].Domain = ptr("local")
	for d := range depth {
		f := &onnxpb.FunctionProto{Name: ptr(fmt.Sprintf("F%d", d)), Domain: ptr("local"), Input: list("a", "c"), Output: list("b")}
		last := "a"
		for k := range times {
			out := fmt.Sprintf("v%d", k)
			if k == times-1 {
				out = "b"
			}
			n := nodeOf("Neg", "neg"+out, list(last), list(out))
			if d+1 < depth {
				n = nodeOf(fmt.Sprintf("F%d", d+1), "call"+out, list(last, "c"), list(out))
				n.Domain = ptr("local")
			}
			if inBranch {
				n.Output = list("in" + out)
				other := nodeOf("Neg", "other", list(last), list("no"+out))
				n = nodeOf("If", "if"+out, list("c"), list(out), "then_branch", subgraphOf(nil, list("in"+out), n),
					"else_branch", subgraphOf(nil, list("no"+out), other))
			}
			f.Node, last = append(f.Node, n), out
		}
		m.Functions = append(m.Functions, f)
	}
	return m
}

// Functions that multiply when they are inlined are refused soon, also through the branches of an If; nested calls and
// captured parameters work.
func TestFunctionGrowth(t *testing.T) {
	for _, inBranch := range []bool{false, true} {
		out := resultsOf(t, callsOf(3, 3, inBranch), Options{}, map[string]*ir.Array{"x": floatsOf([]int{2}, 1, 2), "c": truth(true)})
		closeTo(t, "y", out[0].F, 0, -1, -2)
		start := time.Now()
		err := importBytes(encode(callsOf(30, 4, inBranch)), Options{})
		if err == nil || !strings.Contains(err.Error(), "nodes once functions are inlined") && !strings.Contains(err.Error(), "deeper than") {
			t.Error(err)
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("took %v", d)
		}
	}
}
