package trainstep

import (
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/samples"
)

// steady holds what a model is for smaller batches, as a short one is, to what larger ones let expect: numbers that depend on the size of
// the batch lie on their lines, and no others depend on it. It gives the first op of which that is not so, such as B//2, B%2 or
// max(B-1,1) where B is the batch. The models are those before any pass, for algebra goes its own way with each number.
func steady(c *pass.Context, batch int) (*samples.CrossSample, error) {
	var at [3]*ir.Func
	for i := range at {
		f, err := c.Sized(batch << i)
		if err != nil {
			return nil, err
		}
		at[i] = f
	}
	places, err := sized(at[0], at[1], at[2], batch)
	if err != nil {
		return nil, err
	}
	sizes := []int{1, 2, 3, batch / 2, batch - 2, batch - 1}
	slices.Sort(sizes)
	for _, n := range slices.Compact(sizes) {
		if n < 1 || n >= batch {
			continue
		}
		f, err := c.Sized(n)
		if err != nil {
			return nil, err
		}
		if op := unsteady(at[0], f, places, n, batch); op != nil {
			return &samples.CrossSample{Op: op, Text: byItsSize}, nil
		}
	}
	return nil, nil
}

// bySizeAlone gives an op whose numbers depend on the size of the batch in a model in which no samples meet; nil where none do. The models are those
// before any pass, for algebra drops a number that is 1 for one size, and not for another. It is for models of which sized does not tell.
func bySizeAlone(c *pass.Context, batch int) *samples.CrossSample {
	var at [3]*ir.Func
	for i := range at {
		f, err := c.Sized(batch << i)
		if err != nil {
			return nil
		}
		f.DCE() // shapes are computed from sizes, and are dims by now
		at[i] = f
	}
	places, err := sized(at[0], at[1], at[2], batch)
	var told *sizeError
	switch {
	case errors.As(err, &told):
		return &samples.CrossSample{Op: told.op, Text: byItsSize}
	case err != nil || len(places.numbers) == 0: // other nodes are those of a loop over the samples, which passes make one of
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(places.numbers)))
	return &samples.CrossSample{Op: at[0].Ops[first], Text: byItsSize}
}

// byItsSize is what an op does whose numbers are not known for fewer samples.
const byItsSize = "depends on the size of the batch in another way than by its number of samples"

// unsteady is the first op of f that is not for n samples what it should be; nil for none. Dims of 1 are spelled with fewer ops, so that for one
// sample constants alone are compared, where there are as many.
func unsteady(f, small *ir.Func, places *bySizes, n, batch int) *ir.Op {
	ofOne := n == 1 && len(f.Ops) != len(small.Ops)
	if ofOne {
		var ok bool
		if small, ok = aligned(f, small); !ok {
			return nil
		}
	}
	if len(f.Ops) != len(small.Ops) {
		return f.Ops[min(len(f.Ops), len(small.Ops))-1]
	}
	for i, op := range f.Ops {
		other := small.Ops[i]
		if other == nil {
			continue
		}
		if other.Def != op.Def || !sameAttrs(op, other) {
			return op
		}
		if x := ops.Literal(op); x != nil && op.Out[0].Type.Elems() == 1 && op.Out[0].Type.Equal(other.Out[0].Type) {
			want := number(x)
			if d, ok := places.numbers[i]; ok {
				want = d.at(float64(n))
			}
			if got := number(ops.Literal(other)); !(math.Abs(got-want) <= 1e-5*math.Abs(want)) && !(math.IsNaN(got) && math.IsNaN(want)) && got != want {
				return op
			}
		}
		for j, v := range op.Out {
			for d, size := range v.Type.Dims {
				if k := other.Out[j].Type.Dims; len(k) != len(v.Type.Dims) || k[d] != size && k[d]*batch != size*n && !ofOne {
					return op
				}
			}
		}
	}
	return nil
}

// aligned gives a function with the constants of small at the places that constants have in f, and nil elsewhere; false where there are not as many.
func aligned(f, small *ir.Func) (*ir.Func, bool) {
	var list []*ir.Op
	for _, op := range small.Ops {
		if ops.Literal(op) != nil {
			list = append(list, op)
		}
	}
	out := &ir.Func{Name: small.Name}
	for _, op := range f.Ops {
		if ops.Literal(op) == nil {
			out.Ops = append(out.Ops, nil)
			continue
		}
		if len(list) == 0 {
			return nil, false
		}
		out.Ops, list = append(out.Ops, list[0]), list[1:]
	}
	return out, len(list) == 0
}
