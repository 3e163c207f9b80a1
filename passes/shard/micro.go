package shard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/layout"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// obstacle is an op that needs more than one micro-batch at a time.
type obstacle struct {
	a         *annotator
	op        *ir.Op
	value     *ir.Value // the operand or result that spans the batch
	text      string
	batchNorm bool // it serves BatchNorm
	when      map[*ir.Value]stage
}

func (o *obstacle) explain(mb int, hint string) error {
	mixed := mixed(o.a.f)
	op, text, value := o.op, o.text, o.value
	if v := o.couples(mixed); v != nil { // the node that couples the samples, not one that is far behind it
		op, text, value = v.Op, fmt.Sprintf("is over the whole batch, and %s needs it together with the samples of one micro-batch", place(o.op)), v
	}
	e := ir.Errorf(op.Loc, "the batch cannot be computed in %d micro-batches: in @%s, %s %s", mb, o.a.f.Name, op.Def.Name, text)
	if value != nil {
		e.Note("it is %q %s", value.Name, value.Type)
		if p := mixed[value]; p != nil {
			e.Note("it depends on the %s %q, so it is not known from the data alone before the micro-batches are computed", p.Role, p.Name)
		}
	}
	if hint != "" {
		e.Note("samples would not depend on one another if they lay along another dimension than the leading one; if they do, give %s", hint)
	}
	if o.a.f.Name == abi.FuncForward {
		return e.Note("@forward is compiled only on request; training does not need it")
	}
	return e.Note("use more ranks, or a smaller batch, instead of micro-batches")
}

// stage says when in a step a value is known.
type stage uint8

const (
	always stage = iota // does not depend on the data
	micro               // while a micro-batch is computed
	total               // only when all micro-batches were summed
)

// obstacle finds what keeps @step, or another function, from running one micro-batch at a time; nil when nothing does.
func (a *annotator) obstacle() *obstacle {
	if a.m.Size(mesh.TimeAxis) == 1 {
		return nil
	}
	when := map[*ir.Value]stage{}
	for _, p := range a.f.Params {
		if overTime(p.Sharding) {
			when[p] = micro
		}
	}
	for _, op := range a.f.Ops {
		s, why := a.stageOf(op, when)
		if why != nil {
			why.when = when
			return why
		}
		for _, v := range op.Out {
			when[v] = s
			if _, held := a.constrained[v]; held && s == micro && !overTime(v.Sharding) {
				when[v] = total // it is summed up right where it is made
			}
		}
	}
	return a.results(when)
}

// couples is the sum over samples that the obstacle's value comes from, and that depends on more than the data; nil when
// the obstacle is no sum that is known too late.
func (o *obstacle) couples(mixed map[*ir.Value]*ir.Value) *ir.Value {
	v := o.value
	if v == nil {
		return nil
	}
	if slices.Contains(v.Sharding.Partial, mesh.TimeAxis) {
		return o.summed(v)
	}
	if o.when[v] != total {
		return nil
	}
	seen := map[*ir.Value]bool{}
	for v != nil && v.Op != nil && !seen[v] {
		seen[v] = true
		plan := o.a.plan(v.Op)
		next := slices.IndexFunc(v.Op.In, func(x *ir.Value) bool {
			return x != nil && mixed[x] != nil && (o.when[x] == total || slices.Contains(x.Sharding.Partial, mesh.TimeAxis))
		})
		if next < 0 {
			break
		}
		v = v.Op.In[next]
		if slices.Contains(v.Sharding.Partial, mesh.TimeAxis) && !slices.Contains(plan.In[next].Partial, mesh.TimeAxis) {
			return o.summed(v)
		}
	}
	return nil
}

// summed is the value of a partial sum as its samples were first added up.
func (o *obstacle) summed(v *ir.Value) *ir.Value {
	for v.Op != nil {
		next := slices.IndexFunc(v.Op.In, func(x *ir.Value) bool { return x != nil && slices.Contains(x.Sharding.Partial, mesh.TimeAxis) })
		if next < 0 {
			return v
		}
		v = v.Op.In[next]
	}
	return nil
}

// place names an op by its node and line.
func place(op *ir.Op) string {
	if s := op.Loc.String(); s != "" {
		return op.Def.Name + " of " + s
	}
	return op.Def.Name
}

func overTime(s mesh.Sharding) bool {
	return slices.Contains(s.Partial, mesh.TimeAxis) || splitOverTime(s)
}

func splitOverTime(s mesh.Sharding) bool {
	return slices.ContainsFunc(s.Dims, func(d []string) bool { return slices.Contains(d, mesh.TimeAxis) })
}

// stageOf finds when op can run, from when its operands are known.
func (a *annotator) stageOf(op *ir.Op, when map[*ir.Value]stage) (stage, *obstacle) {
	plan := a.plan(op)
	block := func(v *ir.Value, text string) *obstacle {
		return &obstacle{a: a, op: op, value: v, text: text, batchNorm: serves(op, "BatchNorm") || v != nil && v.Op != nil && serves(v.Op, "BatchNorm")}
	}
	var seen [total + 1]*ir.Value
	for i, v := range op.In {
		if v == nil {
			continue
		}
		s, need := when[v], plan.In[i]
		if splitOverTime(v.Sharding) && !splitOverTime(need) {
			return 0, block(v, "needs all samples of the batch at once")
		}
		if slices.Contains(v.Sharding.Partial, mesh.TimeAxis) && !slices.Contains(need.Partial, mesh.TimeAxis) {
			s = total
		}
		seen[s] = v
		if splitOverTime(need) {
			seen[micro] = v
		}
	}
	if seen[total] != nil && !a.mayTotal(op, when, plan) {
		return 0, block(seen[total], "computes on a sum over the whole batch")
	}
	for _, r := range plan.Reduce {
		if slices.Contains(r.Axes, mesh.TimeAxis) {
			return 0, block(op.Out[r.Out], "takes the "+r.Op+" over the whole batch")
		}
	}
	for _, s := range plan.Out {
		if splitOverTime(s) && seen[micro] == nil {
			seen[micro] = op.Out[0]
		}
	}
	switch {
	case seen[total] != nil && seen[micro] != nil:
		return 0, block(seen[total], "needs a sum over the whole batch together with the samples of one micro-batch")
	case seen[total] != nil:
		return total, nil
	case seen[micro] != nil:
		return micro, nil
	}
	return always, nil
}

// mayTotal reports whether op may read sums over the whole batch: in @step any, which waits for the last micro-batch; in @eval
// those of which each micro-batch can give its part (pass microbatch), for its results are added up over calls.
func (a *annotator) mayTotal(op *ir.Op, when map[*ir.Value]stage, plan layout.Plan) bool {
	if a.f.Name != abi.FuncEval {
		return a.f.Name == abi.FuncStep
	}
	return layout.Affine(op, func(i int) bool { return sumOf(op.In[i], plan.In[i], when) })
}

// sumOf reports whether v, of which an op needs what need says, is a sum over the whole batch to it.
func sumOf(v *ir.Value, need mesh.Sharding, when map[*ir.Value]stage) bool {
	return v != nil && (when[v] == total || slices.Contains(v.Sharding.Partial, mesh.TimeAxis) && !slices.Contains(need.Partial, mesh.TimeAxis))
}

// serves reports whether op was made for an ONNX node whose operator's name begins so.
func serves(op *ir.Op, operator string) bool { return strings.HasPrefix(op.Loc.OpType, operator) }

// results checks that what every micro-batch makes anew is something of which the last one may stay.
func (a *annotator) results(when map[*ir.Value]stage) *obstacle {
	for _, r := range a.f.Results {
		v := r.Value
		if when[v] != micro || overTime(v.Sharding) || r.Updates != nil && r.Updates.Role == ir.Buffer || v.Op == nil {
			continue
		}
		return &obstacle{a: a, when: when, op: v.Op, value: v, text: "has a result that differs between micro-batches"}
	}
	return nil
}
