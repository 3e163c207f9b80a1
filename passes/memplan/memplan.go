// Package memplan gives every value a place in one arena, so that the peak is known before anything runs
// and nothing is allocated afterwards. Parameters, state, inputs and stored constants keep their place for
// good and share it between functions by name; everything else lives from the group that makes it to the
// last that reads it, packed by the greedy-by-size rule of Pisarchyk and Lee, "Efficient Memory Management
// for Deep Neural Net Inference" (2020). Updates of parameters are made in place where no later reader is
// harmed, and the tensors of one collective lie side by side, so that it is one call.
//
// The stash of a pipeline (role ir.Stash) is a region of its own, Context.Slots copies of which follow each other: one for
// each micro-batch in flight. A slot holds one chunk of the model at a time, so the chunks' stashes lie over one another,
// apart from what is sent: the interleaved schedule would come to a stop if the next chunk waited for messages of the last.
// What a function stashes is made there in the first place.
//
// Host values, which are made by offloads and read by fetches, have places in a second space, host storage, packed by the same rule. It is the same
// for all functions: nothing lives there between them.
package memplan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Run plans the arena of the module.
func Run(c *pass.Context) error {
	p := &planner{c: c, plan: pass.Plan{Segments: map[string]int{}, Copies: map[string][]pass.Copy{}}, fixed: map[string]*ir.Value{}}
	for _, f := range c.Module.Funcs { // what one message takes side by side
		for _, op := range cleared(f) {
			for _, v := range op.In {
				p.fix(v.Name, "state", v)
			}
		}
	}
	for _, f := range c.Module.Funcs {
		if f.Calls == nil {
			return fmt.Errorf("BUG: @%s has no calls to plan memory for", f.Name)
		}
		if err := p.placeFixed(f); err != nil {
			return err
		}
	}
	p.placeStash()
	base, top, work := p.plan.ArenaBytes, 0, 0
	for _, f := range c.Module.Funcs {
		fn := newFuncPlan(p, f)
		fn.liveness()
		top = max(top, pack(fn.blocks, base))
		p.plan.HostBytes = max(p.plan.HostBytes, pack(fn.host, 0))
		fn.finish()
		w, err := workspace(c.Opt, f)
		if err != nil {
			return err
		}
		work = max(work, w)
	}
	p.plan.Segments["activations"] = top
	p.plan.Segments["workspace"] = work
	p.plan.Workspace, p.plan.WorkBytes = base+top, work
	p.plan.ArenaBytes = base + top + work
	c.Plan = p.plan
	c.Remark(nil, "the arena takes %d bytes: %s", p.plan.ArenaBytes, segments(p.plan.Segments))
	if p.plan.HostBytes > 0 {
		c.Remark(nil, "host storage takes %d bytes", p.plan.HostBytes)
	}
	return nil
}

func segments(m map[string]int) string {
	var parts []string
	for k, v := range m {
		parts = append(parts, fmt.Sprintf("%s %d", k, v))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func align(n int) int { return (n + abi.Align - 1) &^ (abi.Align - 1) }

type planner struct {
	c     *pass.Context
	plan  pass.Plan
	fixed map[string]*ir.Value // parameters by name, stored constants by hash
}

// placeFixed gives parameters and stored constants their permanent places.
func (p *planner) placeFixed(f *ir.Func) error {
	kinds := map[ir.Role]string{ir.Input: "inputs", ir.Target: "inputs", ir.Weight: "inputs", ir.Whole: "inputs",
		ir.Param: "params", ir.Buffer: "buffers", ir.State: "state"}
	for _, v := range f.Params {
		if v.Role == ir.Stash {
			continue // see placeStash
		}
		if old := p.fixed[v.Name]; old != nil && !old.Type.Equal(v.Type) {
			return fmt.Errorf("BUG: %s is %s in one function and %s in @%s", v.Name, old.Type, v.Type, f.Name)
		}
		p.fix(v.Name, kinds[v.Role], v)
	}
	for _, op := range f.Ops {
		if group.Impl(op).Kind == kir.Literal {
			p.fix(abi.Constant.Of(LiteralName(op)), "buffers", op.Out[0])
		}
	}
	return nil
}

// placeStash gives the stash its region; places are those in the first slot: what is sent, then the chunks over one another.
func (p *planner) placeStash() {
	start, slot := p.plan.ArenaBytes, 0
	sent := p.sent()
	chunks := map[string]int{} // bytes so far
	place := func(f *ir.Func, v *ir.Value, at *int) {
		if old := p.fixed[v.Name]; old != nil {
			v.Offset = old.Offset
			return
		}
		p.fixed[v.Name] = v
		v.Offset = start + *at
		*at += align(v.Type.Bytes())
	}
	p.eachStash(func(f *ir.Func, v *ir.Value) {
		if sent[v.Name] {
			place(f, v, &slot)
		}
	})
	common := slot
	p.eachStash(func(f *ir.Func, v *ir.Value) {
		if sent[v.Name] {
			return
		}
		chunk := f.Name[strings.LastIndex(f.Name, ".")+1:]
		at := max(chunks[chunk], common)
		place(f, v, &at)
		chunks[chunk] = at
		slot = max(slot, at)
	})
	if slot == 0 {
		return
	}
	p.plan.StashStart, p.plan.StashBytes = start, slot
	p.plan.Segments["stash"] = slot * max(p.c.Slots, 1)
	p.plan.ArenaBytes += p.plan.Segments["stash"]
}

func (p *planner) eachStash(do func(f *ir.Func, v *ir.Value)) {
	for _, f := range p.c.Module.Funcs {
		for _, v := range f.Params {
			if v.Role == ir.Stash {
				do(f, v)
			}
		}
	}
}

// sent names the stashed values that functions send. A message may still be on its way when the next chunk has the slot: only
// the function that sends it waits for it.
func (p *planner) sent() map[string]bool {
	names := map[string]bool{}
	for _, f := range p.c.Module.Funcs {
		from := map[*ir.Value]bool{}
		for _, op := range f.Ops {
			if op.Def.Rules.Collective == mesh.Send {
				from[group.Alias(op.In[0])] = true
			}
		}
		for _, r := range f.Results {
			if r.Updates != nil && r.Updates.Role == ir.Stash && from[group.Alias(r.Value)] {
				names[r.Updates.Name] = true
			}
		}
	}
	return names
}

func (p *planner) fix(key, kind string, v *ir.Value) {
	if old := p.fixed[key]; old != nil {
		v.Offset = old.Offset
		return
	}
	p.fixed[key] = v
	v.Offset = p.plan.ArenaBytes
	p.plan.ArenaBytes += align(v.Type.Bytes())
	p.plan.Segments[kind] += align(v.Type.Bytes())
}

// cleared lists the all_reduces of f whose operands are state that nothing else reads and that f sets to a constant: sums
// over micro-batches, which are reduced where they are.
func cleared(f *ir.Func) []*ir.Op {
	readers, constant := map[*ir.Value]int{}, map[*ir.Value]bool{}
	for _, op := range f.Ops {
		fixed := true
		for _, v := range op.In {
			readers[v]++
			fixed = fixed && v != nil && constant[v]
		}
		for _, v := range op.Out {
			constant[v] = fixed && op.Def.Rules.Collective == ""
		}
	}
	sets, told := map[*ir.Value]bool{}, map[*ir.Value]bool{}
	for _, r := range f.Results {
		src, _, _ := group.Resolve(r.Value)
		readers[r.Value]++
		if told[src] = true; r.Updates != nil && constant[r.Value] {
			sets[r.Updates] = true
		}
	}
	var out []*ir.Op
	for _, op := range f.Ops {
		if op.Def.Rules.Collective != mesh.AllReduce {
			continue
		}
		ok := true
		for i, v := range op.In {
			ok = ok && v.Op == nil && v.Role == ir.State && readers[v] == 1 && sets[v] && !told[op.Out[i]]
		}
		if ok {
			out = append(out, op)
		}
	}
	return out
}

// LiteralName names a stored constant by its type and contents, so that equal ones are stored once.
func LiteralName(op *ir.Op) string { return op.String()[strings.Index(op.String(), "= ")+2:] }

// workspace is the largest scratch need among the groups of f, bytes.
func workspace(opt *pass.Options, f *ir.Func) (int, error) {
	most, sums := 0, 0
	for _, g := range group.List(f) {
		impl := group.Impl(g.Ops[0])
		n := 0
		switch {
		case impl.Kind == kir.Template:
			w, err := opt.On().Workspace(opt.Call(g.Ops[0], impl))
			if err != nil {
				return 0, fmt.Errorf("%s: %w", g.Ops[0].Def.Name, err)
			}
			n = w
		case impl.Kind == kir.Pointwise || impl.Kind == kir.Reduce || impl.Kind == kir.View:
			s, ok := group.Build(g.Ops)
			if !ok {
				return 0, fmt.Errorf("BUG: group %d of @%s does not share an iteration space\n%s", g.ID, f.Name, f)
			}
			alone, joined := opt.On().Scratch(s)
			n, sums = alone, sums+joined
		}
		most = max(most, align(n), align(sums))
	}
	return most, nil
}
