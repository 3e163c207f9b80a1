package cuda

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/runtime/nvrtc"
)

const (
	no = dtype.Invalid
	f2 = dtype.BF16
	f4 = dtype.F32
	f8 = dtype.F64
	l4 = dtype.I32
	l8 = dtype.I64
)

func call(name string, types []dtype.DType, ints ...int) Call {
	return Call{Name: name, Types: types, Ints: ints, Compute: "f32"}
}

// sizes are calls as models of usual sizes make them, which must compile without spills.
var sizes = []Call{
	call("XentFwdBwd", []dtype.DType{f2, l8, f4, f4, f2}, 8192, 50304, -100),
	call("XentFwdBwd", []dtype.DType{f4, l8, f4, f4, f4}, 8192, 50257, -100),
	call("XentFwdBwd", []dtype.DType{dtype.F16, l8, no, f4, dtype.F16}, 256, 1000, -100),
	call("XentFwdBwd", []dtype.DType{f4, l8, f4, f4, f4}, 128, 10, -100),
	call("XentFwdBwd", []dtype.DType{f2, l8, f4, f4, f2}, 128, 500, -100),
	call("XentFwd", []dtype.DType{f2, l8, f4, f4, no}, 8192, 50304, -100),
	call("XentBwd", []dtype.DType{f2, l8, f4, f4, f2}, 8192, 50304, -100),
	call("GatherRows", []dtype.DType{f4, l8, f4}, 50257, 768, 32768),
	call("Take", []dtype.DType{f2, l4, f2}, 12, 50, 6, 333, 1),
	call("ScatterAddRows", []dtype.DType{l8, f4, f4}, 50257, 768, 32768, 1),
	call("ScatterAddRows", []dtype.DType{l8, f2, f4}, 50257, 768, 32768, 1),
	call("ScatterRows", []dtype.DType{f4, l8, f4, f4}, 1000, 33, 5000, 1, 3),
	call("ScatterRows", []dtype.DType{l8, l8, l8, l8}, 100000, 1, 50000, 8, 0),
	call("Transpose", []dtype.DType{f2, f2}, 4, 32, 1024, 12, 64, 0, 0, 0, 2, 1, 3, 0, 0, 2),
	call("Transpose", []dtype.DType{f4, f4}, 2, 768, 50257, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 4),
	call("Transpose", []dtype.DType{f2, f2}, 3, 32, 768, 197, 0, 0, 0, 0, 2, 1, 0, 0, 0, 2),
	call("Copy", []dtype.DType{f4, f4}, 4096),
}

// TestTemplatesCompile compiles each kernel for both architectures and reads ptxas' report.
func TestTemplatesCompile(t *testing.T) {
	lib, err := nvrtc.Open(nvrtc.Candidates("", os.Getenv))
	if err != nil {
		t.Skipf("NVRTC is absent: %v", err)
	}
	headers := headerFiles(t)
	for _, c := range sizes {
		p, err := Lower(c)
		if err != nil {
			t.Errorf("%s %v: %v", c.Name, c.Ints, err)
			continue
		}
		for i, k := range p.Kernels {
			text := "#include \"gtc.cuh\"\n"
			for _, name := range k.Include {
				text += fmt.Sprintf("#include %q\n", name)
			}
			src := nvrtc.Source{Name: k.Name, Text: text + strings.ReplaceAll(k.Text, "NAME", k.Name), Headers: headers}
			for _, arch := range []string{"sm_80", "sm_90"} {
				_, log, err := lib.Compile(src, arch, "--std=c++17", "--ptxas-options=-v")
				if err != nil {
					t.Errorf("%s %v kernel %d: %v", c.Name, c.Ints, i, err)
					break
				}
				t.Logf("%s %s: %s", k.Name, arch, log[strings.Index(log, "bytes stack")-5:])
				if !strings.Contains(log, "0 bytes spill stores, 0 bytes spill loads") || !strings.Contains(log, " 0 bytes stack frame") {
					t.Errorf("%s %v kernel %d spills on %s:\n%s", c.Name, c.Ints, i, arch, log)
				}
			}
		}
	}
}

func headerFiles(t *testing.T) []nvrtc.Header {
	t.Helper()
	var out []nvrtc.Header
	names, err := fs.Glob(Headers, "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		text, err := Headers.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, nvrtc.Header{Name: n, Text: string(text)})
	}
	return out
}
