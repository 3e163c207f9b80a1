package onnx

import (
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// Inspect counts the rows that a batch looks up in a table, from all its readers, and none of one that is read in another way too.
func TestLookups(t *testing.T) {
	m := modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", onnxpb.TensorProto_INT64, 2, 3)},
		Output:      []*onnxpb.ValueInfoProto{portOf("y", f32, 2, 3, 4)},
		Initializer: []*onnxpb.TensorProto{ramp("twice.weight", 0.1, 50, 4), ramp("other.weight", 0.1, 50, 4), ramp("head.weight", 0.1, 4, 4)},
		Node: []*onnxpb.NodeProto{
			nodeOf("Gather", "/a/Gather", list("twice.weight", "x"), list("a")),
			nodeOf("Gather", "/b/Gather", list("twice.weight", "x"), list("b")),
			nodeOf("Gather", "/c/Gather", list("other.weight", "x"), list("c")),
			nodeOf("ReduceSum", "/sum", list("other.weight"), list("s")),
			nodeOf("Add", "/d", list("a", "b"), list("d")),
			nodeOf("Add", "/e", list("d", "c"), list("e")),
			nodeOf("Add", "/f", list("e", "s"), list("f")),
			nodeOf("MatMul", "/g", list("f", "head.weight"), list("y")),
		},
	})
	p, err := Parse(encode(m), "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := p.Inspect()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"twice.weight": 12, "other.weight": 0, "head.weight": 0}
	for _, q := range info.Parameters {
		if q.Lookups != want[q.Name] {
			t.Errorf("a batch looks up %d rows of %s, want %d", q.Lookups, q.Name, want[q.Name])
		}
		delete(want, q.Name)
	}
	if len(want) > 0 {
		t.Errorf("not among the parameters: %v", want)
	}
}
