package onnx

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
)

// TestExport changes every parameter, exports, imports the result and compares both functions.
func TestExport(t *testing.T) {
	dir := fixtures.Path(t, "models")
	files, _ := filepath.Glob(filepath.Join(dir, "*.onnx"))
	for _, file := range files {
		base := filepath.Base(file)
		if strings.HasPrefix(base, "timm") { // slow in the interpreter
			continue
		}
		t.Run(base, func(t *testing.T) {
			t.Parallel()
			m, err := Load(file, Options{Batch: batchOf(file)})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			mod, err := m.Import()
			if err != nil {
				t.Fatal(err)
			}
			f := mod.Funcs[0]
			weights := map[string][]byte{}
			for _, p := range f.Params {
				if p.Role != ir.Param && p.Role != ir.Buffer {
					continue
				}
				a := p.Init.Array()
				for i := range a.F { // distinct everywhere, so that a mixed-up or still merged tensor shows
					a.F[i] = a.F[i]*1.01 + 0.001*float64(i%7+len(p.Name))
				}
				p.Init = a.Tensor()
				weights[p.Name] = p.Init.Data
			}
			data, err := m.Export(weights, true)
			if err != nil {
				t.Fatal(err)
			}
			if out := os.Getenv("GTC_TEST_DUMP"); out != "" {
				os.WriteFile(filepath.Join(out, base), data, 0o644)
			}
			again, err := Parse(data, "", Options{Batch: batchOf(file)})
			if err != nil {
				t.Fatal(err)
			}
			mod2, err := again.Import()
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(base, ".")
			in := readNpz(t, filepath.Join(dir, name+".npz"), func(n string) bool { return strings.HasPrefix(n, "in") })
			want, err := interp.Run(f, in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := interp.Run(mod2.Funcs[0], in)
			if err != nil {
				t.Fatal(err)
			}
			if err := interp.Differ(want.Named["out0"], got.Named["out0"], 1e-9); err != nil {
				t.Error(err)
			}
			if a, b := paramNames(f, ir.Param), paramNames(mod2.Funcs[0], ir.Param); len(strings.Fields(a)) != len(strings.Fields(b)) {
				t.Errorf("parameters were\n%s, are\n%s", a, b)
			}
		})
	}
}

// TestParameterOfAnInputsName: a parameter whose name an input has too is known by the one that the program has for it, so that what
// was trained goes back into the file.
func TestParameterOfAnInputsName(t *testing.T) {
	x := "fc.weight.1"
	file := modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf(x, f32, "batch", 3)},
		Output:      []*onnxpb.ValueInfoProto{portOf("y", f32, "batch", 3)},
		Initializer: []*onnxpb.TensorProto{ramp("fc.weight", 0.1, 3, 3)},
		Node:        []*onnxpb.NodeProto{nodeOf("MatMul", "first", list(x, "fc.weight"), list("h")), nodeOf("MatMul", "second", list("h", "fc.weight"), list("y"))},
	})
	m, err := Parse(encode(file), "", Options{Name: "m.onnx", Batch: 2, Untie: []string{"fc.weight"}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	module, err := m.Import()
	if err != nil {
		t.Fatal(err)
	}
	params := m.Parameters()
	if len(params) != 2 || !slices.Equal(params[1].Aliases, []string{x}) || len(m.Warnings) != 1 {
		t.Fatalf("parameters %v, warnings %q", params, m.Warnings)
	}
	for _, p := range params {
		if v := module.Funcs[0].Param(p.Name); v == nil || v.Role != ir.Param {
			t.Errorf("the program has no parameter %q", p.Name)
		}
	}
	trained := make([]byte, params[1].Type.Bytes())
	text, err := m.Export(map[string][]byte{params[1].Name: trained}, false)
	if err != nil {
		t.Fatal(err)
	}
	var got onnxpb.ModelProto
	if err := got.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(got.Graph.Initializer, func(p *onnxpb.TensorProto) bool { return p.RawData != nil && bytes.Equal(*p.RawData, trained) }) {
		t.Error("the file does not have what was trained")
	}
}
