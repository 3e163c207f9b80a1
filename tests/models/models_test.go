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
	"github.com/gtc-compiler/gtc/internal/fixtures"
)

// layouts are the splits that each model is checked with.
var layouts = []struct{ dp, microbatches int }{{1, 1}, {2, 1}, {2, 2}}

// lost are files that are other models than their references: batch normalisation was folded away.
var lost = map[string]bool{"convnet_bn.opt.onnx": true, "timm_test_resnet.opt.onnx": true}

// quick are checked in every layout by default.
var quick = map[string]bool{"mlp.onnx": true, "convnet_bn.onnx": true, "gpt_loss_inside.onnx": true, "gpt2_tiny.dynamo.onnx": true}

// runs says whether a file is checked in layout number i. By default every file is checked once, each exporter's form
// in a layout of its own, and the quick ones in all; GTC_LONG=1 checks every file in every layout, -short the
// quickest two on two ranks.
func runs(base string, i int) bool {
	switch {
	case testing.Short():
		return i == 1 && (base == "mlp.onnx" || base == "convnet_bn.onnx")
	case os.Getenv("GTC_LONG") != "" || quick[base]:
		return true
	case strings.HasSuffix(base, ".opt.onnx"):
		return i == 0
	case strings.HasSuffix(base, ".dynamo.onnx"):
		return i == 1
	}
	return i == 2
}

// TestModels checks outputs, loss, gradients and ten steps of two optimizers on one rank, on two, and on two with
// micro-batches, as runs says. GTC_TEST_MODEL selects files by their beginning.
func TestModels(t *testing.T) {
	dir := fixtures.Path(t, "models")
	files, err := filepath.Glob(filepath.Join(dir, "*.onnx"))
	if os.Getenv("GTC_LONG") == "" {
		t.Log("every file in one layout, a few in all; GTC_LONG=1 checks every file in every layout")
	}
	if err != nil || len(files) == 0 {
		t.Fatal("no models in ", dir)
	}
	for _, file := range files {
		base := filepath.Base(file)
		name, _, _ := strings.Cut(base, ".")
		if lost[base] || !strings.HasPrefix(base, os.Getenv("GTC_TEST_MODEL")) {
			continue
		}
		for i, l := range layouts {
			if !runs(base, i) {
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
				t.Log(rep.Figures())
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
