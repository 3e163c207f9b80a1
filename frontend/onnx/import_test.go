package onnx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/internal/fixtures"
)

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
	files, err := filepath.Glob(filepath.Join(fixtures.Path(t, "models"), "*.onnx"))
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
