// Package optimizer turns the gradients of @step into updates of parameters and optimizer state.
//
// # Design
//
// An update is ordinary ops: sharded, fused and planned like the rest of the step. Everything that does not
// depend on the element (learning rate, bias corrections, clipping) is computed once as a scalar, in float64
// from the step counter, and then cast; what is left per parameter is a pure pointwise chain over the
// parameter, its gradient and its state, which fuses into one kernel and one pass over memory. LAMB and LARS
// also need two norms per parameter.
//
// autodiff's gradients are those of the summed loss. Here they are divided by the global number of counted
// elements, together with the clipping coefficient: g = d_sum * (coef / count).
//
// The formulas are those of torch.optim (version 2) with the defaults of each class, of the Lion paper
// (arXiv:2302.06675), of LAMB (arXiv:1904.00962) and of LARS (arXiv:1708.03888); clipping is
// torch.nn.utils.clip_grad_norm_. Each rule is in rules.go beside its formula.
//
// State tensors are parameters of role State called optim/<kind>/<parameter>, zeros at the start; the step
// counter is "step" i64[] and counts finished updates. Results: lr f32[] and, with clipping or Options.GradNorm,
// grad_norm f32[], that of the mean loss before clipping.
// The grad/<parameter> results stay, divided, only when Options.Check asks for them.
package optimizer

import (
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Run appends the update to @step.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	f := c.Module.Func(abi.FuncStep)
	if f == nil && c.Opt.Loss == pass.NoLoss {
		return nil
	}
	if f == nil {
		return fmt.Errorf("there is no @step to update parameters in")
	}
	opt := withDefaults(c.Opt.Optimizer)
	rule, ok := rules[opt.Name]
	if !ok {
		return ir.Errorf(ir.Loc{}, "unknown optimizer %q", opt.Name).Note("known are %s", strings.Join(Names(), ", "))
	}
	if err := checkOptions(c.Opt, opt); err != nil {
		return err
	}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "optimizer", Derived: c.Pass}
	u := &updater{c: c, b: b, f: f, opt: opt, rule: rule, consts: map[*ir.Value]map[int]*ir.Value{},
		once: map[string]*ir.Value{}}
	u.scaling = u.takeScale()
	u.takeCount()
	grads := u.takeGrads()
	u.oneOfSamples(grads)
	for i := range grads {
		u.spare(&grads[i])
	}
	u.prepare(grads)
	for _, g := range grads {
		u.update(g)
	}
	u.tellNorm()
	next := ops.Add(b, u.step, ops.ScalarLike(b, u.step, 1))
	b.Update(u.step, b.Rename(next, "step.next"))
	if u.scaling != nil {
		u.advance()
	}
	if u.empty != nil {
		u.countEmpty()
	}
	u.keep(grads)
	f.DCE()
	return nil
}

// grad is a trained parameter with the gradient of the summed loss.
type grad struct {
	param, sum *ir.Value
	loc        ir.Loc
	lookups    []*ir.Op // what sum adds up when the parameter is a table, which rows are only looked up of; else nil
	rows       *rows    // the gradient of the rows that are looked up, when the update touches no others; else nil
	touched    *ir.Value
}

// updater builds the update of one @step.
type updater struct {
	c    *pass.Context
	b    *ir.Builder
	f    *ir.Func
	opt  pass.Optimizer
	rule rule

	step  *ir.Value // i64[] updates done before this one
	t     *ir.Value // f64[] number of this update, from 1
	lr    *ir.Value // f64[] learning rate of this update
	scale *ir.Value // f32[] factor from the summed gradient to the one the rule sees
	mean  *ir.Value // f32[] 1/count, and unscaled

	divisor *ir.Value  // f32[] by which gradients are divided; 1 when nothing counts
	scaling *scaling   // of the loss, with fp16; else nil
	empty   *emptiness // nil when something counts in every step
	squares *ir.Value  // f64[] sum of the squares of the gradients so far, where only grad_norm asks for it
	norm    *ir.Value  // f32[] of all mean gradients together, before clipping; nil until it is known

	consts map[*ir.Value]map[int]*ir.Value // scalars as f32 of n dims, see like
	once   map[string]*ir.Value            // scalars that all parameters share, see oncef
}

// oncef is the scalar of that name, made by build the first time.
func (u *updater) oncef(name string, build func(b *ir.Builder) *ir.Value) *ir.Value {
	if u.once[name] == nil {
		u.once[name] = u.b.Rename(build(u.b), name)
	}
	return u.once[name]
}

// takeGrads removes autodiff's gradient results from the function and returns them in their order.
func (u *updater) takeGrads() []grad {
	var grads []grad
	kept := u.f.Results[:0:0]
	for _, r := range u.f.Results {
		name, ok := abi.Gradient.Cut(r.Name)
		if !ok || r.Updates != nil {
			kept = append(kept, r)
			continue
		}
		p := u.f.Param(name)
		if p == nil {
			panic("BUG: gradient of unknown parameter " + name)
		}
		g := grad{param: p, sum: r.Value, loc: ir.Loc{Node: p.Name, Derived: u.c.Pass}}
		if r.Value.Op != nil {
			g.loc = u.c.Loc(r.Value.Op.Loc)
		}
		grads = append(grads, g)
	}
	u.f.Results = kept
	return grads
}

// prepare computes the scalars: step number, learning rate, division by count, clipping.
func (u *updater) prepare(grads []grad) {
	b := u.b
	if u.step = u.f.Param(abi.StepCount); u.step == nil {
		u.step = b.Param(abi.StepCount, ir.T(dtype.I64), ir.State)
	}
	if u.step.Role != ir.State {
		panic(ir.Errorf(ir.Loc{}, "the model has a tensor %q %s, which is the name of the counter of steps in checkpoints: rename it", u.step.Name, u.step.Type))
	}
	done := b.Rename(ops.Cast(b, u.step, dtype.F64), "done")
	made := done
	if u.scaling != nil { // skipped steps are none to the moments of Adam
		made = ops.Sub(b, done, ops.Cast(b, u.scaling.skipped, dtype.F64))
	}
	if u.empty != nil {
		made = ops.Sub(b, made, ops.Cast(b, u.empty.steps, dtype.F64))
	}
	u.t = b.Rename(ops.AddScalar(b, made, 1), "t")
	u.lr = b.Rename(schedule(b, done, u.opt.LR, u.c.Opt.Schedule), "lr.f64")
	b.Result(abi.Rate, b.Rename(ops.Cast(b, u.lr, dtype.F32), abi.Rate))
	u.mean = b.Rename(ops.Recip(b, u.divisor), "mean_scale")
	if u.scaling != nil {
		u.mean = b.Rename(ops.Mul(b, u.mean, ops.Recip(b, u.scaling.by)), "mean_scale")
	}
	u.scale = u.mean
	clip := u.c.Opt.ClipNorm > 0 && len(grads) > 0
	if !clip && u.scaling == nil {
		return
	}
	norm := u.globalNorm(grads)
	u.norm = norm
	if clip {
		b.Result(abi.GradNorm, norm)
		coef := ops.Div(b, ops.ScalarLike(b, norm, u.c.Opt.ClipNorm), ops.AddScalar(b, norm, 1e-6))
		coef = b.Rename(ops.Minimum(b, coef, ops.ScalarLike(b, coef, 1)), "clip_coef")
		u.scale = b.Rename(ops.Mul(b, u.mean, coef), "grad_scale")
	}
}

// globalNorm is the 2-norm of all mean gradients together, f32[].
func (u *updater) globalNorm(grads []grad) *ir.Value {
	b := u.b
	for _, g := range grads {
		u.addSquares(g)
	}
	total := u.squares
	b.Loc = ir.Loc{Node: "clip", Derived: u.c.Pass}
	if total == nil { // nothing is trained
		total = ops.Scalar(b, dtype.F64, 0)
	}
	if u.scaling != nil {
		u.scaling.judge(b, total)
	}
	return u.root(total)
}

// addSquares adds the squares of a gradient to the sum.
func (u *updater) addSquares(g grad) {
	u.b.Loc = g.loc
	sq := ops.Cast(u.b, u.sumSquares(wide(u.b, g.squared())), dtype.F64)
	if u.squares != nil {
		sq = ops.Add(u.b, u.squares, sq)
	}
	u.squares = sq
}

// root is the norm of the mean gradients, f32[], from the sum of the squares of the summed ones.
func (u *updater) root(squares *ir.Value) *ir.Value {
	norm := ops.Cast(u.b, ops.Sqrt(u.b, squares), dtype.F32)
	return u.b.Rename(ops.Mul(u.b, norm, u.mean), abi.GradNorm)
}

// tellsNorm reports whether grad_norm is a result. With half-precision messages of a pipeline the mean of a gradient must be
// known before the last gradient is, which a norm that all stages hear of beside the count would prevent (passes/compress).
func (u *updater) tellsNorm() bool {
	o := u.c.Opt
	return o.ClipNorm > 0 || o.GradNorm && !(o.PP > 1 && o.GradComm.DType == "f16")
}

// tellNorm makes the norm a result.
func (u *updater) tellNorm() {
	if u.norm == nil && u.squares != nil {
		u.b.Loc = ir.Loc{Node: abi.GradNorm, Derived: u.c.Pass}
		u.norm = u.root(u.squares)
	}
	if u.norm != nil && u.tellsNorm() && u.f.Result(abi.GradNorm) == nil {
		u.b.Result(abi.GradNorm, u.norm)
	}
}

// wide is x in f32 when it is in half precision: squares of gradients and an eps of 1e-8 are zero in f16, so state and
// arithmetic of updates are f32, and only the parameter is rounded.
func wide(b *ir.Builder, x *ir.Value) *ir.Value {
	if d := x.Type.DType; d == dtype.F16 || d == dtype.BF16 {
		return ops.Cast(b, x, dtype.F32)
	}
	return x
}

// update appends the update of one parameter. A norm that nothing waits for is summed up beside the updates, so that a
// gradient need not stay until the last one is there.
func (u *updater) update(g grad) {
	if u.norm == nil && u.tellsNorm() {
		u.addSquares(g)
	}
	u.b.Loc = g.loc
	r := &run{updater: u, grad: g, name: g.param.Name, decays: u.decays(u.opt, g.param), from: map[*ir.Value]*ir.Value{}}
	old := r.read(g.param)
	r.p = wide(u.b, old)
	r.g = ops.Mul(u.b, wide(u.b, g.each()), r.scalar(u.scale))
	r.write(old, ops.Cast(u.b, u.rule.build(r), g.param.Type.DType))
	if u.opt.WeightDecay != 0 && !r.decays {
		u.c.Remark(g.param, "has no weight decay because --no-decay excludes it")
	}
}

// keep leaves the mean gradients as results for gtc check, zeros for parameters without one.
func (u *updater) keep(grads []grad) {
	if !u.c.Opt.Check {
		return
	}
	have := map[*ir.Value]bool{}
	for _, g := range grads {
		have[g.param] = true
		u.b.Loc = g.loc
		mean := ops.Mul(u.b, g.sum, u.like(u.mean, g.sum))
		u.b.Result(abi.Gradient.Of(g.param.Name), u.b.Rename(mean, "mean_d_"+g.param.Name))
	}
	for _, p := range u.f.Params {
		if p.Role == ir.Param && !have[p] {
			u.b.Loc = ir.Loc{Node: p.Name, Derived: u.c.Pass}
			u.b.Result(abi.Gradient.Of(p.Name), ops.Zeros(u.b, p.Type))
		}
	}
}

// like is scalar s (f64[] or f32[]) in x's element type and dims. The cast and the reshape are shared.
func (u *updater) like(s, x *ir.Value) *ir.Value {
	n := len(x.Type.Dims)
	if u.consts[s] == nil {
		u.consts[s] = map[int]*ir.Value{}
	}
	key := n<<8 | int(x.Type.DType)
	one := u.consts[s][key]
	if one == nil {
		one = s
		if s.Type.DType != x.Type.DType {
			one = ops.Cast(u.b, s, x.Type.DType)
		}
		dims := make([]int, n)
		for i := range dims {
			dims[i] = 1
		}
		one = ops.Reshape(u.b, one, dims)
		u.consts[s][key] = one
	}
	return ops.Expand(u.b, one, x.Type.Dims)
}

// decays reports whether weight decay applies to p. Its number of dims is that in the model's file.
func (u *updater) decays(o pass.Optimizer, p *ir.Value) bool {
	dims := p.Type.Dims
	if d, ok := u.c.FileDims[p.Name]; ok {
		dims = d
	}
	if o.WeightDecay == 0 {
		return false
	}
	for _, g := range o.NoDecay {
		if g == "1d" && len(dims) < 2 || match(g, p.Name) {
			return false
		}
	}
	return true
}

// match reports whether name fits the glob: * is any run of characters (dots and slashes too), ? is one.
func match(glob, name string) bool {
	for i := 0; i < len(glob); i++ {
		if glob[i] == '*' {
			for k := 0; k <= len(name); k++ {
				if match(glob[i+1:], name[k:]) {
					return true
				}
			}
			return false
		}
		if name == "" || glob[i] != '?' && glob[i] != name[0] {
			return false
		}
		name = name[1:]
	}
	return name == ""
}
