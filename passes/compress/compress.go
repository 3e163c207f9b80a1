// Package compress changes how gradients travel between data-parallel ranks: in half precision, compressed with error
// feedback, or not at all on most steps (local SGD).
//
// # Design
//
// It works on the program of one rank, after spmd has made the reductions explicit and the micro-batches are summed. A
// reduction of a gradient is an all_reduce (or, under ZeRO, a reduce_scatter) over dp from which a trained parameter's update is
// made element by element: updates are followed backwards through values of the parameter's dims. Everything else that is
// reduced over dp (loss, count, statistics, norms) stays as it is.
//
// autodiff's gradients are those of the summed loss. What is sent here is the mean gradient, d/count, whose size does not
// depend on the batch, and whose error can be kept from a step with few targets to one with many; the sum is made of it
// again behind the reduction. bf16 has the range of f32 and is sent as it is.
//
// With g the mean gradient's part of this rank, so that the sum over ranks is the mean gradient:
//
//	bf16, f16   all_reduce(cast(g))
//	powersgd    M = g + e as a matrix; P = orth(all_reduce(M Q)); Q = all_reduce(Mᵀ P); result P Qᵀ; e = M - P Qᵀ/n
//	topk        M = g + e; the k elements of largest size go to all by all_gather and are added; e = M without them
//	int8        M = g + e; q = round(M / s) with s = max|M|/127 for each row; result Σ q s; e = M - q s
//
// (Vogels et al. 2019, arXiv:1905.13727, algorithms 1 and 2; Stich et al. 2018, arXiv:1809.07599; Seide et al. 2014.) The error e is
// state that differs between the ranks: mesh.Sharding calls it a partial sum over dp, and what is meant by "the sum of all
// errors is what the model has not seen yet" is kept when another number of ranks goes on.
//
// Local SGD (Stich 2018, arXiv:1805.09767; Lin et al. 2018, arXiv:1808.07217) reduces no gradients: see local.go.
package compress

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// axis is that of the ranks between which gradients travel.
const axis = mesh.DataAxis

// scaledPrecision is the precision whose gradients are scaled: they are of the size of mean gradients times the loss scale, and sent as
// they are. What overflows on the way makes the step one that is skipped.
const scaledPrecision = "fp16"

// Run changes the reductions of gradients in @step as Options.GradComm says.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	o := c.Opt.GradComm
	if o == (pass.GradComm{}) {
		return nil
	}
	if err := check(c, o); err != nil {
		return err
	}
	f := c.Module.Func(abi.FuncStep)
	if f == nil {
		return nil
	}
	ranks := c.Module.Mesh.Size(axis)
	grads := find(f)
	if o.Period > 0 {
		return local(c, f, grads)
	}
	z := &squeezer{c: c, o: o, f: f, b: ir.NewBuilder(f), ranks: ranks, grads: grads}
	return z.run()
}

// check refuses options that do not go together, by name.
func check(c *pass.Context, o pass.GradComm) error {
	refuse := func(format string, args ...any) error { return ir.Errorf(ir.Loc{}, format, args...) }
	asked := map[string]string{"f32": "fp32", "f16": "fp16"}[o.DType] // as the flag spells it
	if asked == "" {
		asked = o.DType
	}
	flag := "--grad-dtype " + asked
	if o.Compress != "" {
		flag = "--grad-compress " + o.Compress
	}
	if o.Period > 0 {
		flag = "--local-sgd"
	}
	switch {
	case !slices.Contains([]string{"", "f32", "bf16", "f16"}, o.DType):
		return refuse("--grad-dtype must be fp32, bf16 or fp16, not %q", o.DType)
	case !slices.Contains([]string{"", "powersgd", "topk", "int8"}, o.Compress):
		return refuse("--grad-compress must be powersgd, topk or int8, not %q", o.Compress)
	case o.Compress == "powersgd" && o.Rank < 1:
		return refuse("--grad-rank must be at least 1, not %d", o.Rank)
	case o.Compress == "topk" && !(o.Fraction > 0 && o.Fraction <= 1):
		return refuse("--grad-fraction must be above 0 and at most 1, not %g", o.Fraction)
	case o.Period < 0 || o.After < 0:
		return refuse("--local-sgd and --post-local-sgd must not be negative, but are %d and %d", o.Period, o.After)
	case o.After > 0 && o.Period == 0:
		return refuse("--post-local-sgd needs --local-sgd: it says after how many steps that begins")
	case c.Module.Mesh.Size(axis) == 1:
		return refuse("%s needs --dp of at least 2: it says how data-parallel ranks exchange gradients", flag)
	case o.Compress != "" && o.DType != "" && o.DType != "f32":
		return refuse("%s and --grad-dtype %s exclude each other: a compressed gradient is sent in a format of its own", flag, asked)
	case o.Period > 0 && (o.Compress != "" || o.DType != "" && o.DType != "f32"):
		return refuse("--local-sgd excludes --grad-compress and --grad-dtype: it sends parameters instead of gradients")
	}
	return checkLayout(c, o, flag)
}

// checkLayout refuses what does not go with ZeRO, pipelines, loss scaling and gtc check.
func checkLayout(c *pass.Context, o pass.GradComm, flag string) error {
	refuse := func(format string, args ...any) error { return ir.Errorf(ir.Loc{}, format, args...) }
	switch {
	case o.Compress != "" && c.Opt.Precision == scaledPrecision:
		return refuse("%s does not work with --precision fp16: an infinite gradient would stay in the compression error, which is added to later gradients: use bf16", flag)
	case o.Period > 0 && c.Opt.Precision == scaledPrecision:
		return refuse("--local-sgd does not work with --precision fp16: ranks that train by themselves would skip different steps and come to different loss scales: use bf16")
	case o.Compress != "" && c.Opt.Zero > 0:
		return refuse("%s does not work with --zero %d: a rank reduces only its part of a gradient, and does not know the compression error of the whole", flag, c.Opt.Zero)
	case o.Period > 0 && c.Opt.Zero > 0:
		return refuse("--local-sgd does not work with --zero %d: ranks that hold parts of parameters or state cannot train by themselves", c.Opt.Zero)
	case o.Period > 0 && inParts(c) != "":
		return refuse("--local-sgd does not work with --shard of %q over dp: ranks that hold parts of parameters cannot train by themselves", inParts(c))
	case o.Period > 0 && c.Opt.Check:
		return refuse("gtc check compares the gradients of the global batch, which --local-sgd never computes: check without it")
	case o.Period > 0 && c.Module.Mesh.Size(mesh.PipelineAxis) > 1:
		return refuse("--local-sgd does not work with --pp: the stages of a pipeline get the number of targets from the last one only after it is added up over all ranks, so none knows its own mean")
	}
	return nil
}

// inParts names a parameter that is split over dp; "" when there is none.
func inParts(c *pass.Context) string {
	for _, f := range c.Module.Funcs {
		for _, p := range f.Params {
			for d := range p.Sharding.Dims {
				if p.Role == ir.Param && slices.Contains(p.Sharding.Axes(d), axis) {
					return p.Name
				}
			}
		}
	}
	return ""
}

// squeezer rewrites one @step.
type squeezer struct {
	c     *pass.Context
	o     pass.GradComm
	f     *ir.Func
	b     *ir.Builder
	ranks int
	sent  int // number of ops behind the last collective
	grads []gradient
	count *ir.Value // number of counted targets, f32[]
	some  *ir.Value // bool[] it is not zero; nil when it never is
	mean  *ir.Value // 1/count
	seed  *ir.Value // i64[] for powersgd's first Q
}

// run replaces each reduction, then puts the ops in order again: what new ops need may be made later than the old one was.
func (z *squeezer) run() error {
	if len(z.grads) == 0 {
		z.c.Remark(nil, "no gradient is reduced over %s in @step", axis)
		return nil
	}
	if op := counts(z.f); op != nil {
		z.some = op.Out[0]
	}
	place := map[*ir.Op]int{} // position in the old order
	for i, op := range z.f.Ops {
		place[op] = i
	}
	if z.o.Compress != "" || z.o.DType == "f16" && scaledPrecision != z.c.Opt.Precision {
		if err := z.scale(place); err != nil {
			return err
		}
	}
	subst := map[*ir.Value]*ir.Value{}
	wanted := readers(z.f, place)
	var matrices []*factors
	var messages []*message
	for _, g := range z.grads {
		z.b.Loc = z.c.Loc(g.op.Loc)
		mark := len(z.f.Ops)
		z.sent = mark
		var to *ir.Value
		switch {
		case z.o.Compress == "":
			to = z.half(g)
		case g.op.In[0].Type.Elems() < 2:
		case z.o.Compress == "topk":
			messages = append(messages, z.sparse(g))
		case z.o.Compress == "int8":
			messages = append(messages, z.quantised(g))
		default:
			if m := z.project(g); m != nil {
				matrices = append(matrices, m)
			}
		}
		z.at(mark, place, place[g.op])
		if at, ok := wanted[g.op.Out[0]]; ok && z.sent > mark {
			z.at(z.sent, place, at) // so that many are under way at once
		}
		if to != nil {
			subst[g.op.Out[0]] = z.named(to, g.op.Out[0])
		}
	}
	z.finish(matrices, place, wanted, subst)
	z.exchange(messages, place, subst)
	z.f.ReplaceAll(subst)
	sorted(z.f, place)
	z.f.DCE() // which wants operands first
	return nil
}

// scale makes 1/count. With a pipeline and clipping, one message brings the count and the norm to all stages, so that the count
// comes after the gradients: then sums are sent, and errors are kept in their units.
func (z *squeezer) scale(place map[*ir.Op]int) error {
	count := z.f.Result(abi.Count)
	if count == nil {
		return ir.Errorf(ir.Loc{}, "BUG: @step has no result count")
	}
	if z.later(count) {
		if z.o.DType == "f16" {
			return ir.Errorf(ir.Loc{}, "--grad-dtype fp16 does not work with --pp and --clip-norm: the number of targets is known too late to send mean gradients, and sums may exceed the range of fp16: use bf16")
		}
		z.c.Remark(count, "is known after the gradients: errors of compression are kept in units of the summed loss")
		return nil
	}
	z.count = count
	z.b.Loc = z.c.Loc(z.grads[0].op.Loc)
	mark := len(z.f.Ops)
	by := z.count
	if z.some != nil { // zeros are sent when nothing counts
		by = ops.Where(z.b, z.some, by, ops.ScalarLike(z.b, by, 1))
	}
	z.mean = z.b.Rename(ops.Recip(z.b, by), "grad_mean")
	if z.count.Op != nil {
		z.at(mark, place, place[z.count.Op])
	}
	return nil
}

// later reports whether v depends on a reduced gradient.
func (z *squeezer) later(v *ir.Value) bool {
	seen := map[*ir.Op]bool{}
	for _, g := range z.grads {
		seen[g.op] = false
	}
	var walk func(v *ir.Value) bool
	walk = func(v *ir.Value) bool {
		if v == nil || v.Op == nil {
			return false
		}
		if known, ok := seen[v.Op]; ok {
			return !known // a gradient
		}
		seen[v.Op] = true
		return slices.ContainsFunc(v.Op.In, walk)
	}
	return walk(v)
}

// at gives the ops from mark on the place of an old one.
func (z *squeezer) at(mark int, place map[*ir.Op]int, i int) {
	for _, op := range z.f.Ops[mark:] {
		place[op] = i
	}
}

// named gives the new value the name of the one that it replaces.
func (z *squeezer) named(to, old *ir.Value) *ir.Value {
	to.Sharding = old.Sharding
	pass.TakeName(z.b, to, old)
	return to
}

// half reduces in half precision. f16 has the range of mean gradients, not of sums.
func (z *squeezer) half(g gradient) *ir.Value {
	x := g.op.In[0]
	d, wide := dtype.BF16, x.Type.DType
	if z.o.DType == "f16" {
		d, x = dtype.F16, z.scaled(x, z.mean)
	} else if z.o.DType == "f32" {
		return nil
	}
	if wide.Size() <= d.Size() {
		z.c.Remark(g.op.Out[0], "is %s already", wide)
		return nil
	}
	x = z.b.Rename(ops.Cast(z.b, x, d), g.op.In[0].Name+"."+d.String())
	sum := z.b.Emit(g.op.Def, g.op.Attrs, x)
	z.told(sum, g, "the gradient in "+d.String())
	sum = ops.Cast(z.b, sum, wide)
	if d == dtype.F16 {
		sum = z.scaled(sum, z.count)
	}
	return sum
}

// readers gives the place of the first op that reads each value.
func readers(f *ir.Func, place map[*ir.Op]int) map[*ir.Value]int {
	first := map[*ir.Value]int{}
	for _, op := range f.Ops {
		for _, v := range op.In {
			if at, ok := first[v]; v != nil && (!ok || place[op] < at) {
				first[v] = place[op]
			}
		}
	}
	return first
}

// told says why a collective is there. What comes behind it is placed where its result is wanted.
func (z *squeezer) told(v *ir.Value, g gradient, what string) *ir.Value {
	v.Op.Why = what + ", of " + g.param.Name
	v.Op.Loc = z.c.Loc(g.op.Loc)
	z.sent = len(z.f.Ops)
	return v
}

// scaled multiplies x by the scalar s, 1 when there is none.
func (z *squeezer) scaled(x, s *ir.Value) *ir.Value {
	if s == nil {
		return x
	}
	if s.Type.DType != x.Type.DType {
		s = ops.Cast(z.b, s, x.Type.DType)
	}
	return ops.Mul(z.b, x, ops.BroadcastTo(z.b, s, x.Type.Dims))
}

// fed is this rank's part of the mean gradient with the error of the step before, in f32, and the state of that error.
func (z *squeezer) fed(g gradient) (m, state *ir.Value) {
	x := g.op.In[0]
	if x.Type.DType != dtype.F32 {
		x = ops.Cast(z.b, x, dtype.F32)
	}
	state = z.state(abi.KindError, g.param, x.Type)
	state.Sharding.Dims = g.op.Out[0].Sharding.Dims
	state.Sharding.Partial = []string{axis}
	return z.b.Rename(ops.Add(z.b, z.scaled(x, z.mean), state), "fed_"+g.param.Name), state
}

// state is a new state of a parameter; one whose gradient is reduced in several pieces has several.
func (z *squeezer) state(kind string, p *ir.Value, t ir.Type) *ir.Value {
	name := abi.Optim(kind, p.Name)
	for k := 2; z.f.Param(name) != nil; k++ {
		name = abi.Optim(kind, fmt.Sprintf("%s.%d", p.Name, k))
	}
	return z.b.Param(name, t, ir.State)
}

// unlessEmpty is next, or old in a step in which nothing counts: what was sent then updates nothing, and is not gone.
func (z *squeezer) unlessEmpty(old, next *ir.Value) *ir.Value {
	if z.some == nil {
		return next
	}
	return ops.Where(z.b, ops.BroadcastTo(z.b, z.some, next.Type.Dims), next, old)
}

// keep makes next the error that the next step begins with.
func (z *squeezer) keep(state, next *ir.Value) {
	next = z.unlessEmpty(state, next)
	next.Sharding = state.Sharding
	z.b.Update(state, z.b.Rename(next, state.Name+".next"))
}

// back is the summed gradient in the type that it had.
func (z *squeezer) back(g gradient, mean *ir.Value) *ir.Value {
	sum := z.scaled(mean, z.count)
	if d := g.op.In[0].Type.DType; d != dtype.F32 {
		sum = ops.Cast(z.b, sum, d)
	}
	return sum
}

// PerRank lists the mesh axes along which each rank has contents of its own for v, nil for none, and says, in the words of
// package abi, what becomes of them when another number of ranks goes on: errors keep their sum, Q of PowerSGD starts
// anew, optimizer state becomes the mean.
func PerRank(v *ir.Value) (axes []string, merge string) {
	kind, _, ok := abi.CutOptim(v.Name)
	switch {
	case v.Role != ir.State || !ok:
	case kind == abi.KindError:
		return v.Sharding.Partial, abi.MergeSum
	case kind == abi.KindQuery:
		return v.Sharding.Partial, abi.MergeNone
	case len(v.Sharding.Partial) > 0:
		return v.Sharding.Partial, abi.MergeMean
	}
	return nil, ""
}
