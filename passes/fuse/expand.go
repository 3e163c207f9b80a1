package fuse

import (
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// expand replaces every op that has no kernel by its decomposition, over and over.
func expand(c *pass.Context, f *ir.Func) (err error) {
	defer ir.Recover(&err)
	b := ir.NewBuilder(f)
	todo := f.Ops
	f.Ops = nil
	subst := map[*ir.Value]*ir.Value{}
	for _, op := range todo {
		if err := expandOp(c, b, op, subst); err != nil {
			return err
		}
	}
	for i := range f.Results {
		if n := subst[f.Results[i].Value]; n != nil {
			f.Results[i].Value = n
		}
	}
	return nil
}

func expandOp(c *pass.Context, b *ir.Builder, op *ir.Op, subst map[*ir.Value]*ir.Value) error {
	for i, v := range op.In {
		if n := subst[v]; n != nil {
			op.In[i] = n
		}
	}
	how := lowering(c, op)
	if how == nil && (group.Impl(op).Kind != kir.None || op.Def.Rules.Collective != "") {
		b.F.Ops = append(b.F.Ops, op)
		return nil
	}
	if how == nil {
		return ir.Errorf(op.Loc, "the %s target has no kernel for %s", c.Opt.TargetName(), op)
	}
	rest := b.F.Ops
	b.F.Ops, b.Loc = nil, op.Loc
	outs := how(b, op)
	parts := b.F.Ops
	b.F.Ops = rest
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
