package ops_test

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// numbered gives operand contents that are told apart: 1, 2, 3, … where the type has them, as far as it has.
func numbered(a *ir.Array, from int) *ir.Array {
	out := ir.NewArray(a.Type)
	for i := range out.F {
		out.F[i] = float64(from + i)
	}
	for i := range out.I {
		out.I[i] = int64(from + i)
	}
	return out
}

// elements lists a's, in order.
func elements(a *ir.Array) []float64 {
	out := make([]float64, 0, a.Type.Elems())
	for i := range a.Type.Elems() {
		n := get(a, i)
		out = append(out, n.F+float64(n.I))
	}
	return out
}

// moves evaluates the op on elements that are told apart, and looks where they are in the result.
func moves(x *instance, m ir.Move) error {
	if x.op.Def.Rules.Collective != "" {
		return movesOnRanks(x, m)
	}
	in, n := slices.Clone(x.in), 1
	var all []float64
	for i, a := range in {
		if m == ir.Casts {
			in[i] = numbered(a, 0)
			for e := range in[i].Type.Elems() { // 0 and 1 are of every type
				set(in[i], e, kir.Number{F: float64(e % 2), I: int64(e % 2)})
			}
		} else if m != ir.LooksUp || i == 0 {
			in[i] = numbered(a, n)
		}
		n += a.Type.Elems()
		all = append(all, elements(in[i])...)
	}
	out, err := evaluate(x, in)
	if err != nil {
		return err
	}
	made, from, want := elements(out[0]), elements(in[0]), in[0].Type
	if m != ir.Casts && out[0].Type.DType != want.DType {
		return fmt.Errorf("the result is %s", out[0].Type)
	}
	switch m {
	case ir.Keeps:
		return same(made, from)
	case ir.Casts:
		if !slices.Equal(out[0].Type.Dims, want.Dims) {
			return fmt.Errorf("the result is %s", out[0].Type)
		}
		return same(made, from)
	case ir.Permutes:
		return same(slices.Sorted(slices.Values(made)), from)
	case ir.Repeats:
		return repeats(out[0], in[0])
	case ir.Joins:
		return joins(made, all)
	case ir.LooksUp:
		return looksUp(x, made, in)
	}
	slices.Sort(made)
	for i, v := range made {
		if !slices.Contains(from, v) || i > 0 && made[i-1] == v {
			return fmt.Errorf("%g is not in the operand, or twice in the result", v)
		}
	}
	return nil
}

func same(got, want []float64) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("makes %v of %v", got, want)
	}
	return nil
}

// repeats compares each element with that of the operand at the same place, 0 where a dim of the operand is 1.
func repeats(out, x *ir.Array) error {
	if len(out.Type.Dims) != len(x.Type.Dims) {
		return fmt.Errorf("the result is %s", out.Type)
	}
	strides, wrong := ir.Strides(x.Type.Dims), -1
	for d, n := range x.Type.Dims {
		if n == 1 {
			strides[d] = 0
		} else if n != out.Type.Dims[d] {
			return fmt.Errorf("the result is %s", out.Type)
		}
	}
	walk(out.Type.Dims, func(index []int, flat int) {
		from := 0
		for d, i := range index {
			from += i * strides[d]
		}
		if get(out, flat) != get(x, from) {
			wrong = flat
		}
	})
	if wrong >= 0 {
		return fmt.Errorf("element %d is another", wrong)
	}
	return nil
}

// joins looks for every element of all operands, once, beside others that are alike.
func joins(made, all []float64) error {
	rest := slices.DeleteFunc(slices.Clone(made), func(v float64) bool { return slices.Contains(all, v) })
	if len(made)-len(rest) != len(all) {
		return fmt.Errorf("%d of %d elements are in the result", len(made)-len(rest), len(all))
	}
	if len(slices.Compact(rest)) > 1 {
		return fmt.Errorf("elements of no operand differ")
	}
	return nil
}

// looksUp compares with slices of operand 0 along a dim, of which operand 1 says the numbers; any dim may be the one.
func looksUp(x *instance, made []float64, in []*ir.Array) error {
	if len(in) != 2 || in[1].I == nil {
		return fmt.Errorf("no operand 1 of integers")
	}
	dims, from := in[0].Type.Dims, elements(in[0])
	for d, n := range dims {
		var want []float64
		inner := ir.Product(dims[d+1:])
		for o := range ir.Product(dims[:d]) {
			for _, i := range in[1].I {
				i = (i + int64(n)) % int64(n)
				want = append(want, from[(o*n+int(i))*inner:(o*n+int(i)+1)*inner]...)
			}
		}
		if slices.Equal(made, want) && len(x.op.Out[0].Type.Dims) == len(dims)-1+len(in[1].Type.Dims) {
			return nil
		}
	}
	return fmt.Errorf("makes %v of %v by %v", made, from, in[1].I)
}
