// Package schedule writes down what each function does when it runs: ir.Func.Calls, one for each kernel, template, collective or transfer,
// with what it reads and writes, the stream of a collective or of a transfer to or from host storage, and which of these a call waits
// for. The order of the groups is that of fuse, and of what was put between them. It decides which values are made as parts of others,
// when a call on a stream is over at the latest, and which values keep their place for good; memplan plans memory for these calls and no others, and codegen/rank prints them.
package schedule

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Run makes the calls of every function.
func Run(c *pass.Context) error {
	for _, f := range c.Module.Funcs {
		f.Unschedule()
		s := &scheduler{c: c, f: f, outs: group.Outputs(f), flying: map[*ir.Value]int{}}
		s.within()
		if err := s.run(); err != nil {
			return err
		}
	}
	return nil
}

type scheduler struct {
	c      *pass.Context
	f      *ir.Func
	outs   map[int][]*ir.Value // by group: what others read of it
	flying map[*ir.Value]int   // result of a collective or transfer that nothing has waited for -> its call
	wait   []int               // what the next call waits for
}

func (s *scheduler) run() error {
	s.f.Calls = []ir.Call{}
	list := group.List(s.f)
	landed := map[int][]*ir.Value{} // position of a group -> results of calls on streams that must be over
	for pos, at := range landings(list) {
		landed[at] = append(landed[at], list[pos].Ops[0].Out...)
	}
	for pos, at := range offloaded(list) {
		landed[at] = append(landed[at], list[pos].Ops[0].Out...)
	}
	for pos, g := range list {
		for _, v := range append(g.Inputs(), landed[pos]...) {
			s.land(v)
		}
		op := g.Ops[0]
		switch kind := group.Impl(op).Kind; {
		case op.Def.Rules.Beside():
			on, err := stream(op)
			if err != nil {
				return err
			}
			for _, v := range op.Out {
				s.flying[v] = len(s.f.Calls)
			}
			s.call(on, ir.Work{Group: g.ID, Read: g.Inputs(), Write: op.Out})
		case kind == kir.Template:
			s.call("", ir.Work{Group: g.ID, Read: g.Inputs(), Write: op.Out}) // it writes all its results, wanted or not
		case kind == kir.Assemble:
			s.assemble(g, op)
		default:
			s.call("", ir.Work{Group: g.ID, Read: g.Inputs(), Write: s.outs[g.ID]})
		}
	}
	s.keep()
	return nil
}

// land has the next call wait for the collective or transfer that makes v, if it may still be on its way.
func (s *scheduler) land(v *ir.Value) {
	n, ok := s.flying[v]
	if !ok {
		return
	}
	s.wait = append(s.wait, n)
	for _, o := range s.f.Calls[n].Work[0].Write { // once waited for, it is over
		delete(s.flying, o)
	}
}

// call appends one.
func (s *scheduler) call(on string, w ir.Work) {
	slices.Sort(s.wait)
	w.Read, w.Write = slices.Clone(w.Read), slices.Clone(w.Write)
	s.f.Calls = append(s.f.Calls, ir.Call{Work: []ir.Work{w}, On: on, Wait: s.wait})
	s.wait = nil
}

// assemble fills the result when the boxes of the operands leave gaps, and copies each operand into its box, unless it is made there.
func (s *scheduler) assemble(g group.Group, op *ir.Op) {
	part := func(n int) { s.call("", ir.Work{Group: g.ID, Part: n, Read: g.Inputs(), Write: op.Out}) }
	if !covered(op) {
		part(ir.PartFill)
	}
	for i, v := range op.In {
		if _, within := group.Within(group.Alias(v)); !within {
			part(i + 1)
		}
	}
}

// keep marks the values that have their places for themselves: numbers, where calls are joined. Theirs may
// then be put off, whatever others do meanwhile.
func (s *scheduler) keep() {
	if !s.c.Traits().MultiTensor {
		return
	}
	for i := range s.f.Calls {
		for _, w := range s.f.Calls[i].Work {
			for _, v := range w.Write {
				v.Alone = v.Within == nil && v.Type.Bytes() <= abi.Align
			}
		}
	}
}

// stream is the stream on which a collective or a transfer runs: those of one mesh axis follow each other, and so do the messages to
// one rank, and those from one; what is offloaded, and what is fetched.
func stream(op *ir.Op) (string, error) {
	switch op.Def.Rules.Transfer {
	case ir.ToHost:
		return "host>", nil
	case ir.FromHost:
		return "host<", nil
	}
	axis := ops.Axis(op)
	if axis == "" {
		return "", ir.Errorf(op.Loc, "BUG: collective %s has no stream", op.Def.Name)
	}
	switch a := op.Attrs.(type) {
	case ops.SendAttrs:
		return fmt.Sprintf("%s>%d", axis, a.Peer), nil
	case ops.RecvAttrs:
		return fmt.Sprintf("%s<%d", axis, a.Peer), nil
	}
	return axis, nil
}
