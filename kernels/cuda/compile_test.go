package cuda

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/internal/fixtures"
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
	call("GatherRows", []dtype.DType{f4, l8, f4}, 50257, 768, 32768),
	call("Take", []dtype.DType{f2, l4, f2}, 12, 50, 6, 333, 1),
	call("ScatterAddRows", []dtype.DType{l8, f4, f4}, 50257, 768, 32768, 1),
	call("ScatterAddRows", []dtype.DType{l8, f2, f4}, 50257, 768, 32768, 1),
	call("ScatterRows", []dtype.DType{f4, l8, f4, f4}, 1000, 33, 5000, 1, 3),
	call("ScatterRows", []dtype.DType{l8, l8, l8, l8}, 100000, 1, 50000, 8, 0),
	call("MaxPoolFwd", []dtype.DType{f4, f4, l4}, 256, 64, 112, 112, 3, 3, 56, 56, 1, 1, 2, 2, 1, 1),
	call("MaxPoolBwd", []dtype.DType{f2, l4, f2}, 256, 64, 112, 112, 3, 3, 56, 56, 1, 1, 2, 2, 1, 1),
	call("AvgPoolFwd", []dtype.DType{f2, f2}, 256, 2048, 7, 7, 7, 7, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0),
	call("AvgPoolBwd", []dtype.DType{f4, f4}, 256, 2048, 7, 7, 3, 3, 3, 3, 0, 0, 0, 0, 2, 2, 1, 1, 1),
	call("MaxPool3Fwd", []dtype.DType{l8, l8, l4}, 6, 5, 6, 7, 2, 2, 2, 4, 5, 6, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 8),
	call("MaxPool3Bwd", []dtype.DType{f8, l4, f8}, 6, 5, 6, 7, 2, 2, 2, 4, 5, 6, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 2),
	call("AvgPool3Fwd", []dtype.DType{f8, f8}, 6, 5, 6, 7, 2, 2, 2, 4, 5, 6, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2),
	call("AvgPool3Bwd", []dtype.DType{f4, f4}, 6, 5, 6, 7, 2, 2, 2, 4, 5, 6, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
	call("TopK", []dtype.DType{f4, f4, l8}, 32, 50304, 1, 50, 1, 1),
	call("TopK", []dtype.DType{f2, f2, l8}, 32, 1000, 3, 5, 0, 4),
	call("TopK", []dtype.DType{l8, l8, l8}, 2, 20000, 1, 20000, 0, 8),
	call("Scan", []dtype.DType{f4, f4}, 32, 50304, 1, 1, 0, 1, 1),
	call("Scan", []dtype.DType{l8, l8}, 32, 504, 64, 8, 1, 0, 0),
	call("Det", []dtype.DType{f4, f4}, 4, 100, 7),
	call("Cofactor", []dtype.DType{f8, f8}, 8, 100, 7),
	{Name: "RoiAlignFwd", Types: []dtype.DType{f4, f4, l8, f4}, Ints: []int{4, 2, 256, 50, 50, 1000, 7, 7, 2, 1}, Floats: []float64{0.25}},
	{Name: "RoiAlignBwd", Types: []dtype.DType{f8, f8, l8, f8}, Ints: []int{8, 2, 256, 50, 50, 1000, 7, 7, 0, 0}, Floats: []float64{0.25}},
	call("GemmAny", []dtype.DType{l8, l8, no, l8}, 3, 100, 70, 33, 0, 1, 3300, 2310, 7000, 8),
	call("GemmAny", []dtype.DType{f8, f8, f8, f8}, 1, 100, 70, 33, 1, 0, 0, 0, 0, 2),
}

// long is whether tests may take minutes.
var long = os.Getenv("GTC_LONG") != ""

// TestTemplatesCompile compiles each kernel and reads ptxas' report.
func TestTemplatesCompile(t *testing.T) { compiles(t, sizes) }

// compiles fails the test for calls whose kernels do not compile or spill: every other call for the one chip, the rest for the
// other, and with GTC_LONG=1 all for both.
func compiles(t *testing.T, calls []Call) {
	t.Helper()
	lib := fixtures.NVRTC(t)
	for n, arch := range []string{"sm_80", "sm_90"} {
		mine := calls
		if !long {
			mine = nil
			for i := n; i < len(calls); i += 2 {
				mine = append(mine, calls[i])
			}
		}
		compilesFor(t, lib, arch, mine)
	}
}

func compilesFor(t *testing.T, lib *nvrtc.Library, arch string, calls []Call) {
	t.Helper()
	var text strings.Builder
	text.WriteString("#include \"gtc.cuh\"\n")
	seen, where := map[string]bool{}, []string{}
	for _, c := range calls {
		p, err := Lower(c)
		if err != nil {
			t.Errorf("%s %v: %v", c.Name, c.Ints, err)
			continue
		}
		for i, k := range p.Kernels {
			if seen[k.Text] {
				continue
			}
			seen[k.Text] = true
			for _, name := range k.Include {
				fmt.Fprintf(&text, "#include %q\n", name)
			}
			text.WriteString(strings.ReplaceAll(k.Text, "NAME", fmt.Sprintf("k%d", len(where))))
			where = append(where, fmt.Sprintf("%s %v kernel %d, %s", c.Name, c.Ints, i, k.Name))
		}
	}
	_, log, err := lib.Compile(nvrtc.Source{Name: "templates", Text: text.String(), Headers: headerFiles(t)}, arch, "--std=c++17", "--ptxas-options=-v")
	if err != nil {
		t.Fatal(err)
	}
	found := spills.FindAllStringSubmatch(log, -1)
	if len(found) != len(where) {
		t.Fatalf("%s: the log tells of %d kernels, not %d:\n%.500s", arch, len(found), len(where), log)
	}
	for _, m := range found {
		if n, err := strconv.Atoi(m[1]); err != nil || m[2] != "0" || m[3] != "0" || m[4] != "0" {
			t.Errorf("%s spills on %s: %s", where[n], arch, m[0])
		}
	}
}

// spills is what ptxas says of a kernel: its name, bytes of stack, bytes stored and loaded there.
var spills = regexp.MustCompile(`Function properties for k(\d+)\s+[^\n]*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)

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
