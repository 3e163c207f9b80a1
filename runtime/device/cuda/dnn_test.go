package cuda

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device"
)

// standInDnn opens the stand-in for cuDNN.
func standInDnn(t *testing.T) *dnn {
	t.Helper()
	useLibrary(t, dnnVariable, "cudnn.cc")
	n, err := openDnn()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.call(dnnDestroy, n.handle) })
	return n
}

// terms calls f with the flat places in x, w and y of every term of c.
func terms(c *abi.Convolution, f func(x, w, y int)) {
	i := c.Ints
	cg, og := i[1]/i[15], i[4]/i[15]
	for y := range i[0] * i[4] * i[7] * i[8] {
		n, o, a, b := y/i[8]/i[7]/i[4], y/i[8]/i[7]%i[4], y/i[8]%i[7], y%i[8]
		for k := range cg * i[5] * i[6] {
			h, w := a*i[11]-i[9]+k/i[6]%i[5]*i[13], b*i[12]-i[10]+k%i[6]*i[14]
			if h >= 0 && h < i[2] && w >= 0 && w < i[3] {
				f(((n*i[1]+o/og*cg+k/i[6]/i[5])*i[2]+h)*i[3]+w, o*cg*i[5]*i[6]+k, y)
			}
		}
	}
}

// Descriptors and arguments of all kinds: the stand-in refuses wrong ones, and its results are the convolution's.
func TestConvolutionsByCudnn(t *testing.T) {
	n := standInDnn(t)
	if n.version != 92800 {
		t.Errorf("version %d", n.version)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, ints := range [][16]int{
		{2, 3, 9, 8, 4, 3, 2, 5, 4, 1, 0, 2, 2, 1, 1, 1},
		{1, 4, 7, 9, 6, 2, 3, 7, 5, 1, 0, 1, 1, 2, 2, 2},
	} {
		c := &abi.Convolution{Ints: ints, Type: "f32", Compute: "f32", Bias: abi.ArgNil, WorkBytes: 8192}
		xb, wb, yb := convBytes(c)
		x, w, y, bias, work := matrix(r, xb/4), matrix(r, wb/4), matrix(r, yb/4), matrix(r, ints[4]), matrix(r, 2048)
		forward, data, weight := make([]float64, len(y)), make([]float64, len(x)), make([]float64, len(w))
		for k := range forward {
			forward[k] = float64(bias[k/ints[7]/ints[8]%ints[4]])
		}
		terms(c, func(i, k, o int) {
			forward[o] += float64(x[i]) * float64(w[k])
			data[i] += float64(y[o]) * float64(w[k])
			weight[k] += float64(y[o]) * float64(x[i])
		})
		for _, kind := range []struct {
			name  string
			a, b  []float32
			want  []float64
			bias  int
			addTo []float32
		}{{"fwd", x, w, forward, 64, bias}, {"dgrad", y, w, data, abi.ArgNil, nil}, {"wgrad", x, y, weight, abi.ArgNil, nil}} {
			c.Kind, c.Bias = kind.name, kind.bias
			got := matrix(r, len(kind.want))
			q, err := n.newConvolution(c, convPlaces{at(kind.a), at(kind.b), at(got), at(kind.addTo), at(work)})
			if err != nil || q == nil {
				t.Fatal(q, err)
			}
			list, err := q.candidates(6)
			if err != nil || len(list) != 1 || list[0].algo != 1 { // the others need too much memory, are not deterministic or do not run
				t.Fatalf("%s: candidates %v, %v", kind.name, list, err)
			}
			q.use(int(list[0].algo))
			if err := q.queue(0); err != nil {
				t.Fatal(err)
			}
			for k := range got {
				if math.Abs(float64(got[k])-kind.want[k]) > 1e-4 {
					t.Fatalf("%s %v: element %d is %g, want %g", kind.name, ints, k, got[k], kind.want[k])
				}
			}
			q.use(7)
			var refused *dnnError
			if err := q.queue(0); !errors.As(err, &refused) || !strings.Contains(err.Error(), "CUDNN_STATUS_NOT_SUPPORTED (3000)") {
				t.Errorf("%s: an algorithm that is not there: %v", kind.name, err)
			}
			q.close()
		}
	}
}

// What the library does not have is left to gtc's kernels, or told where there are none.
func TestConvolutionsCudnnLacks(t *testing.T) {
	c := &abi.Convolution{Kind: "fwd", Ints: [16]int{1, 1, 8, 8, 1, 3, 3, 7, 7, 1, 1, 1, 1, 1, 1, 1}, Type: "f32", Compute: "f32", Bias: abi.ArgNil}
	n := &dnn{}
	if q, err := n.newConvolution(c, convPlaces{}); q != nil || err != nil {
		t.Errorf("padding before and behind that differs: %v, %v", q, err)
	}
	if err := unlessOwnConv(c, nil); err == nil || !strings.Contains(err.Error(), "cuDNN has no such convolution") {
		t.Errorf("without own kernels: %v", err)
	}
	c.Own = []abi.Launch{{}}
	if err := unlessOwnConv(c, nil); err != nil {
		t.Error(err)
	}
	s := &convScratch{convPlaces: convPlaces{a: 1000, b: 2000, c: 3000, work: 5000}, sizes: [5]int{256, 36, 196, 4, 512}}
	c.A, c.B, c.C, c.Workspace = 0, 256, 320, 1024
	for offset, want := range map[int]uintptr{0: 1000, 128: 1128, 256: 2000, 320: 3000, 1100: 5076} {
		if got := s.moved(c, offset); got != want {
			t.Errorf("offset %d moves to %d, want %d", offset, got, want)
		}
	}
}

// A device tries a convolution out, keeps the choice, and runs it in the stream.
func TestConvolutionsOfDevices(t *testing.T) {
	useLibrary(t, dnnVariable, "cudnn.cc")
	t.Setenv(cacheVariable, t.TempDir())
	d := opened(t, 16384)
	c := &abi.Convolution{Kind: "fwd", Ints: [16]int{1, 1, 16, 16, 1, 1, 1, 16, 16, 0, 0, 1, 1, 1, 1, 1}, Type: "f32", Compute: "f32",
		A: 0, B: 1024, C: 2048, Bias: 1088, Workspace: 8192, WorkBytes: 8192}
	must(t, d.Put(0, floats(3)), d.Put(1024, floats(0.5)))
	run := func() float32 {
		t.Helper()
		must(t, d.Put(2048, floats(9)))
		w, err := d.Prepare(&device.Task{Convolution: c, Status: -1})
		must(t, err, d.main.Run(w))
		return value(t, d, 2048)
	}
	if y := run(); y != 2 {
		t.Errorf("3 times 0.5 and 0.5 is %v", y)
	}
	kept := d.lib.dnn.choices.list[convProblem(c)]
	if algo, ok := kept.algo(); !ok || algo == nil || algo[0] != 1 || d.lib.dnn.choices.file == "" {
		t.Errorf("the choice kept is %+v", kept)
	}
	if y := run(); y != 2 {
		t.Errorf("by the choice kept: %v", y)
	}
	c.Own = []abi.Launch{{Kernel: kTwice, Grid: [3]int{1, 1, 1}, Block: [3]int{256, 1, 1}, Args: []int{2048}}}
	if y := run(); y != 2 && y != 18 {
		t.Errorf("tried beside own kernels: %v", y)
	}
	if own, ok := d.lib.dnn.choices.list[convProblem(c)]; !ok || own.Micro <= 0 {
		t.Errorf("the choice kept is %+v", own)
	}
	if again := choicesIn("other"); len(again.list) != 0 {
		t.Errorf("another device's choices: %v", again.list)
	}
}
