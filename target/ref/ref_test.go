package ref_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/check"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/kir/kirtest"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/target"
	"github.com/gtc-compiler/gtc/target/ref"
)

var update = flag.Bool("update", false, "rewrite testdata/*.c")

// fused is a kernel as a C function of that name.
func fused(name string, k *kir.Kernel) (string, error) {
	text, err := ref.Target.Fused(k)
	return strings.Replace(text, "void NAME(", "void "+name+"(", 1), err
}

// TestGoldens prints the kernels of ir/kir/testdata and compares the text with testdata/NAME.c: each stage goes over the row again,
// sums are doubles. -update cannot bless a wrong one: each is compiled and run, and held to kir's Eval.
func TestGoldens(t *testing.T) {
	list := kirtest.Goldens(t, "../../ir/kir/testdata")
	for _, k := range list {
		text, err := fused(k.Name, k.Kernel)
		if err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
		kirtest.Compare(t, filepath.Join("testdata", k.Name+".c"), text, *update)
	}
	kirtest.RunC(t, list, "-O1", fused, ref.Target.Head)
}

// TestFunctions holds every scalar function and conversion to what its row in kir's table says it is.
func TestFunctions(t *testing.T) {
	kirtest.RunC(t, kirtest.Functions(t), "-O0", fused, ref.Target.Head)
}

// TestTemplate: sizes of a call are constants, operands that are not there are null, types are those of the call.
func TestTemplate(t *testing.T) {
	c := target.Call{Name: "GemmAny", Ints: []int{1, 2, 3, 4, 0, 1, 0, 0, 0, 8}, Types: []dtype.DType{dtype.I64, dtype.I64, dtype.Invalid, dtype.I64}}
	f, err := ref.Target.Template(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"void NAME(void *a0, void *a1, void *a2, void *a3) {\n\tint64_t *a = a0;\n", "\tint64_t *bias = 0;\n", "\tconst long m = 2;\n", "\t\tuint64_t sum = "} {
		if !strings.Contains(f.Text, want) {
			t.Errorf("%q is not in\n%s", want, f.Text)
		}
	}
	short, more := c, c
	short.Ints, more.Floats = c.Ints[1:], []float64{1}
	for _, c := range []target.Call{short, more} {
		if _, err := ref.Target.Template(c); err == nil {
			t.Errorf("a call with %v and %v was taken", c.Ints, c.Floats)
		}
	}
	for name, types := range map[string][]dtype.DType{"Det": {dtype.F32, dtype.F32}, "GemmAny": {dtype.F16, dtype.F16, dtype.Invalid, dtype.F16}} {
		if ref.Target.Native(target.Call{Name: name, Types: types}) {
			t.Errorf("%s of %v: there is no such template", name, types)
		}
	}
}

// TestModels checks outputs, loss, gradients and steps of two optimizers against PyTorch's float64, in layouts and half precision.
// Sums are doubles, so that fp32 is within 1e-4 of them everywhere; bf16 is as far off as on the processor.
func TestModels(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds programs")
	}
	trials := []struct {
		model string
		tol   float64
		set   func(o *pass.Options)
	}{
		{"mlp.onnx", 1e-4, func(o *pass.Options) { o.DP = 2 }},
		{"gpt_loss_inside.onnx", 1e-4, func(o *pass.Options) { o.PP, o.Microbatches = 2, 2 }},
		{"gpt2_tiny.opt.onnx", 2e-2, func(o *pass.Options) { o.Precision = "bf16" }},
	}
	if os.Getenv("GTC_LONG") != "" {
		files, err := filepath.Glob(filepath.Join(fixtures.Path(t, "models"), "*.onnx"))
		if err != nil || len(files) == 0 {
			t.Fatal("there are no models: ", err)
		}
		for _, f := range files {
			if name := filepath.Base(f); name != "convnet_bn.opt.onnx" && name != "timm_test_resnet.opt.onnx" { // without batch normalisation: other models
				trials = append(trials, trials[0])
				trials[len(trials)-1].model, trials[len(trials)-1].set = name, func(*pass.Options) {}
			}
		}
	}
	for _, x := range trials {
		t.Run(x.model, func(t *testing.T) {
			file := fixtures.Path(t, "models/"+x.model)
			name, _, _ := strings.Cut(x.model, ".")
			o := &check.Options{Reference: fixtures.Path(t, "models/"+name+".npz"), Tol: x.tol, Steps: 3, Compile: compiler.Options{Model: file}}
			o.Compile.Pass.Target, o.Compile.Pass.IgnoreIndex = "ref", -100
			x.set(&o.Compile.Pass)
			if err := check.Bind(&o.Compile, o.Reference); err != nil {
				t.Fatal(err)
			}
			rep, err := check.Run(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(rep.Figures())
			if !rep.OK || len(rep.Grads) == 0 || len(rep.Curves) != 2 {
				var b strings.Builder
				rep.Print(&b, false)
				t.Errorf("%d gradients and %d curves were compared\n%s", len(rep.Grads), len(rep.Curves), &b)
			}
		})
	}
}
