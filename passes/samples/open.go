package samples

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Hole is where samples that fill a batch get into an op's results.
type Hole struct {
	Operand int
	Dims    []int // of the operand, along which samples meet
	Fill    int   // what the elements of such samples must be there: 0, or less (-1) or more (1) than any other
}

// enough is a number that no ordinary one exceeds, nor those of half precision.
const enough = 6e4

// Hole is the first one of op that a mask would close; false where there is none, or where op needs more than that. The layouts of the
// operands must be known (Reach).
func (s *Facts) Hole(op *ir.Op) (Hole, bool) {
	w := s.walk(op)
	if w == nil || w.operands() != nil {
		return Hole{}, false
	}
	for f, parts := range w.parts {
		if parts == nil || !w.whole(f) {
			continue
		}
		switch fill := filling(op); {
		case w.rule.Factors[f].Kind == factor.Sum && !w.terms(f):
			for _, set := range op.Linear() {
				if i := w.along(set, f); len(i) > 0 {
					return Hole{Operand: i[0], Dims: w.dims(i[0], f)}, true
				}
			}
		case w.rule.Factors[f].Kind != factor.Free && w.rule.Factors[f].Kind != factor.Sum && fill != 0 && op.In[0].Type.DType.IsFloat() && !w.filled(f):
			return Hole{Operand: 0, Dims: w.dims(0, f), Fill: fill}, true
		}
	}
	return Hole{}, false
}

// filling is what op does not see along the factor by which it reads several elements; 0 where it sees all.
func filling(op *ir.Op) int {
	if f := op.Def.Rules.Unseen; f != nil {
		return f(op)
	}
	return 0
}

// along lists those operands of set that factor f is in.
func (w *walk) along(set []int, f int) []int {
	return slices.DeleteFunc(slices.Clone(set), func(i int) bool { return len(w.dims(i, f)) == 0 })
}

// dims are those of operand i that factor f is in.
func (w *walk) dims(i, f int) []int {
	var list []int
	for d, factors := range w.rule.In[i] {
		if slices.Contains(factors, f) {
			list = append(list, d)
		}
	}
	return list
}

// filled reports whether op does not see samples of weight 0 along factor f, because a where has made their elements less, or more, than
// any other.
func (w *walk) filled(f int) bool {
	fill, x := filling(w.op), w.op.In[0]
	// The mask of pass trainstep is a where; models spell theirs so, too.
	if fill == 0 || x.Op == nil || !x.Op.Def.Rules.Chooses || !x.Type.DType.IsFloat() {
		return false
	}
	v, uniform := ops.Uniform(x.Op.In[2])
	if !uniform || math.IsNaN(v) || v*float64(fill) < enough {
		return false
	}
	for i := 1; i < len(w.op.In); i++ { // only operand 0 is filled
		if len(w.dims(i, f)) > 0 {
			return false
		}
	}
	counts := w.s.at[x.Op.In[0]]
	for _, d := range w.dims(0, f) {
		if len(counts) != len(x.Type.Dims) || slices.ContainsFunc(counts[d], func(p Part) bool { return p.Step > 0 && !p.Null }) || !hasSamples(counts[d]) {
			return false
		}
	}
	return true
}
