// Package spmd turns the annotated global program into the program that every rank runs: values take the dims
// of one rank's part (in one micro-batch), attributes that carry sizes follow, and collectives appear where an
// op needs a value laid out otherwise than it is.
//
// # Design
//
// Each op is planned by passes/layout, as shard did. An operand that is not laid out as the plan says is
// changed by the cheapest way (route): a partial sum by all_reduce, or by reduce_scatter where a part is wanted, a part
// of a whole value by shard_slice, parts along another dimension by all_to_all, a whole one from parts by all_gather.
// Each layout of a value is made once, from the nearest that there is, and reductions stand right after the value that
// they reduce, so that they can run while the program goes on. What is cheap and wanted in parts (constants, views,
// elementwise ops on them) is computed in parts instead of being sliced.
//
// Over the micro-batch axis (mesh.TimeAxis) the same ops stand for what pass microbatch does in time: its
// all_reduce is an accumulation, its shard_slice the part of the current micro-batch.
package spmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/layout"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// Run makes the functions of the module local to a rank.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	if len(c.Module.Mesh.Axes) == 0 {
		return nil
	}
	for i, f := range c.Module.Funcs {
		s := &splitter{c: c, m: c.Module.Mesh, old: f, local: map[*ir.Value]*ir.Value{}, made: map[*ir.Value][]version{}, first: map[string]*ir.Value{}}
		g, err := s.run()
		if err != nil {
			return err
		}
		c.Module.Funcs[i] = g
	}
	return nil
}

type splitter struct {
	c     *pass.Context
	m     mesh.Mesh
	old   *ir.Func
	b     *ir.Builder
	local map[*ir.Value]*ir.Value // global value -> what a rank holds of it, laid out as the global value's Sharding
	made  map[*ir.Value][]version // other layouts of it
	first map[string]*ir.Value    // first indices of the parts of indexed dims, see call
}

func (s *splitter) run() (*ir.Func, error) {
	g := &ir.Func{Name: s.old.Name}
	s.b = ir.NewBuilder(g)
	for _, p := range s.old.Params {
		dims, err := p.Sharding.Local(s.m, p.Type.Dims)
		if err != nil {
			return nil, fmt.Errorf("%s %q %s on mesh %s: %w", p.Role, p.Name, p.Type, s.m, err)
		}
		q := s.b.Param(p.Name, ir.T(p.Type.DType, dims...), p.Role)
		q.Init, q.Sharding = p.Init, p.Sharding
		s.local[p] = q
	}
	for _, op := range s.old.Ops {
		if err := s.op(op); err != nil {
			return nil, err
		}
	}
	end := len(g.Ops)
	for _, r := range s.old.Results {
		n := ir.Result{Name: r.Name}
		to := mesh.Sharding{Dims: slices.Clone(r.Value.Sharding.Dims)}
		for d := range to.Dims { // what is told to the user is whole, but for samples that ranks have apart
			to.Dims[d] = slices.DeleteFunc(slices.Clone(to.Dims[d]), func(axis string) bool { return axis == mesh.TensorAxis })
		}
		if r.Updates != nil {
			n.Updates, to = s.local[r.Updates], r.Updates.Sharding
		}
		s.b.Loc = s.c.Loc(locOf(r.Value))
		n.Value = s.get(r.Value, clean(to), s.whyUpdate(r))
		g.Results = append(g.Results, n)
	}
	late := map[*ir.Op]bool{}
	for _, op := range g.Ops[end:] {
		late[op] = true
	}
	g.DCE()
	hoist(g, late)
	return g, nil
}

func clean(s mesh.Sharding) mesh.Sharding {
	if s.IsReplicated() {
		return mesh.Sharding{}
	}
	return s
}

func locOf(v *ir.Value) ir.Loc {
	if v.Op != nil {
		return v.Op.Loc
	}
	return ir.Loc{Node: v.Name}
}

func shardings(vs []*ir.Value) []mesh.Sharding {
	out := make([]mesh.Sharding, len(vs))
	for i, v := range vs {
		if v != nil {
			out[i] = v.Sharding
		}
	}
	return out
}

// whyUpdate says why the new contents of a parameter are put together when the step is over.
func (s *splitter) whyUpdate(r ir.Result) string {
	if r.Updates == nil || r.Updates.Role != ir.Param || s.c.Opt.Zero == 0 {
		return ""
	}
	return fmt.Sprintf("ZeRO-%d: each rank updated its part of parameter %s, which all need", s.c.Opt.Zero, r.Updates.Name)
}

// op emits op on one rank's parts. An op that changes nothing but the layout of its operand is not emitted itself.
func (s *splitter) op(op *ir.Op) error {
	want := shardings(op.Out)
	if op.Move() == ir.Keeps && slices.Equal(op.In[0].Type.Dims, op.Out[0].Type.Dims) {
		s.b.Loc = s.c.Loc(op.Loc)
		s.local[op.Out[0]] = s.relay(op, want[0])
		return nil
	}
	plan := layout.Of(s.m, op, shardings(op.In), want)
	outs, err := s.emit(op, plan)
	if err != nil {
		return err
	}
	for i, v := range op.Out {
		w := outs[i]
		if !plan.Out[i].Equal(want[i]) {
			s.b.Rename(w, v.Name+".partial")
			w = s.change(w, plan.Out[i], want[i], v.Name, op.Why)
		}
		s.b.Rename(w, v.Name)
		s.local[v] = w
	}
	return nil
}

// relay lays the operand of op, which makes a copy of it, out as to, though other layouts of the operand may exist: what
// ZeRO gathers for the forward pass is not kept for the backward pass.
func (s *splitter) relay(op *ir.Op, to mesh.Sharding) *ir.Value {
	v := op.In[0]
	if v.Sharding.Equal(to) {
		return s.local[v]
	}
	w := s.change(s.local[v], v.Sharding, to, op.Out[0].Name, op.Why)
	return s.b.Rename(w, op.Out[0].Name)
}

// why says why a layout of v that op needs must be made, as far as more is known than which it is.
func (s *splitter) why(op *ir.Op, v *ir.Value, plan layout.Plan) string {
	if v.Op != nil && v.Op.Why != "" {
		return v.Op.Why
	}
	if op.Why != "" {
		return op.Why
	}
	for _, n := range plan.Notes {
		if strings.HasPrefix(n, "%"+v.Name+" ") {
			return n
		}
	}
	if len(v.Sharding.Partial) > 0 {
		return ""
	}
	return fmt.Sprintf("%s needs %s otherwise than it is", op.Def.Name, v.Name)
}

// emit appends op as planned, with the reductions that must follow at once.
func (s *splitter) emit(op *ir.Op, plan layout.Plan) ([]*ir.Value, error) {
	in := make([]*ir.Value, len(op.In))
	inDims, outDims := make([][]int, len(op.In)), make([][]int, len(op.Out))
	for i, v := range op.In {
		if v == nil {
			continue
		}
		s.b.Loc = s.c.Loc(op.Loc)
		in[i] = s.get(v, plan.In[i], s.why(op, v, plan))
		inDims[i] = in[i].Type.Dims
	}
	for i, v := range op.Out {
		d, err := plan.Out[i].Local(s.m, v.Type.Dims)
		if err != nil {
			return nil, fmt.Errorf("BUG: %s %s: %w", v.Name, plan.Out[i], err)
		}
		outDims[i] = d
	}
	attrs := op.Attrs
	if r := op.Def.Rules.Resize; r != nil && !same(op, inDims, outDims) {
		attrs = r(op, inDims, outDims)
	}
	s.b.Loc = op.Loc
	outs := s.call(op, attrs, in, plan.Index)
	for i, w := range outs {
		if !slices.Equal(w.Type.Dims, outDims[i]) {
			return nil, fmt.Errorf("BUG: %s makes %s on a rank, its factor rule says %v", op.Def.Name, w.Type, outDims[i])
		}
		w.Sharding = plan.Out[i]
	}
	for _, r := range plan.Reduce {
		s.b.Loc = s.c.Loc(op.Loc)
		for _, axis := range slices.Backward(r.Axes) {
			outs[r.Out] = ops.AllReduce(s.b, axis, r.Op, outs[r.Out])[0]
			outs[r.Out].Sharding = plan.Out[r.Out]
			outs[r.Out].Op.Why = fmt.Sprintf("the %s over a dimension that is split over %s", r.Op, axis)
		}
	}
	return outs, nil
}

// call emits op with local attributes and operands; of an indexed dim it works on the part that index tells.
func (s *splitter) call(op *ir.Op, attrs any, in []*ir.Value, index *layout.Index) []*ir.Value {
	if index == nil {
		return slices.Clone(s.b.EmitN(op.Def, attrs, in...))
	}
	k := fmt.Sprintf("first %v %d", index.Axes, index.Size)
	first := s.first[k]
	if first == nil {
		ways := 1
		for _, axis := range index.Axes {
			ways *= s.m.Size(axis)
		}
		first = ops.MulScalar(s.b, ops.Iota(s.b, dtype.I64, []int{ways}, 0), float64(index.Size))
		for _, axis := range index.Axes {
			first = ops.ShardSlice(s.b, first, axis, 0, s.m.Size(axis))
		}
		first = s.b.Rename(ops.Reshape(s.b, first, nil), "first")
		s.first[k] = first
	}
	return slices.Clone(op.Def.Rules.Indexed(s.b, op, attrs, in, first))
}

func same(op *ir.Op, in, out [][]int) bool {
	for i, v := range op.In {
		if v != nil && !slices.Equal(v.Type.Dims, in[i]) {
			return false
		}
	}
	for i, v := range op.Out {
		if !slices.Equal(v.Type.Dims, out[i]) {
			return false
		}
	}
	return true
}

// rematerialise computes a part of a replicated value that is cheap to make, operand for operand; nil when it is not
// cheap, or its op cannot make that part alone.
func (s *splitter) rematerialise(v *ir.Value, to mesh.Sharding) *ir.Value {
	op := v.Op
	if op == nil || !v.Sharding.IsReplicated() || len(op.Out) != 1 || !cheap(op) {
		return nil
	}
	plan := layout.Of(s.m, op, shardings(op.In), []mesh.Sharding{to})
	if !plan.Out[0].Equal(to) || len(plan.Reduce) > 0 {
		return nil
	}
	loc := s.b.Loc
	outs, err := s.emit(op, plan)
	s.b.Loc = loc
	if err != nil {
		return nil
	}
	return s.b.Rename(outs[0], v.Name)
}

func cheap(op *ir.Op) bool {
	if len(op.In) == 0 {
		return true
	}
	if op.Def.Rules.Impl == nil {
		return false
	}
	k := op.Def.Rules.Impl(op).Kind
	return k == kir.View || k == kir.Pointwise
}

// hoist moves every collective that combines, and what was made late for the results, to right after the op that makes
// its operand.
func hoist(f *ir.Func, late map[*ir.Op]bool) {
	after := map[*ir.Op][]*ir.Op{}
	var rest []*ir.Op
	for _, op := range f.Ops {
		if (op.Def.Rules.Combines || late[op] && len(op.In) == 1) && op.In[0].Op != nil {
			after[op.In[0].Op] = append(after[op.In[0].Op], op)
		} else {
			rest = append(rest, op)
		}
	}
	f.Ops = f.Ops[:0]
	var place func(op *ir.Op)
	place = func(op *ir.Op) {
		f.Ops = append(f.Ops, op)
		for _, r := range after[op] {
			place(r)
		}
	}
	for _, op := range rest {
		place(op)
	}
}
