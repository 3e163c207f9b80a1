package ops

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// evaluate runs a function on its parameters' contents, decomposing ops that have no Eval.
func evaluate(t *testing.T, f *ir.Func, in []*ir.Array, want ...*ir.Value) []*ir.Array {
	t.Helper()
	env := map[*ir.Value]*ir.Array{}
	for i, p := range f.Params {
		env[p] = in[i]
	}
	for _, op := range f.Ops {
		args := make([]*ir.Array, len(op.In))
		for i, v := range op.In {
			args[i] = env[v]
		}
		for i, a := range evalOp(t, op, args) {
			env[op.Out[i]] = a
		}
	}
	out := make([]*ir.Array, len(want))
	for i, v := range want {
		out[i] = env[v]
	}
	return out
}

func evalOp(t *testing.T, op *ir.Op, in []*ir.Array) []*ir.Array {
	t.Helper()
	if op.Def.Rules.Eval != nil {
		return op.Def.Rules.Eval(op, in)
	}
	f, parts, args := decomposed(op, in)
	return evaluate(t, f, args, parts...)
}

// decomposed is op's decomposition as a function of its operands that are there, and their contents.
func decomposed(op *ir.Op, in []*ir.Array) (*ir.Func, []*ir.Value, []*ir.Array) {
	f := &ir.Func{}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "test"}
	c := *op
	c.In = make([]*ir.Value, len(op.In))
	var args []*ir.Array
	for i, v := range op.In {
		if v != nil {
			c.In[i] = b.Param("x", v.Type, ir.Input)
			args = append(args, in[i])
		}
	}
	return f, op.Def.Rules.Decompose(b, &c), args
}

// build makes one op on parameters of the given types.
func build(d *ir.Def, attrs any, types ...ir.Type) (*ir.Builder, *ir.Op) {
	b := ir.NewBuilder(&ir.Func{})
	b.Loc = ir.Loc{Node: "test"}
	args := make([]*ir.Value, len(types))
	for i, t := range types {
		args[i] = b.Param("x", t, ir.Input)
	}
	return b, b.EmitN(d, attrs, args...)[0].Op
}

func randomArrays(r *rand.Rand, s ir.Sample) []*ir.Array {
	in := make([]*ir.Array, len(s.In))
	limit := s.Limit
	if limit == 0 {
		limit = 4
	}
	for k, t := range s.In {
		in[k] = ir.NewArray(t)
		for i := range in[k].F {
			in[k].F[i] = r.NormFloat64()
		}
		for i := range in[k].I {
			in[k].I[i] = r.Int64N(int64(limit))
		}
	}
	if s.Fill != nil {
		s.Fill(r, in)
	}
	return in
}

func near2(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.IsNaN(got[i]) != math.IsNaN(want[i]) || math.Abs(got[i]-want[i]) > tol*(1+math.Abs(want[i])) && got[i] != want[i] {
			t.Fatalf("%s: element %d is %g, want %g\n got %v\nwant %v", what, i, got[i], want[i], got, want)
		}
	}
}

var nnDefs = []*ir.Def{
	ConvDef, ConvInputGradDef, ConvWeightGradDef, MaxPoolDef, MaxPoolGradDef, AvgPoolDef, AvgPoolGradDef,
	SoftmaxDef, LogSoftmaxDef, SoftmaxGradDef, LogSoftmaxGradDef, LayerNormDef, LayerNormGradDef, RMSNormDef, RMSNormGradDef,
	BatchNormDef, BatchNormGradDef, BatchNormStatDef, AttentionDef, AttentionGradDef, XentDef, XentGradDef, XentBothDef,
	RandDef, RandAtDef, DropoutDef, GeluGradDef, SiluGradDef,
}

// TestDecomposeIsEval holds every decomposition against the definition.
func TestDecomposeIsEval(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, d := range nnDefs {
		if d.Rules.Decompose == nil || d.Rules.Eval == nil {
			continue
		}
		for _, s := range d.Rules.Samples(r) {
			_, op := build(d, s.Attrs, s.In...)
			in := randomArrays(r, s)
			want := d.Rules.Eval(op, in)
			f, parts, args := decomposed(op, in)
			for i, got := range evaluate(t, f, args, parts...) {
				near2(t, op.String(), got.F, want[i].F, 1e-6) // constants are f32
			}
		}
	}
}

// TestVJPsNumerically holds every VJP against central differences, with gradients on all float results.
func TestVJPsNumerically(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, d := range nnDefs {
		if d.Rules.VJP == nil {
			continue
		}
		for _, s := range d.Rules.Samples(r) {
			checkVJP(t, r, d, s)
		}
	}
}

func checkVJP(t *testing.T, r *rand.Rand, d *ir.Def, s ir.Sample) {
	b, op := build(d, s.Attrs, s.In...)
	text, in := op.String(), randomArrays(r, s)
	dy, cot := make([]*ir.Value, len(op.Out)), make([]*ir.Array, len(op.Out))
	for i, v := range op.Out {
		if v.Type.DType.IsFloat() {
			dy[i] = b.Param("dy", v.Type, ir.Input)
			cot[i] = randomArrays(r, ir.Sample{In: []ir.Type{v.Type}})[0]
		}
	}
	grads := d.Rules.VJP(b, op, dy)
	args := in
	for _, c := range cot {
		if c != nil {
			args = append(args[:len(args):len(args)], c)
		}
	}
	loss := func() (sum float64) {
		for i, y := range d.Rules.Eval(op, in) {
			for e := range y.F {
				sum += y.F[e] * cot[i].F[e]
			}
		}
		return sum
	}
	for i, g := range grads {
		if g == nil {
			continue
		}
		if !g.Type.Equal(s.In[i]) {
			t.Fatalf("%s: gradient %d is %s", text, i, g.Type)
		}
		got, want, h := evaluate(t, b.F, args, g)[0].F, make([]float64, s.In[i].Elems()), 1e-5
		for e := range want {
			x := in[i].F[e]
			in[i].F[e] = x + h
			up := loss()
			in[i].F[e] = x - h
			want[e] = (up - loss()) / (2 * h)
			in[i].F[e] = x
		}
		near2(t, text, got, want, 1e-6)
	}
}

func floats64(t ir.Type, data ...float64) *ir.Array { return &ir.Array{Type: t, F: data} }

func ramp(t ir.Type, start, step float64) *ir.Array {
	a := ir.NewArray(t)
	for i := range a.F {
		a.F[i] = start + step*float64(i)
	}
	return a
}

var f32 = dtype.F32
