package ops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// constant lists operands that by design get no gradient although the result depends on them smoothly: regions.
var constant = map[string][]int{"roi_align": {1}, "roi_align_grad": {1}}

// through lists ops whose gradient is by design that of the operand, and not the derivative of the rounding they do.
var through = []string{"round_through", "cast_through"}

// checkThrough checks that the gradient of the operand is that of the result.
func checkThrough(t *testing.T, x *instance) {
	t.Helper()
	f, _ := interp.Alone(x.op, x.in)
	b := ir.NewBuilder(f)
	dy := b.Param("dy", x.op.Out[0].Type, ir.Input)
	if got := x.op.Def.Rules.VJP(b, f.Ops[0], []*ir.Value{dy}); len(got) != 1 || got[0] != dy {
		t.Errorf("the gradient does not pass straight through %s", x.op)
	}
}

// checkGrad compares the VJP (or the derivative of the decomposition) with central differences: along a random
// direction of the operands, for random gradients of the results, all of them and each alone.
func checkGrad(t *testing.T, x *instance, r *rand.Rand) {
	t.Helper()
	rules := &x.op.Def.Rules
	if rules.NoGrad != "" {
		return
	}
	if slices.Contains(through, x.op.Def.Name) {
		checkThrough(t, x)
		return
	}
	var floats []int
	for k, v := range x.op.Out {
		if v.Type.DType.IsFloat() {
			floats = append(floats, k)
		}
	}
	if len(floats) == 0 || !slices.ContainsFunc(x.in, func(a *ir.Array) bool { return a != nil && a.F != nil }) {
		return
	}
	sets := [][]int{floats}
	if len(floats) > 1 {
		for _, k := range floats {
			sets = append(sets, []int{k})
		}
	}
	for _, set := range sets {
		if err := gradient(x, set, r); err != nil {
			t.Errorf("gradient from results %v: %v\n%s", set, err, x.op)
		}
	}
}

// gradient checks with gradients of the results in set only.
func gradient(x *instance, set []int, r *rand.Rand) error {
	f, args := interp.Alone(x.op, x.in)
	b := ir.NewBuilder(f)
	b.Loc = x.op.Loc
	op := f.Ops[0]
	dy, weights := make([]*ir.Value, len(op.Out)), make([]*ir.Array, len(op.Out))
	for _, k := range set {
		dy[k] = b.Param(fmt.Sprintf("dy%d", k), op.Out[k].Type, ir.Input)
		weights[k] = ir.NewArray(op.Out[k].Type)
		interp.Fill(r, weights[k], 0)
		args[dy[k].Name] = weights[k]
	}
	grads := vjp(b, op, dy)
	if len(grads) != len(op.In) {
		return fmt.Errorf("VJP gives %d gradients for %d operands", len(grads), len(op.In))
	}
	for i, g := range grads {
		if g != nil && op.In[i] == nil || g != nil && !g.Type.Equal(op.In[i].Type) {
			return fmt.Errorf("gradient of operand %d is %s", i, g.Type)
		}
		if g != nil {
			b.Result(fmt.Sprint(i), g)
		}
	}
	if err := f.Verify(&ir.Module{}); err != nil {
		return err
	}
	got, err := interp.Options{Exact: true}.Run(f, args)
	if err != nil {
		return err
	}
	for i, v := range op.In {
		if v == nil || x.in[i].F == nil || slices.Contains(constant[op.Def.Name], i) {
			continue
		}
		u := ir.NewArray(v.Type)
		interp.Fill(r, u, 0)
		along := 0.0
		if g := got.Named[fmt.Sprint(i)]; g != nil {
			along = inner(g, u)
		}
		want, err := difference(x, i, u, weights)
		if err != nil {
			return err
		}
		if math.Abs(along-want) > 2e-5*max(1, math.Abs(want)) || math.IsNaN(along) != math.IsNaN(want) {
			return fmt.Errorf("along a direction of operand %d: %.9g, differences give %.9g", i, along, want)
		}
	}
	return nil
}

// vjp applies the rule of op, or goes backwards through its decomposition.
func vjp(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
	if op.Def.Rules.VJP != nil {
		return op.Def.Rules.VJP(b, op, dy)
	}
	if op.Def.Rules.NoGrad != "" {
		return make([]*ir.Value, len(op.In))
	}
	first := len(b.F.Ops)
	made := op.Def.Rules.Decompose(b, op)
	tape := slices.Clone(b.F.Ops[first:])
	grad := map[*ir.Value]*ir.Value{}
	add := func(v, g *ir.Value) {
		if g == nil || v == nil || !v.Type.DType.IsFloat() {
			return
		}
		if old := grad[v]; old != nil {
			g = ops.Add(b, old, g)
		}
		grad[v] = g
	}
	for k, v := range made {
		add(v, dy[k])
	}
	for _, p := range slices.Backward(tape) {
		out, some := make([]*ir.Value, len(p.Out)), false
		for k, v := range p.Out {
			out[k] = grad[v]
			some = some || out[k] != nil
		}
		if !some {
			continue
		}
		for i, g := range vjp(b, p, out) {
			add(p.In[i], g)
		}
	}
	grads := make([]*ir.Value, len(op.In))
	for i, v := range op.In {
		grads[i] = grad[v]
	}
	return grads
}

// difference is the central difference of Σ weights·results along u in operand i.
func difference(x *instance, i int, u *ir.Array, weights []*ir.Array) (float64, error) {
	const h = 1e-5
	side := func(by float64) (float64, error) {
		in := slices.Clone(x.in)
		in[i] = ir.NewArray(u.Type)
		for e := range u.F {
			in[i].F[e] = x.in[i].F[e] + by*u.F[e]
		}
		out, err := interp.Op(x.op, in)
		if err != nil {
			return 0, err
		}
		sum := 0.0
		for k, w := range weights {
			if w != nil {
				sum += inner(w, out[k])
			}
		}
		return sum, nil
	}
	up, err := side(h)
	if err != nil {
		return 0, err
	}
	down, err := side(-h)
	return (up - down) / (2 * h), err
}

func inner(a, b *ir.Array) float64 {
	sum := 0.0
	for i := range a.F {
		sum += a.F[i] * b.F[i]
	}
	return sum
}
