package recognize

import (
	"bytes"
	"math"
	"reflect"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// A loop over the samples of a batch, such as that over the bags of an embedding bag, is unrolled when it is imported: each sample is sliced
// off, something is computed of it, and the results are joined. The ops of all samples are then the same but for where the slices
// begin, and become one op each on all of them, with a dim more in front; of slices no rule could tell the samples apart.

// mostRolled bounds the ops of one sample.
const mostRolled = 256

// reroll makes a concat of what is computed of each sample one computation on all.
func (m *matcher) reroll(b *ir.Builder, op *ir.Op) *ir.Value {
	if n := len(op.In); n < 2 || n != m.batch {
		return nil
	}
	r := &roller{b: b, n: len(op.In), lists: map[*ir.Value][]*ir.Value{}, done: map[*ir.Value]*ir.Value{}}
	if shared(op.In) || !r.same(op.In) || r.sliced == 0 {
		return nil
	}
	y := r.roll(op.In)
	perm := slices.Insert(counted(1, len(op.In[0].Type.Dims)), op.Attrs.(ops.ConcatAttrs).Dim, 0) // samples before the dim that they are joined along
	m.c.Remark(op.Out[0], "is computed of all %d samples at once, as it was of each by itself", r.n)
	return ops.Reshape(b, ops.Transpose(b, y, perm), op.Out[0].Type.Dims)
}

// roller works on lists of values, one of each of n samples.
type roller struct {
	b      *ir.Builder
	n      int
	lists  map[*ir.Value][]*ir.Value // those that are computed alike, by the first
	sliced int                       // how many of them are slices of samples
	done   map[*ir.Value]*ir.Value
}

// same reports whether the values are computed alike, by ops that roll can join.
func (r *roller) same(vs []*ir.Value) bool {
	first := vs[0]
	if shared(vs) {
		return true
	}
	if old := r.lists[first]; old != nil {
		return slices.Equal(old, vs)
	}
	if len(r.lists) >= mostRolled || first.Op == nil || len(first.Op.Out) > 1 {
		return false
	}
	if scaled(vs) {
		r.lists[first] = vs
		return r.same(operands(vs, 0))
	}
	for _, v := range vs[1:] {
		if v.Op == nil || v.Op.Def != first.Op.Def || !v.Type.Equal(first.Type) || len(v.Op.In) != len(first.Op.In) {
			return false
		}
	}
	r.lists[first] = vs
	if first.Op.Def == ops.SliceDef && r.blocks(vs) {
		r.sliced++
		return true
	}
	for _, v := range vs[1:] {
		if !reflect.DeepEqual(v.Op.Attrs, first.Op.Attrs) {
			return false
		}
	}
	if oneTable(first.Op) {
		for k := range first.Op.In {
			if k != tabled(first.Op) && !shared(operands(vs, k)) {
				return false
			}
		}
		return r.same(operands(vs, tabled(first.Op)))
	}
	if !r.joins(first.Op) {
		return false
	}
	for k := range first.Op.In {
		if !r.same(operands(vs, k)) {
			return false
		}
	}
	return true
}

func operands(vs []*ir.Value, k int) []*ir.Value {
	var list []*ir.Value
	for _, v := range vs {
		list = append(list, v.Op.In[k])
	}
	return list
}

// shared reports whether all are one value, or equal constants.
func shared(vs []*ir.Value) bool {
	for _, v := range vs[1:] {
		if v == vs[0] {
			continue
		}
		if v == nil || vs[0] == nil || v.Op == nil || vs[0].Op == nil || v.Op.Def != ops.ConstDef || vs[0].Op.Def != ops.ConstDef || !v.Type.Equal(vs[0].Type) {
			return false
		}
		x, y := vs[0].Op.Attrs.(ops.ConstAttrs).Value, v.Op.Attrs.(ops.ConstAttrs).Value
		if x.Absent() || y.Absent() || !bytes.Equal(x.Data, y.Data) {
			return false
		}
	}
	return true
}

// blocks reports whether the values are slices of equal parts of dim 0 of one value, one after the other, that make up all of it.
func (r *roller) blocks(vs []*ir.Value) bool {
	x := vs[0].Op.In[0]
	size := vs[0].Type.Dims[0]
	if size == 0 || x.Type.Dims[0] != r.n*size {
		return false
	}
	for i, v := range vs {
		a := v.Op.Attrs.(ops.SliceAttrs)
		whole := slices.Equal(v.Type.Dims[1:], x.Type.Dims[1:])
		if v.Op.In[0] != x || a.Starts[0] != i*size || !whole || slices.ContainsFunc(a.Steps, func(s int) bool { return s != 1 }) {
			return false
		}
	}
	return true
}

// scaled reports whether the values are multiples of something by one number, of which some are spelled as a product and some as a quotient:
// the last sample of a loop may be computed by another branch.
func scaled(vs []*ir.Value) bool {
	var by float64
	for i, v := range vs {
		if v.Op == nil || v.Op.Def != ops.MulDef && v.Op.Def != ops.DivDef || !v.Type.Equal(vs[0].Type) {
			return false
		}
		c, ok := ops.Uniform(v.Op.In[1])
		if !ok || c == 0 {
			return false
		}
		if v.Op.Def == ops.DivDef {
			c = 1 / c
		}
		if i > 0 && !(math.Abs(c-by) <= 1e-6*math.Abs(by)) { // 1/n in f32
			return false
		}
		by = c
	}
	return true
}

// oneTable reports whether op reads rows of something that all samples share: entries of a table, or products with a matrix. Its operand of each
// sample is number tabled(op).
func oneTable(op *ir.Op) bool {
	switch a := op.Attrs.(type) {
	case ops.GatherAttrs:
		return a.Dim == 0
	case ops.MatMulAttrs:
		return !a.TransA && len(op.In[1].Type.Dims) == 2 && len(op.In[0].Type.Dims) > 1
	}
	return false
}

func tabled(op *ir.Op) int {
	if op.Def == ops.GatherDef {
		return 1
	}
	return 0
}

// joins reports whether roll knows what op becomes with a dim more.
func (r *roller) joins(op *ir.Op) bool {
	switch op.Def {
	case ops.ReduceSumDef, ops.ReduceMaxDef, ops.ReduceMinDef, ops.ReshapeDef, ops.ExpandDef, ops.TransposeDef:
		return true
	}
	return op.Def.Rules.Resize == nil && len(op.In) > 0 && op.Def != ops.DropoutDef && group.Impl(op).Kind == kir.Pointwise
}

// roll is what the list becomes: the values of all samples, one after the other along a dim in front.
func (r *roller) roll(vs []*ir.Value) *ir.Value {
	first, b := vs[0], r.b
	if y := r.done[first]; y != nil {
		return y
	}
	var y *ir.Value
	if shared(vs) {
		return r.repeated(first)
	}
	dims := slices.Concat([]int{r.n}, first.Type.Dims)
	switch {
	case first.Op.Def == ops.SliceDef:
		y = ops.Reshape(b, first.Op.In[0], dims)
	case scaled(vs):
		c := first.Op.In[1]
		y = b.Emit(first.Op.Def, first.Op.Attrs, r.roll(operands(vs, 0)), r.repeated(c))
	case oneTable(first.Op):
		in := slices.Clone(first.Op.In)
		in[tabled(first.Op)] = r.roll(operands(vs, tabled(first.Op)))
		y = b.Emit(first.Op.Def, first.Op.Attrs, in...)
	default:
		var in []*ir.Value
		for k := range first.Op.In {
			in = append(in, r.roll(operands(vs, k)))
		}
		switch a := first.Op.Attrs.(type) {
		case ops.ReduceAttrs:
			y = b.Emit(first.Op.Def, ops.ReduceAttrs{Dims: shifted(a.Dims)}, in...)
		case ops.ReshapeAttrs:
			y = ops.Reshape(b, in[0], dims)
		case ops.ExpandAttrs:
			y = ops.Expand(b, in[0], dims)
		case ops.TransposeAttrs:
			y = ops.Transpose(b, in[0], slices.Concat([]int{0}, shifted(a.Perm)))
		default:
			y = b.Emit(first.Op.Def, first.Op.Attrs, in...)
		}
	}
	r.done[first] = y
	return y
}

// repeated is what all samples share, for each.
func (r *roller) repeated(v *ir.Value) *ir.Value {
	one := ops.Reshape(r.b, v, slices.Concat([]int{1}, v.Type.Dims))
	return ops.Expand(r.b, one, slices.Concat([]int{r.n}, v.Type.Dims))
}

func shifted(dims []int) []int {
	out := slices.Clone(dims)
	for i := range out {
		out[i]++
	}
	return out
}
