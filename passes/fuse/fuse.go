// Package fuse decides which ops share a kernel. Pointwise ops, reductions and views join the group of
// what they read when they fit its iteration space (ir/group) and no cycle arises; templates, assemblies
// and collectives stand alone. Composite ops without a kernel of their own are decomposed first, so
// that their parts join their neighbours: a residual add and the layer norm after it become one kernel.
//
// Views take no kernel: consumers read through them. A view becomes a copy only where its reader needs
// dense memory, or where views do not compose to an affine map.
package fuse

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// Limits of one kernel: ops in it, and buffers it touches.
const (
	maxOps  = 96
	maxArgs = 40
)

// Run groups the ops of every function.
func Run(c *pass.Context) error {
	for _, f := range c.Module.Funcs {
		if err := expand(c, f); err != nil {
			return err
		}
		widen(f)
		f.DCE()
		fu := &fuser{c: c, f: f, of: map[*ir.Op]*node{}, impl: map[*ir.Op]kir.Impl{}, apart: map[*ir.Op]bool{}}
		fu.materialise()
		fu.build()
		fu.siblings()
		fu.sink()
		fu.order()
	}
	return nil
}

// node is a group while it grows. A merged node points at the one that took it over.
type node struct {
	ops    []*ir.Op
	space  *group.Space   // nil: stands alone
	preds  map[*node]bool // groups that it needs
	succs  []*node        // groups that need it
	level  int            // above that of every group that it needs; the position of its last op, if that will do
	into   *node
	alone  bool // stays as it is: a reduction of a reproducible program, whose order no neighbour may change
	number int
	seen   int // the last search that came by
}

// first and last are the positions, in program order, of the group's ends.
func (fu *fuser) first(n *node) int { return fu.pos[n.ops[0]] }
func (fu *fuser) last(n *node) int  { return fu.pos[n.ops[len(n.ops)-1]] }

func (n *node) find() *node {
	for n.into != nil {
		n = n.into
	}
	return n
}

type fuser struct {
	c      *pass.Context
	f      *ir.Func
	of     map[*ir.Op]*node
	impl   map[*ir.Op]kir.Impl
	all    []*node
	pos    map[*ir.Op]int
	search int             // number of the current search
	marked int             // views and constants that materialise gave a kernel
	apart  map[*ir.Op]bool // casts from half precision that kernels with other ops read

	messages bool  // the function talks to other stages: its collectives stay in their order, which theirs fit
	said     *node // the last collective
}

func (fu *fuser) kind(op *ir.Op) kir.Kind {
	i, ok := fu.impl[op]
	if !ok {
		i = group.Impl(op)
		fu.impl[op] = i
	}
	return i.Kind
}

// materialise gives a kernel to views and constants whose readers need dense memory, and to views at which a
// chain stops being affine. The mark is a group number that build replaces. A view that gets a kernel may leave those
// that read through it without dense memory, so the rules are applied until none does.
func (fu *fuser) materialise() {
	for last := -1; fu.marked != last; {
		last = fu.marked
		fu.mark()
	}
}

// mark applies the rules of materialise once.
func (fu *fuser) mark() {
	for _, op := range fu.f.Ops {
		switch k := fu.kind(op); {
		case k == kir.Pointwise || k == kir.Reduce || k == kir.Assemble || k == kir.View && op.Group != 0:
			for _, v := range op.In {
				fu.affine(op, v)
			}
		case k == kir.Template || op.Def.Rules.Collective != "":
			for i, v := range op.In {
				if _, _, ok := group.Strided(op, fu.impl[op], i); !ok {
					fu.dense(v, op.Def.Name)
				}
			}
		}
	}
	for _, r := range fu.f.Results {
		fu.dense(r.Value, "a result")
	}
}

func (fu *fuser) affine(op *ir.Op, v *ir.Value) {
	for v != nil {
		at, _, ok := group.OperandAccess(op, v)
		if ok {
			return
		}
		if at.Op == nil || fu.kind(at.Op) != kir.View {
			panic(fmt.Sprintf("BUG: %s is not an affine view of %s", op, at.Name))
		}
		fu.c.Remark(at, "is copied: the views on it do not compose")
		at.Op.Group = 1
		fu.marked++
		fu.affine(at.Op, at.Op.In[0])
	}
}

func (fu *fuser) dense(v *ir.Value, reader string) {
	if v == nil {
		return
	}
	if _, ok := group.Scalar(v); ok {
		for fu.kind(v.Op) == kir.View && v.Op.Def.Rules.Impl != nil && group.Impl(v.Op).View.Strides == nil {
			v = v.Op.In[0]
		}
		v.Op.Group = 1
		fu.marked++
		return
	}
	if group.Virtual(v) && group.Alias(v) == v {
		v.Op.Group = 1
		fu.marked++
		fu.c.Remark(v, "is copied: %s needs it dense", reader)
		fu.affine(v.Op, v.Op.In[0])
	}
}

// build walks the ops in program order and lets each join the groups it reads from.
func (fu *fuser) build() {
	fu.pos = map[*ir.Op]int{}
	for i, op := range fu.f.Ops {
		fu.pos[op] = i
		fu.messages = fu.messages || op.Def.Rules.Collective != "" && op.Def.Rules.Effect
	}
	fu.floating()
	for _, op := range fu.f.Ops {
		switch k := fu.kind(op); {
		case k == kir.View && op.Group == 0, k == kir.Literal:
		case k == kir.Pointwise && len(op.In) == 0 && op.Group == 0 && isConst(op):
		case k == kir.Pointwise || k == kir.Reduce || k == kir.View:
			fu.place(op)
		default:
			fu.alone(op)
		}
	}
}

func isConst(op *ir.Op) bool {
	_, ok := group.Scalar(op.Out[0])
	return ok
}

// sources are the nodes that make what op reads, latest first.
func (fu *fuser) sources(op *ir.Op) []*node {
	var out []*node
	for _, v := range op.In {
		if v == nil {
			continue
		}
		src, _, _ := group.Resolve(v)
		if src.Op == nil || fu.of[src.Op] == nil {
			continue
		}
		if n := fu.of[src.Op].find(); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *node) int { return b.number - a.number })
	return out
}

func (fu *fuser) alone(op *ir.Op) *node {
	n := &node{ops: []*ir.Op{op}, preds: map[*node]bool{}, number: len(fu.all), level: fu.pos[op]}
	for _, s := range fu.sources(op) {
		n.need(s)
	}
	if fu.messages && op.Def.Rules.Collective != "" {
		if fu.said != nil {
			n.need(fu.said.find())
		}
		fu.said = n
	}
	fu.all = append(fu.all, n)
	fu.of[op] = n
	return n
}

// place starts a group with op, then merges it with each source group it can share a kernel with.
func (fu *fuser) place(op *ir.Op) {
	srcs := fu.beyond(op)
	n := fu.alone(op)
	if n.space, _ = group.Build(n.ops); n.space == nil {
		panic(fmt.Sprintf("BUG: %s has no iteration space", op))
	}
	if n.alone = fu.c.Opt.Reproducible && fu.kind(op) == kir.Reduce; n.alone {
		return
	}
	for _, s := range srcs {
		s, n := s.find(), n.find()
		if s == n || s.space == nil || s.alone || fu.apart[op] && !fu.floats(s) {
			continue
		}
		if why := fu.merge(s, n); why != "" {
			fu.c.Remark(op.Out[0], "does not join %%%s: %s", s.ops[len(s.ops)-1].Out[0].Name, why)
		}
	}
}

// merge joins n into s, or says why not.
func (fu *fuser) merge(s, n *node) string {
	if len(s.ops)+len(n.ops) > maxOps {
		return "the kernel would have too many ops"
	}
	ops, space, ok := fu.together(s, n)
	if !ok {
		return "it does not fit the iteration space"
	}
	if operands(ops) > maxArgs && len(externals(ops)) > maxArgs {
		return "the kernel would touch too many buffers"
	}
	if fu.depends(n, s, true) || fu.depends(s, n, true) {
		return "something between them needs a kernel of its own"
	}
	if !fu.c.May(n.ops[0].Out[0], "%s joins the kernel of %%%s", n.ops[0].Def.Name, s.ops[0].Out[0].Name) {
		return "the limit of rewrites (--rewrites) is reached"
	}
	s.ops, s.space = ops, space
	for p := range n.preds {
		s.preds[p.find()] = true
	}
	delete(s.preds, s)
	delete(s.preds, n)
	n.into = s
	s.number = max(s.number, n.number)
	s.succs = append(s.succs, n.succs...)
	level := max(s.level, n.level)
	s.level = -1 // those that need it are raised, too
	s.raise(level)
	return ""
}

// need notes that n needs p.
func (n *node) need(p *node) {
	n.preds[p] = true
	p.succs = append(p.succs, n)
	n.raise(p.level + 1)
}

// raise puts n on level at least, and what needs it above.
func (n *node) raise(level int) {
	if n.level >= level {
		return
	}
	n.level = level
	for _, s := range n.succs {
		if s = s.find(); s != n {
			s.raise(level + 1)
		}
	}
}

// together is the ops of two groups in program order and the space they share. The usual case, one op that comes
// after all others, adds to the space that is there.
func (fu *fuser) together(s, n *node) (ops []*ir.Op, space *group.Space, ok bool) {
	ops = append(slices.Clone(s.ops), n.ops...)
	if len(n.ops) == 1 && fu.last(s) < fu.first(n) {
		space, ok = s.space.With(n.ops[0])
		return ops, space, ok
	}
	slices.SortFunc(ops, func(a, b *ir.Op) int { return fu.pos[a] - fu.pos[b] })
	space, ok = group.Build(ops)
	return ops, space, ok
}

// operands counts what ops read, values that several read as often: never less than externals.
func operands(ops []*ir.Op) int {
	n := 0
	for _, op := range ops {
		n += len(op.In)
	}
	return n
}

func externals(ops []*ir.Op) map[*ir.Value]bool {
	out := map[*ir.Value]bool{}
	for _, op := range ops {
		for _, v := range op.In {
			if v != nil {
				src, _, _ := group.Resolve(v)
				out[src] = true
			}
		}
	}
	return out
}

// depends reports whether a needs something of b; with indirect, only through a third node. Whatever needs something of b is on a level
// above b's, so the search stops at groups that are not. Positions of ops would not tell: a group may need b for one op, and be
// needed itself, long before b, for another.
func (fu *fuser) depends(a, b *node, indirect bool) bool {
	fu.search++
	a.seen = fu.search
	stack := []*node{a}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for p := range n.preds {
			p = p.find()
			if p == b {
				if n != a || !indirect {
					return true
				}
				continue
			}
			if p.seen != fu.search && p.level > b.level {
				p.seen = fu.search
				stack = append(stack, p)
			}
		}
	}
	return false
}

// order lays the groups out so that each follows what it needs, otherwise in program order of their
// last ops, and numbers them from 1.
func (fu *fuser) order() {
	var nodes []*node
	for _, n := range fu.all {
		if n.into == nil {
			nodes = append(nodes, n)
		}
	}
	last := fu.last
	slices.SortFunc(nodes, func(a, b *node) int { return last(a) - last(b) })
	placed := map[*node]bool{}
	var ops []*ir.Op
	for _, op := range fu.f.Ops {
		if fu.of[op] == nil { // views and literals first: they cost nothing and have no place
			op.Group = 0
		}
	}
	number := 0
	emitted := map[*ir.Op]bool{}
	var emit func(op *ir.Op)
	emit = func(op *ir.Op) { // an op of no group follows right before its first reader
		if emitted[op] {
			return
		}
		emitted[op] = true
		for _, v := range op.In {
			if v != nil && v.Op != nil && fu.of[v.Op] == nil {
				emit(v.Op)
			}
		}
		ops = append(ops, op)
	}
	var visit func(n *node)
	visit = func(n *node) {
		if placed[n] {
			return
		}
		placed[n] = true
		preds := make([]*node, 0, len(n.preds))
		for p := range n.preds {
			if p = p.find(); p != n && !slices.Contains(preds, p) {
				preds = append(preds, p)
			}
		}
		slices.SortFunc(preds, func(a, b *node) int { return last(a) - last(b) })
		for _, p := range preds {
			visit(p)
		}
		number++
		for _, op := range n.ops {
			op.Group = number
			emit(op)
		}
	}
	for _, n := range nodes {
		if fu.early(n) {
			visit(n)
		}
	}
	for _, n := range nodes {
		visit(n)
	}
	for _, op := range fu.f.Ops {
		emit(op)
	}
	fu.f.Ops = ops
}
