package ops_test

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/cost"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// instance is one sample of an op, alone in a function whose parameters are its operands.
type instance struct {
	f  *ir.Func
	b  *ir.Builder
	op *ir.Op
	in []*ir.Array
}

func instantiate(d *ir.Def, s ir.Sample, r *rand.Rand) *instance {
	x := &instance{f: &ir.Func{Name: "f"}}
	x.b = ir.NewBuilder(x.f)
	x.b.Loc = ir.Loc{Node: d.Name}
	var in []*ir.Value
	limit := s.Limit
	if limit == 0 {
		limit = 4
	}
	for i, t := range s.In {
		if t.DType == dtype.Invalid { // an absent operand
			in, x.in = append(in, nil), append(x.in, nil)
			continue
		}
		a := ir.NewArray(t)
		interp.Fill(r, a, limit)
		v := x.b.Param(fmt.Sprintf("a%d", i), t, ir.Input)
		if d.Rules.Transfer == ir.FromHost {
			v = ops.Offload(x.b, v, 1)
		}
		in, x.in = append(in, v), append(x.in, a)
	}
	if s.Fill != nil {
		s.Fill(r, x.in)
	}
	x.op = x.b.EmitN(d, s.Attrs, in...)[0].Op
	return x
}

// TestConform checks every rule of every op against the others.
func TestConform(t *testing.T) {
	for _, d := range ir.Defs() {
		t.Run(d.Name, func(t *testing.T) {
			rules := &d.Rules
			if rules.Infer == nil || rules.Samples == nil || rules.Doc == "" {
				t.Fatal("declared without Infer, Samples or Doc")
			}
			if rules.VJP == nil && rules.Decompose == nil && rules.NoGrad == "" {
				t.Error("has no VJP and no Decompose, and no NoGrad says why")
			}
			if rules.Eval == nil && rules.Decompose == nil && rules.Collective == "" {
				t.Error("has neither Eval nor Decompose")
			}
			h := fnv.New64()
			h.Write([]byte(d.Name))
			r := rand.New(rand.NewPCG(1, h.Sum64()))
			list := rules.Samples(r)
			if len(list) == 0 {
				t.Fatal("has no samples")
			}
			for i, s := range list {
				x := instantiate(d, s, r)
				t.Run(fmt.Sprint(i), func(t *testing.T) { conform(t, x, r) })
			}
		})
	}
}

func conform(t *testing.T, x *instance, r *rand.Rand) {
	roundTrip(t, x)
	checkRule(t, x)
	if n := cost.Flops(x.op); n < 0 || cost.Bytes(x.op) < 0 {
		t.Errorf("%s takes %d operations, moves %d bytes", x.op, n, cost.Bytes(x.op))
	}
	if err := checkFacts(x, x.op.Def.Rules.Facts, r); err != nil {
		t.Errorf("%v\n%s", err, x.op)
	}
	if err := checkPrecision(x, x.op.Def.Rules.Precision, x.op.Def.Rules.Facts); err != nil {
		t.Errorf("%v\n%s", err, x.op)
	}
	if x.op.Def.Rules.Collective != "" {
		return
	}
	out, err := interp.Op(x.op, x.in)
	if err != nil {
		t.Fatal(err)
	}
	if t.Failed() {
		return
	}
	checkParts(t, x, out)
	checkImpl(t, x, out)
	checkHalves(t, x, out)
	checkGrad(t, x, r)
}

// roundTrip prints, parses and verifies the function.
func roundTrip(t *testing.T, x *instance) {
	t.Helper()
	x.f.Results = nil
	for _, v := range x.op.Out {
		if v.OnHost() { // where no result may lie
			v = ops.Fetch(x.b, v)
		}
		x.b.Result("", v)
	}
	m := &ir.Module{Funcs: []*ir.Func{x.f}}
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	text := m.String()
	back, err := ir.Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := back.Verify(); err != nil {
		t.Errorf("parsed: %v", err)
	}
	if again := back.String(); again != text {
		t.Errorf("text changes:\n%s%s", text, again)
	}
}

// checkParts compares Decompose with Eval.
func checkParts(t *testing.T, x *instance, out []*ir.Array) {
	t.Helper()
	if x.op.Def.Rules.Decompose == nil {
		return
	}
	got, err := interp.ByParts(x.op, x.in)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(out) {
		t.Fatalf("decomposes into %d results, has %d", len(got), len(out))
	}
	for i := range out {
		if err := interp.Differ(out[i], got[i], 1e-5); err != nil {
			t.Errorf("result %d of Decompose against Eval: %v", i, err)
		}
	}
}

// checkRule checks that the factors of every dimension multiply to its size. A blocked factor may span dims.
func checkRule(t *testing.T, x *instance) {
	t.Helper()
	if x.op.Def.Rules.Factors == nil {
		return
	}
	rule := x.op.Def.Rules.Factors(x.op)
	if rule.IsEmpty() {
		return
	}
	check := func(what string, vs []*ir.Value, dims [][]factor.Dim) {
		if len(vs) != len(dims) {
			t.Errorf("rule has %d %s, op has %d", len(dims), what, len(vs))
			return
		}
		for i, v := range vs {
			if v == nil {
				continue
			}
			if len(dims[i]) != len(v.Type.Dims) {
				t.Errorf("rule has %d dims for %s %d, %s", len(dims[i]), what, i, v.Type)
				continue
			}
			for d, list := range dims[i] {
				n, spans := 1, false
				for _, id := range list {
					n *= rule.Factors[id].Size
					spans = spans || rule.Factors[id].Kind == factor.Blocked && holders(dims[i], id) > 1
				}
				if !spans && n != v.Type.Dims[d] {
					t.Errorf("%s %d, dim %d of %s has factors of size %d", what, i, d, v.Type, n)
				}
			}
		}
	}
	check("operands", x.op.In, rule.In)
	check("results", x.op.Out, rule.Out)
}

// holders counts the dimensions that hold the factor.
func holders(dims []factor.Dim, id int) int {
	n := 0
	for _, list := range dims {
		if slices.Contains(list, id) {
			n++
		}
	}
	return n
}

// checkHalves splits every factor that may be split, runs both halves and puts the results together.
func checkHalves(t *testing.T, x *instance, out []*ir.Array) {
	t.Helper()
	if x.op.Def.Rules.Factors == nil || x.op.Def.Rules.PerPart && !x.op.Apart() { // statistics of each part, by design
		return
	}
	rule := x.op.Def.Rules.Factors(x.op)
	for id, f := range rule.Factors {
		if f.Kind == factor.Blocked || f.Size%2 != 0 || !splittable(rule, id) {
			continue
		}
		if err := halves(x, rule, id, out); err != nil {
			t.Errorf("factor %s (%s, size %d) in halves: %v\n%s", f.Name, f.Kind, f.Size, err, x.op)
		}
	}
}

// splittable reports whether the factor is the slowest-varying of each dimension it is in.
func splittable(rule factor.Rule, id int) bool {
	for _, side := range [][][]factor.Dim{rule.In, rule.Out} {
		for _, dims := range side {
			for _, list := range dims {
				if i := slices.Index(list, id); i > 0 {
					return false
				}
			}
		}
	}
	return true
}

// dimOf is the dimension that holds the factor, -1 for none.
func dimOf(dims []factor.Dim, id int) int {
	return slices.IndexFunc(dims, func(list factor.Dim) bool { return slices.Contains(list, id) })
}

func halves(x *instance, rule factor.Rule, id int, out []*ir.Array) error {
	var parts [2][]*ir.Array
	for k := range parts {
		got, err := half(x, rule, id, k)
		if err != nil {
			return err
		}
		parts[k] = got
	}
	for i, want := range out {
		a, b := parts[0][i], parts[1][i]
		var got *ir.Array
		switch d := dimOf(rule.Out[i], id); {
		case d >= 0:
			got = interp.Join(d, []*ir.Array{a, b})
		case rule.Factors[id].Kind == factor.Free:
			if err := interp.Differ(a, b, 1e-9); err != nil {
				return fmt.Errorf("result %d has no such dim, yet depends on the half: %w", i, err)
			}
			got = a
		default:
			got = combine(rule.Factors[id].Kind, a, b)
		}
		if err := interp.Differ(want, got, 1e-9); err != nil {
			return fmt.Errorf("result %d: %w", i, err)
		}
	}
	return nil
}

// half evaluates the op on one half of the operands.
func half(x *instance, rule factor.Rule, id, k int) ([]*ir.Array, error) {
	f := &ir.Func{Name: "half"}
	b := ir.NewBuilder(f)
	b.Loc = x.op.Loc
	in, args := make([]*ir.Value, len(x.in)), slices.Clone(x.in)
	inDims, outDims := make([][]int, len(x.in)), make([][]int, len(x.op.Out))
	for i, a := range x.in {
		if a == nil {
			continue
		}
		if d := dimOf(rule.In[i], id); d >= 0 {
			args[i] = interp.Part(a, d, 2, k)
		}
		inDims[i] = args[i].Type.Dims
		in[i] = b.Param(fmt.Sprintf("a%d", i), args[i].Type, ir.Input)
	}
	for i, v := range x.op.Out {
		outDims[i] = slices.Clone(v.Type.Dims)
		if d := dimOf(rule.Out[i], id); d >= 0 {
			outDims[i][d] /= 2
		}
	}
	attrs := x.op.Attrs
	if x.op.Def.Rules.Resize != nil {
		attrs = x.op.Def.Rules.Resize(x.op, inDims, outDims)
	}
	vs, err := emit(b, x.op, attrs, in, first(b, rule.Factors[id], k))
	if err != nil {
		return nil, err
	}
	for i, v := range vs {
		if !slices.Equal(v.Type.Dims, outDims[i]) {
			return nil, fmt.Errorf("half of result %d is %s, want %v", i, v.Type, outDims[i])
		}
	}
	given := map[string]*ir.Array{}
	for i, v := range in {
		if v != nil {
			given[v.Name] = args[i]
		}
	}
	for _, v := range vs {
		b.Result("", v)
	}
	got, err := interp.Options{Exact: true}.Run(f, given)
	if err != nil {
		return nil, err
	}
	return got.All, nil
}

// first is where half k of a factor of kind factor.Index begins; nil of other factors.
func first(b *ir.Builder, f factor.Factor, k int) *ir.Value {
	if f.Kind != factor.Index {
		return nil
	}
	return ops.Const(b, ir.Ints(ir.T(dtype.I64), int64(k*f.Size/2)))
}

func emit(b *ir.Builder, op *ir.Op, attrs any, in []*ir.Value, first *ir.Value) (vs []*ir.Value, err error) {
	defer ir.Recover(&err)
	if first != nil {
		return op.Def.Rules.Indexed(b, op, attrs, in, first), nil
	}
	return b.EmitN(op.Def, attrs, in...), nil
}

func combine(k factor.Kind, a, b *ir.Array) *ir.Array {
	out := ir.NewArray(a.Type)
	for i := range out.F {
		out.F[i] = fold(k, a.F[i], b.F[i])
	}
	for i := range out.I {
		out.I[i] = int64(fold(k, float64(a.I[i]), float64(b.I[i])))
	}
	return out
}

func fold(k factor.Kind, x, y float64) float64 {
	switch k {
	case factor.Max:
		return math.Max(x, y)
	case factor.Min:
		return math.Min(x, y)
	case factor.Prod:
		return x * y
	}
	return x + y
}
