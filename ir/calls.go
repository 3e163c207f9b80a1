package ir

import (
	"fmt"
	"slices"
	"strings"
)

// Call is one entry of what a function does when it runs, in order: a launch of one kernel or of several that are launched
// together, or a collective that starts here and runs beside later calls. The schedule pass makes the calls of a function, memplan
// reads them, codegen/rank prints them. A transfer to or from host storage is one that runs beside later calls, too.
type Call struct {
	// Work is what it runs: one kernel or collective, or several kernels in one launch.
	Work []Work
	// InOrder says that the parts of Work run one after the other, so that one may read what an earlier one writes; otherwise they
	// run at the same time.
	InOrder bool
	// On is the stream of a collective: its mesh axis, such as dp; for a message to coordinate 1 of axis pp it is pp>1, from there
	// pp<1; what is offloaded goes on host>, what is fetched on host<. Calls on one stream run in order. "" is the stream of the kernels.
	On string
	// Wait lists the calls on other streams that must have ended before this one starts, by their position in Func.Calls, ascending.
	Wait []int
}

// Work is one kernel's, template's or collective's worth.
type Work struct {
	Group int      // Op.Group of the ops that it carries out
	Part  int      // 0: the whole group. Of an op that joins its operands (concat, pad) the kernel that writes operand Part-1 alone, or PartFill
	Read  []*Value // what it reads, each once
	Write []*Value // what it writes, each once; one with Within is a part of that value
	// Lowered keeps the kernel that passes and printers make of it.
	Lowered any
}

// PartFill is the Work.Part that fills an assembly before its operands are put there.
const PartFill = -1

// name is how the text form calls the work.
func (w *Work) name() string {
	switch w.Part {
	case 0:
		return fmt.Sprintf("@%d", w.Group)
	case PartFill:
		return fmt.Sprintf("@%d/fill", w.Group)
	}
	return fmt.Sprintf("@%d/%d", w.Group, w.Part)
}

// printCalls prints the calls behind the function's body.
func (f *Func) printCalls(b *strings.Builder) {
	b.WriteString(" calls {\n")
	for i := range f.Calls {
		fmt.Fprintf(b, "  %d: %s\n", i, &f.Calls[i])
	}
	b.WriteByte('}')
}

// String prints the call on one line, without its number.
func (c *Call) String() string {
	var b strings.Builder
	for i := range c.Work {
		w := &c.Work[i]
		switch {
		case i > 0 && c.InOrder:
			b.WriteString("; ")
		case i > 0:
			b.WriteString(" + ")
		}
		fmt.Fprintf(&b, "%s (%s) -> (%s)", w.name(), refs(w.Read, false), refs(w.Write, true))
	}
	if c.On != "" {
		b.WriteString(" on " + c.On)
	}
	for i, n := range c.Wait {
		fmt.Fprintf(&b, "%s %d", [...]string{" after", ","}[min(i, 1)], n)
	}
	return b.String()
}

// refs lists values; of those that are written, with what schedule decided about their memory.
func refs(list []*Value, written bool) string {
	parts := make([]string, len(list))
	for i, v := range list {
		if parts[i] = ref(v); written && v.Within != nil {
			parts[i] += " in " + ref(v.Within)
		}
		if written && v.Alone {
			parts[i] += " alone"
		}
	}
	return strings.Join(parts, ", ")
}

// Unschedule takes back what schedule decided.
func (f *Func) Unschedule() {
	f.Calls = nil
	for _, op := range f.Ops {
		for _, v := range op.Out {
			v.Within, v.Alone = nil, false
		}
	}
}

// cloneCalls copies calls, with the values that m has for theirs.
func cloneCalls(calls []Call, m map[*Value]*Value) []Call {
	if calls == nil {
		return nil
	}
	through := func(list []*Value) []*Value {
		out := make([]*Value, len(list))
		for i, v := range list {
			out[i] = m[v]
		}
		return out
	}
	out := make([]Call, len(calls))
	for i, c := range calls {
		c.Wait, c.Work = slices.Clone(c.Wait), slices.Clone(c.Work)
		for k := range c.Work {
			w := &c.Work[k]
			w.Read, w.Write, w.Lowered = through(w.Read), through(w.Write), nil
		}
		out[i] = c
	}
	return out
}

// calls reads what printCalls prints.
func (p *parser) calls() []Call {
	p.want("{")
	list := []Call{}
	for !p.try("}") {
		if n := p.integer(); n != len(list) {
			p.fail("call %d has number %d", len(list), n)
		}
		p.want(":")
		list = append(list, p.call())
	}
	return list
}

func (p *parser) call() Call {
	c := Call{Work: []Work{p.work()}}
	between := ""
	for _, s := range []string{"+", ";"} {
		if between == "" && p.try(s) {
			between = s
		}
	}
	c.InOrder = between == ";"
	for more := between != ""; more; more = p.try(between) {
		c.Work = append(c.Work, p.work())
	}
	if p.try("on") {
		if c.On = p.word(); !plain(c.On) {
			p.fail("the name of a stream is expected")
		}
		for _, way := range []string{"<", ">"} {
			if p.try(way) {
				if c.On += way; p.digit() {
					c.On += fmt.Sprint(p.integer())
				}
				break
			}
		}
	}
	if p.try("after") {
		c.Wait = append(c.Wait, p.integer())
		for p.try(",") {
			c.Wait = append(c.Wait, p.integer())
		}
	}
	return c
}

// digit reports whether a digit follows at once.
func (p *parser) digit() bool {
	return p.pos < len(p.text) && p.text[p.pos] >= '0' && p.text[p.pos] <= '9'
}

func (p *parser) work() Work {
	p.want("@")
	w := Work{Group: p.integer()}
	if p.try("/fill") {
		w.Part = PartFill
	} else if p.try("/") {
		if w.Part = p.integer(); w.Part < 1 {
			p.fail("part numbers must be at least 1")
		}
	}
	w.Read = p.operands(false)
	p.want("->")
	w.Write = p.operands(true)
	return w
}

// operands reads values in parentheses; results may lie within others, or alone.
func (p *parser) operands(results bool) []*Value {
	p.want("(")
	var list []*Value
	for !p.try(")") {
		if len(list) > 0 {
			p.want(",")
		}
		v := p.use()
		list = append(list, v)
		if results && p.try("in") {
			in := p.use()
			if v.Op == nil || v.Within != nil && v.Within != in {
				p.fail("%%%s cannot lie within %%%s", v.Name, in.Name)
			}
			v.Within = in
		}
		if results && p.try("alone") {
			v.Alone = true
		}
	}
	return list
}
