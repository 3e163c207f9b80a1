package cuda_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	gencuda "github.com/gtc-compiler/gtc/codegen/cuda"
	"github.com/gtc-compiler/gtc/codegen/kernel"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/passes/fuse"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/nvrtc"
)

// shapes are functions as models of usual sizes have them; T is an element type, R and C are rows and columns.
const shapes = `
func @norm(%x: T[R,C], %y: T[R,C], %g: f32[C], %b: f32[C]) {
  %r = add %x, %y : T[R,C]
  %f = cast %r {to=f32} : f32[R,C]
  %n, %m, %s = layer_norm %f, %g, %b {eps=1e-05, dims=1} : f32[R,C], f32[R,1], f32[R,1]
  %o = cast %n {to=T} : T[R,C]
  return r=%r, o=%o, m=%m, s=%s
}
func @norm_grad(%dy: T[R,C], %xh: T[R,C], %g: T[C], %s: f32[R,1], %res: T[R,C]) {
  %m = mul %dy, %xh : T[R,C]
  %mf = cast %m {to=f32} : f32[R,C]
  %dg = reduce_sum %mf {dims=[0]} : f32[1,C]
  %df = cast %dy {to=f32} : f32[R,C]
  %db = reduce_sum %df {dims=[0]} : f32[1,C]
  %gr = reshape %g {dims=[1,C]} : T[1,C]
  %ge = expand %gr {dims=[R,C]} : T[R,C]
  %h = mul %dy, %ge : T[R,C]
  %hf = cast %h {to=f32} : f32[R,C]
  %xf = cast %xh {to=f32} : f32[R,C]
  %a = reduce_sum %hf {dims=[1]} : f32[R,1]
  %hx = mul %hf, %xf : f32[R,C]
  %c = reduce_sum %hx {dims=[1]} : f32[R,1]
  %ae = expand %a {dims=[R,C]} : f32[R,C]
  %ce = expand %c {dims=[R,C]} : f32[R,C]
  %cx = mul %ce, %xf : f32[R,C]
  %d1 = sub %hf, %ae : f32[R,C]
  %d2 = sub %d1, %cx : f32[R,C]
  %se = expand %s {dims=[R,C]} : f32[R,C]
  %d3 = mul %d2, %se : f32[R,C]
  %d4 = cast %d3 {to=T} : T[R,C]
  %dx = add %d4, %res : T[R,C]
  %dxf = cast %dx {to=f32} : f32[R,C]
  %bias = reduce_sum %dxf {dims=[0]} : f32[1,C]
  return dg=%dg, db=%db, dx=%dx, bias=%bias
}
func @gelu(%x: T[R,C], %dy: T[R,C]) {
  %y = gelu %x : T[R,C]
  %dx = gelu_grad %dy, %x : T[R,C]
  %f = cast %dx {to=f32} : f32[R,C]
  %db = reduce_sum %f {dims=[0]} : f32[1,C]
  return y=%y, dx=%dx, db=%db
}
func @softmax(%x: T[R,C]) {
  %y = softmax %x {dim=1} : T[R,C]
  return y=%y
}
func @softmax_first(%x: T[C,R]) {
  %y = softmax %x {dim=0} : T[C,R]
  return y=%y
}
func @few_rows(%x: T[64,C,R], %g: f32[1,C,1]) {
  %f = cast %x {to=f32} : f32[64,C,R]
  %s = reduce_sum %f {dims=[0,2]} : f32[1,C,1]
  %e = expand %s {dims=[64,C,R]} : f32[64,C,R]
  %d = sub %f, %e : f32[64,C,R]
  %q = mul %d, %d : f32[64,C,R]
  %v = reduce_sum %q {dims=[0,2]} : f32[1,C,1]
  %m = mul %v, %g : f32[1,C,1]
  %me = expand %m {dims=[64,C,R]} : f32[64,C,R]
  %n = mul %d, %me : f32[64,C,R]
  %o = cast %n {to=T} : T[64,C,R]
  return o=%o, v=%v
}
`

// sized is what the shapes print for a type and sizes.
func sized(t *testing.T, dtype string, r, c int) map[string][]cuda.Kernel {
	t.Helper()
	text := strings.NewReplacer("T[", dtype+"[", "to=T", "to="+dtype, "R,", fmt.Sprint(r, ","), "R]", fmt.Sprint(r, "]"),
		"C,", fmt.Sprint(c, ","), "C]", fmt.Sprint(c, "]")).Replace(shapes)
	m, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := fuse.Run(&pass.Context{Module: m, Opt: &pass.Options{Target: pass.CUDA}}); err != nil {
		t.Fatal(err)
	}
	out := map[string][]cuda.Kernel{}
	for _, f := range m.Funcs {
		outs := group.Outputs(f)
		for _, g := range group.List(f) {
			if group.Impl(g.Ops[0]).Kind == kir.Template {
				t.Fatalf("@%s: %s is a template", f.Name, g.Ops[0])
			}
			b, err := kernel.Build(g, outs[g.ID])
			if err != nil {
				t.Fatal(err)
			}
			list, _, err := gencuda.Kernels(f.Name, b.Kernel)
			if err != nil {
				t.Fatal(err)
			}
			out[f.Name] = append(out[f.Name], list...)
		}
	}
	return out
}

// TestNoSpills compiles the shapes at the sizes of GPT-2, BERT, ResNet and larger, for one chip each, with GTC_LONG=1 for both,
// and reads ptxas' report.
func TestNoSpills(t *testing.T) {
	lib := fixtures.NVRTC(t)
	headers, err := cuda.Headers.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	src := nvrtc.Source{Name: "sizes.cu"}
	for _, h := range headers {
		text, _ := cuda.Headers.ReadFile(h.Name())
		src.Headers = append(src.Headers, nvrtc.Header{Name: h.Name(), Text: string(text)})
	}
	for i, size := range []struct{ r, c int }{{32768, 768}, {8192, 1600}, {4096, 4096}, {49, 64}, {8192, 50304}} {
		for j, d := range []string{"bf16", "f32"} {
			src.Text = "#include \"fused.cuh\"\n"
			n := 0
			for _, list := range sized(t, d, size.r, size.c) {
				for _, k := range list {
					src.Text += fmt.Sprintf("// grid %v block %v\n%s\n", k.Grid, k.Block, strings.Replace(k.Text, "NAME(", fmt.Sprintf("%s_%d(", k.Name, n), 1))
					n++
				}
			}
			archs := []string{"sm_80", "sm_90"}
			if os.Getenv("GTC_LONG") == "" {
				archs = archs[(i+j)%2:][:1]
			}
			for _, arch := range archs {
				_, log, err := lib.Compile(src, arch, "--std=c++17", "--ptxas-options=-v")
				if err != nil {
					t.Fatalf("%s %v: %v", d, size, err)
				}
				report(t, fmt.Sprintf("%s %v %s", d, size, arch), log, n)
			}
		}
	}
}

// report fails for kernels that spill.
func report(t *testing.T, what, log string, kernels int) {
	t.Helper()
	entry, clean := "", 0
	for _, line := range strings.Split(log, "\n") {
		if _, name, ok := strings.Cut(line, "Compiling entry function '"); ok {
			entry, _, _ = strings.Cut(name, "'")
		}
		if strings.Contains(line, "bytes stack frame") {
			if strings.Contains(line, " 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads") {
				clean++
			} else {
				t.Errorf("%s: %s: %s", what, entry, strings.TrimSpace(line))
			}
		}
		if _, used, ok := strings.Cut(line, "Used "); ok {
			t.Logf("%s: %s: %s", what, entry, used)
		}
	}
	if clean < kernels {
		t.Errorf("%s: %d of %d kernels without spills", what, clean, kernels)
	}
}
