package fuse

import (
	"errors"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// widen gives each op that reads a widened value (a cast from half precision) a cast of its own: it costs nothing in registers,
// while a shared one would be stored, at twice the bytes of what it is made of. Templates read stored values, and share one.
func widen(f *ir.Func) {
	uses := f.Uses()
	b := ir.NewBuilder(f)
	list := f.Ops
	f.Ops = nil
	for _, op := range list {
		for i, v := range op.In {
			if v == nil || v.Op == nil || !widens(v.Op) || slices.Contains(op.In[:i], v) {
				continue
			}
			if k := group.Impl(op).Kind; len(uses[v]) < 2 || k != kir.Pointwise && k != kir.Reduce {
				continue
			}
			b.Loc = v.Op.Loc
			own := b.Rename(b.Emit(v.Op.Def, v.Op.Attrs, v.Op.In[0]), v.Name)
			own.Sharding = v.Sharding
			for j, x := range op.In {
				if x == v {
					op.In[j] = own
				}
			}
		}
		f.Ops = append(f.Ops, op)
	}
}

// widens reports whether op is a cast from half precision to f32.
func widens(op *ir.Op) bool {
	return op.Move() == ir.Casts && half(op.In[0]) && op.Out[0].Type.DType == dtype.F32
}

// expand replaces every op that has no kernel by its decomposition, over and over.
func expand(c *pass.Context, f *ir.Func) (err error) {
	defer ir.Recover(&err)
	b := ir.NewBuilder(f)
	todo := f.Ops
	f.Ops = nil
	subst := map[*ir.Value]*ir.Value{}
	var missing []*ir.Error
	for _, op := range todo {
		err := expandOp(c, b, op, subst)
		var lacks *noKernel
		if errors.As(err, &lacks) {
			missing = append(missing, ir.Errorf(op.Loc, "the %s target has no kernel for %s", c.Traits().Title, lacks.op))
			b.F.Ops = append(b.F.Ops, op) // as if it had one: the next may lack one, too
		} else if err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return lacking(missing)
	}
	for i := range f.Results {
		if n := subst[f.Results[i].Value]; n != nil {
			f.Results[i].Value = n
		}
	}
	return nil
}

// noKernel is an op that neither has a kernel nor is made of ops that have.
type noKernel struct{ op *ir.Op }

// Error names the op.
func (e *noKernel) Error() string { return "no kernel for " + e.op.String() }

// maxMissing bounds the ops without kernels that an error lists.
const maxMissing = 20

// lacking is one error about all ops without kernels.
func lacking(missing []*ir.Error) error {
	first := missing[0]
	for i, e := range missing[1:] {
		if i == maxMissing {
			return first.Note("and it has none for %d more ops", len(missing)-1-i)
		}
		first = first.Note("%s: %s", e.Loc, e.Msg)
	}
	return first
}

func expandOp(c *pass.Context, b *ir.Builder, op *ir.Op, subst map[*ir.Value]*ir.Value) error {
	for i, v := range op.In {
		if n := subst[v]; n != nil {
			op.In[i] = n
		}
	}
	how := lowering(c, op)
	impl := group.Impl(op)
	lacks := impl.Kind == kir.None || impl.Kind == kir.Template && !c.Opt.Native(op, impl)
	if how == nil && (!lacks || op.Def.Rules.Collective != "" || op.Def.Rules.Effect) {
		b.F.Ops = append(b.F.Ops, op)
		return nil
	}
	if how == nil {
		return &noKernel{op}
	}
	rest := b.F.Ops
	b.F.Ops, b.Loc = nil, op.Loc
	outs := how(b, op)
	parts := b.F.Ops
	b.F.Ops = rest
	for _, p := range parts {
		if p.Def == op.Def && slices.EqualFunc(p.In, op.In, sameType) && slices.EqualFunc(p.Out, op.Out, sameType) {
			return &noKernel{op} // it is made of itself
		}
	}
	for _, p := range parts {
		if err := expandOp(c, b, p, subst); err != nil {
			return err
		}
	}
	for i, v := range op.Out {
		n := outs[i]
		for subst[n] != nil {
			n = subst[n]
		}
		if n.Op != nil && n.Op.Def != op.Def && n.Name != v.Name && owned(parts, n) {
			n.Name = v.Name // the decomposed value lives on under the name people know
		}
		if n.Op != nil && len(n.Sharding.Dims) == 0 {
			n.Sharding = v.Sharding // a result is put together from its parts on all ranks
		}
		subst[v] = n
	}
	return nil
}

func sameType(a, b *ir.Value) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Type.Equal(b.Type)
}

// owned reports whether n was made by one of the parts, or by what they expanded to (then it already has
// a known name and keeps it).
func owned(parts []*ir.Op, n *ir.Value) bool {
	for _, p := range parts {
		if p == n.Op {
			return true
		}
	}
	return false
}
