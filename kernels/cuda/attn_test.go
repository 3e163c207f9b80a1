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

// attnCase is one attention problem. layout is bshd, bhsd, or fused: q, k and v (and their gradients) in one [B,S,3,H,D] buffer.
// mask is "", all [B,H,Sq,Sk], keys [Sk] with hidden ones, dead, which hides every key of row 0 by minus infinity, or least, by the
// least finite float. odd moves every operand off multiples of 16 bytes.
type attnCase struct {
	t                                            dtype.DType
	batch, heads, kvHeads, sq, sk, d, dv, causal int
	window                                       int
	layout, mask                                 string
	maskType                                     dtype.DType
	scale                                        float64
	odd                                          bool
}

func (c attnCase) strides(seq, heads, d int) [3]int {
	switch c.layout {
	case "fused":
		return [3]int{3 * seq * heads * d, d, 3 * heads * d}
	case "bhsd":
		return [3]int{heads * seq * d, seq * d, d}
	}
	return [3]int{seq * heads * d, d, heads * d}
}

// attnTensor is an operand: numbers as its type has them, their places, and where it begins in its buffer.
type attnTensor struct {
	x      []float64
	s      [3]int
	offset int
}

func (t attnTensor) row(b, h, i, d int) []float64 {
	at := t.offset + b*t.s[0] + h*t.s[1] + i*t.s[2]
	return t.x[at : at+d]
}

// attnData are the operands and the right results.
type attnData struct {
	q, k, v, out, dout, dq, dk, dv attnTensor
	lse, mask                      []float64
	maskStrides                    [3]int
}

func rounded(d dtype.DType, x []float64) []float64 {
	return cudatest.Numbers(d, cudatest.Bytes(d, x...))
}

func (c attnCase) random(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return rounded(c.t, x)
}

func (c attnCase) maskOf(r *rand.Rand) ([]float64, [3]int) {
	var m []float64
	switch c.mask {
	case "all":
		return rounded(c.maskType, c.random(r, c.batch*c.heads*c.sq*c.sk)), [3]int{c.heads * c.sq * c.sk, c.sq * c.sk, c.sk}
	case "keys":
		m = make([]float64, c.sk)
		for j := c.sk / 2; j < c.sk; j += 2 {
			m[j] = math.Inf(-1)
		}
		return m, [3]int{}
	case "dead", "least":
		m = make([]float64, c.sq*c.sk)
		for j := range c.sk {
			m[j] = math.Inf(-1)
			if c.mask == "least" {
				m[j] = -math.MaxFloat32
			}
		}
		return m, [3]int{0, 0, c.sk}
	}
	return nil, [3]int{}
}

func (c attnCase) data() *attnData {
	r := rand.New(rand.NewPCG(7, 8))
	make4 := func(seq, heads, d int, fill bool) attnTensor {
		t := attnTensor{s: c.strides(seq, heads, d)}
		if n := c.batch * seq * heads * d; fill {
			t.x = c.random(r, n)
		} else {
			t.x = make([]float64, n)
		}
		return t
	}
	plain := c
	if plain.layout == "fused" {
		plain.layout = "bshd"
	}
	x := &attnData{lse: make([]float64, c.batch*c.heads*c.sq)}
	for _, fill := range []bool{true, false} {
		q, k, v := make4(c.sq, c.heads, c.d, fill), make4(c.sk, c.kvHeads, c.d, fill), make4(c.sk, c.kvHeads, c.dv, fill)
		if c.layout == "fused" {
			all := append(append(append([]float64{}, q.x...), k.x...), v.x...)
			q.x, k.x, v.x, k.offset, v.offset = all, all, all, c.heads*c.d, 2*c.heads*c.d
		}
		if fill {
			x.q, x.k, x.v = q, k, v
		} else {
			x.dq, x.dk, x.dv = q, k, v
		}
	}
	so := plain.strides(c.sq, c.heads, c.dv)
	n := c.batch * c.sq * c.heads * c.dv
	x.out, x.dout = attnTensor{x: make([]float64, n), s: so}, attnTensor{x: c.random(r, n), s: so}
	x.mask, x.maskStrides = c.maskOf(r)
	for b := range c.batch {
		for h := range c.heads {
			for i := range c.sq {
				c.reference(x, b, h, i)
			}
		}
	}
	return x
}

func dots(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func axpy(y []float64, a float64, x []float64) {
	for i := range y {
		y[i] += a * x[i]
	}
}

// reference computes one query's results by the formulas.
func (c attnCase) reference(x *attnData, b, h, i int) {
	kv, p, top, sum := h/(c.heads/c.kvHeads), make([]float64, c.sk), math.Inf(-1), 0.0
	for j := range p {
		p[j] = c.scale * dots(x.q.row(b, h, i, c.d), x.k.row(b, kv, j, c.d))
		if x.mask != nil {
			p[j] += x.mask[b*x.maskStrides[0]+h*x.maskStrides[1]+i*x.maskStrides[2]+j]
		}
		if c.mask == "least" && i == 0 {
			p[j] = -math.MaxFloat32 // the sum in float32
		}
		if c.causal > 0 && (j >= i+c.causal || c.window > 0 && j < i+c.causal-c.window) {
			p[j] = math.Inf(-1)
		}
		top = max(top, p[j])
	}
	for j := range p {
		if p[j] = math.Exp(p[j] - top); math.IsInf(top, -1) {
			p[j] = 0
		}
		sum += p[j]
	}
	x.lse[(b*c.heads+h)*c.sq+i] = top + math.Log(sum)
	out, g := x.out.row(b, h, i, c.dv), x.dout.row(b, h, i, c.dv)
	if c.mask == "least" && i == 0 { // a row that training throws away: the derivative is not asked for
		clear(g)
	}
	for j := range p {
		if sum > 0 {
			p[j] /= sum
		}
		axpy(out, p[j], x.v.row(b, kv, j, c.dv))
	}
	delta := dots(out, g)
	for j := range p {
		ds := p[j] * (dots(g, x.v.row(b, kv, j, c.dv)) - delta) * c.scale
		axpy(x.dv.row(b, kv, j, c.dv), p[j], g)
		axpy(x.dq.row(b, h, i, c.d), ds, x.k.row(b, kv, j, c.d))
		axpy(x.dk.row(b, kv, j, c.d), ds, x.q.row(b, h, i, c.d))
	}
}

// plans lowers both passes. Views into one buffer are made by the kernels' arguments.
func (c attnCase) plans(t *testing.T, x *attnData) (fwd, bwd *cudatest.Case) {
	t.Helper()
	ints := []int{c.batch, c.heads, c.kvHeads, c.sq, c.sk, c.d, c.dv}
	for _, v := range []attnTensor{x.q, x.k, x.v, x.out} {
		ints = append(ints, v.s[:]...)
	}
	ints = append(append(ints, c.causal, c.window), x.maskStrides[:]...)
	back := append([]int{}, ints...)
	for _, v := range []attnTensor{x.dout, x.dq, x.dk, x.dv} {
		back = append(back, v.s[:]...)
	}
	f, m := c.t, dtype.Invalid
	if x.mask != nil {
		m = c.maskType
	}
	lower := func(name string, ints []int, types ...dtype.DType) *cuda.Plan {
		if !cuda.Native(name, types) {
			t.Fatalf("%s is not native for %v", name, types)
		}
		p, err := cuda.Lower(cuda.Call{Name: name, Ints: ints, Floats: []float64{c.scale}, Types: types, Compute: "f32"})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	nan := func(v attnTensor) attnTensor {
		v.x = make([]float64, len(v.x))
		for i := range v.x {
			v.x[i] = math.NaN()
		}
		return v
	}
	buffers := func(v ...attnTensor) [][]byte {
		var out [][]byte
		for _, t := range v {
			var b []byte
			if c.odd {
				b = make([]byte, 2)
			}
			if t.offset == 0 {
				b = append(b, cudatest.Bytes(c.t, t.x...)...)
			} else {
				b = nil
			}
			out = append(out, b)
		}
		return out
	}
	var mask []byte
	if x.mask != nil {
		mask = cudatest.Bytes(c.maskType, x.mask...)
	}
	name := fmt.Sprintf("%+v", c)
	b := buffers(x.q, x.k, x.v, nan(x.out))
	var w dtype.DType // what buffers at odd addresses hold is not of one type
	if !c.odd {
		w = c.t
	}
	fwd = &cudatest.Case{Name: name, Types: []dtype.DType{w, w, w, 0, w, dtype.F32}, Plan: lower("AttnFwd", ints, f, f, f, m, f, dtype.F32),
		Buffers: [][]byte{b[0], b[1], b[2], mask, b[3], cudatest.Bytes(dtype.F32, nan(attnTensor{x: x.lse}).x...)}}
	b = buffers(x.q, x.k, x.v, x.out, x.dout, nan(x.dq), nan(x.dk), nan(x.dv))
	bwd = &cudatest.Case{Name: name + " backward", Types: []dtype.DType{w, w, w, 0, w, dtype.F32, w, w, w, w}, Plan: lower("AttnBwd", back, f, f, f, m, f, dtype.F32, f, f, f, f),
		Buffers: [][]byte{b[0], b[1], b[2], mask, b[3], cudatest.Bytes(dtype.F32, x.lse...), b[4], b[5], b[6], b[7]}}
	c.place(fwd.Plan, x)
	c.place(bwd.Plan, x)
	return fwd, bwd
}

// place points kernels at views and odd addresses.
func (c attnCase) place(p *cuda.Plan, x *attnData) {
	within := map[int][2]int{}
	if c.layout == "fused" {
		within = map[int][2]int{1: {0, x.k.offset}, 2: {0, x.v.offset}, 8: {7, x.dk.offset}, 9: {7, x.dv.offset}}
	}
	for _, k := range p.Kernels {
		for i := range k.Args {
			a := &k.Args[i]
			if to, ok := within[a.Arg]; ok {
				*a = cuda.Ref{Arg: to[0], Offset: a.Offset + to[1]*c.t.Size()}
			}
			if c.odd && a.Arg >= 0 && a.Arg != 3 && a.Arg != 5 {
				a.Offset += 2
			}
		}
	}
}

// near compares with the reference relative to the norm of all of it.
func (c attnCase) near(t *testing.T, name string, b []byte, want attnTensor, tol float64) {
	t.Helper()
	if want.offset != 0 { // in one buffer with the tensor at offset 0
		return
	}
	if c.odd {
		b = b[2:]
	}
	got, diff, norm := cudatest.Numbers(c.t, b), 0.0, 0.0
	if len(got) != len(want.x) {
		t.Fatalf("%s has %d elements, want %d", name, len(got), len(want.x))
	}
	for i, w := range want.x {
		diff += (got[i] - w) * (got[i] - w)
		norm += w * w
	}
	err := math.Sqrt(diff / max(norm, 1e-30))
	t.Logf("%s: %.3g", name, err)
	if !(err <= tol) {
		t.Errorf("%s is off by %.3g", name, err)
	}
}

func (c attnCase) check(t *testing.T, x *attnData, fwd, bwd *cudatest.Case) {
	t.Helper()
	tol := 1e-5
	if c.t != dtype.F32 {
		tol = 1e-2
	}
	for _, k := range []*cudatest.Case{fwd, bwd} {
		if k.Err != nil {
			t.Error(k.Err)
			return
		}
	}
	c.near(t, fwd.Name+" out", fwd.Buffers[4], x.out, tol)
	for i, got := range cudatest.Numbers(dtype.F32, fwd.Buffers[5]) {
		if w := x.lse[i]; !(math.Abs(got-w) <= 1e-4*max(1, math.Abs(w))) && got != w && c.mask != "least" {
			t.Errorf("%s lse[%d] is %g, want %g", fwd.Name, i, got, w)
			break
		}
	}
	c.near(t, bwd.Name+" dq", bwd.Buffers[7], x.dq, tol)
	c.near(t, bwd.Name+" dk", bwd.Buffers[8], x.dk, tol)
	c.near(t, bwd.Name+" dv", bwd.Buffers[9], x.dv, tol)
}

// attnShapes are the cases of TestAttention, in types and scales that fill in the rest.
var attnShapes = []attnCase{
	{t: dtype.BF16, batch: 2, heads: 2, kvHeads: 2, sq: 64, sk: 64, d: 64, dv: 64, causal: 1, layout: "fused"},
	{t: dtype.BF16, batch: 1, heads: 2, kvHeads: 2, sq: 200, sk: 200, d: 128, dv: 128, causal: 1},
	{t: dtype.F16, batch: 1, heads: 4, kvHeads: 2, sq: 130, sk: 77, d: 32, dv: 64, layout: "bhsd"},
	{t: dtype.BF16, batch: 2, heads: 3, kvHeads: 1, sq: 33, sk: 150, d: 40, dv: 40, causal: 118, mask: "keys", maskType: dtype.F32},
	{t: dtype.F16, batch: 1, heads: 2, kvHeads: 1, sq: 129, sk: 65, d: 80, dv: 48, mask: "all", maskType: dtype.F16},
	{t: dtype.BF16, batch: 1, heads: 1, kvHeads: 1, sq: 20, sk: 9, d: 64, dv: 64, mask: "least", maskType: dtype.F32},
	{t: dtype.BF16, batch: 1, heads: 2, kvHeads: 2, sq: 90, sk: 90, d: 192, dv: 128, causal: 1},
	{t: dtype.BF16, batch: 1, heads: 1, kvHeads: 1, sq: 1, sk: 1, d: 8, dv: 8},
	{t: dtype.BF16, batch: 1, heads: 1, kvHeads: 1, sq: 65, sk: 66, d: 24, dv: 16, scale: -0.3},
	{t: dtype.BF16, batch: 1, heads: 2, kvHeads: 2, sq: 70, sk: 70, d: 64, dv: 64, causal: 1, odd: true},
	{t: dtype.BF16, batch: 1, heads: 1, kvHeads: 1, sq: 30, sk: 50, d: 20, dv: 20, causal: 1},
	{t: dtype.F32, batch: 2, heads: 2, kvHeads: 2, sq: 70, sk: 70, d: 64, dv: 64, causal: 1, layout: "fused"},
	{t: dtype.F32, batch: 1, heads: 4, kvHeads: 2, sq: 50, sk: 130, d: 20, dv: 16, mask: "all", maskType: dtype.F32},
	{t: dtype.F32, batch: 1, heads: 1, kvHeads: 1, sq: 9, sk: 70, d: 300, dv: 140, layout: "bhsd", mask: "dead", maskType: dtype.F32},
	{t: dtype.BF16, batch: 1, heads: 2, kvHeads: 1, sq: 300, sk: 310, d: 64, dv: 64, causal: 11, window: 40},
	{t: dtype.F32, batch: 1, heads: 1, kvHeads: 1, sq: 7, sk: 9, d: 4, dv: 4, mask: "least", maskType: dtype.F32},
}

// seldomShapes are the cases that only GTC_LONG=1 adds.
var seldomShapes = []attnCase{
	{t: dtype.BF16, batch: 1, heads: 1, kvHeads: 1, sq: 70, sk: 100, d: 96, dv: 96, mask: "dead", maskType: dtype.F32},
	{t: dtype.F16, batch: 1, heads: 1, kvHeads: 1, sq: 40, sk: 101, d: 256, dv: 256, causal: 62},
	{t: dtype.F32, batch: 1, heads: 1, kvHeads: 1, sq: 5, sk: 70, d: 33, dv: 34, causal: 66},
	{t: dtype.F32, batch: 1, heads: 2, kvHeads: 1, sq: 300, sk: 310, d: 32, dv: 32, causal: 11, window: 40},
	{t: dtype.BF16, batch: 1, heads: 1, kvHeads: 1, sq: 150, sk: 70, d: 128, dv: 128, causal: 1, window: 9},
}

// TestAttention runs both passes of every shape on this processor, with the checks for races and bounds on.
func TestAttention(t *testing.T) {
	var all []*cudatest.Case
	var data []*attnData
	shapes := attnShapes
	if long {
		shapes = slices.Concat(attnShapes, seldomShapes)
	}
	for i := range shapes {
		c := &shapes[i]
		if c.scale == 0 {
			c.scale = 1 / math.Sqrt(float64(c.d))
		}
		x := c.data()
		fwd, bwd := c.plans(t, x)
		data, all = append(data, x), append(all, fwd, bwd)
	}
	cudatest.RunAll(t, all)
	for i, c := range shapes {
		c.check(t, data[i], all[2*i], all[2*i+1])
	}
}
