package onnx

import (
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// importEinsum handles one or two operands without ellipses or repeated letters: it permutes both to
// [batch, free, summed], multiplies and permutes the product.
func importEinsum(w *walker, n *node, in []*val) []*val {
	eq := strings.ReplaceAll(n.str("equation", ""), " ", "")
	left, right, ok := strings.Cut(eq, "->")
	terms := strings.Split(left, ",")
	if !ok || len(terms) != len(in) || strings.Contains(eq, ".") {
		n.fail("equation %q is not supported (write one or two operands and ->, without ...)", eq)
	}
	size := map[rune]int{}
	for i, t := range terms {
		if in[i] == nil || len(t) != len(in[i].t.Dims) {
			n.fail("equation %q does not fit operand %d", eq, i)
		}
		for k, c := range t {
			d := in[i].t.Dims[k]
			if old, seen := size[c]; seen && old != d || strings.Count(t, string(c)) > 1 {
				n.fail("equation %q: letter %q has sizes %d and %d, or repeats", eq, c, old, d)
			}
			size[c] = d
		}
	}
	for _, c := range right {
		if _, ok := size[c]; !ok || strings.Count(right, string(c)) > 1 {
			n.fail("equation %q: result letter %q", eq, c)
		}
	}
	x := w.sumAway(w.value(in[0]), &terms[0], right+strings.Join(terms[1:], ""))
	if len(in) == 1 {
		return outs(letters(w.b, x, terms[0], right))
	}
	y := w.sumAway(w.value(in[1]), &terms[1], right+terms[0])
	pickAll := func(t string, keep func(c rune) bool) string {
		return strings.Map(func(c rune) rune {
			if keep(c) {
				return c
			}
			return -1
		}, t)
	}
	both := func(c rune) bool { return strings.ContainsRune(terms[0], c) && strings.ContainsRune(terms[1], c) }
	inOut := func(c rune) bool { return strings.ContainsRune(right, c) }
	batch := pickAll(terms[0], func(c rune) bool { return both(c) && inOut(c) })
	sum := pickAll(terms[0], func(c rune) bool { return both(c) && !inOut(c) })
	fx := pickAll(terms[0], func(c rune) bool { return !both(c) })
	fy := pickAll(terms[1], func(c rune) bool { return !both(c) })
	count := func(t string) int {
		k := 1
		for _, c := range t {
			k *= size[c]
		}
		return k
	}
	x = ops.Reshape(w.b, letters(w.b, x, terms[0], batch+fx+sum), []int{count(batch), count(fx), count(sum)})
	y = ops.Reshape(w.b, letters(w.b, y, terms[1], batch+sum+fy), []int{count(batch), count(sum), count(fy)})
	z := ops.MatMul(w.b, x, y)
	var dims []int
	for _, c := range batch + fx + fy {
		dims = append(dims, size[c])
	}
	return outs(letters(w.b, ops.Reshape(w.b, z, dims), batch+fx+fy, right))
}

// sumAway reduces the letters of t that neither the result nor the other operand has, and drops them from t.
func (w *walker) sumAway(x *ir.Value, t *string, rest string) *ir.Value {
	var over, kept []int
	left := ""
	for i, c := range *t {
		if strings.ContainsRune(rest, c) {
			kept = append(kept, x.Type.Dims[i])
			left += string(c)
		} else {
			over = append(over, i)
		}
	}
	*t = left
	return ops.Reshape(w.b, ops.ReduceSum(w.b, x, over...), slices.Clone(kept))
}

// letters transposes x from one order of letters to another.
func letters(b *ir.Builder, x *ir.Value, from, to string) *ir.Value {
	perm := make([]int, 0, len(to))
	for _, c := range to {
		perm = append(perm, strings.IndexRune(from, c))
	}
	return ops.Transpose(b, x, perm)
}
