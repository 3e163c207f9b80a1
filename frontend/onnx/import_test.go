package onnx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// shared finds the folder with test models beside the repository, or skips.
func shared(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = up
	}
	s := filepath.Join(dir, "..", "shared", "models")
	if _, err := os.Stat(s); err != nil {
		t.Skip("shared/ is absent: its models are not there to import")
	}
	return s
}

// batches is the batch size of each model's reference, for files with a dynamic one.
var batches = map[string]int{"convnet_bn": 8, "mlp": 16}

func batchOf(file string) int {
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	if b := batches[name]; b > 0 {
		return b
	}
	return 4
}

func TestImportShared(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(shared(t), "*.onnx"))
	if err != nil || len(files) == 0 {
		t.Fatal("no models", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			m, err := Load(file, Options{Batch: batchOf(file)})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			mod, err := m.Import()
			if err != nil {
				t.Fatal(err)
			}
			if err := mod.Verify(); err != nil {
				t.Error(err)
			}
			if dir := os.Getenv("GTC_TEST_DUMP"); dir != "" {
				os.WriteFile(filepath.Join(dir, filepath.Base(file)+".ir"), []byte(mod.String()), 0o644)
			}
		})
	}
}
