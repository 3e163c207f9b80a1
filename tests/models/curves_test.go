package models

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/check"
	"github.com/gtc-compiler/gtc/distributed/launch"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

const (
	curveSteps = 200
	curveTol   = 0.02 // of the loss in fp32
)

// TestCurves trains models for 200 steps in half precision: every loss stays within 2 % of the one in fp32. The learning rate is
// such that 200 steps on the batch of the reference learn something and do not learn it by heart, where a loss near zero
// could not be compared. By default it takes two small models; GTC_LONG=1 takes all.
func TestCurves(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds six programs")
	}
	names := []string{"mlp.onnx", "gpt2_tiny.opt.onnx"}
	if os.Getenv("GTC_LONG") != "" {
		names = []string{"mlp.onnx", "convnet_bn.onnx", "gpt2_tiny.opt.onnx", "gpt_loss_inside.onnx", "llama_tiny.opt.onnx", "bert_tiny.onnx",
			"lstm_lm.onnx", "timm_test_resnet.onnx", "timm_test_vit.onnx", "unet_tiny.onnx"}
	}
	for _, name := range names {
		if !strings.HasPrefix(name, os.Getenv("GTC_TEST_MODEL")) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			file := fixtures.Path(t, "models/"+name)
			base, _, _ := strings.Cut(name, ".")
			ref := fixtures.Path(t, "models/"+base+".npz")
			want := curve(t, file, ref, "fp32")
			if last := want[curveSteps-1]; !(last < 0.97*want[0]) {
				t.Errorf("in fp32 the loss goes from %g to %g: nothing is learned", want[0], last)
			}
			for _, precision := range []string{"bf16", "fp16"} {
				got := curve(t, file, ref, precision)
				worst, at := 0.0, 0
				for i, v := range want {
					if e := math.Abs(got[i]-v) / v; !(e <= worst) {
						worst, at = e, i
					}
				}
				t.Logf("%s: loss %.4f to %.4f, fp32 %.4f: at most %.3f %% apart, at step %d", precision, got[0], got[curveSteps-1], want[curveSteps-1], 100*worst, at)
				if !(worst <= curveTol) {
					t.Errorf("%s: at step %d the loss is %g, in fp32 %g", precision, at, got[at], want[at])
				}
			}
		})
	}
}

// curve is the loss before each of 200 updates of the model on the batch of the reference.
func curve(t *testing.T, file, ref, precision string) []float64 {
	t.Helper()
	o := &compiler.Options{Model: file, Out: t.TempDir()}
	o.Pass = pass.Options{IgnoreIndex: -100, SyncBN: true, Check: true, Precision: precision, DP: 1, TP: 1, PP: 1, Microbatches: 1, Threads: 1}
	if err := check.Bind(o, ref); err != nil {
		t.Fatal(err)
	}
	adamw := pass.Optimizer{Name: "adamw", LR: 1e-4, WeightDecay: 0.01}
	if _, err := compiler.Several(context.Background(), o, []pass.Optimizer{adamw}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.Out, "curve.npz")
	batch, err := filepath.Abs(ref)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	run := launch.Options{Bins: []string{filepath.Join(o.Out, "bin", build.Command)}, Dir: o.Out, Stdout: &said, Stderr: &said,
		Args: []string{"--fixed-batch", batch, "--results", path, "--steps", fmt.Sprint(curveSteps), "--checkpoint-dir", "none"}}
	if err := launch.Local(context.Background(), run); err != nil {
		t.Fatalf("%s: %v\n%s", precision, err, &said)
	}
	f, err := npz.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, err := f.Read("loss") // f64
	if err != nil || len(a.Data) != 8*curveSteps {
		t.Fatalf("%v: %d bytes of losses", err, len(a.Data))
	}
	losses := make([]float64, curveSteps)
	for i := range losses {
		losses[i] = math.Float64frombits(binary.LittleEndian.Uint64(a.Data[8*i:]))
	}
	return losses
}
