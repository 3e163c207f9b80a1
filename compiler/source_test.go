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
