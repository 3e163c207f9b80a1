package onnx

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// ints makes an int64 tensor attribute or initializer of one dim.
func intsOf(name string, v ...int64) *onnxpb.TensorProto {
	return tensorOf(name, []int64{int64(len(v))}, v...)
}

// hostile is a model of f32 input x[2,3,4,4], constants and nodes, whose output is y.
func hostile(opset int64, constants []*onnxpb.TensorProto, nodes ...*onnxpb.NodeProto) *onnxpb.ModelProto {
	m := modelOf(opset, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", f32, 2, 3, 4, 4)},
		Output:      []*onnxpb.ValueInfoProto{portOf("y", f32)},
		Initializer: constants, Node: nodes,
	})
	for _, d := range []string{"com.microsoft", "ai.onnx.preview"} {
		m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: ptr(d), Version: ptr(int64(1))})
	}
	return m
}

// many makes count nodes of the same kind that read in and are joined by Max at the end, so that all are live.
func many(count int, op string, in []string, attrs ...any) []*onnxpb.NodeProto {
	var nodes []*onnxpb.NodeProto
	var outs []string
	for i := range count {
		out := fmt.Sprint("m", i)
		nodes, outs = append(nodes, nodeOf(op, "", in, list(out), attrs...)), append(outs, out)
	}
	return append(nodes, nodeOf("Max", "", outs, list("y")))
}

func nodesOf(n ...*onnxpb.NodeProto) []*onnxpb.NodeProto { return n }

// bombs are small files that ask for much. All import, or are refused, within what costly allows.
func bombs() map[string]*onnxpb.ModelProto {
	const huge = 1 << 40
	scalar := func(name string, v int64) *onnxpb.TensorProto { return tensorOf(name, nil, v) }
	big := intsOf("big", 8<<20)
	floats := tensorOf("f", nil, 1.0)
	chain := func(op string, times int, second string) []*onnxpb.NodeProto {
		var nodes []*onnxpb.NodeProto
		in := "x"
		for i := range times {
			out := fmt.Sprint("c", i)
			if i == times-1 {
				out = "y"
			}
			nodes = append(nodes, nodeOf(op, "", list(in, second), list(out)))
			in = out
		}
		return nodes
	}
	filled := func(nodes ...*onnxpb.NodeProto) []*onnxpb.NodeProto { // z: 8M zeros made by a node
		return append(nodesOf(nodeOf("ConstantOfShape", "", list("big"), list("z"))), nodes...)
	}
	out := map[string]*onnxpb.ModelProto{
		"ConstantOfShape huge":         hostile(17, []*onnxpb.TensorProto{intsOf("s", 1<<31, 1<<31)}, nodeOf("ConstantOfShape", "", list("s"), list("y"))),
		"ConstantOfShape many":         hostile(17, []*onnxpb.TensorProto{big}, many(2000, "ConstantOfShape", list("big"))...),
		"a large constant reduced":     hostile(17, []*onnxpb.TensorProto{big}, filled(many(20000, "ReduceMax", list("z"))...)...),
		"a large constant added":       hostile(17, []*onnxpb.TensorProto{big}, filled(many(2000, "Exp", list("z"))...)...),
		"a large constant cast":        hostile(17, []*onnxpb.TensorProto{big}, filled(many(2000, "Cast", list("z"), "to", 11)...)...),
		"a large constant sorted":      hostile(17, []*onnxpb.TensorProto{big, intsOf("k", 8)}, filled(many(2000, "TopK", list("z", "k"))...)...),
		"a large constant compared":    hostile(17, []*onnxpb.TensorProto{big}, filled(many(5000, "Unique", list("z"))...)...),
		"a large constant not zero":    hostile(17, []*onnxpb.TensorProto{big}, filled(many(5000, "NonZero", list("z"))...)...),
		"Range":                        hostile(17, []*onnxpb.TensorProto{scalar("a", 0), scalar("b", huge), scalar("c", 1)}, nodeOf("Range", "", list("a", "b", "c"), list("y"))),
		"Range by nothing":             hostile(17, []*onnxpb.TensorProto{scalar("a", 0), scalar("b", huge), scalar("c", 0)}, nodeOf("Range", "", list("a", "b", "c"), list("y"))),
		"Range over all integers":      hostile(17, []*onnxpb.TensorProto{scalar("a", math.MinInt64), scalar("b", math.MaxInt64), scalar("c", math.MaxInt64)}, nodeOf("Range", "", list("a", "b", "c"), list("y"))),
		"Range many":                   hostile(17, []*onnxpb.TensorProto{scalar("a", 0), scalar("b", 8<<20), scalar("c", 1)}, many(2000, "Range", list("a", "b", "c"))...),
		"Expand huge":                  hostile(17, []*onnxpb.TensorProto{floats, intsOf("s", 1<<31, 1<<31)}, nodeOf("Expand", "", list("f", "s"), list("y"))),
		"Expand of the input":          hostile(17, []*onnxpb.TensorProto{intsOf("s", 1<<31, 1, 1, 1, 1<<31, 1, 1, 1)}, nodeOf("Expand", "", list("x", "s"), list("y"))),
		"Tile huge":                    hostile(17, []*onnxpb.TensorProto{intsOf("s", huge, huge, huge, huge)}, nodeOf("Tile", "", list("x", "s"), list("y"))),
		"Tile again and again":         hostile(17, []*onnxpb.TensorProto{intsOf("s", 8, 8, 8, 8)}, chain("Tile", 100, "s")...),
		"Pad huge":                     hostile(17, []*onnxpb.TensorProto{intsOf("s", huge, 0, 0, 0, math.MaxInt64, 0, 0, 0)}, nodeOf("Pad", "", list("x", "s"), list("y"))),
		"Pad reflected":                hostile(17, []*onnxpb.TensorProto{intsOf("s", 1<<30, 0, 0, 0, 1<<30, 0, 0, 0)}, nodeOf("Pad", "", list("x", "s"), list("y"), "mode", "wrap")),
		"Pad away":                     hostile(17, []*onnxpb.TensorProto{intsOf("s", math.MinInt64, -9, 0, 0, math.MinInt64, -9, 0, 0)}, nodeOf("Pad", "", list("x", "s"), list("y"))),
		"Concat of itself":             hostile(17, nil, doubled("Concat", 80, "axis", 0)...),
		"Add of itself":                hostile(17, []*onnxpb.TensorProto{scalar("q", math.MaxInt64)}, nodeOf("Add", "", list("q", "q"), list("r")), nodeOf("ConstantOfShape", "", list("r"), list("y"))),
		"OneHot":                       hostile(17, []*onnxpb.TensorProto{intsOf("i", 1, 2), scalar("d", huge), tensorOf("v", []int64{2}, 0.0, 1.0)}, nodeOf("OneHot", "", list("i", "d", "v"), list("y"))),
		"OneHot many":                  hostile(17, []*onnxpb.TensorProto{intsOf("i", 1, 2), scalar("d", 4<<20), tensorOf("v", []int64{2}, 0.0, 1.0)}, many(500, "OneHot", list("i", "d", "v"))...),
		"EyeLike":                      hostile(17, []*onnxpb.TensorProto{intsOf("big", 1<<20, 1<<20)}, nodeOf("ConstantOfShape", "", list("big"), list("z")), nodeOf("EyeLike", "", list("z"), list("y"))),
		"Hann window":                  hostile(17, []*onnxpb.TensorProto{scalar("s", huge)}, nodeOf("HannWindow", "", list("s"), list("y"))),
		"Hann windows":                 hostile(17, []*onnxpb.TensorProto{scalar("s", 8<<20)}, many(500, "HannWindow", list("s"))...),
		"Hamming window":               hostile(17, []*onnxpb.TensorProto{scalar("s", -5)}, nodeOf("HammingWindow", "", list("s"), list("y"))),
		"Blackman window":              hostile(17, []*onnxpb.TensorProto{scalar("s", math.MinInt64)}, nodeOf("BlackmanWindow", "", list("s"), list("y"))),
		"mel weights":                  hostile(17, []*onnxpb.TensorProto{scalar("a", 1<<20), scalar("b", 1<<20), scalar("c", 16000), floats}, nodeOf("MelWeightMatrix", "", list("a", "b", "c", "f", "f"), list("y"))),
		"DFT":                          hostile(20, []*onnxpb.TensorProto{scalar("s", 1<<30)}, nodeOf("DFT", "", list("x", "s"), list("y"))),
		"random normal":                hostile(17, nil, nodeOf("RandomNormal", "", nil, list("y"), "shape", []int64{huge, huge})),
		"random uniform":               hostile(17, nil, nodeOf("RandomUniform", "", nil, list("y"), "shape", []int64{-1, 4})),
		"multinomial":                  hostile(17, nil, nodeOf("Multinomial", "", list("x"), list("y"), "sample_size", huge)),
		"CenterCropPad":                hostile(18, []*onnxpb.TensorProto{intsOf("s", huge, huge, 1, 1)}, nodeOf("CenterCropPad", "", list("x", "s"), list("y"))),
		"Resize sizes":                 hostile(18, []*onnxpb.TensorProto{intsOf("s", 2, 3, 1<<30, 1<<30)}, nodeOf("Resize", "", list("x", "", "", "s"), list("y"), "mode", "cubic")),
		"Resize scales":                hostile(18, []*onnxpb.TensorProto{tensorOf("s", []int64{4}, 1.0, 1.0, 1e30, math.NaN())}, nodeOf("Resize", "", list("x", "", "s"), list("y"))),
		"Upsample":                     hostile(9, []*onnxpb.TensorProto{tensorOf("s", []int64{4}, 1.0, 1.0, 1e9, 1e9)}, nodeOf("Upsample", "", list("x", "s"), list("y"))),
		"MaxPool":                      hostile(17, nil, nodeOf("MaxPool", "", list("x"), list("y"), "kernel_shape", []int64{1 << 62, 1 << 62}, "pads", []int64{1 << 62, 1 << 62, 1 << 62, 1 << 62})),
		"AveragePool":                  hostile(17, nil, nodeOf("AveragePool", "", list("x"), list("y"), "kernel_shape", []int64{1 << 31, 1 << 31}, "pads", []int64{1 << 31, 1 << 31, 1 << 31, 1 << 31}, "strides", []int64{1, 1})),
		"LpPool":                       hostile(17, nil, nodeOf("LpPool", "", list("x"), list("y"), "kernel_shape", []int64{3, 3}, "pads", []int64{1 << 31, 1 << 31, 1 << 31, 1 << 31})),
		"ConvTranspose":                hostile(17, []*onnxpb.TensorProto{ramp("w", 1, 3, 2, 3, 3)}, nodeOf("ConvTranspose", "", list("x", "w"), list("y"), "output_shape", []int64{huge, huge}, "strides", []int64{1 << 31, 1 << 31})),
		"Conv":                         hostile(17, []*onnxpb.TensorProto{ramp("w", 1, 2, 3, 3, 3)}, nodeOf("Conv", "", list("x", "w"), list("y"), "group", 1<<40, "dilations", []int64{1 << 31, 1 << 31}, "pads", []int64{1 << 31, 1 << 31, 1 << 31, 1 << 31})),
		"DepthToSpace":                 hostile(17, nil, nodeOf("DepthToSpace", "", list("x"), list("y"), "blocksize", 1<<31)),
		"SpaceToDepth":                 hostile(17, nil, nodeOf("SpaceToDepth", "", list("x"), list("y"), "blocksize", 1<<62)),
		"Split":                        hostile(18, nil, nodeOf("Split", "", list("x"), list("y"), "num_outputs", huge)),
		"SplitToSequence":              hostile(17, []*onnxpb.TensorProto{big}, filled(nodeOf("SplitToSequence", "", list("z"), list("q")), nodeOf("ConcatFromSequence", "", list("q"), list("y"), "axis", 0))...),
		"TopK":                         hostile(17, []*onnxpb.TensorProto{intsOf("k", huge)}, nodeOf("TopK", "", list("x", "k"), list("y"))),
		"RoiAlign":                     hostile(17, []*onnxpb.TensorProto{ramp("r", 1, 1, 4), intsOf("i", 0)}, nodeOf("RoiAlign", "", list("x", "r", "i"), list("y"), "output_height", 1<<40, "output_width", 1<<40, "sampling_ratio", 1<<31)),
		"RoiAlign samples":             hostile(17, []*onnxpb.TensorProto{ramp("r", 1, 1, 4), intsOf("i", 0)}, nodeOf("RoiAlign", "", list("x", "r", "i"), list("y"), "output_height", 8, "output_width", 8, "sampling_ratio", 100000)),
		"AffineGrid":                   hostile(20, []*onnxpb.TensorProto{ramp("t", 1, 1, 2, 3), intsOf("s", 1, 1, 1<<30, 1<<30)}, nodeOf("AffineGrid", "", list("t", "s"), list("y"))),
		"Col2Im":                       hostile(18, []*onnxpb.TensorProto{ramp("c", 1, 1, 4, 4), intsOf("s", 1<<30, 1<<30), intsOf("b", 2, 2)}, nodeOf("Col2Im", "", list("c", "s", "b"), list("y"))),
		"MaxUnpool":                    hostile(17, []*onnxpb.TensorProto{intsOf("s", 2, 3, 1<<30, 1<<30)}, nodeOf("MaxPool", "", list("x"), list("p", "i"), "kernel_shape", []int64{2, 2}), nodeOf("MaxUnpool", "", list("p", "i", "s"), list("y"), "kernel_shape", []int64{2, 2})),
		"LSTM":                         hostile(17, []*onnxpb.TensorProto{ramp("t", 1, 2, 1, 4), ramp("w", 1, 1, 4, 4), ramp("r", 1, 1, 4, 1)}, nodeOf("LSTM", "", list("t", "w", "r"), list("y"), "hidden_size", 1<<40)),
		"GroupNormalization":           hostile(21, []*onnxpb.TensorProto{ramp("g", 1, 3)}, nodeOf("GroupNormalization", "", list("x", "g", "g"), list("y"), "num_groups", 1<<62)),
		"Attention heads":              hostile(23, []*onnxpb.TensorProto{ramp("q", 1, 1, 2, 0)}, nodeOf("Attention", "", list("q", "q", "q"), list("y"), "q_num_heads", 1<<62, "kv_num_heads", 1<<62)),
		"Attention windows":            hostile(25, nil, nodeOf("Attention", "", list("x", "x", "x"), list("y"), "left_window_size", math.MaxInt64, "right_window_size", math.MaxInt64)),
		"LinearAttention":              hostile(27, nil, nodeOf("Reshape", "", list("x", "s"), list("r")), nodeOf("LinearAttention", "", list("r", "r", "r"), list("y"), "q_num_heads", 1<<40, "kv_num_heads", 1, "update_rule", "linear")),
		"Einsum letters":               hostile(17, nil, nodeOf("Einsum", "", list("x"), list("y"), "equation", strings.Repeat("a", 1<<12)+"->")),
		"Einsum operands":              hostile(17, nil, nodeOf("Einsum", "", slices200("x"), list("y"), "equation", strings.Repeat("abcd,", 199)+"abcd->abcd")),
		"Einsum products":              hostile(17, nil, nodeOf("Einsum", "", list("x", "x", "x", "x", "x", "x"), list("y"), "equation", "abcd,efgh,ijkl,mnop,qrst,uvwx->abcdefghijklmnopqrstuvwx")),
		"Loop without end":             hostile(17, []*onnxpb.TensorProto{scalar("n", math.MaxInt64)}, nodeOf("Loop", "", list("n", "", "x"), list("y"), "body", loopBody("Identity", "Exp", list("v")))),
		"Loop of constants":            hostile(17, []*onnxpb.TensorProto{floats}, nodeOf("Loop", "", list("", "", "f"), list("y"), "body", loopBody("Identity", "Exp", list("v")))),
		"Loop in Loop":                 hostile(17, []*onnxpb.TensorProto{scalar("n", 1<<20), floats}, nodeOf("Loop", "", list("n", "", "f"), list("y"), "body", nestedLoop(10))),
		"Loop that grows":              hostile(17, []*onnxpb.TensorProto{scalar("n", 1000), intsOf("g", 1)}, nodeOf("Loop", "", list("n", "", "g"), list("y"), "body", loopBody("Identity", "Concat", list("v", "v"), "axis", 0))),
		"functions that call twice":    functionsOf(31, 2),
		"functions that call many":     functionsOf(4, 100),
		"a function that calls itself": recursive(),
		"names that grow":              longNames(),
		"branches in branches":         branches(30),
		"FusedMatMul":                  hostile(17, nil, nodeOf("FusedMatMul", "", list("x", "x"), list("y"), "transBatchA", 1)),
	}
	out["LinearAttention"].Graph.Initializer = []*onnxpb.TensorProto{intsOf("s", 2, 3, 16)}
	return out
}

func slices200(name string) []string {
	var out []string
	for range 200 {
		out = append(out, name)
	}
	return out
}

// doubled is op applied to its own result twice, over and over.
func doubled(op string, times int, attrs ...any) []*onnxpb.NodeProto {
	var nodes []*onnxpb.NodeProto
	in := "x"
	for i := range times {
		out := fmt.Sprint("d", i)
		if i == times-1 {
			out = "y"
		}
		nodes = append(nodes, nodeOf(op, "", list(in, in), list(out), attrs...))
		in = out
	}
	return nodes
}

// loopBody carries v through op, for ever.
func loopBody(cond, op string, in []string, attrs ...any) *onnxpb.GraphProto {
	return &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{portOf("i", onnxpb.TensorProto_INT64), portOf("c", onnxpb.TensorProto_BOOL), portOf("v", f32)},
		Output: []*onnxpb.ValueInfoProto{portOf("k", onnxpb.TensorProto_BOOL), portOf("w", f32)},
		Node:   nodesOf(nodeOf(cond, "", list("c"), list("k")), nodeOf(op, "", in, list("w"), attrs...)),
	}
}

// nestedLoop is a loop in a loop in a loop, of names that do not meet.
func nestedLoop(depth int) *onnxpb.GraphProto {
	name := func(s string) string { return fmt.Sprint(s, depth) }
	g := &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{portOf(name("i"), onnxpb.TensorProto_INT64), portOf(name("c"), onnxpb.TensorProto_BOOL), portOf(name("v"), f32)},
		Output: []*onnxpb.ValueInfoProto{portOf(name("k"), onnxpb.TensorProto_BOOL), portOf(name("w"), f32)},
		Node:   nodesOf(nodeOf("Identity", "", list(name("c")), list(name("k")))),
	}
	if depth == 0 {
		g.Node = append(g.Node, nodeOf("Sin", "", list(name("v")), list(name("w"))))
	} else {
		g.Node = append(g.Node, nodeOf("Loop", "", list("n", "", name("v")), list(name("w")), "body", nestedLoop(depth-1)))
	}
	return g
}

// functionsOf has functions of which each calls the next one some times: calls^depth nodes.
func functionsOf(depth, calls int) *onnxpb.ModelProto {
	m := hostile(17, nil, nodeOf("f0", "call", list("x"), list("y")))
	m.Graph.Node[0].Domain = ptr("own")
	m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: ptr("own"), Version: ptr(int64(1))})
	for i := range depth {
		f := &onnxpb.FunctionProto{Name: ptr(fmt.Sprint("f", i)), Domain: ptr("own"), Input: list("a"), Output: list("b"), OpsetImport: m.OpsetImport}
		for k := range calls {
			out := fmt.Sprint("t", k)
			if k == calls-1 {
				out = "b"
			}
			n := nodeOf(fmt.Sprint("f", i+1), "n", list("a"), list(out))
			n.Domain = ptr("own")
			if i == depth-1 {
				n = nodeOf("Exp", "n", list("a"), list(out))
			}
			f.Node = append(f.Node, n)
		}
		m.Functions = append(m.Functions, f)
	}
	return m
}

func recursive() *onnxpb.ModelProto {
	m := functionsOf(1, 1)
	m.Functions[0].Node[0].OpType, m.Functions[0].Node[0].Domain = ptr("f0"), ptr("own")
	return m
}

// longNames calls a function of a long name for its one node thousands of times.
func longNames() *onnxpb.ModelProto {
	m := functionsOf(3, 60)
	for _, f := range m.Functions {
		for _, n := range f.Node {
			n.Name = ptr(strings.Repeat("n", model.MaxName))
		}
	}
	return m
}

// branches nests Ifs, each with two equal branches.
func branches(depth int) *onnxpb.ModelProto {
	g := &onnxpb.GraphProto{Output: []*onnxpb.ValueInfoProto{portOf("x", f32)}}
	for i := range depth {
		out := fmt.Sprint("b", i)
		g = &onnxpb.GraphProto{
			Output: []*onnxpb.ValueInfoProto{portOf(out, f32)},
			Node:   nodesOf(nodeOf("If", "", list("cond"), list(out), "then_branch", g, "else_branch", &onnxpb.GraphProto{Output: []*onnxpb.ValueInfoProto{portOf("x", f32)}})),
		}
	}
	m := hostile(17, []*onnxpb.TensorProto{{Name: ptr("cond"), DataType: ptr(int32(onnxpb.TensorProto_BOOL)), Int32Data: []int32{1}}}, g.Node...)
	m.Graph.Output[0].Name = ptr(fmt.Sprint("b", depth-1))
	return m
}

// slow are bombs that take seconds, because they spend a whole budget: FuzzImport does not start from them.
const slow = "a large constant reduced|a large constant added|a large constant cast|a large constant sorted|OneHot many|" +
	"Hann windows|Einsum operands|Loop without end|Loop of constants|Loop in Loop|functions that call twice|" +
	"functions that call many|ConstantOfShape many|a large constant not zero"

// refused says what stops some of them; the others import.
var refused = map[string]string{
	"ConstantOfShape huge": "hold more elements than can be addressed", "Range": "from 0 to 1099511627776 by 1",
	"Range by nothing": "by 0", "Tile huge": "repeats", "Tile again and again": "can be addressed",
	"Concat of itself": "can be addressed", "Add of itself": "dimension -2 is outside",
	"a function that calls itself": "is one recursive?", "names that grow": "bytes once functions are inlined",
	"functions that call twice": "nodes once functions are inlined", "functions that call many": "nodes once functions are inlined",
	"Loop in Loop": "once loops are unrolled", "Loop of constants": "once loops are unrolled",
}

// TestBombs imports files that ask for much, and nothing of it may take more than costly allows.
func TestBombs(t *testing.T) {
	for name, m := range bombs() {
		t.Run(name, func(t *testing.T) {
			data := encode(m)
			err := costly(t, name, data, Options{})
			t.Logf("%d bytes: %.400v", len(data), err)
			if want := refused[name]; want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("want an error with %q", want)
			}
		})
	}
}
