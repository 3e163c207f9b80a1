package cuda

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/kernels/cuda/standin"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device"
)

// Where the operands of weightGradient lie, and the arena's size.
const (
	atA, atB, atAdd, atC, atSums, atWork, arenaSize = 0, 8192, 16384, 24576, 32768, 65536, 1 << 20
	rowsOf, inputs, outputs                         = 40, 24, 32
)

// weightGradient is the product that makes the gradient of a weight and of its bias, added to what earlier micro-batches gave,
// with its kernels for the stand-in.
func weightGradient(t *testing.T) (*abi.Product, *device.Code) {
	t.Helper()
	f, none := dtype.F32, dtype.Invalid
	plan, err := cuda.Lower(cuda.Call{Name: "GemmEpilogue", Ints: []int{1, inputs, outputs, rowsOf, 1, 0, 0, 0, 0, 0, 0, 2}, Types: []dtype.DType{f, f, none, f, none, f, f}, Compute: "f32"})
	if err != nil {
		t.Fatal(err)
	}
	offsets := []int{atA, atB, abi.ArgNil, atAdd, abi.ArgNil, atC, atSums}
	p := plan.Product
	for _, at := range []*int{&p.A, &p.B, &p.C, &p.Bias, &p.Add, &p.Aux} {
		if *at >= 0 {
			*at = offsets[*at]
		}
	}
	p.Workspace, p.WorkBytes = atWork, plan.Workspace
	text, code := "#include \"gtc.cuh\"\n", &device.Code{}
	for i, k := range plan.Kernels {
		for _, h := range k.Include {
			text += fmt.Sprintf("#include %q\n", h)
		}
		name := fmt.Sprintf("k%d", i)
		text += strings.Replace(k.Text, "NAME(", name+"(", 1)
		code.Kernels = append(code.Kernels, name)
		l := abi.Launch{Kernel: i, Grid: k.Grid, Block: k.Block, Shared: k.Shared, Table: k.Table}
		for _, r := range k.Args {
			switch {
			case r.Arg == cuda.Workspace:
				l.Args = append(l.Args, atWork+r.Offset)
			case r.Arg < 0:
				l.Args = append(l.Args, r.Arg)
			default:
				l.Args = append(l.Args, offsets[r.Arg])
			}
		}
		p.Own = append(p.Own, l)
	}
	image, err := standin.Image(context.Background(), text, standin.Options{Checked: true})
	if err != nil {
		t.Fatal(err)
	}
	code.Images = []device.Image{{Arch: "host", Data: image}}
	return p, code
}

// runProduct runs the product on a fresh device and holds what it makes against float64.
func runProduct(t *testing.T, p *abi.Product, code *device.Code) {
	t.Helper()
	opened, err := Open(code, device.Options{ArenaBytes: arenaSize})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	d := opened.(*Device)
	r := rand.New(rand.NewPCG(1, 2))
	a, b, add := matrix(r, rowsOf*inputs), matrix(r, rowsOf*outputs), matrix(r, inputs*outputs)
	c, sums := make([]float32, inputs*outputs), make([]float32, outputs)
	want, _, wantSums := multiply(p, a, b, nil, add, c, nil)
	for at, x := range map[int][]float32{atA: a, atB: b, atAdd: add} {
		must(t, d.Put(at, raw(x)))
	}
	w, err := d.Prepare(&device.Task{Product: p, Status: -1})
	if err != nil {
		t.Fatal(err)
	}
	get := func() {
		for at, x := range map[int][]float32{atC: c, atSums: sums} {
			bytes := make([]byte, 4*len(x))
			must(t, d.Get(bytes, at))
			for i := range x {
				x[i] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:]))
			}
		}
	}
	get()
	for i, x := range c {
		if x != 0 {
			t.Fatalf("trying the product out changed element %d of the arena", i)
		}
	}
	must(t, d.Main().Capture(), w.Run(d.Main()))
	g, err := d.Main().End()
	if err != nil {
		t.Fatal(err)
	}
	must(t, d.Main().Launch(g), d.Main().Launch(g), d.Main().Sync())
	d.Drop(g)
	get()
	near(t, "the product", c, want)
	near(t, "the sums", sums, wantSums)
}

func raw(x []float32) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// A product runs by gtc's own kernels, by the library, by the library with the sums apart, as found in the file of choices, and
// when the library fails: always the same numbers, in a graph, with the arena untouched by what was tried.
func TestBlasOnDevice(t *testing.T) {
	useStandIn(t)
	runtime.LockOSThread()
	p, code := weightGradient(t)
	cache := t.TempDir()
	t.Setenv(cacheVariable, cache)
	chosen := func() string {
		files, _ := filepath.Glob(filepath.Join(cache, "*.json"))
		if len(files) != 1 {
			return ""
		}
		text, _ := os.ReadFile(files[0])
		return string(text)
	}
	runProduct(t, p, code) // no library
	if chosen() != "" {
		t.Error("a choice was made without a library")
	}
	useLibrary(t, blasVariable, "cublaslt.cc")
	t.Setenv("STANDIN_ALGOS", "0")
	runProduct(t, p, code)
	if !strings.Contains(chosen(), `"us"`) || strings.Contains(chosen(), "algo") {
		t.Errorf("of a library without algorithms was chosen %s", chosen())
	}
	must(t, os.RemoveAll(cache))
	t.Setenv("STANDIN_ALGOS", "3")
	runProduct(t, p, code)
	if !strings.Contains(chosen(), "algo") || strings.Contains(chosen(), "apart") {
		t.Errorf("chosen was %s", chosen())
	}
	if !strings.Contains(chosen(), `"us": 1.`) { // the library's product, on the stand-in's clock of work
		t.Errorf("the time is not the device's: %s", chosen())
	}
	before := chosen()
	runProduct(t, p, code)
	if chosen() != before {
		t.Error("the choice was made again")
	}
	t.Setenv("STANDIN_NO_SUMS", "1") // the algorithm of the file is refused now
	runProduct(t, p, code)
	if !strings.Contains(chosen(), "apart") {
		t.Errorf("of a library without sums was chosen %s", chosen())
	}
	runProduct(t, p, code)
	alone := *p
	alone.Own, alone.OwnSums = nil, 0
	if d, err := Open(code, device.Options{ArenaBytes: arenaSize}); err != nil {
		t.Fatal(err)
	} else if _, err = d.Prepare(&device.Task{Product: &alone, Status: -1}); err == nil || !strings.Contains(err.Error(), "cuBLASLt has no such product") {
		t.Errorf("a product that nobody makes: %v", err)
	} else {
		d.Close()
	}
}
