package fold

import (
	"cmp"
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Host evaluation of operators whose result has a shape that depends on their operands' contents.

// Unique gives the distinct elements (or slices along an axis), where each was first met, which one each element
// is, and how often each occurs.
func Unique(n *model.Node, in []*ir.Array) []*ir.Array {
	a := in[0]
	if a.Type.Elems() > model.MaxFold/8 { // lists of positions take more than the elements themselves
		panic(model.TooLarge{Err: ir.Errorf(n.Located(), "%s is too large to sort at import", a.Type)})
	}
	n.Work(32 * a.Type.Elems())
	axis, dims := 0, []int{a.Type.Elems()}
	if n.Attrs["axis"] != nil {
		axis, dims = n.Dim(n.Int("axis", 0), len(a.Type.Dims)), a.Type.Dims
	}
	size, inner := dims[axis], ir.Product(dims[axis+1:])
	slice := func(k int) (at []int) { // positions of slice k's elements
		for o := range ir.Product(dims[:axis]) {
			for w := range inner {
				at = append(at, (o*size+k)*inner+w)
			}
		}
		return at
	}
	slots := make([][]int, size)
	byValue := make([]int, size)
	for k := range slots {
		slots[k], byValue[k] = slice(k), k
	}
	order := func(i, j int) int {
		for e, p := range slots[i] {
			if c := compareAt(a, p, slots[j][e]); c != 0 {
				return c
			}
		}
		return 0
	}
	slices.SortStableFunc(byValue, order)
	var groups [][]int // positions of equal slices, in order; sorted by value
	for _, k := range byValue {
		if last := len(groups) - 1; last >= 0 && order(groups[last][0], k) == 0 {
			groups[last] = append(groups[last], k)
		} else {
			groups = append(groups, []int{k})
		}
	}
	if n.Int("sorted", 1) == 0 {
		slices.SortFunc(groups, func(g, h []int) int { return g[0] - h[0] })
	}
	return uniqueResults(n, a, uniqueForm{WithDim(dims, axis, len(groups)), inner, slots, groups})
}

// uniqueForm is what Unique found: the result's dims, the elements behind the axis, the positions of each slice's
// elements, and the slices of each distinct value.
type uniqueForm struct {
	dims   []int
	inner  int
	slots  [][]int
	groups [][]int
}

func uniqueResults(n *model.Node, a *ir.Array, u uniqueForm) []*ir.Array {
	y := n.Array(ir.Type{DType: a.Type.DType, Dims: u.dims})
	first, count := n.Array(ir.T(dtype.I64, len(u.groups))), n.Array(ir.T(dtype.I64, len(u.groups)))
	which := n.Array(ir.T(dtype.I64, len(u.slots)))
	for g, list := range u.groups {
		first.I[g], count.I[g] = int64(list[0]), int64(len(list))
		for _, k := range list {
			which.I[k] = int64(g)
		}
		for e, p := range u.slots[list[0]] {
			Copy(y, (e/u.inner*len(u.groups)+g)*u.inner+e%u.inner, a, p, 1)
		}
	}
	return []*ir.Array{y, first, which, count}
}

// compareAt orders elements i and j of a.
func compareAt(a *ir.Array, i, j int) int {
	switch {
	case a.F != nil:
		return cmp.Compare(a.F[i], a.F[j])
	case a.Type.DType == dtype.U64:
		return cmp.Compare(uint64(a.I[i]), uint64(a.I[j]))
	}
	return cmp.Compare(a.I[i], a.I[j])
}

// NonMaxSuppression keeps, in each class of each sample, the boxes of the best scores that overlap no better kept
// one by more than the threshold.
func NonMaxSuppression(n *model.Node, in []*ir.Array) []*ir.Array {
	boxes, scores := in[0], in[1]
	b, s := boxes.Type.Dims, scores.Type.Dims
	if len(b) != 3 || len(s) != 3 || b[2] != 4 || b[0] != s[0] || b[1] != s[2] || boxes.F == nil || scores.F == nil {
		n.Fail("boxes are %s and scores %s, but must be [batch,boxes,4] and [batch,classes,boxes] of floats", boxes.Type, scores.Type)
	}
	number := func(i int, def float64) float64 {
		if i >= len(in) || in[i] == nil || in[i].Type.Elems() == 0 {
			return def
		}
		return Cast(n, in[i], dtype.F64).F[0]
	}
	most, overlap, least := number(2, 0), number(3, 0), number(4, math.Inf(-1))
	out, work := ir.NewArray(ir.T(dtype.I64, 0, 3)), 0
	for c := range s[0] * s[1] {
		var kept []int
		score := scores.F[c*s[2] : (c+1)*s[2]]
		box := func(i int) [4]float64 { return corners(n, boxes.F[(c/s[1]*b[1]+i)*4:]) }
		for _, i := range byScore(score) {
			if float64(len(kept)) >= most || !(score[i] > least) {
				continue
			}
			if work += len(kept); work > 64*model.MaxFold {
				n.Fail("%d boxes of %d classes are too many to compare at import", s[2], s[0]*s[1])
			}
			if !slices.ContainsFunc(kept, func(k int) bool { return overlapOf(box(i), box(k)) > overlap }) {
				kept = append(kept, i)
				out.I = append(out.I, int64(c/s[1]), int64(c%s[1]), int64(i))
			}
		}
	}
	out.Type.Dims[0] = len(out.I) / 3
	return []*ir.Array{out}
}

// byScore lists positions by falling score; of equal ones the earlier comes first.
func byScore(score []float64) []int {
	at := make([]int, len(score))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(i, j int) int { return cmp.Compare(score[j], score[i]) })
	return at
}

// corners is a box as least y, least x, greatest y, greatest x.
func corners(n *model.Node, v []float64) [4]float64 {
	if n.Int("center_point_box", 0) != 0 { // x, y of the centre, width, height
		return [4]float64{v[1] - v[3]/2, v[0] - v[2]/2, v[1] + v[3]/2, v[0] + v[2]/2}
	}
	return [4]float64{min(v[0], v[2]), min(v[1], v[3]), max(v[0], v[2]), max(v[1], v[3])}
}

// overlapOf is the area that two boxes share over the area of both together.
func overlapOf(a, b [4]float64) float64 {
	h, w := min(a[2], b[2])-max(a[0], b[0]), min(a[3], b[3])-max(a[1], b[1])
	if h <= 0 || w <= 0 {
		return 0
	}
	area := func(c [4]float64) float64 { return (c[2] - c[0]) * (c[3] - c[1]) }
	return h * w / (area(a) + area(b) - h*w)
}
