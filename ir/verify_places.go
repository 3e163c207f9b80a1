package ir

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
)

// Once values have offsets, the calls are gone through with what each stretch of the arena holds: whatever is read must still be
// there, and nothing is written that a collective or transfer on its way or work of the same launch uses. So no plan of memory, and no change
// of the calls' order after it, is taken on trust.

// stretch is a part of the arena, in bytes, and the value that it holds.
type stretch struct {
	from, to int
	v        *Value
}

// contents are stretches in order that do not overlap.
type contents []stretch

// find is the first stretch that ends after at.
func (c contents) find(at int) int {
	i, _ := slices.BinarySearchFunc(c, at+1, func(s stretch, at int) int { return s.to - at })
	return i
}

// holds reports whether all bytes from from to to are v's.
func (c contents) holds(from, to int, v *Value) bool {
	for i := c.find(from); from < to; i++ {
		if i == len(c) || c[i].from > from || c[i].v != v {
			return false
		}
		from = c[i].to
	}
	return true
}

// other is a value apart from v that some byte from from to to is of; nil for none.
func (c contents) other(from, to int, v *Value) *Value {
	for i := c.find(from); i < len(c) && c[i].from < to; i++ {
		if c[i].v != v {
			return c[i].v
		}
	}
	return nil
}

// set makes the bytes from from to to those of v; nil of nobody.
func (c contents) set(from, to int, v *Value) contents {
	if from >= to {
		return c
	}
	i := c.find(from)
	j := i
	var parts []stretch
	for ; j < len(c) && c[j].from < to; j++ {
		if c[j].from < from {
			parts = append(parts, stretch{c[j].from, from, c[j].v})
		}
	}
	if v != nil {
		parts = append(parts, stretch{from, to, v})
	}
	if j > i && c[j-1].to > to {
		parts = append(parts, stretch{to, c[j-1].to, c[j-1].v})
	}
	return slices.Replace(c, i, j, parts...)
}

// place is the stretch in which v lies, and the value whose memory that is. Host storage lies behind the arena.
func place(v *Value) stretch {
	if v.Within != nil {
		v = v.Within
	}
	return stretch{v.Place(), v.Place() + v.Type.Bytes(), v}
}

// memory is what is known of the arena while the calls of a function are gone through.
type memory struct {
	f      *Func
	holds  contents
	flying map[int][]stretch // by collective or transfer on its way: what it reads and writes
	shared map[int]*Value    // by offset, the first of the constants that lie there: equal ones are stored once
	at     int
}

// verifyPlaces checks the offsets of a function with calls, when there are any.
func (f *Func) verifyPlaces() error {
	m := &memory{f: f, flying: map[int][]stretch{}, shared: map[int]*Value{}}
	planned := false
	for i := range f.Calls {
		for _, w := range f.Calls[i].Work {
			planned = planned || slices.ContainsFunc(w.Write, func(v *Value) bool { return place(v).from >= 0 })
		}
	}
	if !planned {
		return nil
	}
	for _, p := range f.Params {
		m.holds = m.holds.set(p.Offset, p.Offset+p.Type.Bytes(), p)
	}
	for i := range f.Calls {
		m.at = i
		if err := m.call(&f.Calls[i]); err != nil {
			return err
		}
	}
	return m.end()
}

func (m *memory) fault(format string, args ...any) error {
	return fmt.Errorf("@%s: call %d, %s, %s", m.f.Name, m.at, &m.f.Calls[m.at], fmt.Sprintf(format, args...))
}

func (m *memory) call(c *Call) error {
	for _, n := range c.Wait {
		delete(m.flying, n)
	}
	for k := range c.Work {
		if err := m.reads(&c.Work[k]); err != nil {
			return err
		}
		if c.InOrder {
			if err := m.writes(&c.Work[k]); err != nil {
				return err
			}
		}
	}
	if c.InOrder {
		return nil
	}
	if err := m.apart(c); err != nil {
		return err
	}
	for k := range c.Work {
		if err := m.writes(&c.Work[k]); err != nil {
			return err
		}
	}
	if c.On != "" {
		m.fly(&c.Work[0])
	}
	return nil
}

// fly notes what a collective or a transfer works on while it is on its way. An all_reduce has copied what it reads into its results.
func (m *memory) fly(w *Work) {
	busy := slices.Clone(w.Write)
	if w.Write == nil || w.Write[0].Op.Def.Rules.Collective != mesh.AllReduce {
		busy = append(busy, w.Read...)
	}
	for _, v := range busy {
		m.flying[m.at] = append(m.flying[m.at], place(v))
	}
}

// reads checks that what w reads is where it was written.
func (m *memory) reads(w *Work) error {
	for _, v := range w.Read {
		if now := m.lost(v); now != "" {
			return m.fault("reads %s &%d, where there is %s", ref(v), v.Offset, now)
		}
	}
	return nil
}

// lost says what is in the place of v, or "" when v is.
func (m *memory) lost(v *Value) string {
	p := place(v)
	if p.from == p.to {
		return ""
	}
	if p.from < 0 {
		return "no memory"
	}
	if constant(v) && m.shared[p.from] == nil {
		m.shared[p.from] = v
		if o := m.holds.other(p.from, p.to, nil); o != nil {
			return ref(o)
		}
		m.holds = m.holds.set(p.from, p.to, v)
	}
	if o := m.shared[p.from]; constant(v) && o.Type.Equal(v.Type) {
		p.v = o
	}
	if m.holds.holds(p.from, p.to, p.v) {
		return ""
	}
	if o := m.holds.other(p.from, p.to, p.v); o != nil {
		return ref(o)
	}
	return "nothing yet"
}

// writes notes what w writes.
func (m *memory) writes(w *Work) error {
	for _, v := range w.Write {
		p := place(v)
		switch {
		case p.from == p.to:
			continue
		case p.from < 0:
			return m.fault("writes %s, which has no memory", ref(v))
		}
		for _, n := range slices.Sorted(maps.Keys(m.flying)) {
			for _, s := range m.flying[n] {
				if p.from < s.to && s.from < p.to {
					return m.fault("writes %s &%d, which call %d still needs for %s: no call has waited for it", ref(v), p.from, n, ref(s.v))
				}
			}
		}
		if o := m.holds.other(p.from, p.to, p.v); o != nil && constant(o) {
			return m.fault("writes %s &%d over the constant %s", ref(v), p.from, ref(o))
		}
		m.holds = m.holds.set(p.from, p.to, p.v)
	}
	return nil
}

// apart checks that no work of a launch writes what other work of it uses.
func (m *memory) apart(c *Call) error {
	if len(c.Work) == 1 {
		return nil
	}
	var written contents
	mark := make([]Value, len(c.Work)) // stands for the work in written
	for k := range c.Work {
		for _, v := range c.Work[k].Write {
			p := place(v)
			if written.other(p.from, p.to, &mark[k]) != nil {
				return m.fault("writes %s &%d twice at once", ref(v), p.from)
			}
			written = written.set(p.from, p.to, &mark[k])
		}
	}
	for k := range c.Work {
		for _, v := range c.Work[k].Read {
			if p := place(v); written.other(p.from, p.to, &mark[k]) != nil {
				return m.fault("reads %s &%d, where it writes at the same time", ref(v), p.from)
			}
		}
	}
	return nil
}

// end checks the results: updates that were not made in place are copied to their parameters, in order.
func (m *memory) end() error {
	for _, r := range m.f.Results {
		for _, v := range roots(r.Value, nil) {
			if constant(v) && v.Offset < 0 {
				continue // written into expressions, or virtual
			}
			if now := m.lost(v); now != "" {
				return fmt.Errorf("@%s: result %s &%d is lost: when all calls are done, there is %s", m.f.Name, ref(v), v.Offset, now)
			}
		}
		if p := r.Updates; p != nil && r.Value.Offset != p.Offset {
			m.holds = m.holds.set(p.Offset, p.Offset+p.Type.Bytes(), p)
		}
	}
	return nil
}
