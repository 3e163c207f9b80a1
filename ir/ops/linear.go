package ops

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
)

// linear is ir.Facts.Linear of an op that is always linear in the same sets of operands.
func linear(sets ...[]int) func(*ir.Op) [][]int { return func(*ir.Op) [][]int { return sets } }

// ofFloats is linear of an op that is so for floats, which are rounded too little to count: integers and types of 8 bits and fewer lose
// more.
func ofFloats(sets ...[]int) func(*ir.Op) [][]int {
	return func(op *ir.Op) [][]int {
		for _, v := range slices.Concat(op.In, op.Out) {
			if !floats.Has(v.Type.DType) {
				return nil
			}
		}
		return sets
	}
}

// linearInAll is ir.Facts.Linear of an op that is linear in all its operands together.
func linearInAll(op *ir.Op) [][]int {
	set := make([]int, len(op.In))
	for i := range set {
		set[i] = i
	}
	return [][]int{set}
}

// linearPad is that of a pad, which adds zeros.
func linearPad(op *ir.Op) [][]int {
	if op.Attrs.(PadAttrs).Value != 0 {
		return nil
	}
	return [][]int{{0}}
}

// bilinear is that of a product of operands 0 and 1, plus operand 2 where there is one.
func bilinear(op *ir.Op) [][]int {
	if operand(op, 2) != nil {
		return [][]int{{0, 2}, {1, 2}}
	}
	return [][]int{{0}, {1}}
}

// less and more are ir.Facts.Unseen of ops that do not see an element which is less, or more, than any other.
func less(*ir.Op) int { return -1 }
func more(*ir.Op) int { return 1 }

// always is a fact, such as ir.Facts.Apart, of an op of which it is true whatever its attributes.
func always(*ir.Op) bool { return true }
