package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/kernels/cuda/cudatest"
)

// convolution is a case: n, c, h, w, o, kh, kw, oh, ow, pads, strides, dilations, groups; the types of operands and result.
type convolution struct {
	ints    [16]int
	in, out dtype.DType
	compute string
	want    string // the kernel that is to do it
}

// each calls f with the flat places in x, w and y of every term of a convolution.
func (c convolution) each(f func(x, w, y int)) {
	i := c.ints
	cg, og := i[1]/i[15], i[4]/i[15]
	for y := range i[0] * i[4] * i[7] * i[8] {
		n, o, a, b := y/i[8]/i[7]/i[4], y/i[8]/i[7]%i[4], y/i[8]%i[7], y%i[8]
		for k := range cg * i[5] * i[6] {
			ch, h, w := o/og*cg+k/i[6]/i[5], a*i[11]-i[9]+k/i[6]%i[5]*i[13], b*i[12]-i[10]+k%i[6]*i[14]
			if h >= 0 && h < i[2] && w >= 0 && w < i[3] {
				f(((n*i[1]+ch)*i[2]+h)*i[3]+w, o*cg*i[5]*i[6]+k, y)
			}
		}
	}
}

// Convolutions in parts, with results and biases of f32, and in tf32, against sums of float64.
func TestConvolutionsInTiles(t *testing.T) {
	cuda.PackBytes(t, 5000)
	r := rand.New(rand.NewPCG(9, 10))
	strided, pointwise := [16]int{3, 12, 9, 10, 40, 3, 3, 5, 5, 1, 1, 2, 2, 1, 1, 1}, [16]int{3, 40, 4, 8, 72, 1, 1, 4, 8, 0, 0, 1, 1, 1, 1, 1}
	for _, c := range []convolution{{strided, bf16, bf16, "f32", "conv_%s"}, {strided, f32, f32, "f32", "conv_%s"}, {strided, f32, f32, "tf32", "conv_%s"}, {pointwise, dtype.F16, f32, "f32", ""}} {
		i := c.ints
		x, w, dy, bias := floats(r, c.in, i[0]*i[1]*i[2]*i[3]), floats(r, c.in, i[4]*i[1]/i[15]*i[5]*i[6]), floats(r, c.in, i[0]*i[4]*i[7]*i[8]), floats(r, f32, i[4])
		y, dx, dw := make([]float64, len(dy)), make([]float64, len(x)), make([]float64, len(w))
		for k := range y {
			y[k] = bias[k/i[7]/i[8]%i[4]]
		}
		c.each(func(a, b, o int) {
			y[o] += x[a] * w[b]
			dx[a] += dy[o] * w[b]
			dw[b] += dy[o] * x[a]
		})
		bytes := func(d dtype.DType, x []float64) []byte { return cudatest.Bytes(d, x...) }
		c.try(t, "fwd", "ConvFwd", []dtype.DType{c.in, c.in, f32, c.out}, y, bytes(c.in, x), bytes(c.in, w), bytes(f32, bias), make([]byte, len(y)*c.out.Size()))
		c.try(t, "dgrad", "ConvBwdData", []dtype.DType{c.in, c.in, c.out}, dx, bytes(c.in, dy), bytes(c.in, w), make([]byte, len(dx)*c.out.Size()))
		c.try(t, "wgrad", "ConvBwdWeight", []dtype.DType{c.in, c.in, f32}, dw, bytes(c.in, x), bytes(c.in, dy), make([]byte, len(dw)*4))
	}
}

func (c convolution) try(t *testing.T, kind, name string, types []dtype.DType, want []float64, buffers ...[]byte) {
	t.Helper()
	plan, err := cuda.Lower(cuda.Call{Name: name, Types: types, Ints: c.ints[:], Compute: c.compute})
	if err != nil {
		t.Fatal(err)
	}
	if c.want != "" && !slices.ContainsFunc(plan.Kernels, func(k cuda.Kernel) bool { return k.Name == fmt.Sprintf(c.want, kind) }) {
		t.Errorf("%s %v has no tiles", name, c.ints)
	}
	run := &cudatest.Case{Name: fmt.Sprintf("%s %v", name, c.ints), Plan: plan, Buffers: buffers, Types: types}
	if cudatest.RunAll(t, []*cudatest.Case{run}); run.Err != nil {
		t.Fatal(run.Err)
	}
	last := len(types) - 1
	tol := 1e-5
	switch {
	case types[last].Size() == 2:
		tol = 2e-2
	case c.compute == "tf32":
		tol = 2e-3
	}
	diff, norm := 0.0, 0.0
	for k, got := range cudatest.Numbers(types[last], buffers[last]) {
		diff, norm = diff+(got-want[k])*(got-want[k]), norm+want[k]*want[k]
	}
	if !(math.Sqrt(diff) <= tol*math.Sqrt(norm)) {
		t.Errorf("%s %v of %s in %s: differs by %g of %g", name, c.ints, types[0], c.compute, math.Sqrt(diff), math.Sqrt(norm))
	}
}
