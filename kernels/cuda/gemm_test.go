package cuda

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/runtime/nvrtc"
)

// product is a case of tests: sizes, layout, types, the activation, and whether C is added to.
type product struct {
	batch, m, n, k   int
	transA, transB   int
	in, bias, out    dtype.DType
	act, add         int
	tf32             bool
	sharedA, sharedB bool
}

func (p product) call() Call {
	sa, sb, sc := p.m*p.k, p.k*p.n, p.m*p.n
	if p.batch == 1 {
		sa, sb, sc = 0, 0, 0
	}
	if p.sharedA {
		sa = 0
	}
	if p.sharedB {
		sb = 0
	}
	c := Call{Name: "Gemm", Ints: []int{p.batch, p.m, p.n, p.k, p.transA, p.transB, sa, sb, sc, p.act, p.add}, Types: []dtype.DType{p.in, p.in, p.bias, p.out}, Compute: "f32"}
	if p.tf32 {
		c.Compute = "tf32"
	}
	return c
}

// usualProducts are those of layers that people train, in all layouts that training makes of them.
var usualProducts = []product{
	{batch: 1, m: 128, n: 512, k: 512, transB: 1, in: dtype.F32, bias: dtype.F32, out: dtype.F32},
	{batch: 1, m: 512, n: 512, k: 128, transA: 1, in: dtype.F32, out: dtype.F32},
	{batch: 1, m: 128, n: 512, k: 512, in: dtype.F32, out: dtype.F32},
	{batch: 1, m: 4096, n: 4096, k: 4096, in: dtype.F32, out: dtype.F32},
	{batch: 1, m: 1024, n: 512, k: 300, in: dtype.F32, out: dtype.F32},
	{batch: 1, m: 4096, n: 4096, k: 4096, in: dtype.F32, out: dtype.F32, tf32: true},
	{batch: 1, m: 4096, n: 4096, k: 4096, transA: 1, transB: 1, in: dtype.F32, out: dtype.F32, tf32: true},
	{batch: 1, m: 32768, n: 3072, k: 768, in: dtype.BF16, bias: dtype.BF16, out: dtype.BF16, act: actGeluErf},
	{batch: 1, m: 32768, n: 768, k: 3072, transB: 1, in: dtype.BF16, bias: dtype.BF16, out: dtype.BF16, act: actGeluTanh},
	{batch: 1, m: 768, n: 3072, k: 32768, transA: 1, in: dtype.BF16, out: dtype.F32, add: 1},
	{batch: 1, m: 32768, n: 50257, k: 768, transB: 1, in: dtype.BF16, out: dtype.BF16},
	{batch: 12, m: 1001, n: 77, k: 333, transA: 1, in: dtype.F16, out: dtype.F16},
	{batch: 1, m: 1000, n: 10, k: 784, in: dtype.F32, bias: dtype.F32, out: dtype.F32},
	{batch: 1, m: 10, n: 5, k: 784, in: dtype.F32, bias: dtype.F32, out: dtype.F32},
	{batch: 1, m: 784, n: 5, k: 1000, transA: 1, in: dtype.F32, bias: dtype.F32, out: dtype.F32},
}

// library opens NVRTC, or skips.
func library(t *testing.T) *nvrtc.Library {
	l, err := nvrtc.Open(nvrtc.Candidates("", os.Getenv))
	if err != nil {
		t.Skip("NVRTC is absent: ", err)
	}
	return l
}

// Products compile for both chips, and no kernel spills registers to memory.
func TestGemmCompiles(t *testing.T) {
	l := library(t)
	var text strings.Builder
	text.WriteString("#include \"gtc.cuh\"\n#include \"gemm_simt.cuh\"\n#include \"gemm_mma.cuh\"\n#include \"gemm_skinny.cuh\"\n")
	for i, p := range usualProducts {
		plan, err := Lower(p.call())
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(strings.ReplaceAll(plan.Kernels[0].Text, "NAME", fmt.Sprintf("k%d", i)))
	}
	var headers []nvrtc.Header
	files, _ := Headers.ReadDir(".")
	for _, f := range files {
		b, _ := Headers.ReadFile(f.Name())
		headers = append(headers, nvrtc.Header{Name: f.Name(), Text: string(b)})
	}
	for _, arch := range []string{"sm_80", "sm_90"} {
		_, log, err := l.Compile(nvrtc.Source{Name: "gemm.cu", Text: text.String(), Headers: headers}, arch, "--std=c++17", "--ptxas-options=-v")
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log, " 0 bytes spill stores, 0 bytes spill loads"); n != len(usualProducts) {
			t.Errorf("%s: %d of %d kernels spill no registers\n%s", arch, n, len(usualProducts), log)
		}
		t.Log(arch, regexp.MustCompile(`Used \d+`).FindAllString(log, -1))
	}
}
