package compiler

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeepExternal copies what external data names, and nothing outside the model's folder or over other files.
func TestKeepExternal(t *testing.T) {
	base := t.TempDir()
	from, to := filepath.Join(base, "from"), filepath.Join(base, "to")
	for _, dir := range []string{filepath.Join(from, "sub"), to} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(base, "secret"), "secret")
	write(filepath.Join(from, "sub", "w.bin"), "weights")
	write(filepath.Join(from, "options.json"), "{}")
	if err := os.Symlink("../secret", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../secret", filepath.Join(to, "out.bin")); err != nil { // left by somebody in the target
		t.Fatal(err)
	}
	write(filepath.Join(from, "out.bin"), "overwritten")
	for name, want := range map[string]string{
		"sub/w.bin": "", "./sub/../sub/w.bin": "", "link": "path escapes", "out.bin": "path escapes",
		"options.json": "keeps another file by that name", "sub/../OPTIONS.json": "keeps another file by that name", "model.onnx": "keeps another file by that name",
		"../secret": "path escapes", "sub": "not a regular file", "absent": "no such file",
	} {
		err := keepExternal(to, from, []string{name}, "model.onnx")
		if got := ""; err != nil {
			got = err.Error()
			if want == "" || !strings.Contains(got, want) {
				t.Errorf("%s: got %v, want %q", name, err, want)
			}
		} else if want != "" {
			t.Errorf("%s: copied, want %q", name, want)
		}
	}
	if text, _ := os.ReadFile(filepath.Join(to, "sub", "w.bin")); string(text) != "weights" {
		t.Errorf("the copy holds %q", text)
	}
	if text, _ := os.ReadFile(filepath.Join(base, "secret")); string(text) != "secret" {
		t.Errorf("a file outside now holds %q", text)
	}
}

// TestKeptAdapters: a folder of before, which has the adapters that were asked for among the options of the import, is still known to
// have them: without, its export would leave them out.
func TestKeptAdapters(t *testing.T) {
	for _, text := range []string{
		`{"model": "m.onnx", "import": {"Batch": 4, "LoRA": {"Rank": 3, "Targets": ["q"]}}, "pass": {"DP": 2}}`,
		`{"model": "m.onnx", "import": {"Batch": 4}, "pass": {"DP": 2, "LoRA": {"Rank": 3, "Targets": ["q"]}}}`,
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, sourceDir), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, sourceDir, sourceOptions), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		o, err := KeptSource(dir)
		if err != nil || o.Pass.LoRA.Rank != 3 || len(o.Pass.LoRA.Targets) != 1 || o.Pass.DP != 2 || o.Import.Batch != 4 {
			t.Errorf("%+v, %v", o, err)
		}
	}
}

// TestWithoutRecognize: the model for larger batches, which tells what depends on the size, is as far through the passes as the model,
// whichever of them are left out.
func TestWithoutRecognize(t *testing.T) {
	o := Defaults()
	o.Model, o.Import.Batch, o.Pass.Loss, o.Pass.Disable = "../docs/tour.onnx", 8, "cross_entropy", []string{"recognize"}
	if _, err := Lower(&o); err != nil {
		t.Error(err)
	}
}
