package pass

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
)

// Rewrite offers each op of f, in order and with operands already replaced, to step. Step returns nil to keep
// the op, or one value for each result of it (nil for a result nobody reads) after emitting what makes them
// with b; new ops take the op's place, its location (derived for the running pass) and, where a new value
// replaces a named one, its name. Rewrite drops what became dead and returns how many ops were replaced.
// One walk, linear in the size of f.
func (c *Context) Rewrite(f *ir.Func, step func(b *ir.Builder, op *ir.Op) []*ir.Value) int {
	return c.rewrite(f, step, nil)
}

// Improve is Rewrite for steps whose ops compute the same as they are: each asks May, and where that says no the op stays.
func (c *Context) Improve(f *ir.Func, step func(b *ir.Builder, op *ir.Op) []*ir.Value) int {
	return c.rewrite(f, step, func(op *ir.Op, first *ir.Value) bool {
		to := "less"
		if first != nil && first.Op != nil {
			to = first.Op.Def.Name
		}
		return c.May(op.Out[0], "%s becomes %s", op.Def.Name, to)
	})
}

// rewrite walks f; may, unless nil, is asked for each op that step would replace.
func (c *Context) rewrite(f *ir.Func, step func(b *ir.Builder, op *ir.Op) []*ir.Value, may func(op *ir.Op, first *ir.Value) bool) int {
	old, n := f.Ops, 0
	b := ir.NewBuilder(f)
	f.Ops = make([]*ir.Op, 0, len(old))
	subst := map[*ir.Value]*ir.Value{}
	for _, op := range old {
		for i, v := range op.In {
			if w, ok := subst[v]; ok {
				op.In[i] = w
			}
		}
		mark, told := len(f.Ops), len(c.Remarks)
		b.Loc = c.Loc(op.Loc)
		out := step(b, op)
		if out != nil && may != nil && !may(op, out[0]) {
			f.Ops, c.Remarks, out = f.Ops[:mark], c.Remarks[:told], nil
		}
		if out == nil {
			f.Ops = append(f.Ops, op)
			continue
		}
		n++
		for i, v := range op.Out {
			if out[i] == nil {
				continue
			}
			subst[v] = out[i]
			if w := out[i]; w.Op != nil && slices.Contains(f.Ops[mark:], w.Op) {
				TakeName(b, w, v)
			}
		}
	}
	for i := range f.Results {
		if w, ok := subst[f.Results[i].Value]; ok {
			f.Results[i].Value = w
		}
	}
	f.DCE()
	return n
}

// TakeName gives new the name of old, which must be about to disappear.
func TakeName(b *ir.Builder, new, old *ir.Value) {
	name := old.Name
	b.Rename(old, name+".old")
	b.Rename(new, name)
}
