package onnx

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// foreign is a node of another domain.
func foreign(domain, op, name string, in, out []string) *onnxpb.NodeProto {
	n := nodeOf(op, name, in, out)
	n.Domain = ptr(domain)
	return n
}

// branchesModel has an If whose branches hold operators that gtc cannot import, behind first.
func branchesModel(first ...*onnxpb.NodeProto) *onnxpb.ModelProto {
	port := func(name string) *onnxpb.ValueInfoProto { return portOf(name, onnxpb.TensorProto_FLOAT, 4) }
	then := &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{nodeOf("Frob", "in then", list("a"), list("t"))}, Output: []*onnxpb.ValueInfoProto{port("t")}}
	other := &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{foreign("own", "Baz", "in else", list("a"), list("e"))}, Output: []*onnxpb.ValueInfoProto{port("e")}}
	m := modelOf(17, &onnxpb.GraphProto{
		Node:   append(first, nodeOf("If", "if", list("c"), list("y"), "then_branch", then, "else_branch", other)),
		Input:  []*onnxpb.ValueInfoProto{port("x"), portOf("c", onnxpb.TensorProto_BOOL)},
		Output: []*onnxpb.ValueInfoProto{port("y")},
	})
	m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: ptr("ai.onnx.ml"), Version: ptr(int64(3))}, &onnxpb.OperatorSetIdProto{Domain: ptr("own"), Version: ptr(int64(2))})
	return m
}

// TestUnsupported: one error lists what gtc cannot import, with its domain and number, in loops and branches, too, and what else
// will stop the import.
func TestUnsupported(t *testing.T) {
	body := &onnxpb.GraphProto{
		Node:   []*onnxpb.NodeProto{foreign("own", "Baz", "in loop", list("v"), list("w")), nodeOf("Identity", "on", list("go"), list("on"))},
		Input:  []*onnxpb.ValueInfoProto{portOf("i", onnxpb.TensorProto_INT64), portOf("go", onnxpb.TensorProto_BOOL), portOf("v", onnxpb.TensorProto_FLOAT, 4)},
		Output: []*onnxpb.ValueInfoProto{portOf("on", onnxpb.TensorProto_BOOL), portOf("w", onnxpb.TensorProto_FLOAT, 4)},
	}
	var nodes []*onnxpb.NodeProto
	for i := range 12 {
		nodes = append(nodes, foreign("ai.onnx.ml", "TreeEnsembleRegressor", fmt.Sprint("tree", i), list("x"), list(fmt.Sprint("r", i))))
	}
	nodes = append(nodes, foreign("never.named", "Quux", "stray", list("r0"), list("q")), nodeOf("NonZero", "where", list("x"), list("nz")), nodeOf("Cast", "cast", list("nz"), list("f"), "to", 1),
		nodeOf("Sum", "sum", list("r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "f", "q"), list("l")), nodeOf("Loop", "loop", list("n", "", "l"), list("a"), "body", body))
	m := branchesModel(nodes...)
	m.Graph.Input = append(m.Graph.Input, portOf("n", onnxpb.TensorProto_STRING))
	want := `model: 14 nodes use operators that gtc cannot import
  note: ai.onnx.ml.TreeEnsembleRegressor (ai.onnx.ml 3): 12 nodes, "tree0", "tree1", "tree2", "tree3", "tree4", "tree5", "tree6", "tree7", and 4 more
  note: never.named.Quux (of never.named, which the file does not import): "stray"
  note: own.Baz (own 2): "in loop"
  note: in branches of If nodes, unless a known condition leaves them out: 2 nodes use operators that gtc cannot import
  note: Frob (opset 17): "in then"
  note: own.Baz (own 2): "in else"
  note: results whose size depends on what the model's inputs hold: "where" (NonZero)
  note: input "n": strings are not supported: gtc computes with numbers only, so turn text into numbers before the model`
	if err := importBytes(encode(m), Options{}); errText(err) != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestUnsupportedBranches: both branches are needed where the condition is not known, and the one that it chooses where it is.
func TestUnsupportedBranches(t *testing.T) {
	first := nodeOf("Identity", "same", list("x"), list("a"))
	want := "model: node \"if\" (If, opset 17)\n  2 nodes use operators that gtc cannot import\n  note: Frob (opset 17): \"in then\"\n  note: own.Baz (own 2): \"in else\""
	if err := importBytes(encode(branchesModel(first)), Options{}); errText(err) != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	known := branchesModel(first)
	known.Graph.Node[1].Attribute[1].G.Node[0] = nodeOf("Neg", "in else", list("a"), list("e"))
	if err := importBytes(encode(known), Options{Values: map[string]string{"c": "false"}}); err != nil {
		t.Errorf("a branch that is not taken: %v", err)
	}
	many := branchesModel(first)
	for i := range 2 * walk.MaxKinds {
		many.Graph.Node = append([]*onnxpb.NodeProto{nodeOf(fmt.Sprint("Op", i), "", list("x"), list(fmt.Sprint("v", i)))}, many.Graph.Node...)
		many.Graph.Output = append(many.Graph.Output, portOf(fmt.Sprint("v", i), onnxpb.TensorProto_FLOAT))
	}
	if text := errText(importBytes(encode(many), Options{})); strings.Count(text, "\n") > walk.MaxKinds+8 || !strings.Contains(text, "and 64 more operators") {
		t.Errorf("a list of %d lines:\n%s", strings.Count(text, "\n"), text)
	}
}
