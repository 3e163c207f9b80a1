package ops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// checkTraining checks those facts that are about samples, random numbers and the ends of products.
func checkTraining(x *instance, f ir.Facts, r *rand.Rand) error {
	if f.Draws != nil && f.Draws(x.op) {
		if err := draws(x); err != nil {
			return fmt.Errorf("does not draw: %w", err)
		}
	}
	if f.Inference != nil {
		if err := inferred(x, f); err != nil {
			return fmt.Errorf("is something else when it is not trained: %w", err)
		}
	}
	if i := f.Counts; i > 0 {
		if err := counts(x, i, r); err != nil {
			return fmt.Errorf("does not count the samples that operand %d says: %w", i, err)
		}
	}
	if f.Activation != nil && f.Activation(x.op) != "" {
		if err := ends(x, f.Activation(x.op)); err != nil {
			return fmt.Errorf("is not %s of a product: %w", f.Activation(x.op), err)
		}
	}
	return nil
}

// counter is the number of the first operand of i64, -1 for none.
func counter(x *instance) int {
	return slices.IndexFunc(x.in, func(a *ir.Array) bool { return a != nil && a.Type.DType == dtype.I64 })
}

// at evaluates the op at another count.
func at(x *instance, count int64) ([]*ir.Array, error) {
	in, k := slices.Clone(x.in), counter(x)
	if k < 0 {
		return nil, fmt.Errorf("it has no counter")
	}
	in[k] = ir.NewArray(in[k].Type)
	for e := range in[k].I {
		in[k].I[e] = count
	}
	return interp.Op(x.op, in)
}

// draws looks for other numbers at one of some counts.
func draws(x *instance) error {
	first, err := at(x, 0)
	if err != nil {
		return err
	}
	if a, ok := x.op.Attrs.(ops.DropoutAttrs); ok && a.P == 0 {
		return nil
	}
	for count := range int64(20) {
		again, err := at(x, count+1)
		if err != nil {
			return err
		}
		if interp.Differ(first[0], again[0], 0) != nil {
			return nil
		}
	}
	return fmt.Errorf("the numbers are the same at any count")
}

// inferred compares the mean of the results over many counts with what the op is said to be then, by six standard errors: one of 10^9 true
// means is further off. What draws nothing is the same each time.
func inferred(x *instance, f ir.Facts) error {
	g, args := interp.Alone(x.op, x.in)
	b := ir.NewBuilder(g)
	b.Loc = x.op.Loc
	vs := f.Inference(b, g.Ops[0])
	if vs == nil {
		return nil
	}
	g.Results = nil
	for _, v := range vs {
		b.Result("", v)
	}
	got, err := interp.Options{Exact: true}.Run(g, args)
	if err != nil {
		return err
	}
	n, again := 400, func(count int) ([]*ir.Array, error) { return at(x, int64(count)) }
	if counter(x) < 0 {
		n, again = 1, func(int) ([]*ir.Array, error) { return interp.Op(x.op, x.in) }
	}
	for k, a := range got.All {
		sum, squares := make([]float64, len(a.F)), make([]float64, len(a.F))
		for count := range n {
			out, err := again(count)
			if err != nil {
				return err
			}
			if !out[k].Type.Equal(a.Type) {
				return fmt.Errorf("result %d is %s, not %s", k, a.Type, out[k].Type)
			}
			for e, v := range out[k].F {
				sum[e], squares[e] = sum[e]+v, squares[e]+v*v
			}
		}
		for e, v := range a.F {
			m := sum[e] / float64(n)
			if off := math.Abs(m - v); off > 6*math.Sqrt(max(0, squares[e]/float64(n)-m*m)/float64(n))+exact {
				return fmt.Errorf("element %d of result %d is %g in the mean, not %g", e, k, m, v)
			}
		}
	}
	return nil
}

// counts changes the samples that do not count, and compares everything but their own results.
func counts(x *instance, i int, r *rand.Rand) error {
	if i >= len(x.in) || x.in[i] == nil {
		return nil
	}
	n := x.in[0].Type.Dims[0]
	if !x.in[i].Type.Equal(ir.T(dtype.Bool, n)) {
		return fmt.Errorf("it is %s", x.in[i].Type)
	}
	if !slices.Contains(x.in[i].I, 1) { // all count where none would
		return nil
	}
	in := slices.Clone(x.in)
	in[0] = combined(in[0], in[0], 1, 0)
	each := len(in[0].F) / n
	for e := range in[0].F {
		if x.in[i].I[e/each] == 0 {
			in[0].F[e] = 10 * r.NormFloat64()
		}
	}
	want, err := evaluate(x, x.in)
	if err != nil {
		return err
	}
	got, err := evaluate(x, in)
	if err != nil {
		return err
	}
	for k := range want {
		if want[k].Type.Equal(in[0].Type) {
			for e := range want[k].F {
				if x.in[i].I[e/each] == 0 {
					want[k].F[e], got[k].F[e] = 0, 0
				}
			}
		}
		if err := interp.Differ(want[k], got[k], exact); err != nil {
			return fmt.Errorf("result %d: %w", k, err)
		}
	}
	return nil
}

// ends compares with the end of a product by one.
func ends(x *instance, act string) error {
	last := x.op.In[len(x.op.In)-1]
	if len(last.Type.Dims) != 2 || last.Type.DType != dtype.F32 {
		return nil
	}
	f, args := interp.Alone(x.op, x.in)
	b := ir.NewBuilder(f)
	b.Loc = x.op.Loc
	n := last.Type.Dims[1]
	one := ir.NewArray(ir.T(dtype.F32, n, n))
	for i := range n {
		one.F[i*n+i] = 1
	}
	in := [5]*ir.Value{f.Params[len(f.Params)-1], ops.Const(b, one.Tensor())}
	if len(f.Params) > 1 {
		in[4] = f.Params[0]
	}
	f.Results = nil
	b.Result("", f.Ops[0].Out[0])
	b.Result("", ops.MatMulEpilogue(b, ops.MatMulEpilogueAttrs{Act: act}, in)[0])
	got, err := interp.Options{Exact: true}.Run(f, args)
	if err != nil {
		return err
	}
	return interp.Differ(got.All[0], got.All[1], exact)
}

// perPart reports whether the results of some sample of d, split along a factor that may be split, are not the parts of the whole.
func perPart(t *testing.T, d *ir.Def) bool {
	r := rand.New(rand.NewPCG(11, 12))
	for _, s := range d.Rules.Samples(r) {
		x := instantiate(d, s, r)
		out, err := interp.Op(x.op, x.in)
		if err != nil {
			t.Fatal(err)
		}
		rule := d.Rules.Factors(x.op)
		for id, f := range rule.Factors {
			if f.Kind == factor.Free && f.Size%2 == 0 && splittable(rule, id) && halves(x, rule, id, out) != nil {
				return true
			}
		}
	}
	return false
}

// TestPerPart checks that what is said to be statistics of each part is no part of the whole's; of other ops halves are checked.
func TestPerPart(t *testing.T) {
	for _, d := range ir.Defs() {
		if d.Rules.PerPart && !perPart(t, d) {
			t.Errorf("%s is the same in parts", d.Name)
		}
	}
	for _, d := range []*ir.Def{ops.ReluDef, ops.LayerNormDef, ops.BatchNormStatDef} {
		if perPart(t, d) {
			t.Errorf("%s is not the same in parts", d.Name)
		}
	}
}

// TestCountsMatter: an op that lets samples count which do not, by what its operand says, does not pass for one that heeds it.
func TestCountsMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	deaf := *ops.BatchNormDef
	deaf.Rules.Eval = func(op *ir.Op, in []*ir.Array) []*ir.Array {
		in = slices.Clone(in)
		in[3] = ir.NewArray(in[3].Type) // all count where none would
		return ops.BatchNormDef.Rules.Eval(op, in)
	}
	x := instantiate(ops.BatchNormDef, ops.BatchNormDef.Rules.Samples(r)[0], r)
	if err := counts(x, 3, r); err != nil {
		t.Error(err)
	}
	x.op.Def = &deaf
	if counts(x, 3, r) == nil {
		t.Error("samples that do not count change statistics, and nothing shows it")
	}
}
