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

func ramp(t ir.Type, start, step float64) *ir.Array {
	a := ir.NewArray(t)
	for i := range a.F {
		a.F[i] = start + step*float64(i)
	}
	return a
}

var f32 = dtype.F32
