package tests

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// TestSameBytes: compiling twice gives the same folder, byte for byte. When it fails, the usual cause is a range over a map.
func TestSameBytes(t *testing.T) {
	once := func(name string) map[string][]byte {
		o := &compiler.Options{Model: filepath.Join(root, "examples", "mnist", "cnn.onnx"), Out: filepath.Join(t.TempDir(), name),
			Import: onnx.Options{Batch: 32}, Source: true}
		o.Pass = pass.Options{Loss: "cross_entropy", IgnoreIndex: -100, DP: 2, Microbatches: 2, ClipNorm: 1,
			Optimizer: pass.Optimizer{Name: "adamw", LR: 1e-3, WeightDecay: 0.01}}
		if _, err := compiler.Run(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{}
		err := filepath.WalkDir(o.Out, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rel, err := filepath.Rel(o.Out, path)
			if err != nil {
				return err
			}
			files[rel], err = os.ReadFile(path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	a, b := once("out"), once("out")
	for name := range b {
		if a[name] == nil {
			t.Errorf("%s is there the second time only", name)
		}
	}
	for name, text := range a {
		if other, ok := b[name]; !ok || !bytes.Equal(text, other) {
			n, x, y := firstDifference(string(text), string(other))
			t.Errorf("%s differs from line %d on: %.100q, then %.100q", name, n, x, y)
		}
	}
}
