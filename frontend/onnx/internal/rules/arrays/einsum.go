package arrays

import (
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// labelled is an operand of an einsum whose dims are named, each by a different letter.
type labelled struct {
	v       *ir.Value
	letters []rune
}

// has reports whether x has a dim of that name.
func (x labelled) has(c rune) bool { return slices.Contains(x.letters, c) }

// dim is the size of the dim of that name, 1 when there is none.
func (x labelled) dim(c rune) int {
	if i := slices.Index(x.letters, c); i >= 0 {
		return x.v.Type.Dims[i]
	}
	return 1
}

// ImportEinsum contracts operands by pairs, the smallest result first. Letters that repeat within an operand take its
// diagonal; ellipses stand for dims that broadcast.
func ImportEinsum(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	terms, result := equation(n, in)
	var list []labelled
	for i, t := range terms {
		list = append(list, diagonal(w.B, w.Value(in[i]), t))
	}
	size := map[rune]int{}
	for i, x := range list {
		for k, c := range x.letters {
			d := x.v.Type.Dims[k]
			if old := max(size[c], 1); old != 1 && d != 1 && old != d {
				n.Fail("equation %q: operand %d has size %d in a dimension in which others have %d", n.Str("equation", ""), i, d, old)
			}
			if old, seen := size[c]; !seen || old == 1 {
				size[c] = d
			}
		}
	}
	for i := range list { // a dim of 1 that others have larger repeats: it is no dim of this operand
		list[i] = keepLetters(w.B, list[i], func(c rune) bool { return list[i].dim(c) == size[c] })
	}
	for len(list) > 1 {
		p, q := cheapest(list, result, size)
		rest := slices.Concat(list[:p], list[p+1:q], list[q+1:])
		list = append(rest, contract(w.B, list[p], list[q], func(c rune) bool {
			return slices.Contains(result, c) || slices.ContainsFunc(rest, func(x labelled) bool { return x.has(c) })
		}))
	}
	x := keepLetters(w.B, list[0], func(c rune) bool { return slices.Contains(result, c) })
	for _, c := range result { // letters of the result that only dropped dims of 1 had
		if !x.has(c) {
			x.v, x.letters = ops.Reshape(w.B, x.v, append(slices.Clone(x.v.Type.Dims), 1)), append(x.letters, c)
		}
	}
	return walk.Results(arrange(w.B, x, result))
}

// equation parses the terms of the operands and of the result. An ellipsis becomes one name for every dim
// that it stands for, counted from its end, so that those of all operands align.
func equation(n *model.Node, in []*walk.Val) (terms [][]rune, result []rune) {
	eq := strings.ReplaceAll(n.Str("equation", ""), " ", "")
	left, right, explicit := strings.Cut(eq, "->")
	list := strings.Split(left, ",")
	if len(list) != len(in) {
		n.Fail("equation %q has %d terms for %d operands", eq, len(list), len(in))
	}
	widest := 0
	for i, t := range list {
		head, tail, dots := strings.Cut(t, "...")
		if !onlyLetters(head) || !onlyLetters(tail) || in[i] == nil {
			n.Fail("equation %q: term %q must consist of letters and \"...\"", eq, t)
		}
		more := len(in[i].Type.Dims) - len(head) - len(tail)
		if more < 0 || more > 0 && !dots {
			n.Fail("equation %q: term %q does not fit operand %d, %s", eq, t, i, in[i].Type)
		}
		widest = max(widest, more)
		terms = append(terms, slices.Concat([]rune(head), ellipsis(more), []rune(tail)))
	}
	if explicit {
		head, tail, dots := strings.Cut(right, "...")
		if !onlyLetters(head) || !onlyLetters(tail) {
			n.Fail("equation %q: result %q must consist of letters and \"...\"", eq, right)
		}
		if !dots {
			widest = 0
		}
		result = slices.Concat([]rune(head), ellipsis(widest), []rune(tail))
	} else {
		result = append(ellipsis(widest), once(list)...)
	}
	for i, c := range result {
		if slices.Contains(result[:i], c) || !slices.ContainsFunc(terms, func(t []rune) bool { return slices.Contains(t, c) }) {
			n.Fail("equation %q: result letter %q repeats or is in no operand", eq, c)
		}
	}
	return terms, result
}

func onlyLetters(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') })
}

// ellipsis names that many dims by numbers below 0, the last one -1.
func ellipsis(count int) []rune {
	out := make([]rune, count)
	for i := range out {
		out[i] = rune(i - count)
	}
	return out
}

// once lists, sorted, the letters that occur exactly once in all terms: the result of an equation without one.
func once(list []string) []rune {
	all := strings.ReplaceAll(strings.Join(list, ""), "...", "")
	var out []rune
	for _, c := range all {
		if strings.Count(all, string(c)) == 1 {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}

// diagonal names the dims of v; dims of one name become one, the diagonal of the two.
func diagonal(b *ir.Builder, v *ir.Value, letters []rune) labelled {
	letters = slices.Clone(letters)
	for i := 0; i < len(letters); i++ {
		j := i + 1 + slices.Index(letters[i+1:], letters[i])
		if j == i {
			continue
		}
		d := v.Type.Dims
		if d[i] != d[j] {
			panic(ir.Errorf(b.Loc, "the equation takes the diagonal of dimensions %d and %d of dims %v, whose sizes differ", i, j, d))
		}
		rest := slices.Delete(slices.Delete(ops.AllDims(v), j, j+1), i, i+1)
		v = ops.Transpose(b, v, slices.Concat(rest, []int{i, j}))
		lead := slices.Clone(v.Type.Dims[:len(rest)])
		v = ops.Reshape(b, v, append(slices.Clone(lead), d[i]*d[i]))
		starts, sizes, steps := make([]int, len(lead)+1), append(slices.Clone(lead), d[i]), slices.Repeat([]int{1}, len(lead)+1)
		steps[len(lead)] = d[i] + 1
		v = ops.Slice(b, v, starts, sizes, steps)
		c := letters[i]
		letters = append(slices.Delete(slices.Delete(letters, j, j+1), i, i+1), c)
		i = -1
	}
	return labelled{v, letters}
}

// keepLetters sums the other dims away.
func keepLetters(b *ir.Builder, x labelled, keep func(c rune) bool) labelled {
	var over, dims []int
	var left []rune
	for i, c := range x.letters {
		if keep(c) {
			dims, left = append(dims, x.v.Type.Dims[i]), append(left, c)
		} else {
			over = append(over, i)
		}
	}
	if len(over) == 0 {
		return x
	}
	return labelled{ops.Reshape(b, ops.ReduceSum(b, x.v, over...), dims), left}
}

// arrange orders the dims of x.
func arrange(b *ir.Builder, x labelled, letters []rune) *ir.Value {
	perm := make([]int, len(letters))
	for i, c := range letters {
		perm[i] = slices.Index(x.letters, c)
	}
	return ops.Transpose(b, x.v, perm)
}

// cheapest picks the two operands whose contraction has the smallest result; the first two of several.
func cheapest(list []labelled, result []rune, size map[rune]int) (p, q int) {
	best := -1
	for i := range list {
		for j := i + 1; j < len(list); j++ {
			n := 1
			for c, s := range size {
				kept := slices.Contains(result, c)
				for k, x := range list {
					kept = kept || k != i && k != j && x.has(c)
				}
				if kept && (list[i].has(c) || list[j].has(c)) {
					n *= s
				}
			}
			if best < 0 || n < best {
				best, p, q = n, i, j
			}
		}
	}
	return p, q
}

// contract multiplies two operands and sums over what both have and nothing else needs: one product of matrices
// [batch, free of x, summed] and [batch, summed, free of y].
func contract(b *ir.Builder, x, y labelled, needed func(c rune) bool) labelled {
	x = keepLetters(b, x, func(c rune) bool { return needed(c) || y.has(c) })
	y = keepLetters(b, y, func(c rune) bool { return needed(c) || x.has(c) })
	var batch, sum, fx, fy []rune
	for _, c := range x.letters {
		switch {
		case !y.has(c):
			fx = append(fx, c)
		case needed(c):
			batch = append(batch, c)
		default:
			sum = append(sum, c)
		}
	}
	for _, c := range y.letters {
		if !x.has(c) {
			fy = append(fy, c)
		}
	}
	dims := func(of labelled, letters []rune) []int {
		out := make([]int, len(letters))
		for i, c := range letters {
			out[i] = of.dim(c)
		}
		return out
	}
	all := dims(x, batch)
	all = append(append(all, dims(x, fx)...), dims(y, fy)...)
	m := slices.Concat(batch, fx, fy)
	if len(sum) == 0 && (len(fx) == 0 || len(fy) == 0) { // an elementwise product
		px := ops.Reshape(b, arrange(b, x, slices.Concat(batch, fx)), slices.Concat(dims(x, batch), dims(x, fx), slices.Repeat([]int{1}, len(fy))))
		py := ops.Reshape(b, arrange(b, y, slices.Concat(batch, fy)), slices.Concat(dims(x, batch), slices.Repeat([]int{1}, len(fx)), dims(y, fy)))
		return labelled{ops.Mul(b, ops.Expand(b, px, all), ops.Expand(b, py, all)), m}
	}
	k := ir.Product(dims(x, sum))
	lead := []int{ir.Product(dims(x, batch))}
	if len(batch) == 0 {
		lead = nil
	}
	px := ops.Reshape(b, arrange(b, x, slices.Concat(batch, fx, sum)), slices.Concat(lead, []int{ir.Product(dims(x, fx)), k}))
	py := ops.Reshape(b, arrange(b, y, slices.Concat(batch, sum, fy)), slices.Concat(lead, []int{k, ir.Product(dims(y, fy))}))
	return labelled{ops.Reshape(b, ops.MatMul(b, px, py), all), m}
}
