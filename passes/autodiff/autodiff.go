// Package autodiff extends @step with the gradients of loss_sum with respect to every trained parameter.
//
// # Design
//
// Reverse accumulation over the straight-line program, once: ops are visited last to first, and the gradient
// of a value is the sum of what its readers contribute. The rule of an op is its VJP; an op without one is
// first replaced by its Decompose, whose parts have rules. Nothing is overwritten in this IR, so a rule may
// read any operand or result of the forward op, and what is kept for the backward part is simply what has
// uses there.
//
// Only values on a path from a trained parameter to the loss are visited: the gradient of the data or of a
// frozen weight is never built. The gradient of %v is called %d_v and has v's type.
//
// The gradient is that of the SUM of the per-sample losses (seed 1), not of the mean. The division by the
// number of counted elements is the optimizer's, after gradients were added up over ranks and
// micro-batches, which makes any split of the batch give the same result.
//
// An op that has no gradient (a comparison, argmax, floor) ends a path. That is a remark when another path
// reaches the parameter, and an error when it is the only one and cuts a float value: training would
// silently leave the parameter as it was. A parameter that the loss does not depend on gets a remark; the
// optimizer leaves it alone, as PyTorch does when p.grad is None.
//
// With fp16 the seed is the loss scale (see seed), and all gradients are that much larger; result "grad_scale" says how much.
//
// Results: one named "grad/<parameter>" for each gradient; the optimizer pass consumes them.
package autodiff

import (
	"fmt"
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/grad"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Run differentiates @step.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	f := c.Module.Func(abi.FuncStep)
	if f == nil && c.Opt.Loss == pass.NoLoss {
		return nil
	}
	if f == nil {
		return fmt.Errorf("there is no @step to differentiate")
	}
	loss := f.Result(abi.LossSum)
	if loss == nil {
		return fmt.Errorf("@step has no result loss_sum")
	}
	expand(c, f)
	loss = f.Result(abi.LossSum)
	d := &differ{
		c: c, f: f, b: ir.NewBuilder(f),
		active: active(f),
		named:  map[*ir.Value]bool{},
		first:  firstReaders(f),
	}
	d.sum = grad.New(d.b, d.active, d.name)
	if err := d.reverse(loss); err != nil {
		return err
	}
	if err := d.results(); err != nil {
		return err
	}
	f.DCE()
	return nil
}

// expand replaces, in rounds, each op that has a decomposition but no VJP, where a gradient will pass.
func expand(c *pass.Context, f *ir.Func) {
	for round := 0; round < 8; round++ {
		on := active(f)
		n := c.Rewrite(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
			r := &op.Def.Rules
			if r.VJP != nil || r.Decompose == nil || r.NoGrad != "" || !grad.Any(on, op.Out) {
				return nil
			}
			return r.Decompose(b, op)
		})
		if n == 0 {
			return
		}
	}
}

// active marks the float values that depend on a trained parameter through ops that have gradients.
func active(f *ir.Func) map[*ir.Value]bool {
	on := map[*ir.Value]bool{}
	for _, p := range f.Params {
		if p.Role == ir.Param && p.Type.DType.IsFloat() {
			on[p] = true
		}
	}
	grad.Spread(on, f.Ops)
	return on
}

type differ struct {
	c      *pass.Context
	f      *ir.Func
	b      *ir.Builder
	active map[*ir.Value]bool
	sum    *grad.Reverse
	named  map[*ir.Value]bool   // gradients that have their name
	first  map[*ir.Value]*ir.Op // the first reader of a parameter: its gradient is complete there
}

// reverse visits the ops last to first.
func (d *differ) reverse(loss *ir.Value) error {
	forward := d.f.Ops
	d.b.Loc = ir.Loc{Node: "loss", Derived: d.c.Pass}
	if loss.Op != nil {
		d.b.Loc = d.c.Loc(loss.Op.Loc)
	}
	if !d.active[loss] {
		return ir.Errorf(d.b.Loc, "the loss does not depend on any trained parameter").
			Note("gtc inspect lists the file's tensors, and why each is trained or not; --train GLOB trains more of them")
	}
	d.sum.Add(loss, d.seed(loss))
	for i := len(forward) - 1; i >= 0; i-- {
		if err := d.visit(forward[i]); err != nil {
			return err
		}
	}
	return nil
}

// seed is the gradient of the loss: 1, or with fp16 the loss scale over the number of terms of the loss, rounded to a power of
// two, so that it stands for the scale of a mean loss, as PyTorch's GradScaler has it. It is made at the start of the function.
func (d *differ) seed(loss *ir.Value) *ir.Value {
	if d.c.Opt.Precision != "fp16" {
		return ops.ScalarLike(d.b, loss, 1)
	}
	if p := d.f.Param(abi.LossScale); p != nil {
		panic(ir.Errorf(ir.Loc{}, "the model has a tensor %q %s, which is the name of the loss scale in checkpoints: rename it", p.Name, p.Type))
	}
	scale := d.b.Param(abi.LossScale, ir.T(dtype.F32), ir.State)
	first := d.c.Opt.LossScale
	if first == 0 {
		first = pass.FirstLossScale
	}
	array := ir.NewArray(scale.Type)
	array.F[0] = first
	scale.Init = array.Tensor()
	mark := len(d.f.Ops)
	seed := d.b.Rename(ops.MulScalar(d.b, scale, 1/terms(loss)), pass.GradScale)
	d.f.Ops = append(slices.Clone(d.f.Ops[mark:]), d.f.Ops[:mark]...)
	d.b.Result(pass.GradScale, seed)
	return ops.Reshape(d.b, ops.Cast(d.b, seed, loss.Type.DType), loss.Type.Dims)
}

// terms is the power of two nearest to the number of elements that the loss is the sum of; 1 when it is no sum.
func terms(loss *ir.Value) float64 {
	v := loss
	for v.Moved() == ir.Keeps || v.Moved() == ir.Casts {
		v = v.Op.In[0]
	}
	if ops.Reduction(v.Op) != "sum" || v.Op.In[0].Type.Elems() == 0 {
		return 1
	}
	return math.Exp2(math.Round(math.Log2(float64(v.Op.In[0].Type.Elems()))))
}

// visit passes the gradients of op's results on to its operands.
func (d *differ) visit(op *ir.Op) error {
	d.b.Loc = d.c.Loc(op.Loc)
	if err := d.sum.Step(op); err != nil {
		return err
	}
	for _, v := range op.In {
		if v != nil && d.first[v] == op { // finish early: overlap can start its all-reduce here
			d.sum.Of(v)
		}
	}
	return nil
}

// firstReaders finds the op that reads each parameter first.
func firstReaders(f *ir.Func) map[*ir.Value]*ir.Op {
	first := map[*ir.Value]*ir.Op{}
	for _, op := range f.Ops {
		for _, v := range op.In {
			if v != nil && v.Op == nil && first[v] == nil {
				first[v] = op
			}
		}
	}
	return first
}

// name calls the gradient of v d_<v>.
func (d *differ) name(g, v *ir.Value) {
	if g.Op != nil && !d.named[g] && g.Op.Loc.Derived == d.c.Pass && ops.Literal(g.Op) == nil {
		d.named[g] = true
		d.b.Rename(g, "d_"+v.Name)
	}
}

// results appends the parameter gradients and explains the parameters that have none.
func (d *differ) results() error {
	var without []*ir.Value
	for _, p := range d.f.Params {
		if p.Role != ir.Param {
			continue
		}
		d.b.Loc = ir.Loc{Node: p.Name, Derived: d.c.Pass}
		if g := d.sum.Of(p); g != nil {
			d.b.Result(abi.Gradient.Of(p.Name), g)
		} else {
			without = append(without, p)
		}
	}
	if len(without) == 0 {
		return nil
	}
	return d.explain(without)
}

// explain tells apart parameters the loss does not depend on and those whose only paths are cut.
func (d *differ) explain(without []*ir.Value) error {
	needed := reaches(d.f)
	for _, p := range without {
		op := d.cutOf(p, needed)
		switch {
		case op == nil:
			d.c.Remark(p, "has no gradient because the loss does not depend on it: the optimizer leaves it alone")
		case hasFloat(op.Out):
			return ir.Errorf(op.Loc, "parameter %q has no gradient: its only way to the loss goes through %s, which has no gradient (%s)",
				p.Name, op.Def.Name, op.Def.Rules.NoGrad).Note("freeze it with --freeze %q if that is meant", p.Name)
		default:
			d.c.Remark(p, "has no gradient because only %s reads it on the way to the loss (%s): the optimizer leaves it alone",
				op.Def.Name, op.Def.Rules.NoGrad)
		}
	}
	return nil
}

// reaches marks the values that loss_sum depends on.
func reaches(f *ir.Func) map[*ir.Value]bool {
	live := map[*ir.Value]bool{f.Result(abi.LossSum): true}
	for i := len(f.Ops) - 1; i >= 0; i-- {
		if op := f.Ops[i]; grad.Any(live, op.Out) {
			for _, v := range op.In {
				live[v] = true
			}
		}
	}
	return live
}

// cutOf finds the first op without a gradient between p and the loss, nil when there is no way at all.
func (d *differ) cutOf(p *ir.Value, needed map[*ir.Value]bool) *ir.Op {
	if !needed[p] {
		return nil
	}
	from := map[*ir.Value]bool{p: true}
	for _, op := range d.f.Ops {
		if !grad.Any(from, op.In) || !grad.Any(needed, op.Out) {
			continue
		}
		if op.Def.Rules.VJP == nil {
			return op
		}
		for _, v := range op.Out {
			from[v] = true
		}
	}
	return nil
}

func hasFloat(vs []*ir.Value) bool {
	for _, v := range vs {
		if v.Type.DType.IsFloat() {
			return true
		}
	}
	return false
}
