package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/kernels/cuda/cudatest"
	"github.com/gtc-compiler/gtc/runtime/nvrtc"
)

const (
	none = dtype.Invalid
	f16  = dtype.F16
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

func (p product) call() cuda.Call {
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
	c := cuda.Call{Name: "Gemm", Ints: []int{p.batch, p.m, p.n, p.k, p.transA, p.transB, sa, sb, sc, p.act, p.add},
		Types: []dtype.DType{p.in, p.in, p.bias, p.out}, Compute: "f32"}
	if p.tf32 {
		c.Compute = "tf32"
	}
	return c
}

// usualProducts are those of layers that people train, in all layouts that training makes of them.
var usualProducts = []product{
	{batch: 1, m: 128, n: 512, k: 512, transB: 1, in: f32, bias: f32, out: f32},
	{batch: 1, m: 512, n: 512, k: 128, transA: 1, in: f32, out: f32},
	{batch: 1, m: 128, n: 512, k: 512, in: f32, out: f32},
	{batch: 1, m: 4096, n: 4096, k: 4096, in: f32, out: f32},
	{batch: 1, m: 1024, n: 512, k: 300, in: f32, out: f32},
	{batch: 1, m: 4096, n: 4096, k: 4096, in: f32, out: f32, tf32: true},
	{batch: 1, m: 4096, n: 4096, k: 4096, transA: 1, transB: 1, in: f32, out: f32, tf32: true},
	{batch: 1, m: 32768, n: 3072, k: 768, in: bf16, bias: bf16, out: bf16, act: 3},
	{batch: 1, m: 32768, n: 768, k: 3072, transB: 1, in: bf16, bias: bf16, out: bf16, act: 2},
	{batch: 1, m: 768, n: 3072, k: 32768, transA: 1, in: bf16, out: f32, add: 1},
	{batch: 1, m: 32768, n: 50257, k: 768, transB: 1, in: bf16, out: bf16},
	{batch: 12, m: 1001, n: 77, k: 333, transA: 1, in: f16, out: f16},
	{batch: 1, m: 1000, n: 10, k: 784, in: f32, bias: f32, out: f32},
	{batch: 1, m: 10, n: 5, k: 784, in: f32, bias: f32, out: f32},
	{batch: 1, m: 784, n: 5, k: 1000, transA: 1, in: f32, bias: f32, out: f32},
}

// long is whether tests may take minutes.
var long = os.Getenv("GTC_LONG") != ""

func everyOther(cases []*cudatest.Case) (out []*cudatest.Case) {
	for i := 0; i < len(cases); i += 2 {
		out = append(out, cases[i])
	}
	return out
}

// Products compile, and no kernel spills registers to memory: usual ones for one chip, tiles for the other, and with GTC_LONG=1
// twice as many.
func TestGemmCompiles(t *testing.T) {
	l := fixtures.NVRTC(t)
	var cases []*cudatest.Case
	add := func(c cuda.Call) {
		plan, err := cuda.Lower(c)
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, &cudatest.Case{Plan: plan})
	}
	for _, p := range usualProducts {
		add(p.call())
	}
	for _, c := range cuda.TrainingProducts() {
		add(c)
	}
	usual := len(cases)
	for _, p := range []withEpilogue{{product: product{in: f32, out: f32}, sums: 1}, {product: product{in: f32, out: f32, tf32: true}, sums: 2}, {product: product{in: bf16, out: f32}, sums: 2},
		{product: product{in: bf16, bias: bf16, out: bf16, act: 2}, hasAux: true, writesAux: 1, hasAdd: true}} {
		p.batch, p.m, p.n, p.k, p.transA = 1, 1024, 3072, 4096, p.sums%2
		list, err := cuda.GemmPlans(p.call(), 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, plan := range list {
			cases = append(cases, &cudatest.Case{Plan: plan})
		}
	}
	var headers []nvrtc.Header
	files, _ := cuda.Headers.ReadDir(".")
	for _, f := range files {
		b, _ := cuda.Headers.ReadFile(f.Name())
		headers = append(headers, nvrtc.Header{Name: f.Name(), Text: string(b)})
	}
	first, second := cases[:usual], cases
	if !long {
		first, second = everyOther(cases[:usual]), everyOther(cases[usual:])
	}
	for arch, cases := range map[string][]*cudatest.Case{"sm_80": first, "sm_90": second} {
		text, _ := cudatest.Source(cases)
		_, log, err := l.Compile(nvrtc.Source{Name: "gemm.cu", Text: text, Headers: headers}, arch, "--std=c++17", "--ptxas-options=-v")
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log, " 0 bytes spill stores, 0 bytes spill loads"); n != strings.Count(text, "__global__") {
			t.Errorf("%s: %d of %d kernels spill no registers\n%s", arch, n, strings.Count(text, "__global__"), log)
		}
		t.Log(arch, regexp.MustCompile(`Used \d+`).FindAllString(log, -1))
	}
}

// productTrial is a product with operands and the result that it must have.
type productTrial struct {
	product
	bytes [][]byte
	want  []float64
}

// newProductTrial makes operands of random numbers, of what the types hold.
func newProductTrial(p product, seed uint64) *productTrial {
	r := rand.New(rand.NewPCG(seed, 7))
	t := &productTrial{product: p}
	some := func(d dtype.DType, n int) []float64 {
		if d == none {
			t.bytes = append(t.bytes, nil)
			return nil
		}
		x := make([]float64, n)
		for i := range x {
			x[i] = r.NormFloat64()
		}
		b := cudatest.Bytes(d, x...)
		t.bytes = append(t.bytes, b)
		return cudatest.Numbers(d, b)
	}
	ints := p.call().Ints
	sa, sb, sc := ints[6], ints[7], ints[8]
	a, b := some(p.in, sa*(p.batch-1)+p.m*p.k), some(p.in, sb*(p.batch-1)+p.k*p.n)
	bias, c := some(p.bias, p.n), some(p.out, p.batch*p.m*p.n)
	t.want = make([]float64, len(c))
	for i := range p.batch {
		for row := range p.m {
			for col := range p.n {
				sum := 0.0
				for k := range p.k {
					x, y := i*sa+row*p.k+k, i*sb+k*p.n+col
					if p.transA != 0 {
						x = i*sa + k*p.m + row
					}
					if p.transB != 0 {
						y = i*sb + col*p.k + k
					}
					sum += a[x] * b[y]
				}
				at := i*sc + row*p.n + col
				if bias != nil {
					sum += bias[col]
				}
				if p.add != 0 {
					sum += c[at]
				}
				t.want[at] = activate(p.act, sum)
			}
		}
	}
	return t
}

func activate(act int, x float64) float64 {
	switch act {
	case 1:
		return max(x, 0)
	case 2:
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	case 3:
		return 0.5 * x * (1 + math.Erf(x/math.Sqrt2))
	}
	return x
}

// productError is the norm of the difference between got and want, by that of want.
func productError(got, want []float64) float64 {
	var d, w float64
	for i := range want {
		d += (got[i] - want[i]) * (got[i] - want[i])
		w += want[i] * want[i]
	}
	return math.Sqrt(d / max(w, 1e-30))
}

func (p product) tolerance() float64 {
	switch {
	case p.tf32:
		return 2e-3
	case p.in == f32:
		return 1e-6
	case p.out == f32:
		return 1e-5
	}
	return 4e-3 // the result is rounded
}

// runProducts runs trials with their plans, and compares.
func runProducts(t *testing.T, trials []*productTrial, plans []*cuda.Plan) {
	t.Helper()
	var cases []*cudatest.Case
	for i, x := range trials {
		var buffers [][]byte
		for _, b := range x.bytes {
			buffers = append(buffers, append([]byte(nil), b...))
			if b == nil {
				buffers[len(buffers)-1] = nil
			}
		}
		cases = append(cases, &cudatest.Case{Name: fmt.Sprintf("%d %+v", i, x.product), Plan: plans[i], Buffers: buffers,
			Types: []dtype.DType{0, 0, 0, x.out}})
	}
	cudatest.RunAll(t, cases)
	worst := 0.0
	for i, c := range cases {
		if c.Err != nil {
			t.Errorf("%s: %v\n%s", c.Name, c.Err, c.Plan.Kernels[0].Text)
			continue
		}
		d := productError(cudatest.Numbers(trials[i].out, c.Buffers[3]), trials[i].want)
		worst = max(worst, d/trials[i].tolerance())
		if !(d <= trials[i].tolerance()) {
			t.Errorf("%s: the result is off by %.3g\n%s", c.Name, d, c.Plan.Kernels[0].Text)
		}
	}
	t.Logf("%d products, the worst at %.2f of its tolerance", len(cases), worst)
}

// Products of many sizes and types are those of float64, as the compiler plans them: in one layout each, or with GTC_LONG=1 in all.
func TestGemm(t *testing.T) {
	var trials []*productTrial
	var plans []*cuda.Plan
	sizes := []product{
		{batch: 1, m: 33, n: 47, k: 65}, {batch: 1, m: 64, n: 64, k: 64}, {batch: 3, m: 40, n: 24, k: 96, sharedB: true}, {batch: 2, m: 17, n: 70, k: 36, sharedA: true},
		{batch: 1, m: 9, n: 200, k: 40}, {batch: 1, m: 32, n: 32, k: 1030}, {batch: 1, m: 5, n: 130, k: 77}, {batch: 2, m: 130, n: 3, k: 300}, {batch: 1, m: 1, n: 1, k: 5},
		{batch: 1, m: 100, n: 8, k: 64}, {batch: 1, m: 66, n: 34, k: 1},
	}
	types := []product{{in: f32, out: f32}, {in: f32, out: f32, tf32: true}, {in: bf16, out: bf16}, {in: f16, out: f16}, {in: bf16, out: f32}}
	for i, s := range sizes {
		for j, y := range types {
			for layout := range 4 {
				if !long && (i+j+layout)%4 != 0 {
					continue
				}
				p := s
				p.transA, p.transB = layout/2, layout%2
				p.in, p.out, p.tf32 = y.in, y.out, y.tf32
				n := i + j + layout
				if n%3 == 0 {
					p.bias = []dtype.DType{p.in, f32}[n/3%2]
				}
				p.act, p.add = n/2%4, n%2
				plan, err := cuda.Lower(p.call())
				if err != nil {
					t.Fatal(err)
				}
				trials, plans = append(trials, newProductTrial(p, uint64(100*i+j))), append(plans, plan)
			}
		}
	}
	runProducts(t, trials, plans)
}

// withEpilogue is a GemmEpilogue with what its operands hold.
type withEpilogue struct {
	product
	writesAux, sums int
	hasAdd, hasAux  bool
}

func (p withEpilogue) call() cuda.Call {
	c := p.product.call()
	some := func(on bool) dtype.DType {
		if on {
			return p.out
		}
		return none
	}
	c.Name, c.Ints = "GemmEpilogue", append(c.Ints[:10], p.writesAux, p.sums)
	c.Types = []dtype.DType{p.in, p.in, p.bias, some(p.hasAdd), some(p.hasAux), p.out, some(p.sums != 0)}
	return c
}

// cases are runs of the plans on x's operands; compare, called afterwards, holds all that they made against float64.
func (p withEpilogue) cases(t *testing.T, x *productTrial, plans []*cuda.Plan) (cases []*cudatest.Case, compare func()) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 5))
	var add, aux []float64
	random := func(on bool) ([]byte, []float64) {
		if !on {
			return nil, nil
		}
		v := make([]float64, p.m*p.n)
		for i := range v {
			v[i] = r.NormFloat64()
		}
		b := cudatest.Bytes(p.out, v...)
		return b, cudatest.Numbers(p.out, b)
	}
	addBytes, add := random(p.hasAdd)
	auxBytes, aux := random(p.hasAux)
	want, stored := make([]float64, len(x.want)), make([]float64, len(x.want))
	for i, v := range x.want {
		if p.hasAdd {
			v += add[i]
		}
		stored[i] = v
		if p.act > 4 {
			const h = 1e-5
			v *= (activate(p.act-4, aux[i]+h) - activate(p.act-4, aux[i]-h)) / (2 * h)
		} else {
			v = activate(p.act, v)
		}
		want[i] = v
	}
	var sums []float64
	var sumBytes []byte
	if p.sums != 0 {
		sums = make([]float64, []int{0, p.m, p.n}[p.sums])
		sumBytes = make([]byte, len(sums)*p.out.Size())
		a, b := cudatest.Numbers(p.in, x.bytes[0]), cudatest.Numbers(p.in, x.bytes[1])
		for i := range sums {
			for k := range p.k {
				switch {
				case p.sums == 1 && p.transA == 0:
					sums[i] += a[i*p.k+k]
				case p.sums == 1:
					sums[i] += a[k*p.m+i]
				case p.transB == 0:
					sums[i] += b[k*p.n+i]
				default:
					sums[i] += b[i*p.k+k]
				}
			}
		}
	}
	for _, plan := range plans {
		cases = append(cases, &cudatest.Case{Name: fmt.Sprintf("%+v", p), Plan: plan, Types: []dtype.DType{0, 0, 0, 0, 0, p.out},
			Buffers: [][]byte{x.bytes[0], x.bytes[1], x.bytes[2], addBytes, slices.Clone(auxBytes), make([]byte, len(want)*p.out.Size()), slices.Clone(sumBytes)}})
	}
	return cases, func() {
		t.Helper()
		for _, c := range cases {
			if c.Err != nil {
				t.Errorf("%s: %v\n%s", c.Name, c.Err, c.Plan.Kernels[0].Text)
				continue
			}
			near := func(what string, n int, want []float64) {
				if d := productError(cudatest.Numbers(p.out, c.Buffers[n]), want); !(d <= p.tolerance()+1e-6) {
					t.Errorf("%s: %s is off by %.3g\n%s", c.Name, what, d, c.Plan.Kernels[0].Text)
				}
			}
			near("the result", 5, want)
			if p.writesAux != 0 {
				near("aux", 4, stored)
			}
			if p.sums != 0 {
				near("the sums", 6, sums)
			}
		}
	}
}

// What follows a product: each activation's derivative, values kept for the backward, an addend, sums of rows and columns; as
// planned, or by another tile, whole and in parts (GTC_LONG=1: each by both). A plan has a kernel for the sums alone, too, which then has the last word.
func TestGemmEpilogue(t *testing.T) {
	products := []withEpilogue{
		{product: product{act: 2}, writesAux: 1, hasAux: true}, {product: product{act: 3}, hasAdd: true}, {product: product{act: 5}, hasAux: true},
		{product: product{act: 6}, hasAux: true}, {product: product{act: 7}, hasAux: true, hasAdd: true},
		{sums: 1}, {sums: 2, hasAdd: true},
	}
	types := []product{{in: f32, out: f32}, {in: f32, out: f32, tf32: true}, {in: bf16, out: bf16}, {in: f16, out: f32}}
	var all []*cudatest.Case
	var compare []func()
	for i, y := range types {
		for j, e := range products {
			p := e
			p.in, p.out, p.tf32 = y.in, y.out, y.tf32
			p.batch, p.m, p.n, p.k = 1, 136, 72, 140
			p.transA, p.transB = (i+j)%2, j/2%2
			base := p.product
			base.act = 0
			x := newProductTrial(base, uint64(i))
			list, err := cuda.GemmPlans(p.call(), 1+2*(j%2))
			if err != nil {
				t.Fatal(err)
			}
			plan, err := cuda.Lower(p.call())
			if err != nil {
				t.Fatal(err)
			}
			plans := []*cuda.Plan{plan, list[(3*i+j)%len(list)]}
			if !long {
				plans = plans[(i+j)%2:][:1]
			}
			cases, later := p.cases(t, x, plans)
			all, compare = append(all, cases...), append(compare, later)
		}
	}
	cudatest.RunAll(t, all)
	for _, f := range compare {
		f()
	}
}

// Every tile gives the same, whole or shared by several blocks; with GTC_LONG=1 both.
func TestGemmTiles(t *testing.T) {
	var trials []*productTrial
	var plans []*cuda.Plan
	for i, p := range []product{{in: f32, out: f32}, {in: f32, out: f32, tf32: true}, {in: bf16, out: bf16}, {in: f16, out: f32}} {
		for j, splits := range []int{1, 3} {
			p.batch, p.m, p.n, p.k = 1, 136, 264, 152
			p.transA, p.transB = (i+j)%2, i/2
			x := newProductTrial(p, uint64(i))
			list, err := cuda.GemmPlans(p.call(), splits)
			if err != nil {
				t.Fatal(err)
			}
			for n, plan := range list {
				if long || (i+j+n)%2 == 0 {
					trials, plans = append(trials, x), append(plans, plan)
				}
			}
		}
	}
	runProducts(t, trials, plans)
}
