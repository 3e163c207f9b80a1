package cuda_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/kernels/cuda/cudatest"
	"github.com/gtc-compiler/gtc/runtime/nvrtc"
)

// gptProducts are the products of a training step of a GPT of some width: of each layer y = x·W, with what follows it, and of
// the head, with both gradients. Weights lie as GPT-2 has them, or turned, as PyTorch's Linear has them.
func gptProducts(d dtype.DType, compute string, rows, width, vocab int) []cuda.Call {
	var list []cuda.Call
	add := func(ints []int, bias, add, aux, c, sums dtype.DType) {
		list = append(list, cuda.Call{Name: "GemmEpilogue", Ints: append([]int{1}, ints...), Types: []dtype.DType{d, d, bias, add, aux, c, sums}, Compute: compute})
	}
	layer := func(in, out, act int, bias dtype.DType, residual bool) {
		for _, turned := range []int{0, 1} {
			more, aux, kept, derived := none, none, 0, 0
			if residual {
				more = d
			}
			if act != 0 {
				aux, kept, derived = d, 1, act+4
			}
			add([]int{rows, out, in, 0, turned, 0, 0, 0, act, kept, 0}, bias, more, aux, d, none)
			add([]int{rows, out, in, 0, turned, 0, 0, 0, act, 0, 0}, bias, none, none, d, none) // of evaluation
			add([]int{rows, out, in, 0, 1 - turned, 0, 0, 0, derived, 0, 0}, none, none, aux, d, none)
			add([]int{rows, out, in, 0, 1 - turned, 0, 0, 0, 0, 0, 0}, none, d, none, d, none) // onto another gradient
			m, n, sums := in, out, 2
			if turned == 1 {
				m, n, sums = out, in, 1
			}
			if bias == none {
				sums = 0
			}
			sum := []dtype.DType{none, f32, f32}[sums]
			add([]int{m, n, rows, 1, 0, 0, 0, 0, 0, 0, sums}, none, none, none, f32, sum)
			add([]int{m, n, rows, 1, 0, 0, 0, 0, 0, 0, sums}, none, f32, none, f32, sum) // of a later micro-batch
		}
	}
	layer(width, 3*width, 0, d, false)
	layer(width, width, 0, d, true)
	layer(width, 4*width, 2, d, false)
	layer(4*width, width, 0, d, true)
	layer(width, vocab, 0, none, false)
	list = append(list, cuda.Call{Name: "GemmEpilogue", Ints: []int{1, rows, width, vocab, 0, 0, 0, 0, 0, 0, 0, 0}, Types: []dtype.DType{d, d, none, none, none, d, none}, Compute: compute})
	return list
}

var spill = regexp.MustCompile(`(?s)Compiling entry function '([^']*)'.*?(\d+) bytes spill stores.*?Used (\d+) registers`)

// spills compiles the plans' kernels and lists those that keep registers in memory.
func spills(t *testing.T, l *nvrtc.Library, calls []cuda.Call, arch string) []string {
	t.Helper()
	var cases []*cudatest.Case
	texts := map[string]bool{}
	for _, c := range calls {
		plan, err := cuda.Lower(c)
		if err != nil {
			t.Fatal(err)
		}
		if k := plan.Kernels[0]; !texts[k.Text] {
			texts[k.Text] = true
			cases = append(cases, &cudatest.Case{Plan: &cuda.Plan{Kernels: []cuda.Kernel{k}}})
		}
	}
	var headers []nvrtc.Header
	files, _ := cuda.Headers.ReadDir(".")
	for _, f := range files {
		b, _ := cuda.Headers.ReadFile(f.Name())
		headers = append(headers, nvrtc.Header{Name: f.Name(), Text: string(b)})
	}
	text, _ := cudatest.Source(cases)
	_, log, err := l.Compile(nvrtc.Source{Name: "gemm.cu", Text: text, Headers: headers}, arch, "--std=c++17", "--ptxas-options=-v")
	if err != nil {
		t.Fatal(err)
	}
	all := spill.FindAllStringSubmatch(log, -1)
	if len(all) != len(cases) {
		t.Errorf("%s: figures of %d kernels of %d", arch, len(all), len(cases))
	}
	var list []string
	for _, m := range all {
		if n, _ := strconv.Atoi(m[2]); n > 0 {
			body := text[strings.Index(text, " "+m[1]+"("):]
			list = append(list, fmt.Sprintf("%d bytes, %s registers: %s", n, m[3], regexp.MustCompile(`gtc::gemm\S.*>\(`).FindString(body)))
		}
	}
	slices.Sort(list)
	return list
}

// TestGPTProductsSpillNothing: of GPT-2 at its smallest, in single and half precision, for sm_90; with GTC_LONG=1 also in others,
// of more batches and widths, and for sm_80.
func TestGPTProductsSpillNothing(t *testing.T) {
	l := fixtures.NVRTC(t)
	for _, p := range []struct {
		name    string
		d       dtype.DType
		compute string
		long    bool
	}{{"f32", f32, "f32", false}, {"tf32", f32, "tf32", true}, {"bf16", bf16, "f32", false}, {"f16", f16, "f32", true}} {
		for _, s := range []struct {
			rows, width, vocab int
			long               bool
		}{{32768, 768, 50304, false}, {8192, 768, 50257, true}, {1024, 768, 50304, true}, {16384, 2048, 50257, true}, {2048, 2048, 50304, true}} {
			if os.Getenv("GTC_LONG") == "" && (p.long || s.long) {
				continue
			}
			for _, arch := range []string{"sm_80", "sm_90"} {
				if os.Getenv("GTC_LONG") == "" && arch != "sm_90" {
					continue
				}
				name := fmt.Sprintf("%s/%s/%dx%dx%d", arch, p.name, s.rows, s.width, s.vocab)
				t.Run(name, func(t *testing.T) {
					if list := spills(t, l, gptProducts(p.d, p.compute, s.rows, s.width, s.vocab), arch); len(list) > 0 {
						t.Errorf("%d kernels spill:\n%s", len(list), strings.Join(list, "\n"))
					}
				})
			}
		}
	}
}
