package ops

import (
	"fmt"
	"math/rand/v2"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// kinds is a set of element types that an elementwise op takes.
type kinds = kir.Types

// The sets.
const (
	floats  = kir.Floats
	ints    = kir.Ints
	bools   = kir.Bools
	numbers = kir.Numbers
	all     = kir.AnyTypes
)

// lit makes a literal of the operands' type.
type lit func(v float64) *kir.Expr

// pw describes an elementwise op: all operands have equal types, which are the result's but for Result. One without an expr is
// the scalar function kir: the function's row says what it takes, gives and means, and whether autocast keeps it.
type pw struct {
	doc    string
	attrs  any                                                      // zero value, nil for none
	n      int                                                      // operands
	takes  kinds                                                    // element types; zero means the function's, else floats
	result dtype.DType                                              // of the result when it is not the operands'
	f      func(a any, x []float64) float64                         // meaning on floats
	i      func(a any, x []int64) int64                             // meaning on integers and bools
	u      func(a any, x []uint64) uint64                           // meaning on u64, where the sign bit matters; nil: i
	expr   func(num lit, a any, x []*kir.Expr) *kir.Expr            // nil: the function called kir
	kir    string                                                   // scalar function; "" means the op's name
	fn     *kir.Func                                                // what kir names
	vjp    func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value // of one result
	noGrad string                                                   // why there is no vjp
	keep   bool                                                     // autocast keeps it in f32
	facts  ir.Facts                                                 // see there
	try    []any                                                    // attributes to sample, nil: the zero value
	fill   func(r *rand.Rand, in []*ir.Array)                       // of samples
}

// pointwise defines d from its description.
func pointwise(d *ir.Def, p pw) {
	if p.expr == nil {
		p.is(d)
	}
	if p.takes == 0 {
		p.takes = floats
	}
	rules := ir.Rules{
		Attrs: p.attrs, Operands: p.n, Doc: p.doc, NoGrad: p.noGrad, Facts: p.facts,
		Infer:   func(op *ir.Op) ([]ir.Type, error) { return p.infer(op) },
		Factors: pointwiseRule,
		Eval:    one(func(op *ir.Op, in []*ir.Array) *ir.Array { return p.eval(op, in) }),
		Impl:    func(op *ir.Op) kir.Impl { return kir.Impl{Kind: kir.Pointwise, Expr: []*kir.Expr{p.build(op)}} },
		Samples: p.samples,
	}
	if p.vjp != nil {
		rules.VJP = func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value { return p.vjp(b, op, dy[0]) }
	}
	if p.keep {
		rules.Precision = "keep"
	}
	d.Define(rules)
}

// is fills in what the row of the op's scalar function says.
func (p *pw) is(d *ir.Def) {
	if p.kir == "" {
		p.kir = d.Name
	}
	if p.fn = kir.Lookup(p.kir); p.fn == nil {
		panic("BUG: op " + d.Name + " has no expression, and there is no scalar function of its name")
	}
	p.n, p.keep = p.fn.Args, p.keep || p.fn.Wide
	if p.takes == 0 {
		p.takes = p.fn.Takes
	}
	if p.fn.Rule == kir.Test {
		p.result = dtype.Bool
	}
	p.f = func(_ any, x []float64) float64 { return p.fn.Float(x) }
}

// pointwiseRule makes every dim of operands and results a free factor.
func pointwiseRule(op *ir.Op) factor.Rule {
	return factor.Pointwise(op.Out[0].Type.Dims, len(op.In), len(op.Out))
}

func (p pw) infer(op *ir.Op) ([]ir.Type, error) {
	t := op.In[0].Type
	for i, v := range op.In {
		if !v.Type.Equal(t) {
			return wrong("operand %d is %s, but operand 0 is %s", i, v.Type, t)
		}
	}
	if !p.takes.Has(t.DType) {
		return nil, fmt.Errorf("operands are %s, but must be %s", t.DType, p.takes)
	}
	if p.result != dtype.Invalid {
		t = t.With(p.result)
	}
	return types(t)
}

func (p pw) eval(op *ir.Op, in []*ir.Array) *ir.Array {
	out := ir.NewArray(op.Out[0].Type)
	if in[0].F == nil {
		p.evalInts(op, in, out)
		return out
	}
	x := make([]float64, p.n)
	for e := range op.Out[0].Type.Elems() {
		for j, a := range in {
			x[j] = a.F[e]
		}
		if v := p.f(op.Attrs, x); out.F != nil {
			out.F[e] = v
		} else {
			out.I[e] = int64(v)
		}
	}
	return out
}

// evalInts is eval of integers and bools; results wrap to the width of the type.
func (p pw) evalInts(op *ir.Op, in []*ir.Array, out *ir.Array) {
	k, u := make([]int64, p.n), make([]uint64, p.n)
	d := op.Out[0].Type.DType
	for e := range op.Out[0].Type.Elems() {
		for j, a := range in {
			k[j], u[j] = a.I[e], uint64(a.I[e])
		}
		if p.fn != nil {
			out.I[e] = d.Wrap(p.fn.Int(op.In[0].Type.DType, k))
			continue
		}
		if p.u != nil && op.In[0].Type.DType == dtype.U64 {
			out.I[e] = int64(p.u(op.Attrs, u))
			continue
		}
		out.I[e] = d.Wrap(p.i(op.Attrs, k))
	}
}

func (p pw) build(op *ir.Op) *kir.Expr {
	args := make([]*kir.Expr, p.n)
	for i := range args {
		args[i] = kir.Arg(i)
	}
	if p.expr != nil {
		return p.expr(func(v float64) *kir.Expr { return kir.Const(op.In[0].Type.DType, v) }, op.Attrs, args)
	}
	return &kir.Expr{Op: p.kir, Args: args}
}

// samples gives a float matrix and scalar, and an integer or bool vector where the op takes them.
func (p pw) samples(r *rand.Rand) []ir.Sample {
	try := p.try
	if try == nil {
		try = []any{p.attrs}
	}
	var out []ir.Sample
	add := func(a any, t ir.Type, fill func(r *rand.Rand, in []*ir.Array)) {
		s := ir.Sample{Attrs: a, Fill: fill}
		for range p.n {
			s.In = append(s.In, t)
		}
		out = append(out, s)
	}
	for _, a := range try {
		if p.takes&floats != 0 {
			add(a, ir.T(dtype.F32, 4, 6), p.fill)
			add(a, ir.T(dtype.F64), p.fill)
		}
		if p.takes&ints != 0 {
			add(a, ir.T(dtype.I64, 8), signed)
		}
		if p.takes&bools != 0 {
			add(a, ir.T(dtype.Bool, 2, 4), nil)
		}
	}
	return out
}

// signed makes integers in [-3, 3], not 0.
func signed(r *rand.Rand, in []*ir.Array) {
	for _, a := range in {
		for i := range a.I {
			if a.I[i] = 1 + r.Int64N(3); r.IntN(2) == 0 {
				a.I[i] = -a.I[i]
			}
		}
	}
}

// positive makes floats in [0.3, 2.3).
func positive(r *rand.Rand, in []*ir.Array) {
	for _, a := range in {
		for i := range a.F {
			a.F[i] = 0.3 + 2*r.Float64()
		}
	}
}

// awayFrom makes floats that keep a distance of 0.05 from the given points, where a derivative jumps.
func awayFrom(points ...float64) func(r *rand.Rand, in []*ir.Array) {
	return func(r *rand.Rand, in []*ir.Array) {
		for _, a := range in {
			for i := range a.F {
				for near(a.F[i], points) {
					a.F[i] = 2 * r.NormFloat64()
				}
			}
		}
	}
}

func near(x float64, points []float64) bool {
	for _, p := range points {
		if x > p-0.05 && x < p+0.05 {
			return true
		}
	}
	return false
}

// one adapts the evaluation of an op with one result.
func one(f func(op *ir.Op, in []*ir.Array) *ir.Array) func(op *ir.Op, in []*ir.Array) []*ir.Array {
	return func(op *ir.Op, in []*ir.Array) []*ir.Array { return []*ir.Array{f(op, in)} }
}
