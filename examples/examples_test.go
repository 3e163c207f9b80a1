// Package examples_test holds the examples to what their pages say.
package examples_test

import (
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// TestExamplesCompile imports every example, runs the pipeline on it and counts what would be trained.
func TestExamplesCompile(t *testing.T) {
	for _, ex := range []struct {
		file           string
		batch          int
		params, number int // trained tensors, and numbers in them
	}{
		{"mnist/mlp.onnx", 32, 6, 118282},
		{"mnist/cnn.onnx", 32, 8, 225034},
		{"shakespeare/gpt.onnx", 12, 27, 804096},
	} {
		t.Run(ex.file, func(t *testing.T) {
			m, err := onnx.Load(ex.file, onnx.Options{Batch: ex.batch})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			mod, err := m.Import()
			if err != nil {
				t.Fatal(err)
			}
			params, number := trained(mod)
			if params != ex.params || number != ex.number {
				t.Errorf("%d parameters of %d numbers would be trained, want %d of %d", params, number, ex.params, ex.number)
			}
			opt := &pass.Options{Loss: "cross_entropy", IgnoreIndex: -100, ClipNorm: 1, Optimizer: pass.Optimizer{Name: "adamw", LR: 2e-3},
				Schedule: pass.Schedule{Name: "cosine", Warmup: 100, Steps: 2000, MinLR: 2e-4}}
			if err := passes.Run(&pass.Context{Module: mod, Opt: opt}, passes.Table); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// trained counts the parameters of the imported model and the numbers in them.
func trained(mod *ir.Module) (params, number int) {
	for _, p := range mod.Func("forward").Params {
		if p.Role == ir.Param {
			params++
			number += p.Type.Elems()
		}
	}
	return params, number
}
