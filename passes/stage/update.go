package stage

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// everywhere stands for all stages in a list of those that can have a value by themselves.
var everywhere []int

// updater makes the step functions of all stages out of U.
type updater struct {
	k      *cutter
	border map[*ir.Value]*border
	have   map[*ir.Value][]int // stages that can have a value without messages; everywhere, or a list that may be empty
	lives  map[string][]int    // stages on which a parameter lives, by name
	update map[*ir.Value]ir.Result
	each   []*stepMaker

	shared []*ir.Value         // scalars that travel between stages, in program order
	owners map[*ir.Value][]int // of those: the stages that have them by themselves
	behind map[*ir.Value]bool  // what is computed from those that all stages tell: it cannot travel with them
}

// stepMaker is the step function of one stage in the making.
type stepMaker struct {
	*maker
	u     *updater
	stage int
	want  map[*ir.Value]bool  // what the stage computes, or gets
	named []ir.Result         // results
	sends map[*ir.Value][]int // sums and parameters that other stages need, and which
	from  map[*ir.Value][]int // those that it gets, and from which
	got   map[*ir.Value]map[int]*ir.Value
}

// update makes step of every stage.
func (k *cutter) update() {
	u := &updater{k: k, border: map[*ir.Value]*border{}, have: map[*ir.Value][]int{}, lives: map[string][]int{},
		update: map[*ir.Value]ir.Result{}, owners: map[*ir.Value][]int{}, behind: map[*ir.Value]bool{}}
	for _, b := range k.borders {
		u.border[b.out()] = b
	}
	for s := range k.stages {
		u.each = append(u.each, &stepMaker{maker: newMaker(k.c, k.f, abi.FuncStep), u: u, stage: s, want: map[*ir.Value]bool{},
			sends: map[*ir.Value][]int{}, from: map[*ir.Value][]int{}, got: map[*ir.Value]map[int]*ir.Value{}})
	}
	for _, p := range k.f.Params {
		for _, q := range k.homes[p.Name] {
			u.live(p, k.stageOf(q))
		}
	}
	u.places()
	u.told()
	u.demand()
	slices.SortFunc(u.shared, k.program)
	for _, m := range u.each {
		m.build()
	}
}

// live records that p lives on a stage and reports whether that is new.
func (u *updater) live(p *ir.Value, stage int) bool {
	list := u.lives[p.Name]
	i, ok := slices.BinarySearch(list, stage)
	if !ok {
		u.lives[p.Name] = slices.Insert(list, i, stage)
	}
	return !ok
}

// places finds which stages can have the values of U, and what does not depend on data, without messages.
func (u *updater) places() {
	for _, p := range u.k.f.Params {
		if list := u.lives[p.Name]; len(list) > 0 {
			u.have[p] = list
		}
	}
	for _, op := range u.k.f.Ops {
		at := everywhere
		if b := u.border[op.Out[0]]; b != nil {
			at = u.adders(b)
		} else {
			for _, v := range op.In {
				if v != nil {
					at = meet(at, u.have[v])
				}
			}
		}
		behind := slices.ContainsFunc(op.In, func(v *ir.Value) bool { return u.behind[v] || u.owners[v] != nil })
		for _, v := range op.Out {
			if u.have[v], u.behind[v] = at, behind; u.owners[v] != nil {
				u.have[v], u.behind[v] = everywhere, false
			}
		}
	}
}

// told shares the scalars that every stage tells and some have, the loss and its count: what is computed from them alone is
// then computed everywhere.
func (u *updater) told() {
	for _, r := range u.k.f.Results {
		if at := u.have[r.Value]; r.Updates == nil && r.Value.Type.Elems() == 1 && !u.local(r) && len(at) > 0 && !u.k.kind[r.Value].micro {
			u.share(r.Value, at)
		}
	}
	u.places()
}

// share has v, which stages at have, travel to all.
func (u *updater) share(v *ir.Value, at []int) {
	if u.owners[v] == nil {
		u.owners[v] = at
		u.shared = append(u.shared, v)
		u.each[at[0]].need(v)
	}
}

// adders lists the stages that add to b's sum.
func (u *updater) adders(b *border) []int {
	out := []int{}
	for _, a := range b.adds {
		if s := u.k.stageOf(a.part); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// meet is what two lists of stages share.
func meet(a, b []int) []int {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	out := []int{}
	for _, s := range a {
		if slices.Contains(b, s) {
			out = append(out, s)
		}
	}
	return out
}

// demand works out what each stage computes: the named scalars, and the updates of what lives there. Optimizer state
// lives where it is read.
func (u *updater) demand() {
	for _, r := range u.k.f.Results {
		switch {
		case u.k.kind[r.Value].micro:
		case r.Updates != nil:
			u.update[r.Updates] = r
			for _, s := range u.lives[r.Updates.Name] {
				u.each[s].result(r)
			}
		case r.Value.Type.Elems() == 1 && !u.local(r):
			for _, m := range u.each {
				m.result(r)
			}
		default:
			s := 0
			if at := u.have[r.Value]; len(at) > 0 {
				s = at[0]
			}
			u.each[s].result(r)
		}
	}
	byName := map[string]*ir.Value{}
	for _, p := range u.k.f.Params {
		byName[p.Name] = p
	}
	for s, c := range u.k.c.Stages { // state that forwards and backwards read: the step that random numbers are counted by
		for _, f := range c.Module.Funcs {
			for _, p := range f.Params {
				of := byName[p.Name]
				if of != nil && p.Role == ir.State {
					u.each[s].lives(of)
				}
				if of != nil && (p.Role == ir.Param || p.Role == ir.Buffer) && !slices.Contains(u.lives[p.Name], s) {
					panic(fmt.Sprintf("BUG: @%s of stage %d reads %q, which lives on %v", f.Name, s, p.Name, u.lives[p.Name]))
				}
			}
		}
	}
	for _, p := range u.k.f.Params { // what no stage reads stays with the first, so that it is saved
		if len(u.lives[p.Name]) == 0 && !fed(p) {
			u.each[0].lives(p)
			u.each[0].param(p)
			u.k.home(p.Name, 0)
		}
	}
}

// local reports whether a result is told by the stage that makes it alone: gradients that are compared with others.
func (u *updater) local(r ir.Result) bool { return abi.Gradient.Has(r.Name) }

// result has the stage give r.
func (m *stepMaker) result(r ir.Result) {
	m.named = append(m.named, r)
	m.need(r.Value)
}

// lives makes parameter p, which had no place, live on the stage.
func (m *stepMaker) lives(p *ir.Value) {
	if !m.u.live(p, m.stage) {
		return
	}
	if r, ok := m.u.update[p]; ok {
		m.result(r)
	}
}

// need has the stage compute v, or get it.
func (m *stepMaker) need(v *ir.Value) {
	if v == nil || m.want[v] {
		return
	}
	m.want[v] = true
	if m.gets(v) {
		return
	}
	u := m.u
	at := u.have[v]
	here := at == nil || slices.Contains(at, m.stage)
	switch b := u.border[v]; {
	case !here && len(at) > 0 && v.Type.Elems() == 1 && !u.behind[v] && (v.Op == nil || !isView(v.Op)):
		u.share(v, at)
	case b != nil:
		for _, s := range u.adders(b) {
			if s != m.stage {
				m.get(v, s)
			}
		}
	case v.Op == nil && !here:
		m.get(v, at[0])
	case v.Op == nil:
		if len(at) == 0 {
			m.lives(v)
		}
	default:
		for _, x := range v.Op.In {
			m.need(x)
		}
	}
}

// gets reports whether the stage gets v from another with the shared scalars.
func (m *stepMaker) gets(v *ir.Value) bool {
	return m.u.owners[v] != nil && !slices.Contains(m.u.owners[v], m.stage)
}

// build appends the ops.
func (m *stepMaker) build() {
	k := m.u.k
	m.sendAll()
	turns := m.turns()
	for turn := range 3 {
		for _, op := range k.f.Ops {
			if turns[op] == turn {
				m.op(op)
			}
		}
		switch turn {
		case 0:
			m.receiveAll()
		case 1:
			m.exchange()
		}
	}
	for _, r := range k.f.Results {
		if slices.ContainsFunc(m.named, func(n ir.Result) bool { return n == r }) {
			n := ir.Result{Name: r.Name, Value: m.value(r.Value)}
			if r.Updates != nil {
				n.Updates = m.param(r.Updates)
			} else {
				n.Value = m.lasting(r.Value)
			}
			m.b.F.Results = append(m.b.F.Results, n)
		}
	}
	for _, b := range k.borders {
		if slices.Contains(m.u.adders(b), m.stage) {
			acc := m.sum(b)
			m.b.Loc = m.c.Loc(b.op.Loc)
			m.b.Update(acc, m.b.Rename(ops.Zeros(m.b, acc.Type), acc.Name+".next"))
		}
	}
	m.finish(k.c.Stages[m.stage].Module)
}

// turns says when ops run: 0 at once, 1 when the messages of other stages are there that the shared scalars need, 2 when
// those are there. What a stage can do alone, such as the collectives of its own gradients, waits for nobody.
func (m *stepMaker) turns() map[*ir.Op]int {
	early := map[*ir.Op]bool{}
	var cone func(v *ir.Value)
	cone = func(v *ir.Value) {
		if v == nil || v.Op == nil || early[v.Op] {
			return
		}
		early[v.Op] = true
		if m.u.border[v] == nil {
			for _, x := range v.Op.In {
				cone(x)
			}
		}
	}
	for _, v := range m.u.shared {
		if m.u.owners[v][0] == m.stage {
			cone(v)
		}
	}
	turns := map[*ir.Op]int{}
	late := func(v *ir.Value) bool {
		return v != nil && (m.gets(v) || len(m.from[v]) > 0 || v.Op != nil && turns[v.Op] > 0)
	}
	for _, op := range m.u.k.f.Ops {
		switch wait := slices.ContainsFunc(op.In, late) || slices.ContainsFunc(op.Out, late); {
		case wait && early[op]:
			turns[op] = 1
		case wait:
			turns[op] = 2
		}
	}
	return turns
}

// lasting is v, copied when it is (a view of) an accumulator, which is clear when the step ends.
func (m *stepMaker) lasting(v *ir.Value) *ir.Value {
	x := m.value(v)
	src := x
	for src.Op != nil && isView(src.Op) {
		src = src.Op.In[0]
	}
	if src.Op != nil || src.Role != ir.State {
		return x
	}
	m.b.Loc = m.c.Loc(locOf(v))
	kept := m.b.Rename(ops.AddScalar(m.b, x, 0), v.Name+".total")
	kept.Sharding = v.Sharding // whoever collects the result must know which part this is
	return kept
}

// sum is the accumulator of b on this stage.
func (m *stepMaker) sum(b *border) *ir.Value {
	name := abi.Accum.Of(b.in().Name)
	acc := m.b.F.Param(name)
	if acc == nil {
		acc = m.b.Param(name, b.in().Type, ir.State)
		acc.Sharding = b.out().Sharding
	}
	return acc
}

// value is v here; a parameter is added.
func (m *stepMaker) value(v *ir.Value) *ir.Value {
	if x := m.at[v]; x != nil || v == nil {
		return x
	}
	if v.Op != nil {
		panic(fmt.Sprintf("BUG: %%%s is not on stage %d", v.Name, m.stage))
	}
	return m.param(v)
}

// op appends op if the stage needs results of it.
func (m *stepMaker) op(op *ir.Op) {
	if !slices.ContainsFunc(op.Out, func(v *ir.Value) bool { return m.want[v] && !m.gets(v) && m.at[v] == nil }) {
		return
	}
	b := m.u.border[op.Out[0]]
	if b == nil {
		m.copy(op, m.value)
		return
	}
	var total *ir.Value
	for _, s := range m.u.adders(b) {
		x := m.got[b.out()][s]
		if s == m.stage {
			x = m.sum(b)
		}
		if total == nil {
			total = x
			continue
		}
		m.b.Loc = m.c.Loc(op.Loc)
		total = ops.Add(m.b, total, x)
	}
	if total.Op != nil {
		m.b.Rename(total, op.Out[0].Name)
		total.Sharding = op.Out[0].Sharding
	}
	m.at[op.Out[0]] = total
}
