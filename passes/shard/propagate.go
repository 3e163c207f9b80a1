package shard

import (
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/layout"
)

// propagation carries shardings through one function, from those of its parameters to those of all values.
type propagation struct {
	*plans
	f           *ir.Func
	ops         []propagationOp
	index       map[*ir.Value]int
	values      []*ir.Value
	lay         []int32               // by number of the value: the number of its sharding
	wish        []int32               // what all readers agree on; unread where none has a say
	tokens      bool                  // sequence parallelism: see tokenWish
	open        bool                  // parameters and state that are whole may yet be split: see infer
	constrained map[int]int32         // values laid out so whatever their ops make, by number
	asked       map[int]mesh.Sharding // what the user asks of values, by number: how they lie on tp
}

type propagationOp struct {
	*ir.Op
	signature int
	in, out   []int // numbers of values, -1 for absent operands
}

const unread = -1

func newPropagation(p *plans, signatures map[string]int, f *ir.Func) *propagation {
	layout.MarkData(f)
	s := &propagation{plans: p, f: f, index: map[*ir.Value]int{}, constrained: map[int]int32{}, asked: map[int]mesh.Sharding{}}
	add := func(v *ir.Value) int {
		n, ok := s.index[v]
		if !ok {
			n = len(s.values)
			s.index[v], s.values = n, append(s.values, v)
		}
		return n
	}
	for _, v := range f.Params {
		add(v)
	}
	for _, op := range f.Ops {
		text := layout.Signature(op)
		id, ok := signatures[text]
		if !ok {
			id = len(signatures)
			signatures[text] = id
		}
		o := propagationOp{Op: op, signature: id}
		for _, v := range op.In {
			n := -1
			if v != nil {
				n = add(v)
			}
			o.in = append(o.in, n)
		}
		for _, v := range op.Out {
			o.out = append(o.out, add(v))
		}
		s.ops = append(s.ops, o)
	}
	s.lay, s.wish = make([]int32, len(s.values)), make([]int32, len(s.values))
	return s
}

// at lists the shardings of values by number; absent ones are replicated.
func (s *propagation) at(numbers []int) []int32 {
	out := make([]int32, len(numbers))
	for i, n := range numbers {
		if n >= 0 {
			out[i] = s.lay[n]
		}
	}
	return out
}

// plan is how op runs with the shardings that are now.
func (s *propagation) plan(op *propagationOp) *plan {
	return s.of(op.signature, op.Op, s.at(op.in), s.at(op.out))
}

// load takes the shardings of the parameters from the function.
func (s *propagation) load() {
	for i, p := range s.f.Params {
		s.lay[i] = s.number(p.Sharding)
	}
}

// store gives the function the shardings.
func (s *propagation) store() {
	for i, v := range s.values {
		v.Sharding = s.layouts[s.lay[i]]
	}
}

// run lays all values out: forward, results as the operands are, backward, values that every reader wants a part of in
// parts, and forward once more, for those who only take what there is.
func (s *propagation) run() {
	for i := range s.ops {
		op := &s.ops[i]
		in := s.at(op.in)
		made := s.of(op.signature, op.Op, in, nil)
		if s.tokens {
			if want := s.tokenWish(op, in, made); want != nil {
				made = s.of(op.signature, op.Op, in, want)
			}
		}
		s.lie(op, made)
	}
	s.backward()
	for i := range s.ops { // readers of what became a part
		s.lie(&s.ops[i], s.plan(&s.ops[i]))
	}
}

// backward also leaves in wish what the readers of each value agree on.
func (s *propagation) backward() {
	for i := range s.wish {
		s.wish[i] = unread
	}
	for _, r := range s.f.Results {
		need := int32(0)
		if r.Updates != nil {
			need = s.lay[s.index[r.Updates]]
			if s.open && need == 0 {
				continue // state lies as what is made for it
			}
		}
		s.agree(s.index[r.Value], need)
	}
	for i := len(s.ops) - 1; i >= 0; i-- {
		op := &s.ops[i]
		in, out := s.at(op.in), s.at(op.out)
		want := slices.Clone(out)
		for k, n := range op.out {
			_, constrained := s.constrained[n]
			_, asked := s.asked[n]
			if s.wish[n] != unread && !constrained && !asked {
				want[k] = s.wanted(out[k], s.wish[n])
			}
		}
		made := s.of(op.signature, op.Op, in, want)
		if !slices.Equal(made.out, want) || len(made.Reduce) > 0 && !slices.Equal(want, out) {
			made = s.of(op.signature, op.Op, in, out)
		}
		s.lie(op, made)
		for k, n := range op.in {
			if n >= 0 && s.says(op, made, k) {
				s.agree(n, made.in[k])
			}
		}
	}
}

// says reports whether op has a say in how operand k is laid out. It has none when nobody who reads it has, and
// when it takes the operand as it comes: one number made of all of it (a norm), or a reduction that does not depend on
// data.
func (s *propagation) says(op *propagationOp, made *plan, k int) bool {
	if made.in[k] != 0 {
		return true
	}
	size := op.Out[0].Type.Elems()
	if size == 1 && ops.Reduction(op.Op) == "sum" || !op.Out[0].Data && size < op.In[k].Type.Elems() {
		return false
	}
	return slices.ContainsFunc(op.out, func(n int) bool { return s.wish[n] != unread })
}

// lie lays the results of op out as it makes them, unless they are constrained.
func (s *propagation) lie(op *propagationOp, made *plan) {
	for k, n := range op.out {
		s.lay[n] = made.out[k]
		if to, ok := s.constrained[n]; ok {
			s.lay[n] = to
		} else if to, ok := s.asked[n]; ok {
			s.lay[n] = s.onTensor(op.Out[k], s.lay[n], to)
		}
	}
}

// onTensor lays v as have over the axes of data and as asked over tp; as have where that does not divide.
func (s *propagation) onTensor(v *ir.Value, have int32, asked mesh.Sharding) int32 {
	x := without(s.layouts[have], mesh.TensorAxis)
	y := mesh.Sharding{Dims: make([][]string, len(v.Type.Dims))}
	for d := range y.Dims {
		y.Dims[d] = append(slices.Clone(x.Axes(d)), asked.Axes(d)...)
	}
	for _, a := range x.Partial {
		if a != mesh.TensorAxis {
			y.Partial = append(y.Partial, a)
		}
	}
	if _, err := y.Local(s.m, v.Type.Dims); err != nil {
		return have
	}
	return s.number(y)
}

// agree adds a reader's need to the wish for a value.
func (s *propagation) agree(n int, need int32) {
	if s.wish[n] == unread {
		s.wish[n] = need
	} else {
		s.wish[n] = s.meet(s.wish[n], need)
	}
}

// infer splits parameters and state of which all readers want the same part over axis. It reports whether it found any.
func (s *propagation) infer(axis string, fixed map[string]bool) bool {
	found := false
	for i, p := range s.f.Params {
		if p.Role != ir.Param && p.Role != ir.Buffer && p.Role != ir.State || s.wish[i] == unread || fixed[p.Name] {
			continue
		}
		if n := s.wanted(s.lay[i], s.wish[i]); n != s.lay[i] && onlyOver(s.layouts[n], axis) {
			s.lay[i], found = n, true
		}
	}
	return found
}

func onlyOver(s mesh.Sharding, axis string) bool {
	for _, list := range s.Dims {
		for _, a := range list {
			if a != axis {
				return false
			}
		}
	}
	return true
}

// settle runs until no more parameters want to be split over axis.
func (s *propagation) settle(axis string, fixed map[string]bool) {
	for range 8 {
		s.run()
		if !s.infer(axis, fixed) {
			return
		}
	}
	s.run()
}

// price is what a step costs a rank, in floating-point operations: its own work, messages, and what it keeps.
func (s *propagation) price() float64 {
	total := 0.0
	type change struct {
		value int
		need  int32
	}
	done := map[change]bool{}
	move := func(n int, need int32) {
		have := s.lay[n]
		if have == need || have == 0 || done[change{n, need}] {
			return
		}
		done[change{n, need}] = true
		total += s.move(s.values[n].Type.Bytes(), s.layouts[have], s.layouts[need])
	}
	for i := range s.ops {
		op := &s.ops[i]
		made := s.plan(op)
		total += made.cost
		for k, n := range op.in {
			if n >= 0 {
				move(n, made.in[k])
			}
		}
	}
	for _, r := range s.f.Results {
		need := int32(0)
		if r.Updates != nil {
			need = s.lay[s.index[r.Updates]]
		}
		move(s.index[r.Value], need)
	}
	for i, p := range s.f.Params {
		if p.Role != ir.Param && p.Role != ir.Buffer && p.Role != ir.State {
			continue
		}
		bytes := float64(p.Type.Bytes())
		for _, list := range s.layouts[s.lay[i]].Dims {
			for _, a := range list {
				bytes /= float64(s.m.Size(a))
			}
		}
		total += s.costs.Kept * bytes
	}
	return total
}
