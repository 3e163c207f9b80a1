package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	gencuda "github.com/gtc-compiler/gtc/codegen/cuda"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/kernels/cuda/cudatest"
)

// maker builds random kernels: loads of all kinds of accesses, arithmetic that stays near 1, reductions over rows,
// accumulations over columns and over everything, stores.
type maker struct {
	r *rand.Rand
	k *kir.Kernel
}

func (m *maker) pick(list ...int) int { return list[m.r.IntN(len(list))] }

// space picks dims: some long enough for several chunks, some odd.
func (m *maker) space(rows, cols []int) {
	m.k = &kir.Kernel{Chunks: 1}
	add := func(sizes []int, row bool) {
		for _, n := range sizes {
			m.k.Dims, m.k.Row = append(m.k.Dims, n), append(m.k.Row, row)
		}
	}
	if m.r.IntN(5) == 0 {
		add(cols, true)
		add(rows, false)
		return
	}
	add(rows, false)
	add(cols, true)
}

// access is one way through a buffer: dense, in another order of dims, or standing still along some dims; with its buffer's size.
func (m *maker) access() (kir.Access, int) {
	dims := m.k.Dims
	a := kir.Access{Dims: dims, Strides: make([]int, len(dims))}
	order := make([]int, len(dims))
	for d := range order {
		order[d] = len(dims) - 1 - d
	}
	if m.r.IntN(6) == 0 {
		m.r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	still := m.r.IntN(5) // 0: along row dims, 1: along others, 2: random, else none
	n := 1
	if m.r.IntN(8) == 0 {
		n = 2 // every second element
	}
	for _, d := range order {
		if still == 0 && m.k.Row[d] || still == 1 && !m.k.Row[d] || still == 2 && m.r.IntN(2) == 0 {
			continue
		}
		a.Strides[d] = n
		n *= dims[d]
	}
	return a, n
}

func (m *maker) emit(in kir.Inst) int {
	for _, a := range in.Args {
		in.Level = max(in.Level, m.k.Insts[a].Level)
		in.Stage = max(in.Stage, m.k.Insts[a].Stage)
	}
	for d, s := range in.Access.Strides {
		if s != 0 && m.k.Row[d] {
			in.Level = kir.PerElem
		} else if s != 0 {
			in.Level = max(in.Level, kir.PerRow)
		}
	}
	if in.Op == "reduce" {
		in.Level, in.Stage = kir.PerRow, in.Stage+1
	}
	m.k.Insts = append(m.k.Insts, in)
	return len(m.k.Insts) - 1
}

func (m *maker) param(d dtype.DType, n int, out bool) int {
	align := m.pick(64, 64, 64, 16, 8, d.Size())
	m.k.Params = append(m.k.Params, kir.Param{DType: d, Elems: n, Out: out, Align: max(align, d.Size())})
	return len(m.k.Params) - 1
}

var types = []dtype.DType{dtype.F32, dtype.F32, dtype.BF16, dtype.BF16, dtype.F16, dtype.F64}

// load reads a new buffer, as a float of type d.
func (m *maker) load(d dtype.DType) int {
	a, n := m.access()
	t := d
	if m.r.IntN(3) == 0 {
		t = types[m.r.IntN(len(types))]
	}
	v := m.emit(kir.Inst{Op: "load", DType: t, Param: m.param(t, n, false), Access: a})
	if t != d {
		v = m.emit(kir.Inst{Op: "cast", DType: d, Args: []int{v}})
	}
	return v
}

// mix combines two values into one of some (-2, 2).
func (m *maker) mix(d dtype.DType, x, y int) int {
	op := []string{"add", "sub", "mul", "max", "min"}[m.r.IntN(5)]
	v := m.emit(kir.Inst{Op: op, DType: d, Args: []int{x, y}})
	switch m.r.IntN(4) {
	case 0:
		return m.emit(kir.Inst{Op: "tanh", DType: d, Args: []int{v}})
	case 1:
		c := m.emit(kir.Inst{Op: "lt", DType: dtype.Bool, Args: []int{x, y}})
		y = m.emit(kir.Inst{Op: "select", DType: d, Args: []int{c, x, y}}) // the less, else a rounding could change it
		return m.emit(kir.Inst{Op: "mul", DType: d, Args: []int{y, v}})
	case 2:
		half := m.emit(kir.Inst{Op: "const", DType: d, Value: 0.5})
		return m.emit(kir.Inst{Op: "mul", DType: d, Args: []int{v, half}})
	}
	return v
}

// reduced is a reduction of x over rows, scaled to stay near 1.
func (m *maker) reduced(d dtype.DType, x int) int {
	fn := []string{"sum", "sum", "max", "min"}[m.r.IntN(4)]
	v := m.emit(kir.Inst{Op: "reduce", Fn: fn, DType: d, Args: []int{x}})
	if fn == "sum" {
		c := m.emit(kir.Inst{Op: "const", DType: d, Value: 1 / float64(m.k.RowElems())})
		v = m.emit(kir.Inst{Op: "mul", DType: d, Args: []int{v, c}})
	}
	return v
}

func (m *maker) store(x int) {
	in := m.k.Insts[x]
	if !slices.ContainsFunc(m.k.Insts, func(in kir.Inst) bool { return in.Op == "reduce" }) {
		in.Level = kir.PerElem // groups without reductions have no values of rows
	}
	a := kir.Access{Dims: m.k.Dims, Strides: make([]int, len(m.k.Dims))}
	n := 1
	for d := len(m.k.Dims) - 1; d >= 0; d-- {
		if in.Level == kir.PerElem || in.Level == kir.PerRow && !m.k.Row[d] {
			a.Strides[d] = n
			n *= m.k.Dims[d]
		}
	}
	m.emit(kir.Inst{Op: "store", DType: in.DType, Args: []int{x}, Param: m.param(in.DType, n, true), Access: a})
}

// acc accumulates x over rows, or (all) over everything.
func (m *maker) acc(x int, all bool) {
	in := m.k.Insts[x]
	a := kir.Access{Dims: m.k.Dims, Strides: make([]int, len(m.k.Dims))}
	n := 1
	for d := len(m.k.Dims) - 1; d >= 0 && !all; d-- {
		if m.k.Row[d] {
			a.Strides[d] = n
			n *= m.k.Dims[d]
		}
	}
	fn := []string{"sum", "sum", "sum", "max"}[m.r.IntN(4)]
	m.k.Work += (n*kir.AccSize(in.DType) + 63) &^ 63
	m.emit(kir.Inst{Op: "acc", Fn: fn, DType: in.DType, Args: []int{x}, Param: m.param(in.DType, n, true), Access: a})
}

// randomKernel makes one; reduces and accs say how many of each there are.
func randomKernel(r *rand.Rand, rows, cols []int, reduces, accs int) *kir.Kernel {
	m := &maker{r: r}
	m.space(rows, cols)
	d := []dtype.DType{dtype.F32, dtype.F32, dtype.F32, dtype.F64}[r.IntN(4)]
	live := []int{m.load(d), m.load(d)}
	some := func() int { return live[r.IntN(len(live))] }
	for range reduces + 1 {
		live = append(live, m.mix(d, some(), some()))
		if len(live) < 3+2*reduces {
			live = append(live, m.mix(d, some(), m.load(d)))
		}
		if reduces > 0 {
			live = append(live, m.reduced(d, some()))
		}
	}
	last := m.mix(d, live[len(live)-1], some())
	for i := range accs {
		m.acc(live[len(live)-1-i%2], r.IntN(3) == 0)
	}
	if accs == 0 || r.IntN(2) == 0 {
		m.store(last)
	}
	if r.IntN(3) == 0 {
		m.store(m.emit(kir.Inst{Op: "cast", DType: dtype.BF16, Args: []int{last}}))
	}
	if reduces > 0 && r.IntN(2) == 0 {
		m.store(live[len(live)-1])
	}
	return m.k
}

// fill gives a buffer numbers in (-1, 1) of type d.
func fill(r *rand.Rand, d dtype.DType, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = d.Round(2*r.Float64() - 1)
	}
	return x
}

// check is a kernel with what it must leave in its buffers.
type check struct {
	k    *kir.Kernel
	want [][]float64
}

// runKernels prints each kernel as CUDA, runs it here and compares it with eval.
func runKernels(t *testing.T, r *rand.Rand, kernels []*kir.Kernel) {
	var cases []*cudatest.Case
	var checks []check
	for i, k := range kernels {
		before := k.String()
		list, work, err := gencuda.Kernels("fuzz", k)
		if err != nil {
			t.Fatalf("kernel %d: %v\n%s", i, err, k)
		}
		if k.String() != before {
			t.Fatalf("kernel %d was changed", i)
		}
		c := &cudatest.Case{Name: fmt.Sprint("kernel ", i), Plan: &cuda.Plan{Kernels: list, Workspace: work}}
		var bufs [][]float64
		for _, p := range k.Params {
			x := fill(r, p.DType, p.Elems)
			bufs = append(bufs, x)
			c.Buffers = append(c.Buffers, cudatest.Bytes(p.DType, x...))
		}
		eval(t, k, bufs)
		cases, checks = append(cases, c), append(checks, check{k, bufs})
	}
	cudatest.RunAll(t, cases)
	for i, c := range cases {
		if c.Err != nil {
			t.Errorf("%v\n%s\n%s", c.Err, checks[i].k, c.Plan.Kernels[0].Text)
			continue
		}
		for j, p := range checks[i].k.Params {
			got := cudatest.Numbers(p.DType, c.Buffers[j])
			if err := differ(got, checks[i].want[j], p.DType); err != nil {
				t.Errorf("kernel %d param %d: %v\n%s\n%s", i, j, err, checks[i].k, c.Plan.Kernels[0].Text)
			}
		}
	}
}

// eval is what k does to buffers of floats.
func eval(t *testing.T, k *kir.Kernel, bufs [][]float64) {
	t.Helper()
	var list []kir.Buffer
	for _, x := range bufs {
		list = append(list, kir.Buffer{F: x})
	}
	if err := k.Eval(list); err != nil {
		t.Fatalf("%v\n%s", err, k)
	}
}

// differ compares in norm: 1e-5 for f32, a rounding for half precision.
func differ(got, want []float64, d dtype.DType) error {
	tol := map[dtype.DType]float64{dtype.BF16: 1.0 / 128, dtype.F16: 1.0 / 1024}[d]
	tol = math.Max(tol, 1e-5)
	var diff, norm float64
	worst := 0
	for i := range want {
		e := got[i] - want[i]
		if math.IsNaN(e) && !(math.IsNaN(got[i]) && math.IsNaN(want[i])) {
			return fmt.Errorf("element %d is %v, must be %v", i, got[i], want[i])
		}
		if math.Abs(e) > math.Abs(got[worst]-want[worst]) {
			worst = i
		}
		diff += e * e
		norm += want[i] * want[i]
	}
	if e := math.Sqrt(diff / math.Max(norm, float64(len(want)))); e > tol {
		return fmt.Errorf("error %.3g; element %d of %d is %v, must be %v", e, worst, len(want), got[worst], want[worst])
	}
	return nil
}

// TestRandomKernels: forms and sizes of all kinds, with GTC_LONG=1 three times as many.
func TestRandomKernels(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var kernels []*kir.Kernel
	sizes := []struct{ rows, cols []int }{
		{[]int{3}, []int{5}}, {[]int{40}, []int{64}}, {[]int{5, 6}, []int{96}}, {[]int{7}, []int{768}}, {[]int{300}, []int{33}},
		{[]int{9}, []int{4, 8, 16}}, {[]int{5}, []int{1600}}, {[]int{3}, []int{20000}}, {[]int{2, 3, 4}, []int{2, 24}}, {[]int{1000}, []int{8}},
		{[]int{3}, []int{4099}}, {[]int{5}, []int{36000}}, {[]int{2}, []int{3, 6500}},
	}
	for i, s := range sizes {
		for reduces := range 3 {
			for accs := range 3 {
				if os.Getenv("GTC_LONG") == "" && (i+reduces+accs)%3 != 0 {
					continue
				}
				kernels = append(kernels, randomKernel(r, s.rows, s.cols, reduces, accs))
			}
		}
	}
	runKernels(t, r, kernels)
}

// TestTurned: operands in another order of dims than the result's, which go through shared memory.
func TestTurned(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var kernels []*kir.Kernel
	for _, dims := range [][]int{{40, 70}, {3, 64, 32}, {33, 2, 100}, {64, 5, 20, 2}, {17, 129}, {16, 3, 48}, {2, 50, 24}} {
		for _, swap := range [][2]int{{0, 1}, {0, 2}, {1, 2}, {1, 3}, {0, 3}} {
			if swap[1] < len(dims) {
				kernels = append(kernels, turnedKernel(r, dims, swap[0], swap[1]))
			}
		}
	}
	tiled := 0
	for _, k := range kernels {
		if list, _, _ := gencuda.Kernels("turned", k); strings.Contains(list[0].Text, "tile") {
			tiled++
		}
	}
	if tiled < 6 || tiled == len(kernels) {
		t.Errorf("%d of %d kernels go through tiles", tiled, len(kernels))
	}
	runKernels(t, r, kernels)
}

// TestOdd: pointwise kernels over images of 7 x 7, with one scale for each channel.
func TestOdd(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var kernels []*kir.Kernel
	for _, dims := range [][]int{{4, 6, 49}, {2, 3, 8, 25}, {8, 5, 7}} {
		m := &maker{r: r, k: &kir.Kernel{Dims: dims, Row: make([]bool, len(dims)), Chunks: 1}}
		x := kir.Access{Strides: make([]int, len(dims))}
		s := kir.Access{Strides: make([]int, len(dims))}
		n := 1
		for d := len(dims) - 1; d >= 0; d-- {
			m.k.Row[d] = d > 0
			x.Strides[d] = n
			n *= dims[d]
		}
		s.Strides[1] = 1
		load := func(d dtype.DType, a kir.Access, n int) int {
			m.k.Params = append(m.k.Params, kir.Param{DType: d, Elems: n, Align: 64})
			return m.emit(kir.Inst{Op: "load", DType: d, Param: len(m.k.Params) - 1, Access: a})
		}
		v := m.emit(kir.Inst{Op: "mul", DType: dtype.F32, Args: []int{load(dtype.F32, x, n), load(dtype.F32, s, dims[1])}})
		v = m.emit(kir.Inst{Op: "add", DType: dtype.F32, Args: []int{v, load(dtype.F32, x, n)}})
		m.k.Params = append(m.k.Params, kir.Param{DType: dtype.F32, Elems: n, Out: true, Align: 64})
		m.emit(kir.Inst{Op: "store", DType: dtype.F32, Args: []int{v}, Param: len(m.k.Params) - 1, Access: x})
		list, _, err := gencuda.Kernels("odd", m.k)
		if err != nil || !strings.Contains(list[0].Text, "pack<float, 4>") {
			t.Errorf("%v: no vectors: %v", dims, err)
		}
		kernels = append(kernels, m.k)
	}
	runKernels(t, r, kernels)
}

// turnedKernel is tanh(x) * y + s as bf16, x with dims a and b swapped in memory, y along one dim, s a scalar.
func turnedKernel(r *rand.Rand, dims []int, a, b int) *kir.Kernel {
	m := &maker{r: r, k: &kir.Kernel{Chunks: 1}}
	order := make([]int, len(dims))
	n := 1
	for d, size := range dims {
		m.k.Dims, m.k.Row = append(m.k.Dims, size), append(m.k.Row, d == len(dims)-1)
		order[d] = d
		n *= size
	}
	order[a], order[b] = order[b], order[a]
	at := func() kir.Access { return kir.Access{Dims: m.k.Dims, Strides: make([]int, len(dims))} }
	x, y, s := at(), at(), at()
	for i, step := len(dims)-1, 1; i >= 0; i-- {
		x.Strides[order[i]] = step
		step *= dims[order[i]]
	}
	y.Strides[a] = 1
	vx := m.emit(kir.Inst{Op: "cast", DType: dtype.F32, Args: []int{m.emit(kir.Inst{Op: "load", DType: dtype.BF16, Param: m.param(dtype.BF16, n, false), Access: x})}})
	vy := m.emit(kir.Inst{Op: "load", DType: dtype.F32, Param: m.param(dtype.F32, dims[a], false), Access: y})
	vs := m.emit(kir.Inst{Op: "load", DType: dtype.F32, Param: m.param(dtype.F32, 1, false), Access: s})
	v := m.emit(kir.Inst{Op: "tanh", DType: dtype.F32, Args: []int{vx}})
	v = m.emit(kir.Inst{Op: "mul", DType: dtype.F32, Args: []int{v, vy}})
	v = m.emit(kir.Inst{Op: "add", DType: dtype.F32, Args: []int{v, vs}})
	m.store(m.emit(kir.Inst{Op: "cast", DType: dtype.BF16, Args: []int{v}}))
	return m.k
}
