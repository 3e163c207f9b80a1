package onnx

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/roles"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// functionModel calls a local function with a default and a given attribute, and an If with a known condition.
func functionModel() *onnxpb.ModelProto {
	m := modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", f32, 2, 3)},
		Output:      []*onnxpb.ValueInfoProto{portOf("y", f32, 2)},
		Initializer: []*onnxpb.TensorProto{tensorOf("one", nil, int64(1))},
		Node: []*onnxpb.NodeProto{
			nodeOf("Total", "call", list("x"), list("s"), "axis", 1),
			nodeOf("Equal", "eq", list("one", "one"), list("c")),
			nodeOf("If", "if", list("c"), list("y"),
				"then_branch", &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{nodeOf("Neg", "neg", list("s"), list("t"))},
					Output: []*onnxpb.ValueInfoProto{portOf("t", f32, 2)}},
				"else_branch", &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{nodeOf("Frob", "frob", list("s"), list("e"))},
					Output: []*onnxpb.ValueInfoProto{portOf("e", f32, 2)}}),
		},
	})
	m.Graph.Node[0].Domain = ptr("local")
	m.Functions = []*onnxpb.FunctionProto{{
		Name: ptr("Total"), Domain: ptr("local"), Input: list("a"), Output: list("b"),
		Attribute: list("axis"),
		Node: []*onnxpb.NodeProto{
			nodeOf("Softmax", "soft", list("a"), list("p"), "axis", ref("axis")),
			nodeOf("Constant", "k", nil, list("axes"), "value_ints", []int64{1}),
			nodeOf("ReduceSum", "sum", list("p", "axes"), list("b"), "keepdims", 0),
		},
	}}
	return m
}

func TestFunctionsAndIf(t *testing.T) {
	f := imported(t, functionModel(), Options{})
	if got, want := opNames(f), "softmax reduce_sum reshape neg"; got != want {
		t.Errorf("ops %s, want %s", got, want)
	}
	m := functionModel()
	m.Functions[0].Node[0] = nodeOf("Total", "again", list("a"), list("p"))
	m.Functions[0].Node[0].Domain = ptr("local")
	if err := importBytes(encode(m), Options{}); err == nil || !strings.Contains(err.Error(), "is one recursive?") {
		t.Error(err)
	}
}

// imported imports a model that must be good and returns its function.
func imported(t *testing.T, p *onnxpb.ModelProto, o Options) *ir.Func {
	t.Helper()
	m, err := Parse(encode(p), "", o)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := m.Import()
	if err != nil {
		t.Fatal(err)
	}
	if err := mod.Verify(); err != nil {
		t.Fatal(err)
	}
	return mod.Funcs[0]
}

func opNames(f *ir.Func) string {
	var names []string
	for _, op := range f.Ops {
		names = append(names, op.Def.Name)
	}
	return strings.Join(names, " ")
}

func paramNames(f *ir.Func, role ir.Role) string {
	var names []string
	for _, p := range f.Params {
		if p.Role == role {
			names = append(names, p.Name)
		}
	}
	return strings.Join(names, " ")
}

// shapeModel folds a shape computation: reshape to [shape(x)[0]*2, -1] spelled in nodes.
func shapeModel() *onnxpb.ModelProto {
	return modelOf(17, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{portOf("x", f32, "batch", 4)},
		Output: []*onnxpb.ValueInfoProto{portOf("y", f32, "r", 2)},
		Initializer: []*onnxpb.TensorProto{tensorOf("zero", nil, int64(0)), tensorOf("two", nil, int64(2)),
			tensorOf("minus", []int64{1}, int64(-1)), tensorOf("ax", []int64{1}, int64(0))},
		Node: []*onnxpb.NodeProto{
			nodeOf("Shape", "shape", list("x"), list("s")),
			nodeOf("Gather", "first", list("s", "zero"), list("b")),
			nodeOf("Mul", "twice", list("b", "two"), list("b2")),
			nodeOf("Unsqueeze", "vec", list("b2", "ax"), list("bv")),
			nodeOf("Concat", "cat", list("bv", "minus"), list("target"), "axis", 0),
			nodeOf("Reshape", "reshape", list("x", "target"), list("y")),
		},
	})
}

func TestShapesFold(t *testing.T) {
	f := imported(t, shapeModel(), Options{Dims: map[string]int{"batch": 3}})
	if got := opNames(f); got != "reshape" || !slices.Equal(f.Ops[0].Out[0].Type.Dims, []int{6, 2}) {
		t.Errorf("ops %s of %v", got, f.Ops[0].Out[0].Type)
	}
}

func sequenceModel() *onnxpb.ModelProto {
	return modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", f32, 2, 6)},
		Output:      []*onnxpb.ValueInfoProto{portOf("y", f32, 2, 2)},
		Initializer: []*onnxpb.TensorProto{tensorOf("two", nil, int64(2)), tensorOf("one", nil, int64(1))},
		Node: []*onnxpb.NodeProto{
			nodeOf("SplitToSequence", "split", list("x", "two"), list("s"), "axis", 1),
			nodeOf("SequenceAt", "at", list("s", "one"), list("y")),
		},
	})
}

func TestSequences(t *testing.T) {
	f := imported(t, sequenceModel(), Options{})
	if got := opNames(f); got != "slice" {
		t.Errorf("ops %s", got)
	}
}

// normModel has what optimizers of other tools leave: two norms sharing one vector of ones, a tied embedding
// whose transpose was folded, a causal mask and a cosine table.
func normModel() *onnxpb.ModelProto {
	const seq, dim, vocab = 4, 4, 8
	ones := tensorOf("val_ones", []int64{dim}, 1.0, 1, 1, 1)
	zeros := tensorOf("val_zeros", []int64{dim}, 0.0, 0, 0, 0)
	embed := ramp("embed.weight", 0.01, vocab, dim)
	var data []float64
	for i := range dim {
		for j := range vocab {
			data = append(data, 0.01*float64(j*dim+i+1))
		}
	}
	head := tensorOf("t_1", []int64{dim, vocab}, data...)
	var mask, cos []float64
	for i := range seq {
		for j := range seq {
			mask = append(mask, map[bool]float64{true: 0, false: -math.MaxFloat32}[j <= i])
			cos = append(cos, math.Cos(float64(i)*math.Pow(10, -float64(j)/2)))
		}
	}
	return modelOf(20, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{portOf("ids", onnxpb.TensorProto_INT64, "batch", seq)},
		Output: []*onnxpb.ValueInfoProto{portOf("logits", f32, "batch", seq, vocab)},
		Initializer: []*onnxpb.TensorProto{ones, zeros, embed, head, tensorOf("mask", []int64{seq, seq}, mask...),
			tensorOf("cos", []int64{seq, dim}, cos...), tensorOf("val_scale", nil, 0.5)},
		Node: []*onnxpb.NodeProto{
			nodeOf("Gather", "emb", list("embed.weight", "ids"), list("e")),
			nodeOf("LayerNormalization", "ln1", list("e", "val_ones", "val_zeros"), list("n1")),
			nodeOf("Mul", "rot", list("n1", "cos"), list("r")),
			nodeOf("Mul", "scale", list("r", "val_scale"), list("q")),
			nodeOf("Transpose", "kt", list("r"), list("k"), "perm", []int64{0, 2, 1}),
			nodeOf("MatMul", "qk", list("q", "k"), list("s")),
			nodeOf("Add", "masked", list("s", "mask"), list("sm")),
			nodeOf("Softmax", "soft", list("sm"), list("p")),
			nodeOf("MatMul", "pv", list("p", "n1"), list("v")),
			nodeOf("LayerNormalization", "ln2", list("v", "val_ones", "val_zeros"), list("n2")),
			nodeOf("MatMul", "head", list("n2", "t_1"), list("logits")),
		},
	})
}

func TestRoles(t *testing.T) {
	m, err := Parse(encode(normModel()), "", Options{Batch: 2})
	if err != nil {
		t.Fatal(err)
	}
	mod, err := m.Import()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := paramNames(mod.Funcs[0], ir.Param), "val_ones val_zeros embed.weight ln2/weight ln2/bias"; got != want {
		t.Errorf("parameters %s, want %s", got, want)
	}
	want := map[string]string{
		"val_ones": RoleParameter, "embed.weight": RoleParameter, "ln2/weight": RoleParameter,
		"mask": RoleConstant, "cos": RoleConstant, "val_scale": RoleConstant,
	}
	for _, p := range m.Parameters() {
		if r := want[p.Name]; r != "" && p.Role != r {
			t.Errorf("%s: want %s; %s", p, r, p.Reason)
		}
		if p.Name == "embed.weight" && !strings.Contains(p.Reason, `"t_1", exactly the transpose of it`) {
			t.Errorf("not tied: %s", p.Reason)
		}
	}
}

func TestGlobs(t *testing.T) {
	if name := "two\nlines\xff"; !roles.Matches([]string{"*"}, name) || !roles.Matches([]string{"two?lines*"}, name) || roles.Matches([]string{"two"}, name) {
		t.Errorf("globs and %q", name)
	}
	params := func(o Options) string {
		o.Batch = 2
		return paramNames(imported(t, normModel(), o), ir.Param)
	}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Freeze: []string{"embed*", "ln2/*"}}, "val_ones val_zeros"},
		{Options{Train: []string{"c?s"}}, "val_ones val_zeros embed.weight cos ln2/weight ln2/bias"},
		{Options{Untie: []string{"t_1"}}, "val_ones val_zeros embed.weight t_1 ln2/weight ln2/bias"},
		{Options{Tie: []string{"ln2/weight=val_ones"}}, "val_ones val_zeros embed.weight ln2/bias"},
	} {
		if got := params(c.o); got != c.want {
			t.Errorf("%+v: %s, want %s", c.o, got, c.want)
		}
	}
}
