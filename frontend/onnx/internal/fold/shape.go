package fold

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// Shape rules that the host evaluator and the importer share. They fail through the node.

// Ints reads a known integer tensor as ints.
func Ints(n *model.Node, a *ir.Array) []int {
	if a == nil {
		n.Fail("an operand that holds integers is left out")
	}
	if a.I == nil {
		n.Fail("an operand is %s, but must hold integers", a.Type)
	}
	out := make([]int, len(a.I))
	for i, v := range a.I {
		out[i] = int(v)
	}
	return out
}

// Int reads a known one-element integer tensor.
func Int(n *model.Node, a *ir.Array) int {
	v := Ints(n, a)
	if len(v) != 1 {
		n.Fail("an operand holds %s, but must hold one", printable.Count(len(v), "integer"))
	}
	return v[0]
}

// ReshapeDims resolves a Reshape target: 0 copies the input's dimension (unless allowzero), -1 is inferred.
func ReshapeDims(n *model.Node, in, target []int) []int {
	if len(target) > model.MaxRank {
		n.Fail("a shape of %d dimensions is more than the %d supported", len(target), model.MaxRank)
	}
	out, infer := slices.Clone(target), -1
	known := 1
	for i, d := range target {
		switch {
		case d == -1 && infer < 0:
			infer = i
			continue
		case d == 0 && n.Int("allowzero", 0) == 0:
			if i >= len(in) {
				n.Fail("shape %v copies dimension %d of a tensor that has %d", target, i, len(in))
			}
			out[i] = in[i]
		case d < 0 || d > model.MaxDim:
			n.Fail("shape %v has a dimension of %d", target, d)
		}
		known *= max(out[i], 1)
		if known > math.MaxInt/model.MaxDim {
			n.Fail("shape %v is too large", target)
		}
	}
	have := ir.Product(in)
	if infer >= 0 {
		rest := ir.Product(out) / -1 // the -1 itself is a factor
		if rest <= 0 || have%rest != 0 {
			n.Fail("operand 0 has dims %v and %d elements, which shape %v cannot hold", in, have, target)
		}
		out[infer] = have / rest
	}
	if ir.Product(out) != have {
		n.Fail("operand 0 has dims %v and %d elements, which shape %v cannot hold", in, have, target)
	}
	return out
}

// SqueezeDims drops the listed dims, or all of size 1 when axes is nil.
func SqueezeDims(n *model.Node, in, axes []int) []int {
	drop := map[int]bool{}
	for _, a := range axes {
		a = n.Dim(a, len(in))
		if in[a] != 1 {
			n.Fail("dimension %d of dims %v cannot be squeezed: its size is not 1", a, in)
		}
		drop[a] = true
	}
	var out []int
	for i, d := range in {
		if !drop[i] && (axes != nil || d != 1) {
			out = append(out, d)
		}
	}
	return out
}

// UnsqueezeDims inserts dims of size 1 at the listed places of the result.
func UnsqueezeDims(n *model.Node, in, axes []int) []int {
	size := len(in) + len(axes)
	if size > model.MaxRank {
		n.Fail("a shape of %d dimensions is more than the %d supported", size, model.MaxRank)
	}
	out := make([]int, size)
	for _, a := range axes {
		a = n.Dim(a, size)
		if out[a] != 0 {
			n.Fail("axes %v name a dimension twice", axes)
		}
		out[a] = -1
	}
	rest := in
	for i := range out {
		if out[i] == -1 {
			out[i] = 1
		} else {
			out[i], rest = rest[0], rest[1:]
		}
	}
	return out
}

// PermOf is a Transpose's perm attribute, checked; reversed dims when it is absent.
func PermOf(n *model.Node, size int) []int {
	perm := n.Ints("perm")
	if perm == nil {
		for i := range size {
			perm = append(perm, size-1-i)
		}
	}
	seen := make([]bool, size)
	for _, p := range perm {
		if p < 0 || p >= size || seen[p] || len(perm) != size {
			n.Fail("perm %v does not reorder %d dimensions", perm, size)
		}
		seen[p] = true
	}
	return perm
}

// Cut is one dimension of a Slice, normalized: elements start, start+step, … (count of them).
type Cut struct{ Start, Step, Count int }

// Cuts resolves Slice's inputs against a shape. All are lists of one length; nil axes means 0, 1, …
func Cuts(n *model.Node, in, starts, ends, axes, steps []int) []Cut {
	out := make([]Cut, len(in))
	for i, d := range in {
		out[i] = Cut{0, 1, d}
	}
	if len(ends) != len(starts) || axes != nil && len(axes) != len(starts) || steps != nil && len(steps) != len(starts) {
		n.Fail("starts, ends, axes and steps have %d, %d, %d and %d values", len(starts), len(ends), len(axes), len(steps))
	}
	cutAlready := make([]bool, len(in))
	for i, start := range starts {
		axis, step := i, 1
		if axes != nil {
			axis = axes[i]
		}
		if steps != nil {
			step = steps[i]
		}
		axis = n.Dim(axis, len(in))
		if step == 0 || step == math.MinInt {
			n.Fail("a step is %d, but no step may be 0", step)
		}
		if cutAlready[axis] {
			n.Fail("axes %v name a dimension twice", axes)
		}
		cutAlready[axis] = true
		out[axis] = CutOf(in[axis], start, ends[i], step)
	}
	return out
}

// CutOf is what Slice's start, end and step take of a dim of a size; places before 0 count from the end, and ends beyond it are cut off.
func CutOf(size, start, end, step int) Cut {
	clamp := func(v, lo, hi int) int {
		if v < 0 {
			v = max(v, -size-1) + size // avoids overflow on MinInt
		}
		return min(max(v, lo), hi)
	}
	if step > 0 {
		s, e := clamp(start, 0, size), clamp(end, 0, size)
		return Cut{s, step, max(0, (e-s-1)/step+1) * BoolInt(e > s)}
	}
	if size == 0 {
		return Cut{0, step, 0}
	}
	s, e := clamp(start, 0, size-1), end
	if e < 0 { // -1 is the last element; anything before the first means "to the beginning"
		e = max(e, -size-1) + size
	}
	e = min(max(e, -1), size-1)
	return Cut{s, step, max(0, (s-e-1)/-step+1) * BoolInt(s > e)}
}

// BoolInt is 1 for true and 0 for false.
func BoolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// SplitSizes gives the lengths of a Split's parts: given, or size cut into num parts (the last smaller).
func SplitSizes(n *model.Node, size int, given []int, num int) []int {
	if given == nil {
		if num < 1 || num > model.MaxName {
			n.Fail("cannot split into %d parts", num)
		}
		each := (size + num - 1) / num
		if n.Opset < 18 && size%num != 0 {
			n.Fail("a dimension of size %d cannot be split into %d equal parts", size, num)
		}
		for left := size; len(given) < num; left -= each {
			given = append(given, max(min(each, left), 0))
		}
	}
	total := 0
	for _, s := range given {
		if s < 0 || s > size {
			n.Fail("a part of size %d does not fit a dimension of size %d", s, size)
		}
		total += s
	}
	if total != size {
		n.Fail("parts of sizes %v do not add up to a dimension of size %d", given, size)
	}
	return given
}

// ReduceAxes gives the reduced dims of a Reduce operator, sorted: the attribute before opset 18 (13 for
// ReduceSum), the second input after. None means all of them, unless noop_with_empty_axes.
func ReduceAxes(n *model.Node, size int, axes []int) []int {
	if axes == nil {
		axes = n.Ints("axes")
	}
	if len(axes) == 0 {
		if n.Int("noop_with_empty_axes", 0) != 0 {
			return nil
		}
		for i := range size {
			axes = append(axes, i)
		}
		return axes
	}
	out := make([]int, len(axes))
	for i, a := range axes {
		out[i] = n.Dim(a, size)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Squeezed drops dims of size 1.
func Squeezed(dims []int) []int {
	out := []int{}
	for _, d := range dims {
		if d != 1 {
			out = append(out, d)
		}
	}
	return out
}
