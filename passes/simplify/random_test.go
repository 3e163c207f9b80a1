package simplify

import (
	"math/rand/v2"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// program grows a random function of shape ops, arithmetic and products, with constants that invite rewriting.
type program struct {
	r *rand.Rand
	b *ir.Builder
	v []*ir.Value // f32 values of 2 or 3 dims
}

func (p *program) pick() *ir.Value { return p.v[len(p.v)-1-p.r.IntN(min(len(p.v), 6))] }

// constant is a uniform constant of x's type, spelled in one of three ways.
func (p *program) constant(x *ir.Value) *ir.Value {
	u := []float64{0, 1, -1, 2, 0.5, 3}[p.r.IntN(6)]
	switch p.r.IntN(3) {
	case 0:
		return ops.ScalarLike(p.b, x, u)
	case 1:
		a := ir.NewArray(x.Type)
		for i := range a.F {
			a.F[i] = u
		}
		return ops.Const(p.b, a.Tensor())
	}
	s := ops.Cast(p.b, ops.Scalar(p.b, dtype.F64, u), dtype.F32)
	return ops.BroadcastTo(p.b, s, x.Type.Dims)
}

func (p *program) grow() *ir.Value {
	b, x, r := p.b, p.pick(), p.r
	dims := x.Type.Dims
	n := len(dims)
	switch r.IntN(14) {
	case 0:
		perm := r.Perm(n)
		return ops.Transpose(b, x, perm)
	case 1:
		to := []int{ir.Product(dims[:n-1]), dims[n-1]}
		if n == 2 && dims[0]%2 == 0 {
			to = []int{2, dims[0] / 2, dims[1]}
		}
		return ops.Reshape(b, x, to)
	case 2:
		d := r.IntN(n)
		start := r.IntN(dims[d])
		return ops.SliceDim(b, x, d, start, 1+r.IntN(dims[d]-start))
	case 3:
		d := r.IntN(n)
		if dims[d] > 4 {
			return ops.Neg(b, x)
		}
		return ops.Concat(b, d, x, x)
	case 4: // slices joined again, or padded and added
		d := r.IntN(n)
		if dims[d] < 2 {
			return ops.Neg(b, x)
		}
		k := 1 + r.IntN(dims[d]-1)
		lo, hi := ops.SliceDim(b, x, d, 0, k), ops.SliceDim(b, x, d, k, dims[d]-k)
		if r.IntN(2) == 0 {
			return ops.Concat(b, d, lo, hi)
		}
		zero, low, high := make([]int, n), make([]int, n), make([]int, n)
		low[d], high[d] = k, dims[d]-k
		return ops.Add(b, ops.Pad(b, hi, low, zero, nil, 0), ops.Pad(b, lo, zero, high, nil, 0))
	case 5:
		return ops.Expand(b, ops.ReduceSum(b, x, r.IntN(n)), dims)
	case 6:
		return ops.Add(b, x, p.constant(x))
	case 7:
		return ops.Mul(b, x, p.constant(x))
	case 8:
		return ops.Sub(b, p.constant(x), x)
	case 9:
		c := ops.Gt(b, p.constant(x), p.constant(x))
		return ops.Where(b, c, x, ops.Neg(b, x))
	case 10:
		y := p.pick()
		if y.Type.Equal(x.Type) {
			return ops.Add(b, x, ops.Neg(b, y))
		}
		return ops.Tanh(b, x)
	case 11:
		y := p.pick()
		perm := ops.AllDims(x)
		perm[n-1], perm[n-2] = n-2, n-1
		if y.Type.Equal(x.Type) {
			return ops.Tanh(b, ops.MatMul(b, x, ops.Transpose(b, y, perm)))
		}
		return ops.Transpose(b, ops.Tanh(b, ops.MatMulT(b, x, x, true, false)), perm)
	case 12:
		return ops.Cast(b, ops.Cast(b, x, dtype.F64), dtype.F32)
	}
	return ops.Tanh(b, ops.Div(b, x, ops.AddScalar(b, ops.Square(b, p.constant(x)), 1)))
}

func TestRandomPrograms(t *testing.T) {
	runs := 300
	if testing.Short() {
		runs = 50
	}
	for seed := range uint64(runs) {
		p := &program{r: rand.New(rand.NewPCG(seed, 1))}
		f := &ir.Func{Name: "step"}
		p.b = ir.NewBuilder(f)
		p.b.Loc = ir.Loc{Node: "random"}
		p.v = append(p.v, p.b.Param("x", ir.T(dtype.F32, 2, 3, 4), ir.Input), p.b.Param("y", ir.T(dtype.F32, 4, 6), ir.Input))
		for range 25 {
			v := p.grow()
			if v.Type.Elems() > 2000 {
				continue
			}
			p.v = append(p.v, v)
		}
		for i := range 3 {
			p.b.Result([]string{"a", "b", "c"}[i], p.pick())
		}
		m := &ir.Module{Funcs: []*ir.Func{f}}
		before, _ := f.Clone()
		c := &pass.Context{Module: m, Opt: &pass.Options{}, Pass: "simplify"}
		if err := Run(c); err != nil {
			t.Fatal(seed, err)
		}
		if err := m.Verify(); err != nil {
			t.Fatalf("seed %d: %v\nfrom\n%s", seed, err, before)
		}
		if err := interp.Equivalent(before, f, seed); err != nil {
			t.Fatalf("seed %d: %v\n%s\nbecame\n%s", seed, err, before, f)
		}
	}
}
