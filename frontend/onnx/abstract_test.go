package onnx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// away moves an initializer's data into a file.
func away(w *onnxpb.TensorProto, location, length string) {
	w.RawData, w.DataLocation = nil, ptr(onnxpb.TensorProto_EXTERNAL)
	for k, v := range map[string]string{"location": location, "length": length} {
		if v != "" {
			w.ExternalData = append(w.ExternalData, &onnxpb.StringStringEntryProto{Key: ptr(k), Value: ptr(v)})
		}
	}
}

// Weights that are not there are accepted when asked for: absent and short files, and no data at all. What is wrong with
// the place of the data is told as before.
func TestAbstractWeights(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "short.bin"), make([]byte, 47), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		location, length string
		plain, abstract  string // errors
	}{
		{"absent.bin", "48", "--abstract-weights compiles a model without its weights", ""},
		{"short.bin", "", "is the file complete? (--abstract-weights", ""},
		{"", "", "has 0 values, not 12 (--abstract-weights", ""}, // no data
		{"../absent.bin", "48", "outside the model's folder", "outside the model's folder"},
		{"absent.bin", "47", `its length is given as "47", but the tensor has 48 bytes`, `its length is given as "47", but the tensor has 48 bytes`},
	} {
		m := linearModel()
		m.Graph.Initializer[0].RawData = nil
		if c.location != "" {
			away(m.Graph.Initializer[0], c.location, c.length)
		}
		for _, abstract := range []bool{false, true} {
			want := c.plain
			if abstract {
				want = c.abstract
			}
			p, err := Parse(encode(m), dir, Options{Batch: 2, Abstract: abstract})
			var mod *ir.Module
			if err == nil {
				mod, err = p.Import()
			}
			if want != "" || err != nil {
				if err == nil || want == "" || !strings.Contains(err.Error(), want) {
					t.Errorf("%s, abstract %t: %v, want %q", c.location, abstract, err, want)
				}
				continue
			}
			w, b := mod.Funcs[0].Param("fc.weight"), mod.Funcs[0].Param("fc.bias")
			if w.Role != ir.Param || !w.Init.Absent() || b.Init.Absent() {
				t.Errorf("%s: the weight is %s, absent %t; the bias absent %t", c.location, w.Role, w.Init.Absent(), b.Init.Absent())
			}
			if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "1 of 2 initializers are absent") {
				t.Errorf("warnings: %q", p.Warnings)
			}
		}
	}
}

// What looks at contents copes: a tensor that would be a constant becomes a buffer, an integer that must be known is
// refused by name, and claims beyond all memory are refused before any of it is made.
func TestAbstractRoles(t *testing.T) {
	m := linearModel()
	g := m.Graph
	g.Initializer = append(g.Initializer, ramp("val_7", 1, 2, 3))
	g.Node = append(g.Node, nodeOf("Clip", "clip", list("y", "", "limit"), list("z")), nodeOf("Where", "w", list("cond", "z", "limit"), list("v")),
		nodeOf("Mod", "m", list("v", "val_7"), list("out"), "fmod", 1))
	g.Initializer = append(g.Initializer, tensorOf("limit", nil, 6.0), tensorOf("cond", []int64{3}, int64(1), 0, 1))
	cond := g.Initializer[len(g.Initializer)-1]
	cond.DataType, cond.RawData = ptr(int32(9)), ptr(onnxpb.Bytes{1, 0, 1})
	g.Output = []*onnxpb.ValueInfoProto{portOf("out", f32, 2, 3)}
	away(g.Initializer[2], "absent.bin", "")
	p, err := Parse(encode(m), t.TempDir(), Options{Batch: 2, Abstract: true})
	if err != nil {
		t.Fatal(err)
	}
	mod, err := p.Import()
	if err != nil {
		t.Fatal(err)
	}
	if v := mod.Funcs[0].Param("val_7"); v == nil || v.Role != ir.Buffer || !v.Init.Absent() {
		t.Errorf("val_7: %+v", v)
	}
	away(cond, "absent.bin", "")
	if p, err = Parse(encode(m), t.TempDir(), Options{Batch: 2, Abstract: true}); err == nil {
		_, err = p.Import()
	}
	if err == nil || !strings.Contains(err.Error(), `tensor "cond" bool[3]: its contents are absent (--abstract-weights)`) {
		t.Errorf("an integer without contents: %v", err)
	}
	for range 5 {
		w := ramp("huge", 1, 1)
		w.Dims = []int64{1 << 23, 1 << 23}
		w.Name = ptr("huge" + strings.Repeat("x", len(g.Initializer)))
		away(w, "absent.bin", "")
		g.Initializer = append(g.Initializer, w)
	}
	if _, err = Parse(encode(m), t.TempDir(), Options{Batch: 2, Abstract: true}); err == nil || !strings.Contains(err.Error(), "hold more than") {
		t.Errorf("claims beyond all memory: %v", err)
	}
}

// Norm scales that an optimizer merged because all were ones come apart by use alone; named layers stay apart.
func TestAbstractNorms(t *testing.T) {
	m := modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", f32, 2, 4)},
		Output:      []*onnxpb.ValueInfoProto{portOf("b", f32, 2, 4)},
		Initializer: []*onnxpb.TensorProto{ramp("scale", 0, 4)},
		Node: []*onnxpb.NodeProto{
			nodeOf("LayerNormalization", "first", list("x", "scale"), list("a")),
			nodeOf("LayerNormalization", "second", list("a", "scale"), list("b")),
		},
	})
	away(m.Graph.Initializer[0], "absent.bin", "16")
	p, err := Parse(encode(m), t.TempDir(), Options{Abstract: true})
	if err != nil {
		t.Fatal(err)
	}
	mod, err := p.Import()
	if err != nil {
		t.Fatal(err)
	}
	if mod.Funcs[0].Param("scale") == nil || mod.Funcs[0].Param("second/weight") == nil {
		t.Errorf("parameters: %v", p.Parameters())
	}
}
