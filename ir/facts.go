package ir

import "github.com/gtc-compiler/gtc/ir/dtype"

// Facts are what passes ask of an op that does not follow from its other rules. What is not stated is not known, and passes do
// the safe thing. Each fact is checked by numbers on the op's samples (ir/ops/facts_test.go), and shown by "gtc ops".
type Facts struct {
	// Linear lists sets of operands: in those of one set together every result is linear, whatever the other operands
	// are. [[0 1]] is x+y, [[0] [1]] is x*y.
	Linear func(op *Op) [][]int
	// Zero lists further sets of operands: where all those of one are zero the result is, as with the sets of Linear.
	Zero [][]int
	// Move says that the elements of the result are those of operands, and how they are moved.
	Move Move
	// Adds: the result is the sum of all operands, element by element.
	Adds bool
	// Multiplies: the result is the product of all operands, element by element.
	Multiplies bool
	// Divides: the result is operand 0 over operand 1, element by element.
	Divides bool
	// Chooses: the result is operand 1 where operand 0 is true and else operand 2, element by element.
	Chooses bool
	// Bias is the dim of the result along which operand 2, a vector that may be absent, is added.
	Bias func(op *Op) int
	// Apart reports whether ranks that have parts of a dimension which op needs whole run its Decompose, whose reductions
	// are combined over ranks, rather than gather the dimension. Nil: they gather.
	Apart func(op *Op) bool
	// Draws reports whether results are, or hang on, random numbers, told apart by the place of each in the whole tensor and by a
	// counter, the first i64 operand. Nil: never.
	Draws func(op *Op) bool
	// Inference is what op is when a model is used and no longer trained: what it is in the mean over all that it draws, or by
	// the statistics that it is given. Nil: as it is.
	Inference func(b *Builder, op *Op) []*Value
	// PerPart: operand 0, [N,C,...], is normalised by the statistics of each of its C channels, and split over samples by
	// those of each part.
	PerPart bool
	// Counts is the number of an operand, bool[N], that says which samples of operand 0 count: the others change nothing but
	// their own results. 0: there is none.
	Counts int
	// Activation is the name that matmul_epilogue has for what op does to its last operand, a product; "" for none.
	Activation func(op *Op) string
	// Combines: a collective that adds up what ranks have, or takes the greatest of it, and the like.
	Combines bool
	// Each: a collective on any number of operands, that makes of each what it would make of it alone.
	Each bool
	// Unseen is -1 where an element of operand 0 that is less than any other, along a dimension that is reduced or needed whole,
	// changes no other result; 1 where one that is more; nil or 0: each is seen.
	Unseen func(op *Op) int
	// AsStored lists operands that an op which computes in f32 reads in whatever type they are stored.
	AsStored []int
	// Wide lists operands that stay f32 in an op that runs in half precision.
	Wide []int
	// Out gives the attributes of a product whose result is of type d rather than of its operands', which d Invalid means.
	Out func(op *Op, d dtype.DType) any
	// Over says what is done with the elements of a dimension that is needed whole, before words that name them: "ranks".
	Over string
}

// Move is how the elements of an op's result come from those of its operands.
type Move uint8

// The moves. Those of a collective are of what all ranks have together.
const (
	Computes Move = iota // results are computed
	Keeps                // the elements of operand 0 in their order, with other dims
	Permutes             // the elements of operand 0 in another order
	Casts                // the elements of operand 0 in their places, in another element type
	Selects              // some elements of operand 0, none of them twice
	Repeats              // operand 0 with dims of size 1 repeated
	Joins                // all elements of all operands, and others that are all alike
	LooksUp              // slices of operand 0 along a dim, chosen by integers
)

// OfOne reports whether the result holds nothing but elements of operand 0, whatever other operands say.
func (m Move) OfOne() bool { return m >= Keeps && m <= Repeats }

// Whole reports whether the result holds every element of operand 0 once, as it is, and nothing else.
func (m Move) Whole() bool { return m == Keeps || m == Permutes }

// String is the move as "gtc ops" shows it.
func (m Move) String() string {
	return [...]string{"computes", "keeps", "permutes", "casts", "selects", "repeats", "joins", "looks_up"}[m]
}

// Linear lists the sets of operands in which op is linear (see Facts); nil: not known to be in any.
func (op *Op) Linear() [][]int {
	if f := op.Def.Rules.Facts.Linear; f != nil {
		return f(op)
	}
	return nil
}

// Bias is the vector that op adds to its product, and the dim along which; nil where it adds none.
func (op *Op) Bias() (v *Value, dim int) {
	if f := op.Def.Rules.Facts.Bias; f != nil && len(op.In) > 2 && op.In[2] != nil {
		return op.In[2], f(op)
	}
	return nil, 0
}

// Apart reports whether ranks run op's parts rather than gather a dimension (see Facts).
func (op *Op) Apart() bool { f := op.Def.Rules.Facts.Apart; return f != nil && f(op) }

// Activation is what matmul_epilogue calls op (see Facts); "" when it does not have it.
func (op *Op) Activation() string {
	if f := op.Def.Rules.Facts.Activation; f != nil {
		return f(op)
	}
	return ""
}

// Draws reports whether op draws random numbers (see Facts).
func (op *Op) Draws() bool { f := op.Def.Rules.Facts.Draws; return f != nil && f(op) }

// Move is how op moves elements.
func (op *Op) Move() Move { return op.Def.Rules.Facts.Move }

// Moved is how the op that makes v moves elements; Computes where no op makes it, or one that talks to other ranks.
func (v *Value) Moved() Move {
	if v.Op == nil || v.Op.Def.Rules.Collective != "" {
		return Computes
	}
	return v.Op.Move()
}
