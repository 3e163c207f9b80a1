package onnx

import (
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/roles"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// hinted are the warnings that hold any of the words.
func hinted(t *testing.T, m *onnxpb.ModelProto, o Options, words ...string) []string {
	t.Helper()
	model, err := Parse(encode(m), "", o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := model.Import(); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(model.Warnings, func(s string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
	})
}

// turned is ramp(name, scale, rows, cols) transposed.
func turned(name string, scale float64, rows, cols int) *onnxpb.TensorProto {
	data := make([]float64, rows*cols)
	for i := range rows {
		for j := range cols {
			data[j*rows+i] = scale * float64(i*cols+j+1)
		}
	}
	return tensorOf(name, []int64{int64(cols), int64(rows)}, data...)
}

// TestTieHints: exact copies and transposes of trained matrices are named; what is equal for other reasons is not.
func TestTieHints(t *testing.T) {
	two := func(a, b *onnxpb.TensorProto) *onnxpb.ModelProto {
		d := a.Dims
		return graphOf(17, f32, []any{2, int(d[0])}, []*onnxpb.TensorProto{a, b},
			nodeOf("MatMul", "first", list("x", a.GetName()), list("h")),
			nodeOf("Tanh", "tanh", list("h"), list("g")),
			nodeOf("MatMul", "second", list("g", b.GetName()), list("y")))
	}
	filled := func(name string, v float64) *onnxpb.TensorProto {
		return tensorOf(name, []int64{5, 5}, slices.Repeat([]float64{v}, 25)...)
	}
	unit := func(name string) *onnxpb.TensorProto {
		data := make([]float64, 25)
		for i := range 5 {
			data[6*i] = 1
		}
		return tensorOf(name, []int64{5, 5}, data...)
	}
	for _, c := range []struct {
		name  string
		model *onnxpb.ModelProto
		opt   Options
		want  string // the words of one hint; "" is no hint
	}{
		{"copy", two(ramp("w", 1, 5, 5), ramp("v", 1, 5, 5)), Options{}, `"v" holds exactly the values of "w" and is trained separately: give --tie v=w if they are one parameter`},
		{"transpose", two(ramp("w", 1, 4, 5), turned("wT", 1, 4, 5)), Options{}, `"wT" holds exactly the values of "w", transposed, and is trained separately: give --tie wT=w if`},
		{"transposed square", two(ramp("w", 1, 5, 5), turned("wT", 1, 5, 5)), Options{}, `"wT" holds exactly the values of "w", transposed`},
		{"odd name", two(ramp("w", 1, 5, 5), ramp("v b", 1, 5, 5)), Options{}, `--tie "v b"=w if`},
		{"tied", two(ramp("w", 1, 5, 5), ramp("v", 1, 5, 5)), Options{Tie: []string{"v=w"}}, ""},
		{"frozen", two(ramp("w", 1, 5, 5), ramp("v", 1, 5, 5)), Options{Freeze: []string{"v"}}, ""},
		{"untied", two(ramp("w", 1, 5, 5), ramp("v", 1, 5, 5)), Options{Untie: []string{"v"}}, ""},
		{"same ends", two(ramp("w", 1, 5, 5), tensorOf("v", []int64{5, 5}, append(append([]float64{1}, slices.Repeat([]float64{3}, 23)...), 25)...)), Options{}, ""},
		{"ones", two(filled("w", 1), filled("v", 1)), Options{}, ""},
		{"identities", two(unit("w"), unit("v")), Options{}, ""},
		{"tiny", two(ramp("w", 1, 3, 3), ramp("v", 1, 3, 3)), Options{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := hinted(t, c.model, c.opt, "exactly")
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
				t.Errorf("hints %q, want %q", got, c.want)
			}
		})
	}
}

// TestManyCopies: layers that were deep-copied are not listed one by one.
func TestManyCopies(t *testing.T) {
	var inits []*onnxpb.TensorProto
	var nodes []*onnxpb.NodeProto
	at := "x"
	for i := range 10 {
		name, out := string(rune('a'+i)), string(rune('A'+i))
		if i == 9 {
			out = "y"
		}
		inits = append(inits, ramp(name, 0.01, 5, 5))
		nodes = append(nodes, nodeOf("MatMul", "n"+name, list(at, name), list(out)))
		at = out
	}
	got := hinted(t, graphOf(17, f32, []any{2, 5}, inits, nodes...), Options{}, "exactly")
	if len(got) != roles.MaxHints+1 || !strings.Contains(got[roles.MaxHints], "5 more trained tensors") {
		t.Errorf("%q", got)
	}
}

// TestPaddingHints: the only row of zeros of a table that is looked up, and of no other.
func TestPaddingHints(t *testing.T) {
	table := func(zero ...int) *onnxpb.TensorProto {
		data := make([]float64, 24)
		for i := range data {
			if !slices.Contains(zero, i/4) {
				data[i] = float64(i + 1)
			}
		}
		return tensorOf("e", []int64{6, 4}, data...)
	}
	look := func(e *onnxpb.TensorProto, nodes ...*onnxpb.NodeProto) *onnxpb.ModelProto {
		return graphOf(17, onnxpb.TensorProto_INT64, []any{3}, []*onnxpb.TensorProto{e}, nodes...)
	}
	rows, columns := nodeOf("Gather", "look", list("e", "x"), list("y")), nodeOf("Gather", "look", list("e", "x"), list("y"), "axis", 1)
	for _, c := range []struct {
		name  string
		model *onnxpb.ModelProto
		opt   Options
		want  string
	}{
		{"first", look(table(0), rows), Options{}, `row 0 of the table "e" is its only row of zeros, as a padding row is: --padding-idx e=0`},
		{"last", look(table(5), rows), Options{}, "--padding-idx e=5"},
		{"two lookups", look(table(1), nodeOf("Gather", "one", list("e", "x"), list("u")), nodeOf("Gather", "two", list("e", "x"), list("v")), nodeOf("Add", "add", list("u", "v"), list("y"))), Options{}, "--padding-idx e=1"},
		{"none", look(table(), rows), Options{}, ""},
		{"two", look(table(0, 3), rows), Options{}, ""},
		{"all", look(table(0, 1, 2, 3, 4, 5), rows), Options{}, ""},
		{"columns", look(table(0), columns), Options{}, ""},
		{"given", look(table(0), rows), Options{PaddingIdx: []string{"0"}}, ""},
		{"frozen", look(table(0), rows), Options{Freeze: []string{"e"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := hinted(t, c.model, c.opt, "--padding-idx")
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
				t.Errorf("hints %q, want %q", got, c.want)
			}
		})
	}
}
