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

const (
	f32  = dtype.F32
	bf16 = dtype.BF16
	i64  = dtype.I64
)

// trial is a call that runs on the host, and what it must leave in one of its buffers.
type trial struct {
	cuda.Call
	buffers [][]byte
	result  int       // the buffer that is looked at
	want    []float64 // nil: only the status is
	status  int64     // math.MaxInt64 where every row is right
	tol     float64
}

func templateCall(name string, types []dtype.DType, ints ...int) cuda.Call {
	return cuda.Call{Name: name, Types: types, Ints: ints, Compute: "f32"}
}

// try runs all trials.
func try(t *testing.T, trials ...*trial) {
	t.Helper()
	var cases []*cudatest.Case
	for _, c := range trials {
		plan, err := cuda.Lower(c.Call)
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, &cudatest.Case{Name: fmt.Sprint(c.Name, c.Ints), Plan: plan, Buffers: c.buffers, Types: c.Types})
	}
	cudatest.RunAll(t, cases)
	for i, c := range trials {
		if cases[i].Err != nil {
			t.Error(cases[i].Err)
			continue
		}
		if cases[i].Status != c.status {
			t.Errorf("%s: status %d, want %d", cases[i].Name, cases[i].Status, c.status)
		}
		got := cudatest.Numbers(c.Types[c.result], c.buffers[c.result])
		for k := range c.want {
			if !(math.Abs(got[k]-c.want[k]) <= c.tol*(1+math.Abs(c.want[k])) || got[k] == c.want[k] || got[k] != got[k] && c.want[k] != c.want[k]) {
				t.Errorf("%s: element %d is %g, want %g", cases[i].Name, k, got[k], c.want[k])
				break
			}
		}
	}
}

// floats are n random numbers as type d holds them.
func floats(r *rand.Rand, d dtype.DType, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return cudatest.Numbers(d, cudatest.Bytes(d, x...))
}

// entropy gives a row's log of the sum of exponentials and its gradient.
func entropy(x []float64, target int, w float64) (lse float64, dx []float64) {
	top, sum := slices.Max(x), 0.0
	for _, v := range x {
		sum += math.Exp(v - top)
	}
	lse = top + math.Log(sum)
	for c, v := range x {
		g := w * math.Exp(v-lse)
		if c == target {
			g -= w
		}
		dx = append(dx, g)
	}
	return lse, dx
}

// Rows that start anywhere, of classes that are masked, with ignored and wrong targets, in place, kept in registers, in
// shared memory, or only in part.
func TestXentRows(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var trials []*trial
	for _, c := range []struct {
		classes int
		d       dtype.DType
	}{{7, f32}, {65, bf16}, {511, f32}, {513, bf16}, {1001, f32}, {4099, bf16}, {50257, bf16}, {30011, f32}} {
		const rows = 5
		x := floats(r, c.d, rows*c.classes)
		for i := range c.classes / 3 {
			x[i*2] = math.Inf(-1)
		}
		target := []float64{float64(c.classes - 1 - c.classes%2), 3, -100, float64(c.classes), 0}
		w := []float64{0.5, 2, 1, 1, -1}
		var dx, lse []float64
		for i := range rows {
			l, g := 0.0, make([]float64, c.classes)
			if i != 2 && i != 3 {
				l, g = entropy(x[i*c.classes:(i+1)*c.classes], int(target[i]), w[i])
			}
			dx, lse = append(dx, g...), append(lse, l)
		}
		tol := 1e-5
		if c.d == bf16 {
			tol = 5e-3
		}
		logits := cudatest.Bytes(c.d, x...)
		targets, weights := cudatest.Bytes(i64, target...), cudatest.Bytes(f32, w...)
		both := templateCall("XentFwdBwd", []dtype.DType{c.d, i64, f32, f32, c.d}, rows, c.classes, -100)
		trials = append(trials, &trial{Call: both, status: 3, result: 4, want: dx, tol: tol,
			buffers: [][]byte{logits, targets, weights, make([]byte, 4*rows), make([]byte, len(logits))}})
		forward := templateCall("XentFwd", []dtype.DType{c.d, i64, dtype.Invalid, f32, f32}, rows, c.classes, -100)
		trials = append(trials, &trial{Call: forward, status: 3, result: 4, want: lse, tol: 1e-5, buffers: [][]byte{logits, targets, nil, make([]byte, 4*rows), make([]byte, 4*rows)}})
	}
	try(t, trials...)
}

// An index out of range is told by its position, and neither read nor written through.
func TestIndicesOutOfRange(t *testing.T) {
	many := make([]float64, 3000)
	for i := range many {
		many[i] = float64(i % 5)
	}
	many[2999], many[1777], many[40] = -6, 5, -5
	few := []float64{4, -5, 5, 0, -6}
	row := func(n int) []byte { return cudatest.Bytes(f32, slices.Repeat([]float64{1}, n)...) }
	rois := []dtype.DType{f32, f32, i64, f32}
	align, back := templateCall("RoiAlignFwd", rois, 4, 2, 1, 4, 4, 3, 2, 2, 2, 1), templateCall("RoiAlignBwd", rois, 4, 2, 1, 4, 4, 3, 2, 2, 2, 1)
	align.Floats, back.Floats = []float64{1}, []float64{1}
	boxes := cudatest.Bytes(f32, 0, 0, 2, 2, 0, 0, 2, 2, 0, 0, 2, 2)
	sums := make([]float64, 5)
	for i, at := range many {
		if i != 2999 && i != 1777 {
			sums[(int(at)+5)%5]++
		}
	}
	try(t,
		&trial{Call: templateCall("GatherRows", []dtype.DType{f32, i64, f32}, 5, 1, 5), status: 2, result: 2, want: []float64{1, 1, 0, 1, 0},
			buffers: [][]byte{row(5), cudatest.Bytes(i64, few...), row(5)}},
		&trial{Call: templateCall("Take", []dtype.DType{f32, dtype.I32, f32}, 2, 5, 4, 5, 1), status: 2, result: 2, want: []float64{1, 1, 0, 1, 0, 1, 1, 0, 1, 0},
			buffers: [][]byte{row(10), cudatest.Bytes(dtype.I32, few...), row(10)}},
		&trial{Call: templateCall("ScatterAddRows", []dtype.DType{i64, f32, f32}, 5, 1, 5, 1), status: 2, result: 2, want: []float64{2, 0, 0, 0, 1},
			buffers: [][]byte{cudatest.Bytes(i64, few...), row(5), row(5)}},
		&trial{Call: templateCall("ScatterAddRows", []dtype.DType{i64, bf16, f32}, 5, 1, 3000, 0), status: 1777, result: 2, want: []float64{sums[0] + 1, sums[1] + 1, sums[2] + 1, sums[3] + 1, sums[4] + 1},
			buffers: [][]byte{cudatest.Bytes(i64, many...), cudatest.Bytes(bf16, slices.Repeat([]float64{1}, 3000)...), row(5)}},
		&trial{Call: templateCall("ScatterRows", []dtype.DType{f32, i64, f32, f32}, 5, 1, 3000, 1, 1), status: 1777, result: 3, want: []float64{sums[0] + 1, sums[1] + 1, sums[2] + 1, sums[3] + 1, sums[4] + 1},
			buffers: [][]byte{row(5), cudatest.Bytes(i64, many...), row(3000), make([]byte, 20)}},
		&trial{Call: templateCall("ScatterRows", []dtype.DType{f32, i64, f32, f32}, 5, 2, 5, 1, 5), status: 2, result: 3, want: []float64{7, 7, 1, 1, 1, 1, 1, 1, 7, 7},
			buffers: [][]byte{row(10), cudatest.Bytes(i64, few...), cudatest.Bytes(f32, slices.Repeat([]float64{7}, 10)...), make([]byte, 40)}},
		&trial{Call: align, status: 1, buffers: [][]byte{row(32), boxes, cudatest.Bytes(i64, -2, -3, 1), row(12)}},
		&trial{Call: back, status: 1, buffers: [][]byte{row(12), boxes, cudatest.Bytes(i64, -2, -3, 1), row(32)}})
}

// NaN wins in maxima; of equals the first.
func TestPoolNaN(t *testing.T) {
	nan := math.NaN()
	x := []float64{1, nan, 3, 3, nan, 2, 0, 3, math.Inf(-1), math.Inf(-1)}
	call := templateCall("MaxPoolFwd", []dtype.DType{f32, f32, dtype.I32}, 1, 1, 1, 10, 1, 2, 1, 5, 0, 0, 1, 2, 1, 1)
	for result, want := range map[int][]float64{1: {nan, 3, nan, 3, math.Inf(-1)}, 2: {1, 2, 4, 7, 8}} {
		try(t, &trial{Call: call, buffers: [][]byte{cudatest.Bytes(f32, x...), make([]byte, 20), make([]byte, 20)}, result: result, want: want, status: math.MaxInt64})
	}
}
