package onnx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
