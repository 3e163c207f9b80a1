package ops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// checkPrecision checks what the op's autocast rule and the facts f say of types.
func checkPrecision(x *instance, rule string, f ir.Facts) error {
	own := func(i int) bool { return slices.Contains(f.AsStored, i) }
	rest := func(i int) bool { return !slices.Contains(f.Wide, i) }
	switch {
	case len(x.in) == 0 || x.in[0] == nil || x.in[0].Type.DType != dtype.F32: // of another precision already
	case f.AsStored != nil && inHalf(x, own) != nil:
		return fmt.Errorf("does not take operands %v in half precision, the others in f32: %w", f.AsStored, inHalf(x, own))
	case f.Wide != nil && inHalf(x, rest) != nil:
		return fmt.Errorf("does not run in half precision with operands %v in f32: %w", f.Wide, inHalf(x, rest))
	case f.Wide != nil && inHalf(x, func(int) bool { return true }) == nil:
		return fmt.Errorf("takes operands %v in half precision, too", f.Wide)
	}
	if rule == "own" && f.Move == ir.Computes { // else checkFacts looks where elements go
		return homogeneous(x)
	}
	if f.Out != nil {
		return outType(x, f)
	}
	return nil
}

// inHalf infers the op with those f32 operands that pick picks in f16.
func inHalf(x *instance, pick func(i int) bool) error {
	half, picked := *x.op, false
	half.In = slices.Clone(x.op.In)
	for i, v := range half.In {
		if v != nil && v.Type.DType == dtype.F32 && pick(i) {
			half.In[i], picked = &ir.Value{Name: v.Name, Type: v.Type.With(dtype.F16)}, true
		}
	}
	if !picked {
		return fmt.Errorf("none of the operands is f32")
	}
	_, err := x.op.Def.Rules.Infer(&half)
	return err
}

// homogeneous compares the op on operands twice as large with twice its results, and bounds how many equal elements it adds: half
// precision has digits for a few.
func homogeneous(x *instance) error {
	const few = 16
	double, ones := slices.Clone(x.in), slices.Clone(x.in)
	for i, a := range x.in {
		if a == nil || a.F == nil {
			continue
		}
		double[i], ones[i] = combined(a, a, 2, 0), ir.NewArray(a.Type)
		for e := range ones[i].F {
			ones[i].F[e] = 1
		}
	}
	var out [3][]*ir.Array
	for k, in := range [][]*ir.Array{x.in, double, ones} {
		var err error
		if out[k], err = interp.Op(x.op, in); err != nil {
			return err
		}
	}
	for k, a := range out[0] {
		if a.F == nil {
			continue
		}
		if err := interp.Differ(combined(a, a, 2, 0), out[1][k], exact); err != nil {
			return fmt.Errorf("does not move elements or add a few: of twice the operands, result %d %w", k, err)
		}
		if most := slices.Max(out[2][k].F); most > few {
			return fmt.Errorf("adds %g elements, more than %d", most, few)
		}
	}
	return nil
}

// outType asks for the result in f32 of operands of half precision, and compares with the result that they have of themselves.
func outType(x *instance, f ir.Facts) error {
	half := *x.op
	half.In, half.Out = slices.Clone(x.op.In), nil
	for i, v := range half.In {
		if v != nil && v.Type.DType.IsFloat() {
			half.In[i] = &ir.Value{Name: v.Name, Type: v.Type.With(dtype.BF16)}
		}
	}
	if !half.In[0].Type.DType.IsFloat() {
		return nil
	}
	for _, d := range []dtype.DType{dtype.F32, dtype.Invalid} {
		half.Attrs = f.Out(x.op, d)
		want := d
		if d == dtype.Invalid {
			want = dtype.BF16
		}
		t, err := x.op.Def.Rules.Infer(&half)
		if err != nil {
			return err
		}
		if t[0].DType != want || !slices.Equal(t[0].Dims, x.op.Out[0].Type.Dims) {
			return fmt.Errorf("gives %s when asked for a result of type %s, operands being bf16", t[0], d)
		}
	}
	return nil
}

// TestWrongPrecision checks that rules of precision which are not true of an op fail on one of its samples.
func TestWrongPrecision(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for k, w := range []struct {
		def   *ir.Def
		rule  string
		facts ir.Facts
	}{
		{ops.ExpDef, "own", ir.Facts{}},
		{ops.MulDef, "own", ir.Facts{}},
		{ops.SqrtDef, "own", ir.Facts{}},
		{ops.SoftmaxDef, "own", ir.Facts{}},
		{ops.LayerNormDef, "narrow", ir.Facts{AsStored: []int{0}}},
		{ops.XentDef, "keep", ir.Facts{AsStored: []int{1}}},
		{ops.MatMulDef, "low", ir.Facts{Wide: []int{1}}},
		{ops.AttentionGradDef, "low", ir.Facts{Wide: []int{4}}},
		{ops.AttentionGradDef, "low", ir.Facts{Wide: []int{4, 5}}},
		{ops.ConvDef, "low", ir.Facts{Out: func(op *ir.Op, _ dtype.DType) any { return op.Attrs }}},
	} {
		failed := false
		for _, s := range w.def.Rules.Samples(r) {
			failed = failed || checkPrecision(instantiate(w.def, s, r), w.rule, w.facts) != nil
		}
		if !failed {
			t.Errorf("%d: %s has rules of precision that are not true, and no sample shows it: %q %+v", k, w.def.Name, w.rule, w.facts)
		}
	}
}

// grown is how much the first operand grows in TestNarrow, and bound how large results may be, which are of the size of the other
// operands or, normalised, some roots of the few elements of a row.
const (
	grown = 1000
	bound = 20
)

// TestNarrow checks of ops whose results are stored as narrow as their operands that results do not grow with what is normalised: it
// runs all ops that have gradients, and these, on operands of which the first is large, and looks at the ops with that rule on the way.
func TestNarrow(t *testing.T) {
	met := map[*ir.Def]bool{}
	each := func(d *ir.Def, is func(*ir.Def) bool) error {
		if d.Rules.VJP == nil || d.Rules.Collective != "" {
			return nil
		}
		r := rand.New(rand.NewPCG(7, 8))
		for _, s := range d.Rules.Samples(r) {
			if len(s.In) == 0 || s.In[0].DType != dtype.F32 {
				continue
			}
			if err := bounded(instantiate(d, s, r), r, is, met); err != nil {
				return err
			}
		}
		return nil
	}
	narrow := func(d *ir.Def) bool { return d.Rules.Precision == "narrow" }
	for _, d := range ir.Defs() {
		if err := each(d, narrow); err != nil {
			t.Error(err)
		}
	}
	for _, d := range ir.Defs() {
		if narrow(d) && !met[d] {
			t.Errorf("%s is stored as narrow as its operands, and no sample or gradient of one shows how large it is", d.Name)
		}
	}
	for _, wrong := range []*ir.Def{ops.ExpDef, ops.MulDef, ops.ReduceSumDef, ops.ReluDef, ops.SqrtDef, ops.SoftplusDef, ops.LogSoftmaxDef, ops.CumsumDef} {
		if each(wrong, func(d *ir.Def) bool { return d == wrong }) == nil {
			t.Errorf("%s grows with its operand, and no sample shows it", wrong.Name)
		}
	}
}

// bounded evaluates x and its gradient with a first operand of grown times its size, and says which result of an op that is picks is
// larger than bound.
func bounded(x *instance, r *rand.Rand, is func(*ir.Def) bool, met map[*ir.Def]bool) error {
	f, args := interp.Alone(x.op, x.in)
	args["a0"] = combined(x.in[0], x.in[0], grown, 0)
	b := ir.NewBuilder(f)
	b.Loc = x.op.Loc
	op := f.Ops[0]
	dy := make([]*ir.Value, len(op.Out))
	dy[0] = b.Param("dy", op.Out[0].Type, ir.Input)
	args["dy"] = ir.NewArray(dy[0].Type)
	interp.Fill(r, args["dy"], 4)
	vjp(b, op, dy)
	f.Results = nil
	var from []*ir.Op
	for _, o := range f.Ops {
		if is(o.Def) {
			met[o.Def] = true
			b.Result("", o.Out[0])
			from = append(from, o)
		}
	}
	if len(from) == 0 {
		return nil
	}
	got, err := interp.Options{Exact: true}.Run(f, args)
	if err != nil {
		return err
	}
	for k, o := range from {
		for _, v := range got.All[k].F {
			if !(math.Abs(v) <= bound) {
				return fmt.Errorf("%s is %g with a first operand of some %d", o, v, grown)
			}
		}
	}
	return nil
}
