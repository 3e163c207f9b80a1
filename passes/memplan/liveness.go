package memplan

import (
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// block is a stretch of memory: one value's buffer, or the buffers of a collective's tensors side by side.
type block struct {
	bytes       int
	first, last int // calls between which it holds something
	offset      int
	parts       []*ir.Value
	at          []int // offset of each part within the block
}

type funcPlan struct {
	p      *planner
	f      *ir.Func
	groups map[int]group.Group
	where  map[*ir.Value]int       // the first call that makes a value
	reads  map[*ir.Value][]int     // calls that read it, ascending
	block  map[*ir.Value]*block    // storage of values that are not fixed
	same   map[*ir.Value]*ir.Value // value whose storage it takes over
	result map[*ir.Value]bool      // must last to the end
	blocks []*block                // in the arena
	host   []*block                // in host storage
	spaces map[int]*group.Space    // by group number; nil for those that have none
}

func newFuncPlan(p *planner, f *ir.Func) *funcPlan {
	fn := &funcPlan{p: p, f: f, groups: map[int]group.Group{}, where: map[*ir.Value]int{}, reads: map[*ir.Value][]int{},
		block: map[*ir.Value]*block{}, spaces: map[int]*group.Space{}, same: map[*ir.Value]*ir.Value{}, result: map[*ir.Value]bool{}}
	for _, g := range group.List(f) {
		fn.groups[g.ID] = g
	}
	return fn
}

// group is what call n does.
func (fn *funcPlan) group(n int) group.Group { return fn.groups[fn.f.Calls[n].Work[0].Group] }

// storage follows take-overs to the value that owns the memory of v.
func (fn *funcPlan) storage(v *ir.Value) *ir.Value {
	for fn.same[v] != nil {
		v = fn.same[v]
	}
	return v
}

// space is the iteration space of a fused group, nil for other kinds of kernel.
func (fn *funcPlan) space(g group.Group) *group.Space {
	s, known := fn.spaces[g.ID]
	if !known {
		s, _ = group.Build(g.Ops)
		fn.spaces[g.ID] = s
	}
	return s
}

// liveness finds who makes and reads what, then decides which values share storage.
func (fn *funcPlan) liveness() {
	for n := range fn.f.Calls {
		w := &fn.f.Calls[n].Work[0]
		for _, v := range w.Read {
			fn.reads[v] = append(fn.reads[v], n)
		}
		for _, v := range w.Write {
			for _, made := range []*ir.Value{v, v.Within} {
				if _, begun := fn.where[made]; !begun && made != nil {
					fn.where[made] = n
				}
			}
		}
	}
	for _, r := range fn.f.Results {
		if r.Updates == nil {
			src, _, _ := group.Resolve(r.Value)
			fn.result[src] = true
		}
	}
	fn.inFlight()
	for _, op := range cleared(fn.f) { // the sum takes the place of its operand, which is cleared behind the last reader
		for i, v := range op.Out {
			param := op.In[i]
			fn.same[v] = param
			fn.reads[param] = append(fn.reads[param], fn.reads[v]...)
			slices.Sort(fn.reads[param])
		}
	}
	fn.updates()
	for _, g := range group.List(fn.f) {
		op := g.Ops[0]
		if op.Def.Rules.Collective == mesh.AllReduce {
			fn.bucket(fn.where[op.Out[0]], op)
			continue
		}
		for _, op := range g.Ops {
			for _, v := range op.Out {
				if n, made := fn.where[v]; made && v.Within == nil {
					fn.place(n, g, v)
				}
			}
		}
	}
}

// inFlight keeps what a collective or a transfer reads and writes alive while it may be running: until a call waits for it, or to the end.
func (fn *funcPlan) inFlight() {
	over := map[int]int{} // call on a stream -> the call that waits for it
	for n := range fn.f.Calls {
		for _, w := range fn.f.Calls[n].Wait {
			over[w] = n
		}
	}
	for n := range fn.f.Calls {
		if fn.f.Calls[n].On == "" {
			continue
		}
		w := &fn.f.Calls[n].Work[0]
		end := len(fn.f.Calls)
		if !slices.ContainsFunc(w.Write, func(v *ir.Value) bool { return len(fn.reads[v]) > 0 }) {
			for _, v := range w.Write {
				fn.reads[v] = append(fn.reads[v], end)
			}
		}
		until, waited := over[n]
		if !waited {
			until = end
		}
		if fn.group(n).Ops[0].Def.Rules.Collective == mesh.AllReduce {
			continue // in place: its operands become its results
		}
		for _, v := range w.Read {
			fn.reads[v] = append(fn.reads[v], until)
			slices.Sort(fn.reads[v])
		}
	}
}

// updates makes new contents of parameters appear in place when every reader of the old contents runs
// before, or reads element for element in the same kernel; other updates become copies at the end.
func (fn *funcPlan) updates() {
	for _, r := range fn.f.Results {
		if r.Updates == nil || r.Value == r.Updates {
			continue
		}
		v := group.Alias(r.Value)
		if fn.inPlace(v, r.Updates) && fn.p.c.May(v, "made in the place of %%%s", r.Updates.Name) {
			fn.same[v] = r.Updates
			continue
		}
		src, _, _ := group.Resolve(r.Value)
		fn.result[src] = true
		fn.p.c.Remark(r.Updates, "is updated by a copy: its old contents are still read when the new ones are made")
	}
}

func (fn *funcPlan) inPlace(v, param *ir.Value) bool {
	made, ok := fn.where[v]
	if !ok || fn.same[v] != nil || fn.result[v] || v.Type.Bytes() != param.Type.Bytes() {
		return false
	}
	if op := fn.group(made).Ops[0]; op.Def.Rules.Collective == mesh.AllReduce && len(op.Out) > 1 {
		return false // they lie side by side
	}
	for _, pos := range fn.reads[param] {
		if pos > made || pos == made && !fn.pointwise(fn.group(made), param, v) {
			return false
		}
	}
	return fn.writesOnce(fn.group(made), v)
}

// writesOnce reports whether the group's kernel writes v in one pass, so that it may overwrite what it reads.
func (fn *funcPlan) writesOnce(g group.Group, v *ir.Value) bool {
	if impl := group.Impl(g.Ops[0]); impl.Kind == kir.Template || impl.Kind == kir.Assemble || g.Ops[0].Def.Rules.Collective != "" {
		return true // nothing of these reads the buffer: pointwise has said so
	}
	s := fn.space(g)
	return s != nil && s.Level[v] == group.Full
}

// pointwise reports whether the fused kernel g reads v only at the index that it writes, one pass, dense, and never
// after it has stored out there: a result is stored where it is made, an operand loaded where it is first used.
func (fn *funcPlan) pointwise(g group.Group, v, out *ir.Value) bool {
	if impl := group.Impl(g.Ops[0]); impl.Kind == kir.Template && impl.InPlace > 0 {
		return overwrites(g.Ops[0], impl.InPlace-1, v) && out == g.Ops[0].Out[impl.InPlaceOut]
	}
	made := false
	for _, op := range g.Ops {
		k := group.Impl(op).Kind
		if k != kir.Pointwise && k != kir.View && k != kir.Reduce {
			return false
		}
		if k == kir.Reduce {
			if s := fn.space(g); s == nil || s.Level[op.Out[0]] != group.Acc {
				return false
			}
		}
		for _, o := range op.In {
			src, acc, ok := group.OperandAccess(op, o)
			if src == v && (!ok || made || !acc.IsDense()) {
				return false
			}
		}
		made = made || slices.Contains(op.Out, out)
	}
	return true
}

// overwrites reports whether a template, which may put its result in the place of operand i, reads v as that and not otherwise.
func overwrites(op *ir.Op, i int, v *ir.Value) bool {
	for k, o := range op.In {
		if o == nil {
			continue
		}
		if src, _, ok := group.Resolve(o); (src == v) != (k == i) || k == i && (!ok || group.Alias(o) != v) {
			return false
		}
	}
	return true
}

// place gives v a block of its own, or lets it take over that of an input which ends here.
func (fn *funcPlan) place(pos int, g group.Group, v *ir.Value) {
	if fn.same[v] != nil {
		return
	}
	if fn.mayTakeOver(g, v) {
		for _, in := range g.Inputs() {
			owner := fn.storage(in)
			b := fn.block[owner]
			if b != nil && len(b.parts) == 1 && b.last == pos && in.Type.Bytes() == v.Type.Bytes() && !fn.result[in] &&
				b.parts[0].Type.Bytes() == v.Type.Bytes() && fn.pointwise(g, in, v) && fn.lastRead(in) == pos &&
				fn.p.c.May(v, "made in the place of %%%s", in.Name) {
				fn.same[v] = owner
				b.last = max(b.last, fn.lastRead(v))
				return
			}
		}
	}
	first, last := pos, fn.lastRead(v)
	if v.Alone {
		first, last = 0, len(fn.f.Calls)
	}
	fn.newBlock([]*ir.Value{v}, first, last)
}

// mayTakeOver reports whether the kernel of g may write v where it reads something else: fused ones that write v in full, and
// where memory is short, templates that say so.
func (fn *funcPlan) mayTakeOver(g group.Group, v *ir.Value) bool {
	if s := fn.space(g); s != nil {
		return s.Level[v] == group.Full
	}
	op := g.Ops[0]
	impl := group.Impl(op)
	if !fn.p.c.Traits().InPlace || impl.Kind != kir.Template || impl.InPlace == 0 || v != op.Out[impl.InPlaceOut] {
		return false
	}
	in := op.In[impl.InPlace-1]
	return in != nil && in.Type.DType == v.Type.DType
}

// lastRead is the position at which v, under its own name, is last needed.
func (fn *funcPlan) lastRead(v *ir.Value) int {
	if fn.result[v] {
		return len(fn.f.Calls)
	}
	last := fn.where[v]
	if r := fn.reads[v]; len(r) > 0 {
		last = max(last, r[len(r)-1])
	}
	return last
}

func (fn *funcPlan) newBlock(parts []*ir.Value, first, last int) *block {
	b := &block{parts: parts, first: first, last: last}
	for _, v := range parts {
		b.at = append(b.at, b.bytes)
		b.bytes += align(v.Type.Bytes())
		fn.block[v] = b
	}
	if parts[0].OnHost() {
		b.bytes = (b.bytes + abi.HostAlign - 1) &^ (abi.HostAlign - 1)
		fn.host = append(fn.host, b)
	} else {
		fn.blocks = append(fn.blocks, b)
	}
	return b
}

// bucket lays the results of a collective side by side and lets each operand be made right there when
// nothing else needs it afterwards.
func (fn *funcPlan) bucket(pos int, op *ir.Op) {
	if param := fn.same[op.Out[0]]; param != nil { // reduced where it is, or stays
		in := group.Alias(op.In[0])
		if old := fn.ends(in, pos); old != nil && !slices.ContainsFunc(fn.reads[param], func(r int) bool { return r >= old.first }) {
			fn.drop(old, in, op.Out[0])
		}
		return
	}
	last := pos
	for _, v := range op.Out {
		last = max(last, fn.lastRead(v))
	}
	b := fn.newBlock(slices.Clone(op.Out), pos, last)
	for i, v := range op.In {
		in := group.Alias(v)
		old := fn.ends(in, pos)
		if old == nil || slices.Index(op.In, v) != i || !fn.p.c.May(v, "made where it is reduced") {
			continue
		}
		fn.drop(old, in, op.Out[i])
		b.first = min(b.first, old.first)
	}
}

// ends is the block of v alone, when nothing needs it after pos; else nil.
func (fn *funcPlan) ends(v *ir.Value, pos int) *block {
	b := fn.block[v]
	if b == nil || fn.same[v] != nil || len(b.parts) != 1 || b.parts[0] != v || fn.result[v] || b.last != pos || fn.lastRead(v) != pos {
		return nil
	}
	return b
}

// drop has v, which had block b, be made in the place of another value.
func (fn *funcPlan) drop(b *block, v, place *ir.Value) {
	fn.blocks = slices.DeleteFunc(fn.blocks, func(x *block) bool { return x == b })
	delete(fn.block, v)
	fn.same[v] = place
}

// pack finds offsets from base on and returns how many bytes the blocks span.
func pack(blocks []*block, base int) int {
	order := slices.Clone(blocks)
	slices.SortStableFunc(order, func(a, b *block) int {
		if a.bytes != b.bytes {
			return b.bytes - a.bytes
		}
		return a.first - b.first
	})
	top := 0
	var placed []*block // by offset
	for _, b := range order {
		at := 0
		for _, q := range placed {
			if q.first > b.last || b.first > q.last {
				continue
			}
			if at+b.bytes <= q.offset {
				break
			}
			at = max(at, q.offset+q.bytes)
		}
		b.offset = at
		i, _ := slices.BinarySearchFunc(placed, b, func(x, y *block) int { return x.offset - y.offset })
		placed = slices.Insert(placed, i, b)
		top = max(top, at+b.bytes)
	}
	for _, b := range blocks {
		for i, v := range b.parts {
			v.Offset = base + b.offset + b.at[i]
		}
	}
	return top
}

// finish writes the offsets of values that share storage, and the copies that remain.
func (fn *funcPlan) finish() {
	for v := range fn.same {
		v.Offset = fn.storage(v).Offset
	}
	for _, op := range fn.f.Ops {
		for _, v := range op.Out {
			if p, within := group.Within(v); within {
				v.Offset = p.In.Offset + p.Access.Offset*v.Type.DType.Size()
			}
			if src := group.Alias(v); src != v {
				v.Offset = src.Offset
			}
		}
	}
	for _, r := range fn.f.Results {
		if r.Updates != nil && r.Value.Offset != r.Updates.Offset {
			fn.p.plan.Copies[fn.f.Name] = append(fn.p.plan.Copies[fn.f.Name],
				pass.Copy{From: r.Value.Offset, To: r.Updates.Offset, Bytes: r.Value.Type.Bytes()})
		}
	}
}
