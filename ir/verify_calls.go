package ir

import (
	"fmt"
	"slices"
)

// A schedule is right when every op is done once, by work that reads what the ops read, after what makes it: what a collective
// or a transfer makes is there when a call has waited for it by its number. Which views lie between an operand and the value that holds its
// elements is known here only by the mark of fuse: an op without a group takes no kernel, so its results are its operands' memory.

// schedule is what is known while the calls of a function are gone through.
type schedule struct {
	f      *Func
	groups map[int][]*Op
	parts  map[int]map[int]int // by group and part: the call that does it
	wrote  map[*Value]int      // the call that writes a value, as far as calls were gone through
	over   map[int]bool        // calls on streams that were waited for
	at     int                 // the call at hand
}

func (f *Func) verifyCalls() error {
	s := &schedule{f: f, groups: map[int][]*Op{}, parts: map[int]map[int]int{}, wrote: map[*Value]int{}, over: map[int]bool{}}
	for _, op := range f.Ops {
		if op.Group != 0 {
			s.groups[op.Group] = append(s.groups[op.Group], op)
		}
	}
	for i := range f.Calls {
		if s.at = i; len(f.Calls[i].Work) == 0 {
			return s.fault("does nothing")
		}
		for k := range f.Calls[i].Work {
			if err := s.assign(&f.Calls[i].Work[k]); err != nil {
				return err
			}
		}
	}
	if err := s.complete(); err != nil {
		return err
	}
	for i := range f.Calls {
		s.at = i
		if err := s.call(&f.Calls[i]); err != nil {
			return err
		}
	}
	for _, r := range f.Results {
		for _, v := range roots(r.Value, nil) {
			if why := s.missing(v, true); why != "" {
				return fmt.Errorf("@%s: when all calls are done, result %s %s", f.Name, ref(v), why)
			}
		}
	}
	return f.verifyPlaces()
}

func (s *schedule) fault(format string, args ...any) error {
	return fmt.Errorf("@%s: call %d, %s, %s", s.f.Name, s.at, &s.f.Calls[s.at], fmt.Sprintf(format, args...))
}

// assign notes that the call at hand does w.
func (s *schedule) assign(w *Work) error {
	if s.groups[w.Group] == nil {
		return s.fault("does group %d, which has no ops", w.Group)
	}
	done := s.parts[w.Group]
	if done == nil {
		done = map[int]int{}
		s.parts[w.Group] = done
	}
	_, whole := done[0]
	if _, again := done[w.Part]; again || whole || w.Part == 0 && len(done) > 0 {
		return s.fault("does %s again", w.name())
	}
	if op := s.groups[w.Group][0]; w.Part != 0 && (len(s.groups[w.Group]) != 1 || w.Part > len(op.In) || w.Part < PartFill || len(op.Out) != 1) {
		return s.fault("does %s, which the group does not have", w.name())
	}
	done[w.Part] = s.at
	return nil
}

// complete checks that the calls do all groups: an assembly by work of its own for each operand that is not made within it.
func (s *schedule) complete() error {
	for _, op := range s.f.Ops {
		done := s.parts[op.Group]
		if _, whole := done[0]; whole || op.Group == 0 {
			continue
		}
		made := func(v *Value) bool { return within(v, op.Out[0]) }
		if len(op.Out) != 1 || len(done) == 0 && !slices.ContainsFunc(op.In, made) {
			return fmt.Errorf("@%s: no call does group %d: %s", s.f.Name, op.Group, op)
		}
		elems := 0
		for i, v := range op.In {
			if v != nil {
				elems += v.Type.Elems()
			}
			if _, own := done[i+1]; !own && !made(v) {
				return fmt.Errorf("@%s: no call does operand %d of group %d: %s", s.f.Name, i, op.Group, op)
			}
		}
		if _, filled := done[PartFill]; !filled && elems < op.Out[0].Type.Elems() {
			return fmt.Errorf("@%s: no call fills the gaps between the operands of group %d: %s", s.f.Name, op.Group, op)
		}
	}
	return nil
}

// within reports whether all that v is a view of is made within out.
func within(v, out *Value) bool {
	list := roots(v, nil)
	return len(list) > 0 && !slices.ContainsFunc(list, func(r *Value) bool { return r.Within != out })
}

// roots appends the values that hold the elements of v, through ops without a group, which take no memory.
func roots(v *Value, list []*Value) []*Value {
	switch {
	case v == nil:
	case v.Op != nil && v.Op.Group == 0 && len(v.Op.In) > 0:
		for _, in := range v.Op.In {
			list = roots(in, list)
		}
	case !slices.Contains(list, v):
		list = append(list, v)
	}
	return list
}

// constant reports whether v is made by no call: it is stored, or written into expressions.
func constant(v *Value) bool { return v.Op != nil && v.Op.Group == 0 }

// call checks one call and notes what it does.
func (s *schedule) call(c *Call) error {
	for k, n := range c.Wait {
		switch {
		case n < 0 || n >= s.at || s.f.Calls[n].On == "":
			return s.fault("waits for call %d, which is not an earlier one on a stream", n)
		case s.over[n] || k > 0 && c.Wait[k-1] >= n:
			return s.fault("waits for call %d once more", n)
		}
		s.over[n] = true
	}
	for k := range c.Work {
		w := &c.Work[k]
		if beside := s.groups[w.Group][0].Def.Rules.Beside(); beside != (c.On != "") || beside && len(c.Work) > 1 {
			return s.fault("must be either a collective or a transfer on a stream, or kernels on no stream")
		}
		if err := s.reads(w); err != nil {
			return err
		}
		if c.InOrder {
			if err := s.writes(w); err != nil {
				return err
			}
		}
	}
	for k := range c.Work {
		if !c.InOrder {
			if err := s.writes(&c.Work[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// reads checks that w reads what its ops read, and that all of it is there.
func (s *schedule) reads(w *Work) error {
	var need []*Value
	for _, op := range s.groups[w.Group] {
		for _, v := range op.In {
			need = roots(v, need)
		}
	}
	need = slices.DeleteFunc(need, func(v *Value) bool { return v.Op != nil && v.Op.Group == w.Group })
	for _, v := range need {
		if (!constant(v) || v.Offset >= 0) && !slices.Contains(w.Read, v) {
			return s.fault("does not read %s, though the ops of %s do", ref(v), w.name())
		}
	}
	for i, v := range w.Read {
		switch why := s.missing(v, false); {
		case !slices.Contains(need, v) || slices.Contains(w.Read[:i], v):
			return s.fault("reads %s, which the ops of %s do not read, or not twice", ref(v), w.name())
		case why != "":
			return s.fault("reads %s, which %s", ref(v), why)
		}
	}
	return nil
}

// writes checks what w says it writes, and notes it.
func (s *schedule) writes(w *Work) error {
	if w.Part != 0 && len(w.Write) != 1 {
		return s.fault("does not write what %s is a part of", w.name())
	}
	for i, v := range w.Write {
		switch {
		case v.Op == nil || v.Op.Group != w.Group || slices.Contains(w.Write[:i], v):
			return s.fault("writes %s, which the ops of %s do not make, or not twice", ref(v), w.name())
		case v.Within != nil && (w.Part != 0 || v.Within.Op == nil || !slices.ContainsFunc(v.Within.Op.In, func(o *Value) bool { return within(o, v.Within) && roots(o, nil)[0] == v })):
			return s.fault("writes %s within %s, which is not made of it", ref(v), ref(v.Within))
		}
		s.wrote[v] = s.at
	}
	return nil
}

// missing says why v is not there yet, or "". At the end of the function all streams are idle.
func (s *schedule) missing(v *Value, end bool) string {
	if v.Op == nil || constant(v) {
		return ""
	}
	for _, n := range s.parts[v.Op.Group] {
		if n > s.at || n == s.at && s.wrote[v] != n {
			return fmt.Sprintf("call %d makes", n)
		}
	}
	for _, in := range v.Op.In {
		for _, r := range roots(in, nil) {
			if _, there := s.wrote[r]; r.Within == v && !there {
				return fmt.Sprintf("%s is still missing in", ref(r))
			}
		}
	}
	n, there := s.wrote[v]
	switch {
	case !there && len(s.parts[v.Op.Group]) > 0:
		return "no call writes"
	case there && s.f.Calls[n].On != "" && !s.over[n] && !end:
		return fmt.Sprintf("call %d makes on stream %s, and no call has waited for it", n, s.f.Calls[n].On)
	}
	return ""
}
