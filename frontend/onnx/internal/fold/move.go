package fold

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// Host evaluation of operators that move data: each is a gather of the input's elements by stride.

// View shares a's elements under other dims.
func View(a *ir.Array, dims []int) []*ir.Array {
	return []*ir.Array{{Type: ir.Type{DType: a.Type.DType, Dims: dims}, F: a.F, I: a.I}}
}

// second is the integer list in input i when it is present, else the attribute (older opsets).
func second(n *model.Node, in []*ir.Array, i int, attr string) []int {
	if i < len(in) && in[i] != nil {
		return Ints(n, in[i])
	}
	return n.Ints(attr)
}

func foldReshape(n *model.Node, in []*ir.Array) []*ir.Array {
	return View(in[0], ReshapeDims(n, in[0].Type.Dims, second(n, in, 1, "shape")))
}

func foldFlatten(n *model.Node, in []*ir.Array) []*ir.Array {
	return View(in[0], FlattenDims(n, in[0].Type.Dims))
}

// FlattenDims are the two dims that Flatten makes of in: those before its axis and the rest.
func FlattenDims(n *model.Node, in []int) []int {
	axis := n.Int("axis", 1)
	if axis != len(in) {
		axis = n.Dim(axis, len(in))
	}
	return []int{ir.Product(in[:axis]), ir.Product(in[axis:])}
}

func foldSqueeze(n *model.Node, in []*ir.Array) []*ir.Array {
	return View(in[0], SqueezeDims(n, in[0].Type.Dims, second(n, in, 1, "axes")))
}

func foldUnsqueeze(n *model.Node, in []*ir.Array) []*ir.Array {
	return View(in[0], UnsqueezeDims(n, in[0].Type.Dims, second(n, in, 1, "axes")))
}

// gather makes an array of dims whose elements are a's at base plus strides.
func gather(n *model.Node, a *ir.Array, dims, strides []int, base int) *ir.Array {
	out := n.Array(ir.Type{DType: a.Type.DType, Dims: dims})
	if out.Type.Elems() > 0 {
		pick(out, a, dims, strides, base)
	}
	return out
}

func foldTranspose(n *model.Node, in []*ir.Array) []*ir.Array {
	d, own := in[0].Type.Dims, ir.Strides(in[0].Type.Dims)
	perm := PermOf(n, len(d))
	dims, strides := make([]int, len(d)), make([]int, len(d))
	for i, p := range perm {
		dims[i], strides[i] = d[p], own[p]
	}
	return []*ir.Array{gather(n, in[0], dims, strides, 0)}
}

func foldExpand(n *model.Node, in []*ir.Array) []*ir.Array {
	return []*ir.Array{spread(n, in[0], ExpandDims(n, in[0].Type.Dims, Ints(n, in[1])))}
}

// ExpandDims are the dims of Expand: in and target broadcast to one another.
func ExpandDims(n *model.Node, in, target []int) []int {
	if _, err := model.Elements(target); err != nil {
		n.Fail("shape %v: %v", target, err)
	}
	dims, ok := Broadcast(in, target)
	if !ok {
		n.Fail("dims %v cannot be expanded to %v", in, target)
	}
	return dims
}

func foldTile(n *model.Node, in []*ir.Array) []*ir.Array {
	d, reps := in[0].Type.Dims, Ints(n, in[1])
	if len(reps) != len(d) {
		n.Fail("there are %d repeats for a tensor of %s", len(reps), printable.Count(len(d), "dimension"))
	}
	var wide, from, out []int // each dim as [repeat, size]: repeats have stride 0
	for i, s := range ir.Strides(d) {
		if reps[i] < 0 || reps[i] > model.MaxFold {
			n.Fail("repeats are %v, but each must be from 0 to %d", reps, model.MaxFold)
		}
		wide, from, out = append(wide, reps[i], d[i]), append(from, 0, s), append(out, reps[i]*d[i])
	}
	return View(gather(n, in[0], wide, from, 0), out)
}

// Concat evaluates Concat.
func Concat(n *model.Node, in []*ir.Array) []*ir.Array {
	t := in[0].Type
	axis, dims := ConcatAxis(n, len(t.Dims)), t.Dims
	for _, a := range in[1:] {
		if a == nil || a.Type.DType != t.DType || len(a.Type.Dims) != len(dims) {
			n.Fail("operands to join differ in element type or number of dimensions")
		}
		for i, d := range a.Type.Dims {
			if i != axis && d != dims[i] {
				n.Fail("operands of dims %v and %v may differ in dimension %d only, along which they are joined", t.Dims, a.Type.Dims, axis)
			}
		}
	}
	return []*ir.Array{Join(n, in, axis)}
}

// Join joins arrays that agree outside dim axis.
func Join(n *model.Node, in []*ir.Array, axis int) *ir.Array {
	dims := slices.Clone(in[0].Type.Dims)
	for _, a := range in[1:] {
		dims[axis] += a.Type.Dims[axis]
	}
	out := n.Array(ir.Type{DType: in[0].Type.DType, Dims: dims})
	outer, row, at := ir.Product(dims[:axis]), ir.Product(dims[axis:]), 0
	for _, a := range in {
		part := ir.Product(a.Type.Dims[axis:])
		for o := range outer {
			if out.F != nil {
				copy(out.F[o*row+at:], a.F[o*part:(o+1)*part])
			} else {
				copy(out.I[o*row+at:], a.I[o*part:(o+1)*part])
			}
		}
		at += part
	}
	return out
}

func foldSlice(n *model.Node, in []*ir.Array) []*ir.Array {
	return []*ir.Array{Slice(n, in[0], SliceInputs(n, in[0].Type.Dims, in))}
}

// SliceInputs reads Slice's inputs (attributes before opset 10).
func SliceInputs(n *model.Node, dims []int, in []*ir.Array) []Cut {
	if n.Opset < 10 {
		return Cuts(n, dims, n.Ints("starts"), n.Ints("ends"), n.Ints("axes"), nil)
	}
	return Cuts(n, dims, second(n, in, 1, ""), second(n, in, 2, ""), second(n, in, 3, ""), second(n, in, 4, ""))
}

// Slice takes the elements of a that cuts, one for each dim, name.
func Slice(n *model.Node, a *ir.Array, cuts []Cut) *ir.Array {
	dims, strides, base := make([]int, len(cuts)), ir.Strides(a.Type.Dims), 0
	for i, c := range cuts {
		dims[i] = c.Count
		base += c.Start * strides[i]
		strides[i] *= c.Step
	}
	return gather(n, a, dims, strides, base)
}

func foldSplit(n *model.Node, in []*ir.Array) []*ir.Array {
	d := in[0].Type.Dims
	axis := n.Dim(n.Int("axis", 0), len(d))
	num := len(n.Out)
	if n.Opset >= 18 {
		num = n.Int("num_outputs", num)
	}
	return Split(n, in[0], axis, SplitSizes(n, d[axis], second(n, in, 1, "split"), num))
}

// Split cuts a along axis into parts of the given sizes.
func Split(n *model.Node, a *ir.Array, axis int, sizes []int) []*ir.Array {
	var out []*ir.Array
	at := 0
	for _, s := range sizes {
		cuts := Cuts(n, a.Type.Dims, []int{at}, []int{at + s}, []int{axis}, nil)
		out, at = append(out, Slice(n, a, cuts)), at+s
	}
	return out
}

// Wrap normalizes an index that may count from the end.
func Wrap(n *model.Node, i int64, size int) int {
	if i < int64(-size) || i >= int64(size) {
		n.Fail("index %d is out of range for a dimension of size %d", i, size)
	}
	if i < 0 {
		i += int64(size)
	}
	return int(i)
}

func foldGather(n *model.Node, in []*ir.Array) []*ir.Array {
	a, index := in[0], in[1]
	d := a.Type.Dims
	axis := n.Dim(n.Int("axis", 0), len(d))
	Ints(n, index)
	inner, outer := ir.Product(d[axis+1:]), ir.Product(d[:axis])
	out := n.Array(ir.Type{DType: a.Type.DType, Dims: slices.Concat(d[:axis], index.Type.Dims, d[axis+1:])})
	at := 0
	for o := range outer {
		for _, i := range index.I {
			from := (o*d[axis] + Wrap(n, i, d[axis])) * inner
			Copy(out, at, a, from, inner)
			at += inner
		}
	}
	return []*ir.Array{out}
}

// Copy copies count elements of from, from start on, to the place at of to. Both hold floats or both integers.
func Copy(to *ir.Array, at int, from *ir.Array, start, count int) {
	if to.F != nil {
		copy(to.F[at:at+count], from.F[start:start+count])
	} else {
		copy(to.I[at:at+count], from.I[start:start+count])
	}
}

func foldGatherElements(n *model.Node, in []*ir.Array) []*ir.Array {
	a, index := in[0], in[1]
	d, id := a.Type.Dims, index.Type.Dims
	axis := n.Dim(n.Int("axis", 0), len(d))
	Ints(n, index)
	if len(id) != len(d) {
		n.Fail("indices of dims %v do not fit data of dims %v", id, d)
	}
	for i := range d {
		if i != axis && id[i] > d[i] {
			n.Fail("indices of dims %v do not fit data of dims %v", id, d)
		}
	}
	out, strides, istr := n.Array(ir.Type{DType: a.Type.DType, Dims: id}), ir.Strides(d), ir.Strides(id)
	for e, v := range index.I {
		from := 0
		for k := range id {
			i := e / istr[k] % id[k]
			if k == axis {
				i = Wrap(n, v, d[axis])
			}
			from += i * strides[k]
		}
		Copy(out, e, a, from, 1)
	}
	return []*ir.Array{out}
}

func foldGatherND(n *model.Node, in []*ir.Array) []*ir.Array {
	a, index := in[0], in[1]
	d, id := a.Type.Dims, index.Type.Dims
	Ints(n, index)
	batch := GatherNDBatch(n, d, id)
	depth := id[len(id)-1]
	strides := ir.Strides(d)
	inner := ir.Product(d[batch+depth:])
	rows := ir.Product(id[batch : len(id)-1])
	out := n.Array(ir.Type{DType: a.Type.DType, Dims: slices.Concat(id[:len(id)-1], d[batch+depth:])})
	block := ir.Product(d[batch:])
	for b := range ir.Product(d[:batch]) {
		for r := range rows {
			from := b * block
			for k := range depth {
				from += Wrap(n, index.I[(b*rows+r)*depth+k], d[batch+k]) * strides[batch+k]
			}
			Copy(out, (b*rows+r)*inner, a, from, inner)
		}
	}
	return []*ir.Array{out}
}

// GatherNDBatch checks GatherND's shapes and gives batch_dims.
func GatherNDBatch(n *model.Node, d, id []int) int {
	batch := n.Int("batch_dims", 0)
	if len(id) == 0 || batch < 0 || batch > len(id)-1 || batch+id[len(id)-1] > len(d) ||
		!slices.Equal(d[:batch], id[:batch]) {
		n.Fail("indices of dims %v with %d batch dimensions do not fit data of dims %v", id, batch, d)
	}
	return batch
}

func foldRange(n *model.Node, in []*ir.Array) []*ir.Array {
	for _, a := range in {
		if a.Type.Elems() != 1 || a.Type.DType != in[0].Type.DType {
			n.Fail("start, limit and delta must be scalars of one type")
		}
	}
	t := ir.Type{DType: in[0].Type.DType}
	if in[0].F != nil {
		start, limit, delta := in[0].F[0], in[1].F[0], in[2].F[0]
		count := math.Max(math.Ceil((limit-start)/delta), 0)
		if !(count <= model.MaxFold) {
			n.Fail("the range from %g to %g by %g does not end, or has more than %d elements", start, limit, delta, model.MaxFold)
		}
		t.Dims = []int{int(count)}
		out := n.Array(t)
		for i := range out.F {
			out.F[i] = start + float64(i)*delta
		}
		return []*ir.Array{Settle(out)}
	}
	start, limit, delta := in[0].I[0], in[1].I[0], in[2].I[0]
	count := math.Max(math.Ceil((float64(limit)-float64(start))/float64(delta)), 0)
	if !(count <= model.MaxFold) {
		n.Fail("the range from %d to %d by %d does not end, or has more than %d elements", start, limit, delta, model.MaxFold)
	}
	t.Dims = []int{int(count)}
	out := n.Array(t)
	for i := range out.I {
		out.I[i] = start + int64(i)*delta
	}
	return []*ir.Array{Settle(out)}
}

// fill makes an array of dims holding the one element of value everywhere.
func fill(n *model.Node, value *ir.Array, dims []int) *ir.Array {
	one := View(value, nil)[0]
	if _, err := model.Elements(dims); err != nil {
		n.Fail("shape %v: %v", dims, err)
	}
	return spread(n, one, dims)
}

// Trilu evaluates Trilu.
func Trilu(n *model.Node, in []*ir.Array) []*ir.Array {
	a := in[0]
	d := a.Type.Dims
	if len(d) < 2 {
		n.Fail("operand 0 has dims %v, but must be a matrix", d)
	}
	k, upper := int64(0), n.Int("upper", 1) != 0
	if len(in) > 1 && in[1] != nil {
		k = int64(Int(n, in[1]))
	}
	rows, cols := d[len(d)-2], d[len(d)-1]
	out := n.Array(a.Type)
	for e := range a.Type.Elems() {
		i, j := int64(e/cols%rows), int64(e%cols)
		if upper && j-i >= k || !upper && j-i <= k {
			Copy(out, e, a, e, 1)
		}
	}
	return []*ir.Array{out}
}

func foldCumSum(n *model.Node, in []*ir.Array) []*ir.Array {
	a := in[0]
	d := a.Type.Dims
	axis := n.Dim(Int(n, in[1]), len(d))
	exclusive, reverse := n.Int("exclusive", 0) != 0, n.Int("reverse", 0) != 0
	out := n.Array(a.Type)
	inner, size := ir.Product(d[axis+1:]), d[axis]
	for o := range ir.Product(d[:axis]) * inner {
		base := o/inner*size*inner + o%inner
		f, s := 0.0, int64(0)
		for i := range size {
			e := base + i*inner
			if reverse {
				e = base + (size-1-i)*inner
			}
			if a.F != nil {
				if exclusive {
					out.F[e], f = f, f+a.F[e]
				} else {
					f += a.F[e]
					out.F[e] = f
				}
			} else if exclusive {
				out.I[e], s = s, s+a.I[e]
			} else {
				s += a.I[e]
				out.I[e] = s
			}
		}
	}
	return []*ir.Array{Settle(out)}
}

func foldNonZero(n *model.Node, in []*ir.Array) []*ir.Array {
	a := in[0]
	var hits []int
	for e := range a.Type.Elems() {
		if a.F != nil && a.F[e] != 0 || a.F == nil && a.I[e] != 0 {
			hits = append(hits, e)
		}
	}
	d := a.Type.Dims
	out := n.Array(ir.T(dtype.I64, len(d), len(hits)))
	for k, s := range ir.Strides(d) {
		for j, e := range hits {
			out.I[k*len(hits)+j] = int64(e / s % d[k])
		}
	}
	return []*ir.Array{out}
}

func foldMatMul(n *model.Node, in []*ir.Array) []*ir.Array {
	a, b := in[0], in[1]
	da, db := a.Type.Dims, b.Type.Dims
	if a.F == nil || b.F == nil || a.Type.DType != b.Type.DType || len(da) < 2 || len(db) < 2 ||
		da[len(da)-1] != db[len(db)-2] {
		n.Fail("operands %s and %s do not multiply", a.Type, b.Type)
	}
	rows, inner, cols := da[len(da)-2], da[len(da)-1], db[len(db)-1]
	lead, ok := Broadcast(da[:len(da)-2], db[:len(db)-2])
	if !ok {
		n.Fail("operands %v and %v do not broadcast", da, db)
	}
	a, b = spread(n, a, slices.Concat(lead, da[len(da)-2:])), spread(n, b, slices.Concat(lead, db[len(db)-2:]))
	out := n.Array(ir.Type{DType: a.Type.DType, Dims: slices.Concat(lead, []int{rows, cols})})
	if float64(len(out.F))*float64(inner) > 16*model.MaxFold {
		panic(model.TooLarge{Err: ir.Errorf(n.Located(), "a constant product of %s and %s is too large to evaluate at import",
			a.Type, b.Type)})
	}
	for e := range out.F {
		m, i, j := e/(rows*cols), e/cols%rows, e%cols
		sum := 0.0
		for k := range inner {
			sum += a.F[(m*rows+i)*inner+k] * b.F[(m*inner+k)*cols+j]
		}
		out.F[e] = sum
	}
	return []*ir.Array{Settle(out)}
}

// reduce folds elements into start along the axes; mean divides by how many there were.
func reduce(start float64, f func(a, b float64) float64, g func(a, b int64) int64, mean bool) Func {
	return func(n *model.Node, in []*ir.Array) []*ir.Array {
		a := in[0]
		d := a.Type.Dims
		axes := ReduceAxes(n, len(d), second(n, in, 1, "axes"))
		kept, out := slices.Clone(d), []int{}
		count := 1
		for _, x := range axes {
			count *= d[x]
			kept[x] = 1
		}
		for i, x := range kept {
			if n.Int("keepdims", 1) != 0 || !slices.Contains(axes, i) {
				out = append(out, x)
			}
		}
		if count == 0 {
			return []*ir.Array{spread(n, OfNothing(n, a.Type.DType), out)}
		}
		res := n.Array(ir.Type{DType: a.Type.DType, Dims: kept})
		seen := make([]bool, res.Type.Elems())
		Each(res.F, func(float64) float64 { return start })
		strides, own := ir.Strides(d), ir.Strides(kept)
		for e := range a.Type.Elems() {
			to := 0
			for k := range d {
				if kept[k] != 1 {
					to += e / strides[k] % d[k] * own[k]
				}
			}
			switch {
			case a.F != nil:
				res.F[to] = f(res.F[to], a.F[e])
			case seen[to]:
				res.I[to] = g(res.I[to], a.I[e])
			default:
				res.I[to], seen[to] = a.I[e], true
			}
		}
		Each(res.F, func(x float64) float64 {
			if mean {
				return x / float64(count)
			}
			return x
		})
		Each(res.I, func(x int64) int64 {
			if mean {
				return x / int64(count)
			}
			return x
		})
		return View(Settle(res), out)
	}
}

// WithDim is dims with one of them replaced.
func WithDim(dims []int, d, size int) []int {
	out := slices.Clone(dims)
	out[d] = size
	return out
}

// ConcatAxis is Concat's axis, which has no default.
func ConcatAxis(n *model.Node, rank int) int {
	if n.Attrs["axis"] == nil {
		n.Fail("attribute \"axis\" is missing")
	}
	return n.Dim(n.Int("axis", 0), rank)
}
