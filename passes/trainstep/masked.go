package trainstep

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/samples"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// bySize is a number that depends on how many samples a batch has: square n² + per n + plus, or one over that.
type bySize struct {
	square, per, plus float64 // of which square and plus are not both
	inverse           bool
}

// counts reports whether it is as many times the number of samples.
func (d bySize) counts() bool { return d.square == 0 && d.plus == 0 }

// at is the number for n samples.
func (d bySize) at(n float64) float64 {
	v := (d.square*n+d.per)*n + d.plus
	if d.inverse {
		return 1 / v
	}
	return v
}

// bySizes are the facts of a model that depend on the size of the batch, by the place of an op.
type bySizes struct {
	numbers map[int]bySize   // constants
	grows   map[int][][]bool // of each result, which dims do
}

// sizeError says of which op it is not known what it is for fewer samples.
type sizeError struct {
	op   *ir.Op
	text string
}

// Error says why.
func (e *sizeError) Error() string { return e.text }

// sized finds which constants of f, by the place of their op, depend on the size of the batch, and how, from the same model with two and four
// times the batch (an inverse that is exact for one is for the others, so that algebra has gone the same way). A constant in which more than one
// number depends on it, or any other fact of an op, is an error that says so: then it is not known what the model is for fewer samples.
func sized(f, twice, fourfold *ir.Func, batch int) (*bySizes, error) {
	places := make([]map[*ir.Value]int, 3)
	for k, g := range []*ir.Func{f, twice, fourfold} {
		if len(g.Ops) != len(f.Ops) || len(g.Params) != len(f.Params) {
			return nil, fmt.Errorf("the model has other nodes for a batch of %d", batch<<k)
		}
		places[k] = map[*ir.Value]int{nil: -1}
		for i, p := range g.Params {
			places[k][p] = i
		}
	}
	out := &bySizes{map[int]bySize{}, map[int][][]bool{}}
	n := len(f.Params)
	for i, op := range f.Ops {
		for k, g := range []*ir.Func{f, twice, fourfold} {
			other := g.Ops[i]
			if other.Def != op.Def || len(other.In) != len(op.In) || !sameAttrs(op, other) {
				return nil, &sizeError{op, fmt.Sprintf("%s depends on the size of the batch", op.Loc)}
			}
			for j, v := range other.In {
				if places[k][v] != places[0][op.In[j]] {
					return nil, &sizeError{op, fmt.Sprintf("%s reads other values for a batch of %d", op.Loc, batch<<k)}
				}
			}
			for j, v := range other.Out {
				places[k][v] = n + j
			}
		}
		n += len(op.Out)
		for j, v := range op.Out {
			g, err := growing(op, v, twice.Ops[i].Out[j])
			if err != nil {
				return nil, &sizeError{op, err.Error()}
			}
			out.grows[i] = append(out.grows[i], g)
		}
		if ops.Literal(op) == nil {
			continue
		}
		d, depends, err := constant(op, twice.Ops[i], fourfold.Ops[i], float64(batch))
		if err != nil {
			return nil, &sizeError{op, err.Error()}
		}
		if depends {
			out.numbers[i] = d
		}
	}
	return out, nil
}

// growing says which dims of v are larger for a larger batch.
func growing(op *ir.Op, v, twice *ir.Value) ([]bool, error) {
	if len(v.Type.Dims) != len(twice.Type.Dims) || v.Type.DType != twice.Type.DType {
		return nil, fmt.Errorf("the type of what %s gives depends on the size of the batch", op.Loc)
	}
	out := make([]bool, len(v.Type.Dims))
	for d, n := range v.Type.Dims {
		out[d] = twice.Type.Dims[d] != n
	}
	return out, nil
}

// sameAttrs reports whether two ops do the same but for dims, in which the batch is.
func sameAttrs(x, y *ir.Op) bool {
	switch a := x.Attrs.(type) {
	case ops.ConstAttrs, ops.ReshapeAttrs, ops.ExpandAttrs, ops.IotaAttrs:
		return true
	case ops.SliceAttrs:
		b := y.Attrs.(ops.SliceAttrs)
		return reflect.DeepEqual(a.Starts, b.Starts) && reflect.DeepEqual(a.Steps, b.Steps)
	}
	return reflect.DeepEqual(x.Attrs, y.Attrs)
}

// constant compares a constant of three sizes of the batch.
func constant(op, twice, fourfold *ir.Op, batch float64) (d bySize, depends bool, err error) {
	x, y, z := op.Attrs.(ops.ConstAttrs).Value, twice.Attrs.(ops.ConstAttrs).Value, fourfold.Attrs.(ops.ConstAttrs).Value
	unclear := fmt.Errorf("the numbers of %s depend on the size of the batch", op.Loc)
	if x.Type.Equal(y.Type) && x.Type.Equal(z.Type) && bytes.Equal(x.Data, y.Data) && bytes.Equal(x.Data, z.Data) {
		return d, false, nil
	}
	if x.Type.Equal(y.Type) && x.Type.Elems() == 1 && x.Type.DType != dtype.Bool {
		a, b, c := number(x), number(y), number(z)
		if a == b && b == c {
			return d, false, nil
		}
		for _, inverse := range []bool{false, true} {
			if inverse {
				a, b, c = 1/a, 1/b, 1/c
			}
			for _, through := range []func(a, b, c, batch float64) (bySize, bool){line, pairs} {
				if d, ok := through(a, b, c, batch); ok {
					d.inverse = inverse
					return d, true, nil
				}
			}
		}
		return d, false, unclear
	}
	if !begins(x, y) { // one number for each place in the batch: those of a smaller one are the first
		return d, false, unclear
	}
	return d, false, nil
}

// begins reports whether the numbers of x are those of y at the same places.
func begins(x, y *ir.Tensor) bool {
	small, large := x.Array(), y.Array()
	if len(x.Type.Dims) != len(y.Type.Dims) {
		return false
	}
	from, to := ir.Strides(x.Type.Dims), ir.Strides(y.Type.Dims)
	for i := range x.Type.Elems() {
		at := 0
		for d, n := range x.Type.Dims {
			k := i / from[d] % n
			if k >= y.Type.Dims[d] {
				return false
			}
			at += k * to[d]
		}
		if small.F != nil && !(small.F[i] == large.F[at] || math.IsNaN(small.F[i]) && math.IsNaN(large.F[at])) || small.I != nil && small.I[i] != large.I[at] {
			return false
		}
	}
	return true
}

func number(t *ir.Tensor) float64 {
	a := t.Array()
	if a.F != nil {
		return a.F[0]
	}
	return float64(a.I[0])
}

// line is the line through the numbers of one, two and four batches, if there is one but for the rounding of f32. Its own numbers
// are rounded to whole ones where they are that near.
func line(a, b, c, batch float64) (bySize, bool) {
	const rounding = 1e-6
	size := math.Max(math.Abs(a), math.Max(math.Abs(b), math.Abs(c)))
	if !(math.Abs(c-3*b+2*a) <= rounding*size) {
		return bySize{}, false
	}
	whole := func(v float64) float64 {
		if near := math.Round(v); math.Abs(v-near) <= rounding*size/batch {
			return near
		}
		return v
	}
	per := whole((c - a) / (3 * batch))
	plus := a - per*batch
	if math.Abs(plus) <= rounding*size {
		plus = 0
	}
	return bySize{per: per, plus: whole(plus)}, true
}

// pairs is like line for numbers of pairs of samples, square n² + per n, as n² and n (n-1) are.
func pairs(a, b, c, batch float64) (bySize, bool) {
	const rounding = 1e-6
	size := math.Abs(c)
	for _, d := range []bySize{{square: c / (16 * batch * batch)}, {square: (c - 4*a) / (12 * batch * batch), per: (16*a - c) / (12 * batch)}} {
		if d.per = math.Round(d.per); d.per != 0 || math.Abs(d.square-math.Round(d.square)) <= rounding*math.Abs(d.square) {
			d.square = math.Round(d.square)
		}
		if d.square != 0 && math.Abs(d.at(batch)-a) <= rounding*size/16 && math.Abs(d.at(2*batch)-b) <= rounding*size/4 && math.Abs(d.at(4*batch)-c) <= rounding*size {
			return d, true
		}
	}
	return bySize{}, false
}

// masker changes a model so that it gives for a batch that is filled up what it gives for its real samples alone.
type masker struct {
	c      *pass.Context
	f      *ir.Func
	weight *ir.Value
	reader *samples.Facts
	sized  map[*ir.Op]bySize
	of     map[*ir.Value]bySize       // values that are one number which depends on the batch's size
	n      *ir.Value                  // f32[1], how many samples count
	closes map[*ir.Value]samples.Hole // what stands in for an operand, and the hole that it closes

	lossOnly bool // sums have their weights
	closed   bool // something was masked
}

// masked multiplies what f adds up over samples by the weights of samples, which become a parameter, and makes numbers
// that depend on how many samples a batch has depend on how many count.
//
// It reports where samples meet all the same, and whether anything had to change.
func masked(c *pass.Context, f *ir.Func, places *bySizes) (crosses *samples.CrossSample, closed bool) {
	m := &masker{c: c, f: f, sized: map[*ir.Op]bySize{}, of: map[*ir.Value]bySize{}, closes: map[*ir.Value]samples.Hole{}}
	m.weight = ir.NewBuilder(f).Param(abi.SampleWeight, ir.T(dtype.F32, samples.Reader(f).Batch), ir.Weight)
	m.reader = samples.Reader(f)
	for i, d := range places.numbers {
		m.sized[f.Ops[i]] = d
	}
	for i, op := range f.Ops {
		for j, v := range op.Out {
			m.reader.Grow(v, places.grows[i][j])
		}
	}
	c.Rewrite(f, m.op)
	for _, r := range f.Results {
		m.reader.Reach(r.Value)
	}
	return m.reader.Crosses, m.closed || m.n != nil
}

// maskedLoss does the same for a loss that has been added to f, whose sums have weights: what it takes over a row of samples does not see
// those that fill the batch.
func maskedLoss(c *pass.Context, f *ir.Func) {
	m := &masker{c: c, f: f, weight: weightOf(f), reader: samples.Reader(f), closes: map[*ir.Value]samples.Hole{}, lossOnly: true}
	if m.weight != nil {
		c.Rewrite(f, m.op)
	}
}

func (m *masker) op(b *ir.Builder, op *ir.Op) []*ir.Value {
	if d, ok := m.sized[op]; ok {
		m.of[op.Out[0]] = d
		return nil
	}
	switch {
	case op.Move() == ir.Repeats, op.Move() == ir.Keeps:
		if d, ok := m.of[op.In[0]]; ok {
			m.of[op.Out[0]] = d
			return nil
		}
	case op.Def.Rules.Divides: // a divisor that is no number of samples must not be taken for a count of them
		if d, ok := m.of[op.In[1]]; ok && !d.counts() && op.In[1].Type.DType.IsFloat() && !m.isSized(op.In[0]) {
			return []*ir.Value{ops.Mul(b, op.In[0], ops.Recip(b, m.value(b, d, op.In[1].Type)))}
		}
	case op.Def.Rules.Multiplies:
		for i, v := range op.In {
			other := op.In[1-i]
			if d, ok := m.of[v]; ok && d.inverse && d.counts() && other.Type.DType.IsFloat() && !m.isSized(other) {
				return []*ir.Value{ops.Div(b, other, m.line(b, d, v.Type))}
			}
		}
	}
	for i, v := range op.In {
		if d, ok := m.of[v]; ok {
			op.In[i] = m.value(b, d, v.Type)
		}
	}
	for _, v := range op.In {
		if v != nil && !m.reader.Reach(v) {
			return nil
		}
	}
	if op.Def == ops.ExpDef {
		m.exponentials(b, op)
	}
	m.close(b, op)
	return nil
}

// close masks what samples that fill a batch would get into op by.
func (m *masker) close(b *ir.Builder, op *ir.Op) {
	for range 8 { // each closes one, of which an op has few
		h, ok := m.reader.Hole(op)
		if !ok || h.Fill == 0 && m.lossOnly {
			return
		}
		x := op.In[h.Operand]
		y := m.kept(b, x, h)
		if y == nil {
			return
		}
		m.closed, m.closes[y] = true, h
		op.In[h.Operand] = y
		if !m.reader.Reach(op.In[h.Operand]) {
			return
		}
	}
}

// kept is x with what closes a hole in place of the elements of samples that fill the batch; nil where it cannot be told which these are. An
// exponential of them may be too large for a number, and infinity times a weight of zero is none: they are made small before.
func (m *masker) kept(b *ir.Builder, x *ir.Value, h samples.Hole) *ir.Value {
	if h.Fill == 0 && x.Op != nil && x.Op.Def == ops.ExpDef {
		if y := m.kept(b, x.Op.In[0], samples.Hole{Dims: h.Dims, Fill: -1}); y != nil {
			if x = ops.Exp(b, y); !m.reader.Reach(x) {
				return nil
			}
		}
	}
	w := m.mask(b, x, h.Dims)
	switch {
	case w == nil:
		return nil
	case h.Fill == 0:
		return ops.Mul(b, x, ops.Cast(b, w, x.Type.DType))
	}
	return ops.Where(b, ops.Cast(b, w, dtype.Bool), x, ops.ScalarLike(b, x, float64(h.Fill)*m.beyond(x)))
}

// exponentials closes what samples that fill the batch would get by into the numerators of a softmax in its stable form, exp(x - max x): the
// greatest of the real samples is no bound of theirs.
func (m *masker) exponentials(b *ir.Builder, op *ir.Op) {
	u := op.In[0]
	if u.Op == nil || len(u.Op.In) != 2 || u.Op.In[1] == nil || !m.reader.Reach(u) {
		return
	}
	for g := u.Op.In[1]; g.Op != nil && len(g.Op.In) > 0; g = g.Op.In[0] {
		x := g.Op.In[0]
		if h, ok := m.closes[x]; ok && h.Fill < 0 && x.Op.In[1] == u.Op.In[0] {
			if y := m.kept(b, u, h); y != nil {
				op.In[0] = y
			}
			return
		}
		if len(g.Op.In) > 1 {
			return
		}
	}
}

// beyond is more than any number of x: of half precision as much as there is.
func (m *masker) beyond(x *ir.Value) float64 {
	if x.Type.DType == dtype.F16 || m.c.Opt.Precision == "fp16" {
		return 6e4
	}
	return 1e30
}

// mask is the weight of each element's sample along one dim of x, or the one sample that it is of; nil where there is neither.
func (m *masker) mask(b *ir.Builder, x *ir.Value, dims []int) *ir.Value {
	l := m.reader.Layout(x)
	if len(dims) == 1 {
		if w := l[dims[0]:dims[0]+1].Mask(b, m.weight); w != nil {
			ones := slices.Repeat([]int{1}, len(x.Type.Dims))
			ones[dims[0]] = x.Type.Dims[dims[0]]
			return ops.Expand(b, ops.Reshape(b, w, ones), x.Type.Dims)
		}
	}
	return l.Mask(b, m.weight)
}

func (m *masker) isSized(v *ir.Value) bool {
	_, ok := m.of[v]
	return ok
}

// line is d or, where that is an inverse, what it is the inverse of, in type t.
func (m *masker) line(b *ir.Builder, d bySize, t ir.Type) *ir.Value {
	if m.n == nil {
		m.n = ops.ReduceSum(b, m.weight, 0)
	}
	v := m.n
	if k := d.square; k != 0 {
		if k != 1 {
			v = ops.MulScalar(b, v, k)
		}
		if d.per != 0 {
			v = ops.AddScalar(b, v, d.per)
		}
		v = ops.Mul(b, v, m.n)
	} else if d.per != 1 {
		v = ops.MulScalar(b, v, d.per)
	}
	if d.plus != 0 {
		v = ops.AddScalar(b, v, d.plus)
	}
	ones := make([]int, len(t.Dims))
	for i := range ones {
		ones[i] = 1
	}
	return ops.Expand(b, ops.Reshape(b, ops.Cast(b, v, t.DType), ones), t.Dims)
}

// value is the number that d is, in type t.
func (m *masker) value(b *ir.Builder, d bySize, t ir.Type) *ir.Value {
	v := m.line(b, d, t)
	if d.inverse {
		return ops.Recip(b, v)
	}
	return v
}
