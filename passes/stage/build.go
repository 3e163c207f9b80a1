package stage

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/schedule"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// maker builds one function out of ops of another.
type maker struct {
	c    *pass.Context
	b    *ir.Builder
	from *ir.Func
	at   map[*ir.Value]*ir.Value // what a value of from is here
	own  map[*ir.Value]int       // number of a parameter in from
}

func newMaker(c *pass.Context, from *ir.Func, name string) *maker {
	m := &maker{c: c, b: ir.NewBuilder(&ir.Func{Name: name}), from: from, at: map[*ir.Value]*ir.Value{nil: nil}, own: map[*ir.Value]int{}}
	return m
}

// param is from's parameter p.
func (m *maker) param(p *ir.Value) *ir.Value {
	if v := m.at[p]; v != nil {
		return v
	}
	v := m.b.Param(p.Name, p.Type, p.Role)
	if v.Name != p.Name {
		panic(fmt.Sprintf("BUG: the name of parameter %q is taken in @%s", p.Name, m.b.F.Name))
	}
	v.Init, v.Sharding = p.Init, p.Sharding
	m.at[p], m.own[v] = v, p.Index
	return v
}

// copy appends op on what get gives for its operands.
func (m *maker) copy(op *ir.Op, get func(*ir.Value) *ir.Value) {
	in := make([]*ir.Value, len(op.In))
	for i, v := range op.In {
		if v != nil {
			in[i] = get(v)
		}
	}
	m.b.Loc = op.Loc
	outs := m.b.EmitN(op.Def, op.Attrs, in...)
	outs[0].Op.Why = op.Why
	for i, v := range op.Out {
		outs[i].Sharding = v.Sharding
		m.at[v] = m.b.Rename(outs[i], v.Name)
	}
}

// finish puts from's parameters first, in their order, and adds the function to module d.
func (m *maker) finish(d *ir.Module) {
	f := m.b.F
	slices.SortStableFunc(f.Params, func(x, y *ir.Value) int {
		i, ok := m.own[x]
		j, ok2 := m.own[y]
		if !ok || !ok2 {
			return rank(!ok) - rank(!ok2)
		}
		return i - j
	})
	for i, p := range f.Params {
		p.Index = i
	}
	d.Funcs = append(d.Funcs, f)
}

// send sends here-value x, which is v, to the stage of a part.
func (m *maker) send(x, v *ir.Value, stage int, tag, why string) {
	m.b.Loc = m.c.Loc(locOf(v))
	t := ops.Send(m.b, x, axis, stage, tag)
	t.Op.Why = why
	m.b.Rename(t, x.Name+".sent")
}

// receive receives v from a stage.
func (m *maker) receive(v *ir.Value, stage int, tag, why string) *ir.Value {
	m.b.Loc = m.c.Loc(locOf(v))
	x := m.b.Rename(ops.Recv(m.b, v.Type, axis, stage, tag), v.Name)
	x.Op.Why, x.Sharding = why, v.Sharding
	return x
}

// part is a function of a part in the making.
type part struct {
	*maker
	fl    *flow
	q     int
	phase int // 0 fwd, 1 bwd, 2 wgrad
	sums  map[*border]*ir.Value
	order []*border // of sums
	stash map[*ir.Value]*ir.Value
}

func (fl *flow) newPart(q, phase int) *part {
	kinds := []schedule.Kind{schedule.F, schedule.B, schedule.W}
	return &part{maker: newMaker(fl.k.c, fl.k.f, abi.ChunkFunc(kinds[phase], fl.k.chunkOf(q))), fl: fl, q: q, phase: phase,
		sums: map[*border]*ir.Value{}, stash: map[*ir.Value]*ir.Value{}}
}

// kept is the parameter in which the stash keeps v.
func (p *part) kept(v *ir.Value) *ir.Value {
	s := p.stash[v]
	if s == nil {
		name := abi.Stashed.Of(v.Name)
		if p.fl.k.table.Chunks > 1 {
			name = abi.Stashed.Of(fmt.Sprintf("%d/%s", p.fl.k.chunkOf(p.q), v.Name))
		}
		s = p.b.Param(name, v.Type, ir.Stash)
		s.Sharding = v.Sharding
		p.stash[v] = s
	}
	return s
}

func (p *part) stashName(v *ir.Value) string {
	if p.fl.k.table.Chunks > 1 {
		return abi.Stashed.Of(fmt.Sprintf("%d/%s", p.fl.k.chunkOf(p.q), v.Name))
	}
	return abi.Stashed.Of(v.Name)
}

// writes reports whether this function, and no earlier one of its part, has v to store it.
func (p *part) writes(v *ir.Value) bool { return p.fl.has(v, p.q) == (p.phase == 0) }

// get is v in this function.
func (p *part) get(v *ir.Value) *ir.Value {
	if x := p.at[v]; x != nil {
		return x
	}
	if p.phase > 0 && p.fl.kept[p.q][v] && (p.phase == 2 || p.fl.has(v, p.q)) {
		p.at[v] = p.kept(v)
		return p.at[v]
	}
	if v.Op == nil {
		return p.param(v)
	}
	if p.fl.k.core(v) && !(p.phase > 0 && (isView(v.Op) || light(v.Op))) {
		panic(fmt.Sprintf("BUG: %%%s is not in %s of part %d", v.Name, p.b.F.Name, p.q))
	}
	p.copy(v.Op, p.get)
	return p.at[v]
}

// receiveAll receives what other parts send to this function, and sends on what only passes through.
func (p *part) receiveAll(d int) {
	t := &p.fl.pass[d]
	list := p.fl.order(d, t.in[p.q])
	for _, v := range list {
		p.at[v] = p.receive(v, p.fl.k.stageOf(t.in[p.q][v]), p.tag(v, p.q), why(d, "from", t.in[p.q][v]))
	}
	for _, v := range list {
		p.sendOn(d, v)
	}
}

func (p *part) sendOn(d int, v *ir.Value) {
	for _, to := range p.fl.pass[d].out[p.q][v] {
		p.send(p.at[v], v, p.fl.k.stageOf(to), p.tag(v, to), why(d, "for", to))
	}
}

// sendBack sends v, which the forward stashed, from a place of its own in the stash: what the forward writes can be another
// micro-batch's while the message is on its way.
func (p *part) sendBack(v *ir.Value) {
	x := p.get(v)
	s := p.b.Param(abi.SentBack.Of(p.stashName(v)), v.Type, ir.Stash)
	s.Sharding = v.Sharding
	p.b.Update(s, x)
	p.sendOn(backward, v)
}

func why(d int, side string, q int) string {
	if d == forward {
		return fmt.Sprintf("activation %s part %d of the pipeline", side, q)
	}
	return fmt.Sprintf("gradient %s part %d of the pipeline", side, q)
}

// tag names v on its way to part q.
func (p *part) tag(v *ir.Value, q int) string {
	if p.fl.k.table.Chunks == 1 {
		return v.Name
	}
	return fmt.Sprintf("%d/%s", q, v.Name)
}

// run appends op, and what becomes of its results.
func (p *part) run(op *ir.Op) {
	p.copy(op, p.get)
	for _, v := range op.Out {
		p.sendOn(min(p.phase, backward), v)
		p.add(v)
	}
}

// add adds v to the sums over micro-batches that want it.
func (p *part) add(v *ir.Value) {
	for _, b := range p.fl.sums[v] {
		if p.sums[b] == nil {
			acc := p.b.Param(abi.Accum.Of(b.in().Name), b.in().Type, ir.State)
			acc.Sharding = b.out().Sharding
			p.sums[b] = acc
			p.order = append(p.order, b)
		}
		p.b.Loc = p.c.Loc(b.op.Loc)
		p.sums[b] = p.b.Rename(ops.Add(p.b, p.sums[b], p.get(v)), abi.Accum.Of(b.in().Name+".next"))
	}
}

// end appends the updates of sums and of the stash.
func (p *part) end() {
	k := p.fl.k
	for _, b := range p.order {
		p.b.Update(p.b.F.Param(abi.Accum.Of(b.in().Name)), p.sums[b])
	}
	var list []*ir.Value
	for v := range p.fl.kept[p.q] {
		if p.phase < 2 && p.writes(v) {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, k.program)
	for _, v := range list {
		x := p.get(v)
		p.b.Update(p.kept(v), x)
	}
	if f := p.b.F; len(f.Ops) > 0 || len(f.Results) > 0 {
		p.finish(k.c.Stages[k.stageOf(p.q)].Module)
	}
}

// forward makes fwd of part q.
func (fl *flow) forward(q int) {
	k, p := fl.k, fl.newPart(q, 0)
	p.receiveAll(forward)
	for _, op := range k.f.Ops {
		if at, ok := k.part[op]; ok && at == q && k.front[op] {
			p.run(op)
		}
	}
	seen := map[*ir.Value]bool{}
	for _, b := range k.borders {
		for _, a := range b.adds {
			if !k.core(a.v) && a.part == q && !seen[a.v] {
				seen[a.v] = true
				p.add(a.v)
			}
		}
	}
	for _, r := range k.f.Results {
		if k.kind[r.Value].micro && k.resultPart(r) == q {
			n := ir.Result{Name: r.Name, Value: p.get(r.Value)}
			if r.Updates != nil {
				n.Updates = p.param(r.Updates)
				k.home(r.Updates.Name, q)
			}
			p.b.F.Results = append(p.b.F.Results, n)
		}
	}
	p.end()
}

// resultPart is the part whose forward makes a result of each micro-batch.
func (k *cutter) resultPart(r ir.Result) int {
	if k.core(r.Value) {
		return k.part[r.Value.Op]
	}
	if r.Updates != nil && len(k.homes[r.Updates.Name]) > 0 {
		return k.homes[r.Updates.Name][0]
	}
	return k.parts - 1
}

// backward makes bwd of part q, and wgrad.
func (fl *flow) backward(q int) {
	k := fl.k
	p := fl.newPart(q, 1)
	p.receiveAll(backward)
	for _, v := range fl.order(backward, fronts(fl.pass[backward].out[q])) {
		if _, passed := fl.pass[backward].in[q][v]; fl.has(v, q) && !passed {
			p.sendBack(v)
		}
	}
	w := fl.newPart(q, 2)
	for _, op := range k.f.Ops {
		if at, ok := k.part[op]; !ok || at != q || !k.back(op) {
			continue
		}
		if fl.late[op] {
			w.run(op)
		} else {
			p.run(op)
		}
	}
	p.end()
	w.end()
}

// fronts are the keys of a traffic.
func fronts(out map[*ir.Value][]int) map[*ir.Value]int {
	set := map[*ir.Value]int{}
	for v := range out {
		set[v] = 0
	}
	return set
}
