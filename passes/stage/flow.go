package stage

import (
	"cmp"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/cost"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// flow is what goes from part to part, and from the forward to the backward of a part.
type flow struct {
	k    *cutter
	pass [2]traffic // of forwards, of backwards
	late map[*ir.Op]bool
	kept []map[*ir.Value]bool // per part: the stash
	sums map[*ir.Value][]*border
}

// traffic is what the functions of one direction send.
type traffic struct {
	in  []map[*ir.Value]int   // per part: what it receives, from which part
	out []map[*ir.Value][]int // per part: what it sends, to which parts
}

const (
	forward = iota
	backward
)

// flow works out all messages and the stash.
func (k *cutter) flow() *flow {
	fl := &flow{k: k, late: map[*ir.Op]bool{}, sums: map[*ir.Value][]*border{}}
	for range k.parts {
		fl.kept = append(fl.kept, map[*ir.Value]bool{})
		for d := range fl.pass {
			t := &fl.pass[d]
			t.in, t.out = append(t.in, map[*ir.Value]int{}), append(t.out, map[*ir.Value][]int{})
		}
	}
	for _, b := range k.borders {
		for _, a := range b.adds {
			fl.sums[a.v] = append(fl.sums[a.v], b)
		}
	}
	reads := make([][]*ir.Value, k.parts) // what the backward of a part reads of its forward
	for _, op := range k.f.Ops {
		q, ok := k.part[op]
		if !ok {
			continue
		}
		for _, v := range op.In {
			switch {
			case v == nil:
			case !k.core(v):
				if !k.front[op] {
					reads[q] = append(reads[q], k.kind[v].leaves...)
				}
			case k.front[op]:
				fl.send(forward, v, q)
			case k.isFront(v):
				reads[q] = append(reads[q], v)
			default:
				fl.send(backward, v, q)
			}
		}
	}
	for q := range k.parts {
		for _, v := range fl.settle(q, reads[q], func(v *ir.Value) bool { return fl.has(v, q) }) {
			switch {
			case fl.has(v, q):
				fl.kept[q][v] = true
			case k.part[v.Op] < q:
				fl.send(forward, v, q)
				fl.kept[q][v] = true
			default: // made further on: it comes back with the gradients
				fl.send(backward, v, q)
				reads[k.part[v.Op]] = append(reads[k.part[v.Op]], v)
			}
		}
	}
	fl.split()
	for d := range fl.pass {
		for q, out := range fl.pass[d].out {
			for v := range out {
				fl.kept[q][v] = true
			}
		}
	}
	return fl
}

// has reports whether v is there in the forward of part q.
func (fl *flow) has(v *ir.Value, q int) bool {
	if v.Op == nil {
		return true
	}
	_, received := fl.pass[forward].in[q][v]
	return received || fl.k.isFront(v) && fl.k.part[v.Op] == q
}

// send has v go to part q, if it is not made there. With several chunks it goes from part to part.
func (fl *flow) send(d int, v *ir.Value, q int) {
	t, from := &fl.pass[d], fl.k.part[v.Op]
	step := 1
	if from > q {
		step = -1
	}
	if fl.k.table.Chunks == 1 && from != q {
		step = q - from
	}
	for at := from; at != q; at += step {
		if _, ok := t.in[at+step][v]; ok {
			continue
		}
		t.in[at+step][v] = at
		t.out[at][v] = append(t.out[at][v], at+step)
	}
}

// order lists values as they are sent: what comes from further away first, then in program order.
func (fl *flow) order(d int, set map[*ir.Value]int) []*ir.Value {
	k := fl.k
	var out []*ir.Value
	for v := range set {
		out = append(out, v)
	}
	slices.SortFunc(out, func(x, y *ir.Value) int {
		far := cmp.Compare(k.part[x.Op], k.part[y.Op])
		if d == backward {
			far = -far
		}
		return cmp.Or(far, cmp.Compare(rank(!k.isFront(x)), rank(!k.isFront(y))), k.program(x, y))
	})
	return out
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

// program compares by where values are made; parameters come first.
func (k *cutter) program(x, y *ir.Value) int {
	at := func(v *ir.Value) int {
		if v.Op == nil {
			return -1
		}
		return k.pos[v.Op]
	}
	return cmp.Or(cmp.Compare(at(x), at(y)), cmp.Compare(x.Index, y.Index))
}

// settle finds what part q must store so that all of reads can be had later: views are taken again, and cheap elementwise ops
// of what is stored anyway are computed again. has says what is there to be stored; the rest is for the caller to get.
func (fl *flow) settle(q int, reads []*ir.Value, has func(*ir.Value) bool) []*ir.Value {
	set := map[*ir.Value]bool{}
	for _, v := range reads {
		set[fl.root(v, has)] = true
	}
	var list []*ir.Value
	for v := range set {
		list = append(list, v)
	}
	slices.SortFunc(list, fl.k.program)
	remat := map[*ir.Value]bool{} // computed again
	var from func(x *ir.Value) bool
	from = func(x *ir.Value) bool { // x can be had
		if x == nil || !fl.k.core(x) {
			return x == nil || len(fl.k.kind[x].leaves) == 0 && fl.k.lives(fl.k.kind[x].params, q)
		}
		return set[x] || remat[x] || isView(x.Op) && from(x.Op.In[0])
	}
	for _, v := range list {
		if v.Op == nil {
			continue
		}
		delete(set, v)
		if (isView(v.Op) || light(v.Op)) && !slices.ContainsFunc(v.Op.In, func(x *ir.Value) bool { return !from(x) }) {
			remat[v] = true
			continue
		}
		set[v] = true
	}
	return slices.DeleteFunc(list, func(v *ir.Value) bool { return !set[v] })
}

// lives reports whether parameters live on the stage of part q.
func (k *cutter) lives(params []*ir.Value, q int) bool {
	return !slices.ContainsFunc(params, func(p *ir.Value) bool {
		return !slices.ContainsFunc(k.homes[p.Name], func(h int) bool { return k.stageOf(h) == k.stageOf(q) })
	})
}

// root follows views that do not take a part only to what they view.
func (fl *flow) root(v *ir.Value, has func(*ir.Value) bool) *ir.Value {
	for v.Op != nil && isView(v.Op) && fl.k.core(v.Op.In[0]) {
		src := v.Op.In[0]
		if has(v) && (!has(src) || src.Type.Bytes() > v.Type.Bytes()) || !has(v) && !has(src) {
			break
		}
		v = src
	}
	return v
}

func isView(op *ir.Op) bool {
	r := op.Def.Rules.Impl
	return r != nil && len(op.In) > 0 && r(op).Kind == kir.View
}

// light reports whether op is elementwise and does little per element.
func light(op *ir.Op) bool {
	r := op.Def.Rules.Impl
	return r != nil && len(op.Out) == 1 && r(op).Kind == kir.Pointwise && cost.Flops(op) <= 4*int64(op.Out[0].Type.Elems())
}

// split finds the ops of B that nothing before waits for, under a schedule that puts them off, and stores what they read.
func (fl *flow) split() {
	k := fl.k
	if !k.table.Split {
		return
	}
	soon := map[*ir.Value]bool{}
	for q := range k.parts {
		for v := range fl.pass[backward].out[q] {
			soon[v] = true
		}
	}
	reads := make([][]*ir.Value, k.parts)
	for _, op := range slices.Backward(k.f.Ops) {
		q, ok := k.part[op]
		if !ok || !k.back(op) || len(fl.pass[backward].out[q]) == 0 {
			continue
		}
		now := slices.ContainsFunc(op.Out, func(v *ir.Value) bool { return soon[v] })
		for _, v := range op.In {
			switch {
			case !k.core(v):
			case now:
				soon[v] = soon[v] || k.part[v.Op] == q
			default:
				reads[q] = append(reads[q], v)
			}
		}
		fl.late[op] = !now
	}
	for q := range k.parts {
		there := func(v *ir.Value) bool {
			_, received := fl.pass[backward].in[q][v]
			return received || !k.isFront(v) && k.part[v.Op] == q && !fl.late[v.Op]
		}
		var early []*ir.Value
		for _, v := range reads[q] {
			if there(v) {
				early = append(early, v)
			}
		}
		for _, v := range fl.settle(q, early, there) {
			fl.kept[q][v] = true
		}
	}
}
