package ops_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// exact is how near results must be that are equal but for the rounding of float64 in sums of few numbers.
const exact = 1e-9

// checkFacts checks the facts f of an op, which need not be its own, on one instance.
func checkFacts(x *instance, f ir.Facts, r *rand.Rand) error {
	var sets [][]int
	if f.Linear != nil {
		sets = f.Linear(x.op)
	}
	for _, set := range sets {
		if err := linearIn(x, set, r); err != nil {
			return fmt.Errorf("not linear in operands %v: %w", set, err)
		}
	}
	for _, set := range append(slices.Clone(sets), f.Zero...) {
		if err := zeroIn(x, set); err != nil {
			return fmt.Errorf("not zero where operands %v are: %w", set, err)
		}
	}
	if f.Move != ir.Computes {
		if err := moves(x, f.Move); err != nil {
			return fmt.Errorf("does something else than %s: %w", f.Move, err)
		}
	}
	if f.Adds {
		if err := folds(x, func(a, b *ir.Array) *ir.Array { return combined(a, b, 1, 1) }); err != nil {
			return fmt.Errorf("does not add its operands: %w", err)
		}
	}
	if f.Multiplies {
		if err := folds(x, product); err != nil {
			return fmt.Errorf("does not multiply its operands: %w", err)
		}
	}
	if f.Divides {
		if err := divides(x); err != nil {
			return fmt.Errorf("does not divide: %w", err)
		}
	}
	if f.Chooses {
		if err := chooses(x); err != nil {
			return fmt.Errorf("does not choose: %w", err)
		}
	}
	if f.Bias != nil && len(x.in) > 2 && x.in[2] != nil {
		if err := biased(x, f.Bias(x.op)); err != nil {
			return fmt.Errorf("does not add operand 2: %w", err)
		}
	}
	if f.Combines {
		if err := combines(x); err != nil {
			return fmt.Errorf("does not combine: %w", err)
		}
	}
	if f.Each {
		if err := alone(x); err != nil {
			return fmt.Errorf("does not take each operand by itself: %w", err)
		}
	}
	if f.Unseen != nil && f.Unseen(x.op) != 0 {
		if err := unseen(x, f.Unseen(x.op)); err != nil {
			return fmt.Errorf("sees more than it says: %w", err)
		}
	}
	if f.Over != "" && !hasKind(x.op, factor.Blocked) {
		return fmt.Errorf("needs no dimension whole, yet %s it", f.Over)
	}
	if f.Apart != nil && f.Apart(x.op) {
		if whole := needsWhole(x.op, f); whole != "" {
			return fmt.Errorf("its parts need a dimension whole, too: %s", whole)
		}
	}
	return checkTraining(x, f, r)
}

// evaluate is what op makes of in; of a collective, on rank 0 (see onRanks).
func evaluate(x *instance, in []*ir.Array) ([]*ir.Array, error) {
	if x.op.Def.Rules.Collective == "" {
		return interp.Op(x.op, in)
	}
	all, err := onRanks(x.op, in)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// combined is p*a + q*b in their type.
func combined(a, b *ir.Array, p, q int64) *ir.Array {
	out := ir.NewArray(a.Type)
	for i := range out.F {
		out.F[i] = float64(p)*a.F[i] + float64(q)*b.F[i]
	}
	for i := range out.I {
		out.I[i] = a.Type.DType.Wrap(p*a.I[i] + q*b.I[i])
	}
	return out
}

// linearIn compares the op on 2a-3b, in the operands of set, with what it makes of a and of b.
func linearIn(x *instance, set []int, r *rand.Rand) error {
	if len(set) == 0 || !slices.IsSorted(set) || len(slices.Compact(slices.Clone(set))) < len(set) {
		return fmt.Errorf("is no set of operands")
	}
	b, both := slices.Clone(x.in), slices.Clone(x.in)
	for _, i := range set {
		if i >= len(x.in) || x.in[i] == nil || x.in[i].Type.DType == dtype.Bool {
			return fmt.Errorf("operand %d is no numbers", i)
		}
		b[i] = ir.NewArray(x.in[i].Type)
		interp.Fill(r, b[i], 4)
		both[i] = combined(x.in[i], b[i], 2, -3)
	}
	var out [3][]*ir.Array
	for k, in := range [][]*ir.Array{x.in, b, both} {
		var err error
		if out[k], err = evaluate(x, in); err != nil {
			return err
		}
	}
	for k, want := range out[2] {
		if want.Type.DType == dtype.Bool {
			return fmt.Errorf("result %d is no numbers", k)
		}
		if err := interp.Differ(want, combined(out[0][k], out[1][k], 2, -3), exact); err != nil {
			return fmt.Errorf("result %d: %w", k, err)
		}
	}
	return nil
}

// zeroIn evaluates the op with zeros for the operands of set.
func zeroIn(x *instance, set []int) error {
	in := slices.Clone(x.in)
	for _, i := range set {
		if i >= len(in) || in[i] == nil {
			return fmt.Errorf("it has no operand %d", i)
		}
		in[i] = ir.NewArray(in[i].Type)
	}
	out, err := evaluate(x, in)
	if err != nil {
		return err
	}
	for k, a := range out {
		if err := interp.Differ(ir.NewArray(a.Type), combined(a, a, 1, 0), 0); err != nil {
			return fmt.Errorf("result %d: %w", k, err)
		}
	}
	return nil
}

// folds compares the result with what f makes of the operands, one after the other.
func folds(x *instance, f func(a, b *ir.Array) *ir.Array) error {
	if len(x.in) == 0 {
		return fmt.Errorf("it has no operands")
	}
	want := x.in[0]
	for _, a := range x.in[1:] {
		if !a.Type.Equal(want.Type) {
			return fmt.Errorf("operands are %s and %s", want.Type, a.Type)
		}
		want = f(want, a)
	}
	out, err := evaluate(x, x.in)
	if err != nil {
		return err
	}
	return interp.Differ(want, out[0], exact)
}

func product(a, b *ir.Array) *ir.Array {
	out := ir.NewArray(a.Type)
	for i := range out.F {
		out.F[i] = a.F[i] * b.F[i]
	}
	for i := range out.I {
		out.I[i] = a.Type.DType.Wrap(a.I[i] * b.I[i])
	}
	return out
}

// divides multiplies the result by operand 1 again, in integers with the rest.
func divides(x *instance) error {
	out, err := evaluate(x, x.in)
	if err != nil {
		return err
	}
	if len(x.in) != 2 || !x.in[1].Type.Equal(out[0].Type) {
		return fmt.Errorf("it does not have two operands of the result's type")
	}
	back := product(out[0], x.in[1])
	for e, v := range x.in[0].I {
		rest := v - back.I[e]
		if max(rest, -rest) >= max(x.in[1].I[e], -x.in[1].I[e]) {
			return fmt.Errorf("%d over %d is %d", v, x.in[1].I[e], out[0].I[e])
		}
		back.I[e] = v
	}
	return interp.Differ(x.in[0], back, exact)
}

// chooses compares element by element.
func chooses(x *instance) error {
	out, err := evaluate(x, x.in)
	if err != nil {
		return err
	}
	if len(x.in) != 3 || x.in[0].Type.DType != dtype.Bool || x.in[0].Type.Elems() != out[0].Type.Elems() {
		return fmt.Errorf("it does not have a condition for each element")
	}
	for e, c := range x.in[0].I {
		if get(out[0], e) != get(x.in[2-c], e) {
			return fmt.Errorf("element %d is another", e)
		}
	}
	return nil
}

// biased compares with the op without operand 2, to which that is added along dim.
func biased(x *instance, dim int) error {
	want, err := smaller(x, x.in[:2])
	if err != nil {
		return err
	}
	dims := want[0].Type.Dims
	if x.in[2].Type.Elems() != dims[dim] {
		return fmt.Errorf("it has %d elements, dim %d of the result %d", x.in[2].Type.Elems(), dim, dims[dim])
	}
	for e := range want[0].F {
		want[0].F[e] += x.in[2].F[e/ir.Strides(dims)[dim]%dims[dim]]
	}
	got, err := evaluate(x, x.in)
	if err != nil {
		return err
	}
	return interp.Differ(want[0], got[0], exact)
}

// unseen puts elements beyond all others at the end of each dimension of operand 0 that is reduced or needed whole, and compares with the
// op without them.
func unseen(x *instance, fill int) error {
	rule := x.op.Def.Rules.Factors(x.op)
	tried := false
	for d, list := range rule.In[0] {
		n := x.in[0].Type.Dims[d]
		for _, f := range list {
			if k := rule.Factors[f].Kind; k == factor.Free || k == factor.Sum || n < 2 {
				continue
			}
			tried = true
			if err := without(x, d, n-1, fill); err != nil {
				return fmt.Errorf("along dim %d: %w", d, err)
			}
		}
	}
	if !tried {
		return fmt.Errorf("no dimension is reduced or needed whole")
	}
	return nil
}

// without compares the op on operand 0 whose elements from n on along d are beyond all others with that on the elements before.
func without(x *instance, d, n, fill int) error {
	long, short := slices.Clone(x.in), slices.Clone(x.in)
	for i, a := range x.in {
		if a.F == nil && i > 0 { // indices along the dimension
			long[i] = combined(a, a, 1, 0)
			for e := range a.I {
				long[i].I[e] = min(a.I[e], int64(n-1))
			}
			short[i] = long[i]
		}
	}
	short[0] = head(x.in[0], d, n)
	long[0] = combined(x.in[0], x.in[0], 1, 0)
	for e := range long[0].Type.Elems() {
		if e/ir.Strides(long[0].Type.Dims)[d]%long[0].Type.Dims[d] < n {
			continue
		}
		if long[0].F != nil {
			long[0].F[e] = float64(fill) * 1e30
		} else {
			long[0].I[e] = int64(fill) * 1000
		}
	}
	want, err := smaller(x, short)
	if err != nil {
		return err
	}
	got, err := evaluate(x, long)
	if err != nil {
		return err
	}
	for k, a := range got {
		if len(a.Type.Dims) > d && a.Type.Dims[d] != want[k].Type.Dims[d] {
			a = head(a, d, n)
		}
		if err := interp.Differ(want[k], a, exact); err != nil {
			return fmt.Errorf("result %d: %w", k, err)
		}
	}
	return nil
}

// smaller evaluates the op, with its attributes, on operands of other dims.
func smaller(x *instance, in []*ir.Array) ([]*ir.Array, error) {
	b := ir.NewBuilder(&ir.Func{Name: "smaller"})
	b.Loc = x.op.Loc
	var vs []*ir.Value
	for i, a := range in {
		vs = append(vs, b.Param(fmt.Sprintf("a%d", i), a.Type, ir.Input))
	}
	made, err := emit(b, x.op, x.op.Attrs, vs, nil)
	if err != nil {
		return nil, err
	}
	return interp.Op(made[0].Op, in)
}

// head is the first n elements of a along d.
func head(a *ir.Array, d, n int) *ir.Array {
	dims := slices.Clone(a.Type.Dims)
	dims[d] = n
	out, strides, to := ir.NewArray(ir.T(a.Type.DType, dims...)), ir.Strides(a.Type.Dims), 0
	for e := range a.Type.Elems() {
		if e/strides[d]%a.Type.Dims[d] < n {
			set(out, to, get(a, e))
			to++
		}
	}
	return out
}

func hasKind(op *ir.Op, k factor.Kind) bool {
	return op.Def.Rules.Factors != nil && slices.ContainsFunc(op.Def.Rules.Factors(op).Factors, func(f factor.Factor) bool { return f.Kind == k })
}

// needsWhole is an op that needs a dimension whole, of those that op decomposes into; "" for none. What of it is taken apart itself is.
func needsWhole(op *ir.Op, f ir.Facts) string {
	if op.Def.Rules.Decompose == nil {
		return op.String()
	}
	alone, _ := interp.Alone(op, make([]*ir.Array, len(op.In)))
	b := ir.NewBuilder(alone)
	b.Loc = ir.Loc{Node: op.Def.Name}
	op.Def.Rules.Decompose(b, alone.Ops[0])
	for _, p := range alone.Ops[1:] {
		if p.Apart() {
			if whole := needsWhole(p, p.Def.Rules.Facts); whole != "" {
				return whole
			}
		} else if hasKind(p, factor.Blocked) {
			return p.String()
		}
	}
	return ""
}

// wrong are facts that are not true of the ops they are put to.
var wrong = []struct {
	def   *ir.Def
	facts ir.Facts
}{
	{ops.ExpDef, ir.Facts{Linear: in([]int{0})}},
	{ops.ReluDef, ir.Facts{Linear: in([]int{0})}},
	{ops.AddDef, ir.Facts{Linear: in([]int{0})}},
	{ops.MulDef, ir.Facts{Linear: in([]int{0, 1})}},
	{ops.DivDef, ir.Facts{Linear: in([]int{1})}},
	{ops.DivDef, ir.Facts{Linear: in([]int{0})}}, // of integers it is not
	{ops.WhereDef, ir.Facts{Linear: in([]int{1})}},
	{ops.WhereDef, ir.Facts{Linear: in([]int{0, 1})}},
	{ops.PadDef, ir.Facts{Linear: in([]int{0})}}, // of anything but zeros it is not
	{ops.CastDef, ir.Facts{Linear: in([]int{0})}},
	{ops.ReduceMaxDef, ir.Facts{Linear: in([]int{0})}},
	{ops.ConcatDef, ir.Facts{Linear: in([]int{0})}},
	{ops.MatMulDef, ir.Facts{Linear: in([]int{0})}}, // with a bias it is not
	{ops.MatMulDef, ir.Facts{Linear: in([]int{0, 1})}},
	{ops.ConvDef, ir.Facts{Linear: in([]int{1})}},
	{ops.GatherDef, ir.Facts{Linear: in([]int{1})}},
	{ops.AllReduceDef, ir.Facts{Linear: in([]int{0})}}, // the other operand is in the results, too
	{ops.AddDef, ir.Facts{Zero: [][]int{{0}}}},
	{ops.OrDef, ir.Facts{Zero: [][]int{{0}}}},
	{ops.WhereDef, ir.Facts{Zero: [][]int{{0, 1}}}},
	{ops.CosDef, ir.Facts{Zero: [][]int{{0}}}},
	{ops.TransposeDef, ir.Facts{Move: ir.Keeps}},
	{ops.CastDef, ir.Facts{Move: ir.Keeps}},
	{ops.NegDef, ir.Facts{Move: ir.Casts}},
	{ops.SliceDef, ir.Facts{Move: ir.Permutes}},
	{ops.ExpandDef, ir.Facts{Move: ir.Selects}},
	{ops.ReshapeDef, ir.Facts{Move: ir.Repeats}},
	{ops.TransposeDef, ir.Facts{Move: ir.Repeats}},
	{ops.SliceDef, ir.Facts{Move: ir.Joins}},
	{ops.AddDef, ir.Facts{Move: ir.Joins}},
	{ops.GatherElementsDef, ir.Facts{Move: ir.LooksUp}},
	{ops.SubDef, ir.Facts{Adds: true}},
	{ops.MulDef, ir.Facts{Adds: true}},
	{ops.DivDef, ir.Facts{Multiplies: true}},
	{ops.NegDef, ir.Facts{Multiplies: true}},
	{ops.MulDef, ir.Facts{Divides: true}},
	{ops.ModDef, ir.Facts{Divides: true}},
	{ops.ClipDef, ir.Facts{Chooses: true}},
	{ops.MaximumDef, ir.Facts{Chooses: true}},
	{ops.MatMulDef, ir.Facts{Bias: constantly(0)}},
	{ops.ConvDef, ir.Facts{Bias: constantly(0)}},
	{ops.SoftmaxDef, ir.Facts{Unseen: constantly(1)}},
	{ops.ReduceMaxDef, ir.Facts{Unseen: constantly(1)}},
	{ops.ReduceMinDef, ir.Facts{Unseen: constantly(-1)}},
	{ops.ReduceProdDef, ir.Facts{Unseen: constantly(-1)}},
	{ops.LayerNormDef, ir.Facts{Unseen: constantly(-1)}},
	{ops.ArgmaxDef, ir.Facts{Unseen: constantly(-1)}}, // of the least element it is not
	{ops.AddDef, ir.Facts{Over: "adds"}},
	{ops.TopKDef, ir.Facts{Apart: func(*ir.Op) bool { return true }}},
	{ops.AttentionDef, ir.Facts{Apart: func(*ir.Op) bool { return true }}},
	{ops.CumsumDef, ir.Facts{Apart: func(*ir.Op) bool { return true }}},
	{ops.AddDef, ir.Facts{Draws: func(*ir.Op) bool { return true }}},
	{ops.AttentionDef, ir.Facts{Draws: func(*ir.Op) bool { return true }}}, // without dropout it does not,
	{ops.DropoutDef, ir.Facts{Inference: func(b *ir.Builder, op *ir.Op) []*ir.Value { return []*ir.Value{ops.MulScalar(b, op.In[0], 0.75)} }}},
	{ops.AttentionDef, ir.Facts{Inference: func(b *ir.Builder, op *ir.Op) []*ir.Value {
		return b.EmitN(op.Def, ops.AttentionAttrs{Scale: 2}, op.In[:3]...)
	}}},
	{ops.BatchNormStatDef, ir.Facts{Inference: func(b *ir.Builder, op *ir.Op) []*ir.Value {
		y, _, _ := ops.BatchNorm(b, op.In[0], op.In[1], op.In[2], ops.BatchNormAttrs{})
		return []*ir.Value{y}
	}}},
	{ops.BatchNormDef, ir.Facts{Counts: 1}},
	{ops.SiluGradDef, ir.Facts{Activation: func(*ir.Op) string { return "dgelu" }}},
	{ops.GeluDef, ir.Facts{Activation: func(*ir.Op) string { return "gelu" }}}, // or its tanh form
	{ops.AllGatherDef, ir.Facts{Combines: true}},
	{ops.AllToAllDef, ir.Facts{Combines: true}},
	{ops.AllGatherDef, ir.Facts{Move: ir.Permutes}},
	{ops.AllReduceDef, ir.Facts{Move: ir.Keeps}},
	{ops.AllToAllDef, ir.Facts{Move: ir.Selects}},
	{ops.ShardSliceDef, ir.Facts{Move: ir.Joins}},
	{ops.ReduceScatterDef, ir.Facts{Each: true}},
	{ops.ConcatDef, ir.Facts{Each: true}},
}

func in(set []int) func(*ir.Op) [][]int { return func(*ir.Op) [][]int { return [][]int{set} } }

func constantly(n int) func(*ir.Op) int { return func(*ir.Op) int { return n } }

// TestWrongFacts checks that a fact which is not true of an op fails on one of its samples.
func TestWrongFacts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for k, w := range wrong {
		failed := false
		for _, s := range w.def.Rules.Samples(r) {
			failed = failed || checkFacts(instantiate(w.def, s, r), w.facts, r) != nil
		}
		if !failed {
			t.Errorf("%d: %s has facts that are not true, and no sample shows it: %+v", k, w.def.Name, w.facts)
		}
	}
}
