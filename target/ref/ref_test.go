package ref_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/check"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/target"
	"github.com/gtc-compiler/gtc/target/ref"
)

// TestFused: a softmax over rows of 8, as C. Each stage goes over the row again; sums are doubles.
func TestFused(t *testing.T) {
	at := kir.Access{Strides: []int{8, 1}}
	k := &kir.Kernel{Dims: []int{4, 8}, Row: []bool{false, true}, Chunks: 1, Params: []kir.Param{{DType: dtype.F32, Elems: 32}, {DType: dtype.F16, Elems: 32, Out: true}},
		Insts: []kir.Inst{
			{Op: "load", DType: dtype.F32, Access: at, Level: kir.PerElem},
			{Op: "reduce", Fn: "max", DType: dtype.F32, Args: []int{0}, Level: kir.PerRow, Stage: 1},
			{Op: "sub", DType: dtype.F32, Args: []int{0, 1}, Level: kir.PerElem, Stage: 1},
			{Op: "exp", DType: dtype.F32, Args: []int{2}, Level: kir.PerElem, Stage: 1},
			{Op: "reduce", Fn: "sum", DType: dtype.F32, Args: []int{3}, Level: kir.PerRow, Stage: 2},
			{Op: "div", DType: dtype.F32, Args: []int{3, 4}, Level: kir.PerElem, Stage: 2},
			{Op: "store", DType: dtype.F16, Args: []int{5}, Param: 1, Access: at, Level: kir.PerElem, Stage: 2},
		}}
	got, err := ref.Target.Fused(k)
	if err != nil {
		t.Fatal(err)
	}
	want := `void NAME(void *a0, void *a1) {
	float *p0 = a0;
	gtc_f16 *p1 = a1;
	for (long i0 = 0; i0 < 4; i0++) {
		double s1 = (-INFINITY);
		for (long i1 = 0; i1 < 8; i1++) {
			const float v0 = p0[i0 * 8 + i1];
			s1 = s1 < v0 || v0 != v0 ? v0 : s1;
		}
		const float v1 = s1;
		double s4 = 0.0f;
		for (long i1 = 0; i1 < 8; i1++) {
			const float v0 = p0[i0 * 8 + i1];
			const float v2 = v0 - v1;
			const float v3 = gtc_expf(v2);
			s4 = s4 + v3;
		}
		const float v4 = s4;
		for (long i1 = 0; i1 < 8; i1++) {
			const float v0 = p0[i0 * 8 + i1];
			const float v2 = v0 - v1;
			const float v3 = gtc_expf(v2);
			const float v5 = v3 / v4;
			p1[i0 * 8 + i1] = gtc_f16_put(v5);
		}
	}
}
`
	if got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
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
	c.Ints = c.Ints[1:]
	if _, err := ref.Target.Template(c); err == nil {
		t.Error("a call with an integer too few was taken")
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
		t.Skip("it builds programs")
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
		files, _ := filepath.Glob("../../../shared/models/*.onnx")
		for _, f := range files {
			if name := filepath.Base(f); name != "convnet_bn.opt.onnx" && name != "timm_test_resnet.opt.onnx" { // without batch normalisation: other models
				trials = append(trials, trials[0])
				trials[len(trials)-1].model, trials[len(trials)-1].set = name, func(*pass.Options) {}
			}
		}
	}
	for _, x := range trials {
		t.Run(x.model, func(t *testing.T) {
			file := filepath.Join("../../../shared/models", x.model)
			if _, err := os.Stat(file); err != nil {
				t.Skip("shared/ is absent: its models are not there to check")
			}
			name, _, _ := strings.Cut(file[len("../../../"):], ".")
			o := &check.Options{Reference: "../../../" + name + ".npz", Tol: x.tol, Steps: 3, Compile: compiler.Options{Model: file}}
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
