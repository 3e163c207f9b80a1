package stage

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// cutOnce is a function without a schedule in the making: every stage runs its part, once for each micro-batch.
type cutOnce struct {
	k     *cutter
	f     *ir.Func
	kind  map[*ir.Value]kind
	part  map[*ir.Op]int
	each  []*maker
	reads map[*ir.Value][]int // stages that read a core value
	known map[string]int      // the parts in which @step has the same ops, see identity
}

// once cuts @eval or @forward. A core op runs where the weights live that it reads, others where their operands are.
// Every stage goes through its ops in the order of the whole program, so that none waits for one that waits.
func (k *cutter) once(f *ir.Func) {
	e := &cutter{c: k.c, f: f, table: k.table, stages: k.stages, parts: k.parts, homes: k.homes, changes: map[*ir.Value]bool{}}
	e.kinds()
	o := &cutOnce{k: e, f: f, kind: e.kind, part: map[*ir.Op]int{}, reads: map[*ir.Value][]int{}, known: map[string]int{}}
	for op, q := range k.part {
		if k.front[op] {
			o.known[identity(op)] = q
		}
	}
	for range k.stages {
		o.each = append(o.each, newMaker(k.c, f, f.Name))
	}
	for _, op := range f.Ops {
		if e.core(op.Out[0]) {
			o.part[op] = o.choose(op)
		}
	}
	for _, op := range f.Ops {
		o.op(op)
	}
	o.results()
	for s, m := range o.each {
		m.finish(k.c.Stages[s].Module)
	}
}

// identity tells which op of another function op is: names that passes make up, such as matmul.5, are not the same in each.
func identity(op *ir.Op) string {
	return op.Def.Name + " " + op.Out[0].Name + " " + op.Loc.String()
}

// choose is the part that runs op: that of the same op in @step if its weights are there, and its operands not behind it.
func (o *cutOnce) choose(op *ir.Op) int {
	at, ok := o.known[identity(op)]
	ok = ok && at >= o.behind(op)
	for _, v := range op.In {
		if v == nil || o.k.core(v) {
			continue
		}
		for _, p := range o.kind[v].params {
			ok = ok && slices.Contains(o.k.homes[p.Name], at)
		}
	}
	if !ok {
		at = o.beside(op)
	}
	for _, v := range op.In {
		if v == nil {
			continue
		}
		if !o.k.core(v) {
			for _, p := range o.kind[v].params {
				if len(o.k.homes[p.Name]) == 0 { // nothing trains it
					o.k.home(p.Name, at)
				}
			}
		} else if s := o.k.stageOf(at); s != o.k.stageOf(o.part[v.Op]) && !slices.Contains(o.reads[v], s) {
			o.reads[v] = append(o.reads[v], s)
		}
	}
	return at
}

// behind is the last part that makes an operand of op.
func (o *cutOnce) behind(op *ir.Op) int {
	q := 0
	for _, v := range op.In {
		if o.k.core(v) {
			q = max(q, o.part[v.Op])
		}
	}
	return q
}

// beside is the part of op's operands, or of its weights.
func (o *cutOnce) beside(op *ir.Op) int {
	q := o.behind(op)
	at := q
	for _, v := range op.In {
		if v == nil || o.k.core(v) {
			continue
		}
		for _, p := range o.kind[v].params {
			list := o.k.homes[p.Name]
			if len(list) == 0 || slices.Contains(list, at) {
				continue
			}
			i, _ := slices.BinarySearch(list, q)
			at = list[min(i, len(list)-1)]
		}
	}
	return at
}

// get is v on a stage.
func (o *cutOnce) get(m *maker, v *ir.Value) *ir.Value {
	if x := m.at[v]; x != nil || v == nil {
		return x
	}
	if v.Op == nil {
		return o.param(m, v)
	}
	if o.k.core(v) {
		panic("BUG: %" + v.Name + " is not on this stage")
	}
	m.copy(v.Op, func(x *ir.Value) *ir.Value { return o.get(m, x) })
	return m.at[v]
}

// param is parameter v on a stage; from the stage that trains it when that is another.
func (o *cutOnce) param(m *maker, v *ir.Value) *ir.Value {
	homes := o.k.homes[v.Name]
	if len(homes) == 0 || slices.ContainsFunc(homes, func(q int) bool { return o.each[o.k.stageOf(q)] == m }) {
		return m.param(v)
	}
	s := o.k.stageOf(homes[0])
	to := slices.Index(o.each, m)
	o.each[s].send(o.each[s].param(v), v, to, o.f.Name+"/"+v.Name, "parameter that this stage reads, too")
	m.at[v] = m.receive(v, s, o.f.Name+"/"+v.Name, "parameter of another stage")
	return m.at[v]
}

// op appends a core op to its stage, and messages to those that read its results.
func (o *cutOnce) op(op *ir.Op) {
	if !o.k.core(op.Out[0]) {
		return
	}
	s := o.k.stageOf(o.part[op])
	m := o.each[s]
	m.copy(op, func(x *ir.Value) *ir.Value { return o.get(m, x) })
	for _, v := range op.Out {
		slices.Sort(o.reads[v])
		for _, to := range o.reads[v] {
			m.send(m.at[v], v, to, o.f.Name+"/"+v.Name, "activation for the next stage")
			o.each[to].at[v] = o.each[to].receive(v, s, o.f.Name+"/"+v.Name, "activation of the stage before")
		}
	}
}

// results gives sums to all stages, and every other result to the stage that has it.
func (o *cutOnce) results() {
	sums := make([][]*ir.Value, o.k.stages)
	var names []string
	var f32 []*ir.Value
	for _, r := range o.f.Results {
		s := o.k.stages - 1
		if o.k.core(r.Value) {
			s = o.k.stageOf(o.part[r.Value.Op])
		}
		if r.Name != abi.LossSum && r.Name != abi.Count && r.Name != abi.Correct || r.Value.Type.DType != dtype.F32 {
			o.each[s].b.Result(r.Name, o.get(o.each[s], r.Value))
			continue
		}
		names, f32 = append(names, r.Name), append(f32, r.Value)
		for i, m := range o.each {
			m.b.Loc = m.c.Loc(locOf(r.Value))
			if i == s {
				sums[i] = append(sums[i], o.get(m, r.Value))
			} else {
				sums[i] = append(sums[i], m.b.Rename(ops.Zeros(m.b, r.Value.Type), r.Name+".none"))
			}
		}
	}
	if len(names) == 0 {
		return
	}
	for i, m := range o.each {
		m.b.Loc = m.c.Loc(locOf(f32[0]))
		all := ops.AllReduce(m.b, axis, "sum", sums[i]...)
		all[0].Op.Why = "the sums of the loss, which single stages have"
		for j, v := range all {
			m.b.Result(names[j], m.b.Rename(v, names[j]+".all"))
		}
	}
}
