// Package models holds compiled programs to PyTorch: every file of ../shared/models through gtc check.
package models

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/check"
)

// layouts are the splits that each model is checked with.
var layouts = []struct{ dp, microbatches int }{{1, 1}, {2, 1}, {2, 2}}

// lost are files that are other models than their references: batch normalisation was folded away.
var lost = map[string]bool{"convnet_bn.opt.onnx": true, "timm_test_resnet.opt.onnx": true}

// TestModels checks outputs, loss, gradients and ten steps of two optimizers on one rank, on two, and on two with
// micro-batches. With -short, only the quickest models on two ranks. GTC_TEST_MODEL selects files by their beginning.
func TestModels(t *testing.T) {
	dir := "../../../shared/models"
	if _, err := os.Stat(dir); err != nil {
		t.Skip("shared/ is absent: its models are not there to check")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.onnx"))
	if err != nil || len(files) == 0 {
		t.Fatal("no models in ", dir)
	}
	for _, file := range files {
		base := filepath.Base(file)
		name, _, _ := strings.Cut(base, ".")
		if lost[base] || !strings.HasPrefix(base, os.Getenv("GTC_TEST_MODEL")) || testing.Short() && base != "mlp.onnx" && base != "convnet_bn.onnx" {
			continue
		}
		for _, l := range layouts {
			if testing.Short() && l.dp*l.microbatches != 2 {
				continue
			}
			t.Run(fmt.Sprintf("%s/dp=%d,microbatches=%d", base, l.dp, l.microbatches), func(t *testing.T) {
				o := &check.Options{Reference: filepath.Join(dir, name+".npz")}
				o.Compile = compiler.Options{Model: file}
				o.Compile.Pass.DP, o.Compile.Pass.Microbatches, o.Compile.Pass.IgnoreIndex = l.dp, l.microbatches, -100
				rep, err := check.Run(context.Background(), o)
				if err != nil {
					t.Fatal(err)
				}
				if len(rep.Grads) == 0 || len(rep.Curves) != 2 {
					t.Errorf("%d gradients and %d curves were compared", len(rep.Grads), len(rep.Curves))
				}
				if !rep.OK {
					var b strings.Builder
					rep.Print(&b, false)
					t.Error("\n" + b.String())
				}
			})
		}
	}
}
