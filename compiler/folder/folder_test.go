package folder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/compiler"
)

// TestReadBack: a folder that was just made holds what its plan says and the options that it was made with; a changed source, a
// missing one, and a damaged plan are told.
func TestReadBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	o := compiler.Defaults()
	o.Model, o.Out, o.Source = filepath.Join("..", "..", "docs", "tour.onnx"), dir, true
	o.Import.Batch, o.Pass.DP, o.Pass.Loss = 8, 2, "cross_entropy"
	if _, err := compiler.Run(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := f.Options()
	if err != nil || kept.Pass.DP != 2 || kept.Import.Batch != 8 || kept.Out != dir {
		t.Errorf("kept options %+v, %v", kept, err)
	}
	if _, err := f.Binaries(); err == nil || !strings.Contains(err.Error(), "is not built") {
		t.Errorf("binaries of a folder that was not built: %v", err)
	}
	verified(t, f, "")
	step := filepath.Join(dir, "prog0", "kernels.c")
	text, err := os.ReadFile(step)
	if err != nil {
		t.Fatal(err)
	}
	write(t, step, append(text, "// more\n"...))
	verified(t, f, "prog0/kernels.c was changed after gtc wrote it")
	if err := os.Remove(step); err != nil {
		t.Fatal(err)
	}
	verified(t, f, "prog0/kernels.c is missing")
	write(t, filepath.Join(dir, build.Marker), []byte("{"))
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("a damaged plan: %v", err)
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is not a folder made by gtc compile") {
		t.Errorf("an empty folder: %v", err)
	}
}

// verified wants one fault that contains the text, or none for "".
func verified(t *testing.T, f *Folder, want string) {
	t.Helper()
	v, err := f.Verify()
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(v.Faults, "\n"); v.OK != (want == "") || !strings.Contains(text, want) {
		t.Errorf("faults %q, want %q", text, want)
	}
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o666); err != nil {
		t.Fatal(err)
	}
}
