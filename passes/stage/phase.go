package stage

import (
	"cmp"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/cost"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// kind is what a value depends on.
type kind struct {
	micro bool // data of the current micro-batch, or its number
	total bool // a sum over all micro-batches
	core  bool // micro, and worth computing once: weights are in it, or much work

	params []*ir.Value // what is not core: the weights and buffers in it
	leaves []*ir.Value // what is not core: the parameters in it that are other ones by the time of the backward
}

// border is an all_reduce over mesh.TimeAxis: the end of a micro-batch.
type border struct {
	op    *ir.Op
	adds  []addend
	wants []int // parts of the parameters that its sum updates
}

// addend is a value that one part adds to a border's sum.
type addend struct {
	part int
	v    *ir.Value
}

func (b *border) in() *ir.Value  { return b.op.In[0] }
func (b *border) out() *ir.Value { return b.op.Out[0] }

// overTime reports whether op is a collective over micro-batches, and whether it is a sum.
func overTime(op *ir.Op) (yes, sum bool) {
	if ops.Axis(op) != mesh.TimeAxis {
		return false, false
	}
	r := &op.Def.Rules
	return r.Combines || r.Move == ir.Joins, r.Each
}

func isBorder(op *ir.Op) bool {
	yes, sum := overTime(op)
	return yes && sum
}

// fed reports whether p comes from the data set.
func fed(p *ir.Value) bool { return p.Role.FromData() }

// phases finds what each value depends on, which ops are F, and the borders.
func (k *cutter) phases() error {
	k.dissolve()
	k.pos, k.uses = map[*ir.Op]int{}, k.f.Uses()
	for i, op := range k.f.Ops {
		k.pos[op] = i
	}
	k.changes = map[*ir.Value]bool{}
	k.kinds()
	for _, r := range k.f.Results {
		at := k.kind[r.Value]
		if at.micro && at.total {
			return ir.Errorf(locOf(r.Value), "BUG: %q depends on one micro-batch and on the sum over all", r.Value.Name)
		}
		if at.micro && r.Updates != nil && r.Updates.Role != ir.Buffer || at.micro && r.Name == abi.LossSum {
			return ir.Errorf(locOf(r.Value), "--pp does not work: what the batch adds to %q is not a sum over its samples, and a pipeline computes one micro-batch after the other", what(r)).
				Note("%s", cmp.Or(k.c.CrossSample[abi.FuncStep], "a batch of one sample, or an op that needs all samples at once, is the cause"))
		}
		if at.micro && r.Updates != nil {
			k.changes[r.Updates] = true
		}
	}
	if len(k.changes) > 0 {
		k.kinds() // again: leaves are known only now
	}
	k.fronts()
	return nil
}

func what(r ir.Result) string {
	if r.Updates != nil {
		return r.Updates.Name
	}
	return r.Name
}

func locOf(v *ir.Value) ir.Loc {
	if v.Op != nil {
		return v.Op.Loc
	}
	return ir.Loc{Node: v.Name}
}

// dissolve lets a batch that is one micro-batch use its sums: where a sum over micro-batches meets the data again
// (statistics of BatchNorm over the whole batch), what is computed from it is computed from the sum's operand, which is the
// same. All other collectives over micro-batches are their own operands. shard leaves none of these when there are several
// micro-batches.
func (k *cutter) dissolve() {
	if k.table.Micros > 1 {
		return
	}
	k.drop(func(op *ir.Op) bool { yes, sum := overTime(op); return yes && !sum })
	d := &dissolver{micro: map[*ir.Value]bool{}, total: map[*ir.Value]bool{}, now: map[*ir.Value]*ir.Value{}}
	for _, p := range k.f.Params {
		d.micro[p] = fed(p)
	}
	list := k.f.Ops
	d.b = ir.NewBuilder(k.f)
	k.f.Ops = nil
	for _, op := range list {
		micro := slices.ContainsFunc(op.In, func(v *ir.Value) bool { return d.micro[v] })
		total := slices.ContainsFunc(op.In, func(v *ir.Value) bool { return d.total[v] })
		if micro && total {
			for i, v := range op.In {
				op.In[i] = d.atOnce(v)
			}
			total = false
		}
		k.f.Ops = append(k.f.Ops, op)
		for _, v := range op.Out {
			d.micro[v], d.total[v] = micro && !isBorder(op), total || isBorder(op)
		}
	}
	k.f.DCE()
}

// dissolver computes in the micro-batch what the step computes from sums over all of them.
type dissolver struct {
	b            *ir.Builder
	micro, total map[*ir.Value]bool
	now          map[*ir.Value]*ir.Value
}

// atOnce is v, computed from the operands of the sums in it.
func (d *dissolver) atOnce(v *ir.Value) *ir.Value {
	if v == nil || !d.total[v] {
		return v
	}
	if d.now[v] == nil && isBorder(v.Op) {
		d.now[v] = v.Op.In[v.Index]
	} else if d.now[v] == nil {
		in := make([]*ir.Value, len(v.Op.In))
		for i, x := range v.Op.In {
			in[i] = d.atOnce(x)
		}
		d.b.Loc = v.Op.Loc
		for i, w := range d.b.EmitN(v.Op.Def, v.Op.Attrs, in...) {
			w.Sharding, w.Op.Why = v.Op.Out[i].Sharding, v.Op.Why
			d.now[v.Op.Out[i]] = d.b.Rename(w, v.Op.Out[i].Name+".now")
			d.micro[w] = true
		}
	}
	return d.now[v]
}

// drop replaces the ops that pick chooses by their operands and counts them.
func (k *cutter) drop(pick func(*ir.Op) bool) int {
	subst := map[*ir.Value]*ir.Value{}
	k.f.Ops = slices.DeleteFunc(k.f.Ops, func(op *ir.Op) bool {
		if !pick(op) {
			return false
		}
		for i, v := range op.Out {
			subst[v] = op.In[i]
		}
		return true
	})
	k.f.ReplaceAll(subst)
	return len(subst)
}

// kinds finds what each value depends on.
func (k *cutter) kinds() {
	k.kind, k.borders = map[*ir.Value]kind{}, nil
	for _, p := range k.f.Params {
		at := kind{micro: fed(p) && p.Role != ir.Whole}
		if at.micro || k.changes[p] {
			at.leaves = []*ir.Value{p}
		}
		if p.Role == ir.Param || p.Role == ir.Buffer {
			at.params = []*ir.Value{p}
		}
		k.kind[p] = at
	}
	for _, op := range k.f.Ops {
		at := kind{}
		if isBorder(op) {
			k.borders = append(k.borders, &border{op: op})
			at.total = true
		} else {
			at = k.combine(op)
		}
		for _, v := range op.Out {
			k.kind[v] = at
		}
	}
}

// combine is the kind of op's results.
func (k *cutter) combine(op *ir.Op) kind {
	at := kind{micro: ops.Axis(op) == mesh.TimeAxis && op.Move() == ir.Selects}
	core := false
	for _, v := range op.In {
		if v == nil {
			continue
		}
		in := k.kind[v]
		at.micro, at.total, core = at.micro || in.micro, at.total || in.total, core || in.core
		at.params, at.leaves = union(at.params, in.params), union(at.leaves, in.leaves)
	}
	at.core = at.micro && (core || len(at.params) > 0 || heavy(op))
	if at.core || at.total {
		at.params, at.leaves = nil, nil
	}
	return at
}

// union appends what is missing in a.
func union(a, b []*ir.Value) []*ir.Value {
	if len(a) == 0 {
		return b
	}
	a = slices.Clip(a)
	for _, v := range b {
		if !slices.Contains(a, v) {
			a = append(a, v)
		}
	}
	return a
}

// heavy reports whether op is too much work to be done in several places.
func heavy(op *ir.Op) bool {
	if r := op.Def.Rules.Impl; r == nil || r(op).Kind != kir.Template {
		return false
	}
	return cost.Flops(op) > 64*int64(op.Out[0].Type.Elems())
}

// fronts finds F: what loss and count, and the results of each micro-batch, are made of.
func (k *cutter) fronts() {
	k.front = map[*ir.Op]bool{}
	behind := map[*ir.Value]bool{} // sums that the loss and its count are made of
	for _, r := range k.f.Results {
		if r.Name == abi.LossSum || r.Name == abi.Count {
			behind[r.Value] = true
		}
	}
	need := map[*ir.Value]bool{}
	for _, r := range k.f.Results {
		if k.kind[r.Value].micro {
			need[r.Value] = true
		}
	}
	for _, op := range slices.Backward(k.f.Ops) {
		has := func(set map[*ir.Value]bool) bool {
			return slices.ContainsFunc(op.Out, func(v *ir.Value) bool { return set[v] })
		}
		switch {
		case isBorder(op):
			need[op.In[0]] = need[op.In[0]] || behind[op.Out[0]]
		case k.kind[op.Out[0]].total:
			if has(behind) {
				for _, v := range op.In {
					behind[v] = true
				}
			}
		case has(need):
			k.front[op] = true
			for _, v := range op.In {
				need[v] = true
			}
		}
	}
}

// core reports whether v is core.
func (k *cutter) core(v *ir.Value) bool { return v != nil && k.kind[v].core }

// isFront reports whether core value v is of F.
func (k *cutter) isFront(v *ir.Value) bool { return k.front[v.Op] }
