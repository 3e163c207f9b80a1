package interp

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
)

// A function with calls can be run by them, on memory: what a call reads must lie where its value has its place, and what it writes
// is over what lay there. A collective or a transfer ends at a moment that the seed chooses, between its call and the first that waits for
// it, each stream in order; work that runs at once is done in an order that the seed chooses. So a wait that is missing, or memory that is
// used twice, shows as an error that tells the call, or as other results, for one seed or another.

// cell is what lies in a stretch of the arena: the contents of a value, or of the part'th operand of an assembly.
type cell struct {
	from, to int
	owner    *ir.Value // whose stretch it is: v, or the value that v is a part of
	v        *ir.Value
	part     int
	x        *ir.Array
	pending  bool // a call that makes it is on its way
}

// flight is a collective or a transfer on its way.
type flight struct {
	call int
	on   string
	read []*cell // must stay what they are
	out  []*ir.Array
	held []*cell // of results that hold the operands meanwhile; nil: results are written in the end
	w    *ir.Work
	due  int // the call before which it ends, unless a call waits for it or for one behind it on its stream
}

// arena does the calls of one function on one rank.
type arena struct {
	o      Options
	f      *ir.Func
	rank   int
	b      *board
	at     string
	r      *rand.Rand
	cells  []*cell
	groups map[int][]*ir.Op
	places map[*ir.Value]int // of values without an offset: stretches of their own
	top    int               // where the next of these begins: behind the arena and host storage (ir.Value.Place)
	flying []*flight         // in the order of their calls
	call   int
}

// runCalls does the calls of f.
func (o Options) runCalls(f *ir.Func, e env, rank int, b *board, at string) error {
	m := &arena{o: o, f: f, rank: rank, b: b, at: at, r: rand.New(rand.NewPCG(o.Shuffle, uint64(rank))), groups: map[int][]*ir.Op{}, places: map[*ir.Value]int{}, top: 1 << 58}
	for _, op := range f.Ops {
		if op.Group != 0 {
			m.groups[op.Group] = append(m.groups[op.Group], op)
		}
	}
	for _, p := range f.Params {
		if x := e[p]; x != nil {
			m.store(p, 0, x)
		}
	}
	for i := range f.Calls {
		m.call = i
		if err := m.do(&f.Calls[i]); err != nil {
			return fmt.Errorf("%s call %d, %s: %w", at, i, &f.Calls[i], err)
		}
	}
	m.call = len(f.Calls)
	for len(m.flying) > 0 {
		if err := m.land(m.flying[0]); err != nil {
			return fmt.Errorf("%s %w", at, err)
		}
	}
	for _, r := range f.Results {
		x, err := m.eval(r.Value, map[*ir.Value]*ir.Array{}, nil)
		if err != nil {
			return fmt.Errorf("%s, when all calls are done: %w", at, err)
		}
		e[r.Value] = x
	}
	return nil
}

// place is the stretch of v, and whose it is.
func (m *arena) place(v *ir.Value) (from, to int, owner *ir.Value) {
	if v.Within != nil {
		v = v.Within
	}
	from = v.Place()
	if from < 0 {
		at, known := m.places[v]
		if !known {
			at = m.top
			m.places[v] = at
			m.top += v.Type.Bytes()
		}
		from = at
	}
	return from, from + v.Type.Bytes(), v
}

// store puts x where v, or a part of it, lies, and drops what it is over. Parts of one value are beside one another.
func (m *arena) store(v *ir.Value, part int, x *ir.Array) *cell {
	from, to, owner := m.place(v)
	m.cells = slices.DeleteFunc(m.cells, func(c *cell) bool {
		if c.owner == owner {
			return c.v == v && c.part == part
		}
		return c.from < to && from < c.to
	})
	c := &cell{from, to, owner, v, part, x, false}
	m.cells = append(m.cells, c)
	return c
}

// load is what lies where v does, which must be v, or nil where it is put together of parts.
func (m *arena) load(v *ir.Value, part int) (*cell, error) {
	from, to, owner := m.place(v)
	now := "nothing yet"
	for _, c := range m.cells {
		switch {
		case c.v == v && c.part == part && c.pending:
			return nil, fmt.Errorf("reads %%%s, which a call makes that nothing has waited for", v.Name)
		case c.v == v && c.part == part:
			return c, nil
		case c.owner != owner && c.from < to && from < c.to:
			now = "%" + c.v.Name
		}
	}
	return nil, fmt.Errorf("reads %%%s, but its place holds %s", v.Name, now)
}

// eval is the contents of v: as computed in this call, in memory, or of what it is a view of. The cells that were read are added to read,
// unless that is nil.
func (m *arena) eval(v *ir.Value, local map[*ir.Value]*ir.Array, read *[]*cell) (*ir.Array, error) {
	if v == nil || local[v] != nil {
		return local[v], nil
	}
	if v.Op != nil && v.Op.Group == 0 { // a view, or a constant
		in := make([]*ir.Array, len(v.Op.In))
		for i, x := range v.Op.In {
			var err error
			if in[i], err = m.eval(x, local, read); err != nil {
				return nil, err
			}
		}
		out, err := m.evaluate(v.Op, in)
		if err != nil {
			return nil, err
		}
		return out[v.Index], nil
	}
	if v.Op != nil && m.assembled(v) {
		return m.assemble(v, read)
	}
	c, err := m.load(v, 0)
	if err != nil {
		return nil, err
	}
	if read != nil {
		*read = append(*read, c)
	}
	return c.x, nil
}

// evaluate is one op, rounded as the function's are.
func (m *arena) evaluate(op *ir.Op, in []*ir.Array) ([]*ir.Array, error) {
	out, err := Op(op, in)
	if err != nil {
		return nil, err
	}
	for i := range out {
		if !m.o.Exact {
			out[i] = rounded(out[i])
		}
	}
	return out, nil
}

// assembled reports whether calls of their own, or those that make its parts within it, put v together.
func (m *arena) assembled(v *ir.Value) bool {
	for i := range m.f.Calls {
		for _, w := range m.f.Calls[i].Work {
			if w.Group == v.Op.Group && w.Part == 0 {
				return false
			}
		}
	}
	return true
}

// assemble is v of its parts.
func (m *arena) assemble(v *ir.Value, read *[]*cell) (*ir.Array, error) {
	in := make([]*ir.Array, len(v.Op.In))
	for i, x := range v.Op.In {
		if m.within(x, v) {
			var err error
			if in[i], err = m.eval(x, map[*ir.Value]*ir.Array{}, read); err != nil {
				return nil, err
			}
			continue
		}
		c, err := m.load(v, i+1)
		if err != nil {
			return nil, err
		}
		if in[i] = c.x; read != nil {
			*read = append(*read, c)
		}
	}
	out, err := m.evaluate(v.Op, in)
	if err != nil {
		return nil, err
	}
	return out[v.Index], nil
}

// within reports whether x is a view of a value that is made as a part of v.
func (m *arena) within(x, v *ir.Value) bool {
	for x.Op != nil && x.Op.Group == 0 && len(x.Op.In) > 0 {
		x = x.Op.In[0]
	}
	return x.Within == v
}

// do is one call: calls on streams that end, among them those that it waits for, then its work.
func (m *arena) do(c *ir.Call) error {
	for _, n := range c.Wait {
		for k := slices.IndexFunc(m.flying, func(f *flight) bool { return f.call == n }); k >= 0; k = slices.IndexFunc(m.flying, func(f *flight) bool { return f.call == n }) {
			first := slices.IndexFunc(m.flying, func(f *flight) bool { return f.on == m.flying[k].on })
			if err := m.land(m.flying[first]); err != nil {
				return err
			}
		}
	}
	for _, f := range slices.Clone(m.flying) {
		first := slices.IndexFunc(m.flying, func(g *flight) bool { return g.on == f.on })
		if first >= 0 && m.flying[first] == f && f.due <= m.call {
			if err := m.land(f); err != nil {
				return err
			}
		}
	}
	if c.On != "" {
		return m.fly(c)
	}
	order := make([]int, len(c.Work))
	for i := range order {
		order[i] = i
	}
	if !c.InOrder {
		m.r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for _, k := range order {
		if err := m.kernel(&c.Work[k]); err != nil {
			return err
		}
	}
	return nil
}

// kernel does work that is no collective.
func (m *arena) kernel(w *ir.Work) error {
	list, local := m.groups[w.Group], map[*ir.Value]*ir.Array{}
	if w.Part == ir.PartFill {
		return nil // the assembly's own evaluation fills what its operands leave
	}
	if w.Part > 0 {
		x, err := m.eval(list[0].In[w.Part-1], local, nil)
		if err == nil {
			m.store(list[0].Out[0], w.Part, x)
		}
		return err
	}
	for _, op := range list {
		in := make([]*ir.Array, len(op.In))
		for i, v := range op.In {
			var err error
			if in[i], err = m.eval(v, local, nil); err != nil {
				return err
			}
		}
		out, err := m.evaluate(op, in)
		if err != nil {
			return err
		}
		for i, v := range op.Out {
			local[v] = out[i]
		}
		m.watch(op, out)
	}
	for _, v := range w.Write {
		m.store(v, 0, local[v])
	}
	return nil
}

func (m *arena) watch(op *ir.Op, out []*ir.Array) {
	if m.o.Watch != nil {
		m.b.mu.Lock()
		m.o.Watch(m.rank, op, out)
		m.b.mu.Unlock()
	}
}

// outOf is what an op that runs beside the kernels makes: with other ranks, or of what it copies.
func (m *arena) outOf(op *ir.Op, in []*ir.Array) ([]*ir.Array, error) {
	if op.Def.Rules.Transfer != ir.NoTransfer {
		return m.evaluate(op, in)
	}
	out, err := m.b.do(call{m.rank, op, m.at}, m.o.Micro, in)
	for i := range out {
		if !m.o.Exact {
			out[i] = rounded(out[i])
		}
	}
	return out, err
}

// fly begins a collective or a transfer. Ranks meet here, in the order of the calls, which is proven to end; what they agreed on is in memory
// when it lands. An all_reduce works in its results, into which its operands are copied first; others read their operands until they land.
func (m *arena) fly(c *ir.Call) error {
	w := &c.Work[0]
	op := m.groups[w.Group][0]
	f := &flight{call: m.call, on: c.On, w: w, due: len(m.f.Calls)}
	if m.r.IntN(2) == 0 { // else as late as it may
		f.due = m.call + 1 + m.r.IntN(len(m.f.Calls)-m.call)
	}
	in := make([]*ir.Array, len(op.In))
	for i, v := range op.In {
		var err error
		if in[i], err = m.eval(v, map[*ir.Value]*ir.Array{}, &f.read); err != nil {
			return err
		}
	}
	out, err := m.outOf(op, in)
	if err != nil {
		return err
	}
	m.watch(op, out)
	f.out = out
	if op.Def.Rules.Collective == mesh.AllReduce {
		f.read = nil
		for _, v := range op.Out {
			held := m.store(v, 0, nil)
			held.pending = true
			f.held = append(f.held, held)
		}
	}
	m.flying = append(m.flying, f)
	return nil
}

// land ends a collective or a transfer.
func (m *arena) land(f *flight) error {
	m.flying = slices.DeleteFunc(m.flying, func(g *flight) bool { return g == f })
	for _, c := range append(slices.Clone(f.read), f.held...) {
		if !slices.Contains(m.cells, c) {
			return fmt.Errorf("%%%[2]s is overwritten while call %[1]d, which needs it, is still running", f.call, c.v.Name)
		}
	}
	for i, v := range m.groups[f.w.Group][0].Out {
		if f.held != nil {
			f.held[i].x, f.held[i].pending = f.out[i], false
		} else {
			m.store(v, 0, f.out[i])
		}
	}
	return nil
}

// shuffled is the ops of f in another order, by a seed: any op whose operands are there may be next, but collectives, and what
// else has effects, stay in their order.
func shuffled(f *ir.Func, r *rand.Rand) []*ir.Op {
	left, done := slices.Clone(f.Ops), map[*ir.Op]bool{}
	var out []*ir.Op
	for len(left) > 0 {
		var ready []int
		fixed := false
		for i, op := range left {
			effect := op.Def.Rules.Effect || op.Def.Rules.Collective != ""
			if !slices.ContainsFunc(op.In, func(v *ir.Value) bool { return v != nil && v.Op != nil && !done[v.Op] }) && !(effect && fixed) {
				ready = append(ready, i)
			}
			fixed = fixed || effect
		}
		i := ready[r.IntN(len(ready))]
		out, done[left[i]] = append(out, left[i]), true
		left = slices.Delete(left, i, i+1)
	}
	return out
}
