// Package ahead finds whether a model's own loss compares what is given at a position with a later element of an input, as language
// models do that shift their labels by themselves.
package ahead

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Of finds by how many places a loss inside f compares what the model gives at a position with a later element of an
// input [batch, places]: 1 where a language model shifts its labels by itself. Inputs of which that cannot be told, and
// those compared place by place, are not in the result.
//
// The class that each row of logits is compared with is followed to its place in the input by evaluating the moves between
// them (slices, paddings, reshapes) on numbers that say the place; the row itself is followed back through moves and
// ops on rows to a value that has all places.
func Of(f *ir.Func) map[string]int {
	a := &finder{dep: map[*ir.Value][]*ir.Value{}}
	for _, p := range f.Params {
		if p.Role == ir.Input {
			a.dep[p] = []*ir.Value{p}
		}
	}
	out := map[string]int{}
	unclear := map[string]bool{}
	for _, op := range f.Ops {
		for _, in := range op.In {
			for _, p := range a.dep[in] {
				for _, o := range op.Out {
					if !slices.Contains(a.dep[o], p) {
						a.dep[o] = append(a.dep[o], p)
					}
				}
			}
		}
		if op.Def != ops.XentDef && op.Def != ops.GatherElementsDef {
			continue
		}
		label, n, ok := a.compared(op.In[0], op.In[1])
		if !ok {
			continue
		}
		if old, seen := out[label.Name]; seen && old != n {
			unclear[label.Name] = true
		}
		out[label.Name] = n
	}
	for name, n := range out {
		if unclear[name] || n == 0 {
			delete(out, name)
		}
	}
	return out
}

type finder struct {
	dep map[*ir.Value][]*ir.Value // the inputs that a value depends on
}

// place0 is what stands for place 0 of an input, above all that a graph compares labels with.
const place0 = 1 << 40

// placeType is the type of arrays of places.
const placeType = dtype.I64

// compared says which input t's classes come from, and how far they are ahead of the rows of x [..., classes].
func (a *finder) compared(x, t *ir.Value) (label *ir.Value, n int, ok bool) {
	for _, p := range a.dep[t] {
		if p.Type.DType.IsInt() && len(p.Type.Dims) == 2 && p.Type.Dims[1] > 1 {
			if label != nil {
				return nil, 0, false
			}
			label = p
		}
	}
	if label == nil || !x.Type.DType.IsFloat() || len(x.Type.Dims) < 2 {
		return nil, 0, false
	}
	batch, places := label.Type.Dims[0], label.Type.Dims[1]
	rows := a.rows(x, batch, places)
	classes, err := a.places(t, label)
	if err != nil || rows == nil || len(classes) != len(rows) {
		return nil, 0, false
	}
	found := false
	for i, c := range classes {
		if c < place0 {
			continue // ignored
		}
		if d := int(c-place0) - rows[i]; !found {
			n, found = d, true
		} else if d != n {
			return nil, 0, false
		}
	}
	return label, n, found
}

// maxPlaced bounds the elements of a value that is evaluated to follow labels.
const maxPlaced = 1 << 24

// places evaluates t on the number of each place of label; other inputs are ones, such as masks that leave all. No data hold such
// numbers, so that an op may do anything on them, and whatever that is, it only means that the places cannot be told.
func (a *finder) places(t, label *ir.Value) (list []int64, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("labels cannot be followed: %v", r)
		}
	}()
	known := map[*ir.Value]*ir.Array{}
	var eval func(v *ir.Value, depth int) *ir.Array
	eval = func(v *ir.Value, depth int) *ir.Array {
		if x := known[v]; x != nil {
			return x
		}
		if v.Op == nil && v.Role != ir.Input || depth > 100 || v.Type.Elems() > maxPlaced || v.Op != nil && v.Op.Def.Rules.Eval == nil {
			panic(ir.Errorf(ir.Loc{}, "%%%s cannot be evaluated", v.Name))
		}
		if v.Op == nil {
			x := ir.NewArray(v.Type)
			for i := range x.I {
				if x.I[i] = 1; v == label {
					x.I[i] = place0 + int64(i%v.Type.Dims[1])
				}
			}
			for i := range x.F {
				x.F[i] = 1
			}
			known[v] = x
			return x
		}
		var in []*ir.Array
		for _, o := range v.Op.In {
			in = append(in, eval(o, depth+1))
		}
		for i, x := range v.Op.Def.Rules.Eval(v.Op, in) {
			known[v.Op.Out[i]] = x
		}
		return known[v]
	}
	return eval(t, 0).I, nil
}

// rows says which place each row of x, a vector of its last dim, belongs to; nil when that is not clear.
func (a *finder) rows(x *ir.Value, batch, places int) []int {
	var chain []*ir.Op
	for {
		from := a.back(x)
		if from == nil {
			break
		}
		chain, x = append(chain, x.Op), from
	}
	lead := x.Type.Dims[:len(x.Type.Dims)-1]
	if !slices.Equal(lead, []int{batch, places}) && !slices.Equal(lead, []int{batch * places}) {
		return nil
	}
	rows := ir.NewArray(ir.T(placeType, append(slices.Clone(lead), 1)...))
	for i := range rows.I {
		rows.I[i] = int64(i % places)
	}
	for _, op := range slices.Backward(chain) {
		rows = moved(op, rows)
	}
	out := make([]int, len(rows.I))
	for i, r := range rows.I {
		out[i] = int(r)
	}
	return out
}

// back is the operand whose rows the rows of v are made of, each of its own: v is a move of it that leaves the last dim
// whole, or computed row by row. nil when there is none.
func (a *finder) back(v *ir.Value) *ir.Value {
	op := v.Op
	if op == nil {
		return nil
	}
	in, out := op.In[0].Type.Dims, v.Type.Dims
	if len(in) < 2 || len(out) < 2 {
		return nil
	}
	last, whole := len(out)-1, in[len(in)-1] == out[len(out)-1]
	switch op.Def {
	case ops.ReshapeDef:
		if !whole {
			return nil
		}
	case ops.SliceDef:
		s := op.Attrs.(ops.SliceAttrs)
		if s.Sizes[last] != in[last] {
			return nil
		}
	case ops.TransposeDef:
		if op.Attrs.(ops.TransposeAttrs).Perm[last] != last {
			return nil
		}
	case ops.MatMulDef:
		if op.Attrs.(ops.MatMulAttrs).TransA || len(a.dep[op.In[1]]) > 0 {
			return nil
		}
	case ops.SoftmaxDef, ops.LogSoftmaxDef, ops.CastDef:
		return op.In[0]
	default:
		if group.Impl(op).Kind != kir.Pointwise || len(op.Out) != 1 {
			return nil
		}
		var on *ir.Value
		for _, x := range op.In {
			if len(a.dep[x]) > 0 {
				if on != nil || !slices.Equal(x.Type.Dims, out) {
					return nil
				}
				on = x
			}
		}
		return on
	}
	return op.In[0]
}

// moved is what op makes of an array that has one number for each row of its operand.
func moved(op *ir.Op, rows *ir.Array) *ir.Array {
	out := slices.Clone(op.Out[0].Type.Dims)
	out[len(out)-1] = 1
	to := ir.T(placeType, out...)
	switch at := op.Attrs.(type) {
	case ops.SliceAttrs:
		at.Sizes = append(slices.Clone(at.Sizes[:len(at.Sizes)-1]), 1)
		return op.Def.Rules.Eval(&ir.Op{Def: op.Def, Attrs: at, Out: []*ir.Value{{Type: to}}, In: []*ir.Value{{Type: rows.Type}}}, []*ir.Array{rows})[0]
	case ops.TransposeAttrs:
		return op.Def.Rules.Eval(&ir.Op{Def: op.Def, Attrs: at, Out: []*ir.Value{{Type: to}}, In: []*ir.Value{{Type: rows.Type}}}, []*ir.Array{rows})[0]
	}
	return &ir.Array{Type: to, I: rows.I}
}

// Mark puts what Of has found into the plan: abi.Tensor.Ahead of inputs.
func Mark(tensors []abi.Tensor, found map[string]int) {
	for i := range tensors {
		if t := &tensors[i]; t.Role == abi.RoleInput {
			t.Ahead = found[t.Name]
		}
	}
}
