// Package cuda holds programs for GPUs to PyTorch: files of ../shared/models through gtc check, with kernels, launches,
// graphs and collectives of the CUDA target, on the stand-in that runs them on this processor.
package cuda

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/check"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/kernels/cuda/standin"
	"github.com/gtc-compiler/gtc/passes/pass"
	target "github.com/gtc-compiler/gtc/target/cuda"
	"github.com/gtc-compiler/gtc/target/cuda/image"
)

const dir = "../../../shared/models"

// lost are files that are other models than their references: batch normalisation was folded away.
var lost = map[string]bool{"convnet_bn.opt.onnx": true, "timm_test_resnet.opt.onnx": true}

// models are the files; GTC_TEST_MODEL selects them by their beginning.
func models(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(fixtures.Path(t, "models"), "*.onnx"))
	if err != nil || len(files) == 0 {
		t.Fatal("there are no models: ", err)
	}
	var list []string
	for _, f := range files {
		if base := filepath.Base(f); !lost[base] && strings.HasPrefix(base, os.Getenv("GTC_TEST_MODEL")) {
			list = append(list, f)
		}
	}
	return list
}

// options check a file on one GPU.
func options(t *testing.T, file string) *check.Options {
	t.Helper()
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	o := &check.Options{Reference: filepath.Join(dir, name+".npz")}
	o.Compile = compiler.Options{Model: file}
	o.Compile.Pass.Target, o.Compile.Pass.IgnoreIndex = pass.CUDA, -100
	o.Compile.Pass.Arch = target.Target.Traits().Chips
	if err := check.Bind(&o.Compile, o.Reference); err != nil {
		t.Fatal(err)
	}
	return o
}

// trial is a model in a layout and a precision.
type trial struct {
	file      string
	layout    string
	set       func(o *pass.Options)
	precision string
	tol       float64
	checked   bool // the stand-in looks for races, for addresses outside of memory and for barriers that not all reach
}

func (x trial) String() string { return fmt.Sprintf("%s/%s/%s", x.file, x.precision, x.layout) }

// layouts are the splits that programs for several GPUs are checked in, by local collectives.
var layouts = map[string]func(o *pass.Options){
	"one": func(*pass.Options) {},
	"dp2": func(o *pass.Options) { o.DP = 2 },
	"tp2": func(o *pass.Options) { o.TP = 2 },
	"pp2": func(o *pass.Options) { o.PP, o.Microbatches = 2, 2 },
}

// quick are the trials without GTC_LONG.
var quick = []struct{ file, layout, precision string }{ // the first is checked
	{"mlp.onnx", "one", "fp32"}, {"gpt_loss_inside.opt.onnx", "one", "fp32"},
	{"mlp.dynamo.onnx", "dp2", "fp32"}, {"mlp.opt.onnx", "tp2", "fp32"}, {"gpt_loss_inside.onnx", "pp2", "fp32"},
	{"gpt2_tiny.opt.onnx", "one", "bf16"}, {"convnet_bn.onnx", "one", "fp32"}, {"lstm_lm.onnx", "one", "fp32"},
}

// tolerances are the largest relative errors, in norm, by precision.
var tolerances = map[string]float64{"fp32": 1e-4, "bf16": 2e-2}

// kinked are models in which a rounding decides for one side of many ReLUs and maxima: in bf16 their gradients differ as
// much on the CPU (convnet_bn: 9.1e-2 on both).
var kinked = []string{"convnet_bn", "timm_test_resnet"}

// TestModels checks outputs, loss, gradients and steps of two optimizers: a few models by default, with GTC_LONG=1 all of
// them, on one GPU in single and half precision, and on two in each layout.
func TestModels(t *testing.T) {
	if _, err := standin.Compiler(); err != nil {
		t.Skip(err)
	}
	for _, x := range trials(t) {
		t.Run(x.String(), func(t *testing.T) {
			if x.checked {
				t.Setenv(image.CheckVariable, "1")
			}
			o := options(t, filepath.Join(dir, x.file))
			o.Tol = x.tol
			o.Compile.Pass.Arch, o.Compile.Pass.Precision = []string{pass.Host}, x.precision
			x.set(&o.Compile.Pass)
			if os.Getenv("GTC_LONG") == "" || x.precision != "fp32" {
				o.Steps = 3
			}
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

func trials(t *testing.T) []trial {
	t.Helper()
	var list []trial
	long := os.Getenv("GTC_LONG") != ""
	add := func(file, layout, precision string) {
		checked := slices.ContainsFunc(quick[:1], func(q struct{ file, layout, precision string }) bool { return q.file == file }) || long && layout == "one"
		x := trial{file, layout, layouts[layout], precision, tolerances[precision], checked}
		if name, _, _ := strings.Cut(file, "."); precision == "bf16" && slices.Contains(kinked, name) {
			x.tol = 0.2
		}
		list = append(list, x)
	}
	for _, file := range models(t) {
		base := filepath.Base(file)
		if !long {
			for _, q := range quick {
				if q.file == base {
					add(q.file, q.layout, q.precision)
				}
			}
			continue
		}
		add(base, "one", "fp32")
		add(base, "one", "bf16")
		for _, l := range []string{"dp2", "tp2", "pp2"} {
			add(base, l, "fp32")
		}
	}
	return list
}
