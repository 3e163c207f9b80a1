package build

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write purego.zip anew")

// TestPurego compares the packed source with the module that go.mod names, whose hash is in go.sum.
func TestPurego(t *testing.T) {
	text, err := exec.Command("go", "list", "-m", "-json", puregoPath).Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Version, Dir, GoVersion string }
	if err := json.Unmarshal(text, &module); err != nil {
		t.Fatal(err)
	}
	if module.Dir == "" {
		t.Skipf("the module %s is not in the cache: go mod download", puregoPath)
	}
	if module.Version != puregoVersion || module.GoVersion != puregoGo {
		t.Errorf("go.mod has %s for go %s", module.Version, module.GoVersion)
	}
	want := map[string][]byte{}
	for _, dir := range []string{".", "internal/cgo", "internal/fakecgo", "internal/strings"} {
		list, err := os.ReadDir(filepath.Join(module.Dir, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			name := filepath.ToSlash(filepath.Join(dir, e.Name()))
			ext := filepath.Ext(name)
			if e.IsDir() || strings.HasSuffix(name, "_test.go") || name != "LICENSE" && !slices.Contains([]string{".go", ".s", ".h"}, ext) {
				continue
			}
			if want[name], err = os.ReadFile(filepath.Join(module.Dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if *update {
		writeZip(t, want)
		return
	}
	got := map[string][]byte{}
	if _, err := vendorPurego(got); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Errorf("%d files, the module has %d", len(got), len(want))
	}
	for name, text := range want {
		if !bytes.Equal(got["vendor/"+puregoPath+"/"+name], text) {
			t.Errorf("%s is not the module's (go test ./codegen/build -run Purego -update)", name)
		}
	}
}

func writeZip(t *testing.T, files map[string][]byte) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("purego.zip", b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
}
