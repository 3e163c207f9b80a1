package optimizer

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// rule is one optimizer: its defaults and the ops of one parameter's update.
type rule struct {
	defaults pass.Optimizer       // what zero fields mean
	build    func(*run) *ir.Value // the parameter's new value
}

var rules = map[string]rule{
	"sgd":     {build: sgd},
	"adam":    {pass.Optimizer{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}, adam},
	"adamw":   {pass.Optimizer{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}, adamw},
	"lion":    {pass.Optimizer{Beta1: 0.9, Beta2: 0.99}, lion},
	"adagrad": {pass.Optimizer{Eps: 1e-10}, adagrad},

	"rowwise_adagrad": {pass.Optimizer{Eps: 1e-10}, rowwiseAdagrad},
	"sparse_adam":     {pass.Optimizer{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}, sparseAdam},

	"rmsprop": {pass.Optimizer{Alpha: 0.99, Eps: 1e-8}, rmsprop},
	"lamb":    {pass.Optimizer{Beta1: 0.9, Beta2: 0.999, Eps: 1e-6}, lamb},
	"lars":    {pass.Optimizer{}, lars},
}

// Names lists the optimizers.
func Names() []string {
	var out []string
	for n := range rules {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// withDefaults fills the zero fields of o that have a default.
func withDefaults(o pass.Optimizer) pass.Optimizer {
	if o.Name == "" {
		o.Name = "sgd"
	}
	d := rules[o.Name].defaults
	for _, f := range []struct {
		name  string
		field *float64
		def   float64
	}{{"beta1", &o.Beta1, d.Beta1}, {"beta2", &o.Beta2, d.Beta2}, {"eps", &o.Eps, d.Eps}, {"alpha", &o.Alpha, d.Alpha}} {
		if *f.field == 0 && !slices.Contains(o.Zero, f.name) {
			*f.field = f.def
		}
	}
	return o
}

// checkOptions refuses values for which the formulas have no meaning.
func checkOptions(o *pass.Options, opt pass.Optimizer) error {
	bad := func(what string, v float64, must string) error {
		return ir.Errorf(ir.Loc{}, "the %s of optimizer %s is %v, but must be %s", what, opt.Name, v, must)
	}
	nonneg := []struct {
		what string
		v    float64
	}{{"learning rate", opt.LR}, {"weight decay", opt.WeightDecay}, {"momentum", opt.Momentum}, {"eps", opt.Eps}, {"bound of the gradient norm (--clip-norm)", o.ClipNorm}}
	for _, x := range nonneg {
		if x.v < 0 || math.IsNaN(x.v) || math.IsInf(x.v, 0) {
			return bad(x.what, x.v, "a finite number of 0 or more")
		}
	}
	for _, x := range []float64{opt.Beta1, opt.Beta2, opt.Alpha} {
		if x < 0 || x >= 1 || math.IsNaN(x) {
			return bad("decay rate (--beta1, --beta2 or --alpha)", x, "at least 0 and below 1")
		}
	}
	if opt.Nesterov && (opt.Momentum <= 0 || opt.Dampening != 0) {
		return ir.Errorf(ir.Loc{}, "--nesterov needs --momentum above 0 and no --dampening")
	}
	if opt.WeightDecay != 0 && (opt.Name == sparseAdamName || opt.Name == rowwiseName) {
		return ir.Errorf(ir.Loc{}, "--optimizer %s excludes --weight-decay: it would change the rows of a table that are not looked up", opt.Name)
	}
	return checkSchedule(o.Schedule)
}

// run is the update of one parameter: p the parameter, g its gradient, both of one type (of f32 in half precision). Of a
// table with a sparse gradient, p, g and all state are the rows that are looked up.
type run struct {
	*updater
	grad   grad
	name   string // of the parameter
	p, g   *ir.Value
	decays bool
	from   map[*ir.Value]*ir.Value // the tensor, parameter or state, that what was read of it belongs to
}

// scalar is s in the parameter's type.
func (r *run) scalar(s *ir.Value) *ir.Value { return r.like(s, r.p) }

// num is the constant v in the parameter's type.
func (r *run) num(v float64) *ir.Value { return ops.ScalarLike(r.b, r.p, v) }

// mul is x * v.
func (r *run) mul(x *ir.Value, v float64) *ir.Value { return ops.Mul(r.b, x, r.num(v)) }

// state is the parameter optim/<kind>/<p>, zeros at the start.
func (r *run) state(kind string) *ir.Value { return r.stateOf(kind, r.grad.param.Type.Dims) }

// stateOf is a state of other dims, of which the first is the parameter's.
func (r *run) stateOf(kind string, dims []int) *ir.Value {
	return r.read(r.b.Param(abi.Optim(kind, r.name), ir.T(r.p.Type.DType, dims...), ir.State))
}

// keep makes next the new contents of state s.
func (r *run) keep(s, next *ir.Value) *ir.Value {
	r.write(s, next)
	return next
}

// coupled is g + wd*p: weight decay as an L2 penalty.
func (r *run) coupled() *ir.Value {
	if !r.decays {
		return r.g
	}
	return ops.Add(r.b, r.g, r.mul(r.p, r.opt.WeightDecay))
}

// decoupled is p*(1 - lr*wd): weight decay apart from the gradient (arXiv:1711.05101).
func (r *run) decoupled() *ir.Value {
	if !r.decays {
		return r.p
	}
	return ops.Mul(r.b, r.p, r.scalar(r.oncef("decay", func(b *ir.Builder) *ir.Value {
		return ops.Sub(b, ops.ScalarLike(b, r.lr, 1), ops.MulScalar(b, r.lr, r.opt.WeightDecay))
	})))
}

// average is old*beta + x*(1-beta).
func (r *run) average(old, x *ir.Value, beta float64) *ir.Value {
	return ops.Add(r.b, r.mul(old, beta), r.mul(x, 1-beta))
}

// descend is p - s*x for a scalar s.
func (r *run) descend(p, s, x *ir.Value) *ir.Value {
	return ops.Sub(r.b, p, ops.Mul(r.b, x, r.scalar(s)))
}

// sgd is torch.optim.SGD: buf = momentum*buf + (1-dampening)*g, the first time buf = g.
func sgd(r *run) *ir.Value {
	g := r.coupled()
	if m := r.opt.Momentum; m != 0 {
		buf := r.state("momentum")
		add := g
		if r.opt.Dampening != 0 {
			add = ops.Mul(r.b, g, r.scalar(r.oncef("undamped", func(b *ir.Builder) *ir.Value {
				first := ops.Eq(b, r.t, ops.ScalarLike(b, r.t, 1))
				return ops.Where(b, first, ops.ScalarLike(b, r.t, 1), ops.ScalarLike(b, r.t, 1-r.opt.Dampening))
			})))
		}
		next := r.keep(buf, ops.Add(r.b, r.mul(buf, m), add))
		if r.opt.Nesterov {
			g = ops.Add(r.b, g, r.mul(next, m))
		} else {
			g = next
		}
	}
	return r.descend(r.p, r.lr, g)
}

// moments updates both Adam moments: m of g, v of g².
func (r *run) moments(g *ir.Value) (m, v *ir.Value) {
	ms, vs := r.state("m"), r.state("v")
	m = r.keep(ms, r.average(ms, g, r.opt.Beta1))
	v = r.keep(vs, r.average(vs, ops.Square(r.b, g), r.opt.Beta2))
	return m, v
}

// correction is 1 - beta^t, or its square root, f64[].
func (r *run) correction(name string, beta float64, root bool) *ir.Value {
	return r.oncef(name, func(b *ir.Builder) *ir.Value {
		x := ops.Sub(b, ops.ScalarLike(b, r.t, 1), ops.Pow(b, ops.ScalarLike(b, r.t, beta), r.t))
		if root {
			x = ops.Sqrt(b, x)
		}
		return x
	})
}

// denominator is sqrt(v)/sqrt(1-beta2^t) + eps.
func (r *run) denominator(v *ir.Value) *ir.Value {
	inv := r.oncef("v_scale", func(b *ir.Builder) *ir.Value {
		return ops.Recip(b, r.correction("v_correction", r.opt.Beta2, true))
	})
	return ops.Add(r.b, ops.Mul(r.b, ops.Sqrt(r.b, v), r.scalar(inv)), r.num(r.opt.Eps))
}

// adamStep is p - lr/(1-beta1^t) * m / denominator.
func (r *run) adamStep(p, g *ir.Value) *ir.Value {
	m, v := r.moments(g)
	size := r.oncef("step_size", func(b *ir.Builder) *ir.Value {
		return ops.Div(b, r.lr, r.correction("m_correction", r.opt.Beta1, false))
	})
	return r.descend(p, size, ops.Div(r.b, m, r.denominator(v)))
}

// adam is torch.optim.Adam (L2 penalty in the gradient).
func adam(r *run) *ir.Value { return r.adamStep(r.p, r.coupled()) }

// adamw is torch.optim.AdamW (decoupled decay).
func adamw(r *run) *ir.Value { return r.adamStep(r.decoupled(), r.g) }

// lion is Algorithm 2 of arXiv:2302.06675: the sign of beta1*m + (1-beta1)*g, then m moves with beta2.
func lion(r *run) *ir.Value {
	m := r.state("m")
	dir := ops.Sign(r.b, r.average(m, r.g, r.opt.Beta1))
	r.keep(m, r.average(m, r.g, r.opt.Beta2))
	return r.descend(r.decoupled(), r.lr, dir)
}

// adagrad is torch.optim.Adagrad without lr_decay: sum += g², p -= lr * g / (sqrt(sum) + eps).
func adagrad(r *run) *ir.Value {
	g, sum := r.coupled(), r.state("sum")
	next := r.keep(sum, ops.Add(r.b, sum, ops.Square(r.b, g)))
	den := ops.Add(r.b, ops.Sqrt(r.b, next), r.num(r.opt.Eps))
	return r.descend(r.p, r.lr, ops.Div(r.b, g, den))
}

// rmsprop is torch.optim.RMSprop, not centred: v = alpha*v + (1-alpha)*g², step g / (sqrt(v) + eps).
func rmsprop(r *run) *ir.Value {
	g, vs := r.coupled(), r.state("v")
	v := r.keep(vs, r.average(vs, ops.Square(r.b, g), r.opt.Alpha))
	step := ops.Div(r.b, g, ops.Add(r.b, ops.Sqrt(r.b, v), r.num(r.opt.Eps)))
	if m := r.opt.Momentum; m != 0 {
		buf := r.state("momentum")
		step = r.keep(buf, ops.Add(r.b, r.mul(buf, m), step))
	}
	return r.descend(r.p, r.lr, step)
}

// ratio is ‖x‖/‖y‖ as a scalar, times c; 1 when either norm is zero.
func (r *run) ratio(x, y *ir.Value, c float64) *ir.Value {
	b := r.b
	nx, ny := ops.Sqrt(b, r.sumSquares(x)), ops.Sqrt(b, r.sumSquares(y))
	zero, one := ops.ScalarLike(b, nx, 0), ops.ScalarLike(b, nx, 1)
	ok := ops.And(b, ops.Gt(b, nx, zero), ops.Gt(b, ny, zero))
	safe := ops.Where(b, ok, ny, one)
	return ops.Where(b, ok, ops.MulScalar(b, ops.Div(b, nx, safe), c), one)
}

// lamb is Algorithm 2 of arXiv:1904.00962 with the identity for phi: an Adam direction plus decay, scaled
// by ‖p‖/‖direction‖.
func lamb(r *run) *ir.Value {
	m, v := r.moments(r.g)
	inv := r.oncef("m_scale", func(b *ir.Builder) *ir.Value {
		return ops.Recip(b, r.correction("m_correction", r.opt.Beta1, false))
	})
	dir := ops.Div(r.b, ops.Mul(r.b, m, r.scalar(inv)), r.denominator(v))
	if r.decays {
		dir = ops.Add(r.b, dir, r.mul(r.p, r.opt.WeightDecay))
	}
	trust := r.ratio(r.p, dir, 1)
	return r.descend(r.p, r.lr, ops.Mul(r.b, dir, r.scalar(trust)))
}

// larsTrust is the trust coefficient eta of the LARS paper's experiments.
const larsTrust = 0.001

// lars is Algorithm 1 of arXiv:1708.03888: local rate eta*‖p‖/(‖g‖ + wd*‖p‖), momentum over lr*local*(g + wd*p).
// A parameter without weight decay is updated by plain momentum, as is usual for biases and norms.
func lars(r *run) *ir.Value {
	step := ops.Mul(r.b, r.g, r.scalar(r.lr))
	if r.decays || r.opt.WeightDecay == 0 {
		b := r.b
		np, ng := ops.Sqrt(b, r.sumSquares(r.p)), ops.Sqrt(b, r.sumSquares(r.g))
		zero, one := ops.ScalarLike(b, np, 0), ops.ScalarLike(b, np, 1)
		ok := ops.And(b, ops.Gt(b, np, zero), ops.Gt(b, ng, zero))
		den := ops.Where(b, ok, ops.Add(b, ng, ops.MulScalar(b, np, r.opt.WeightDecay)), one)
		local := ops.Where(b, ok, ops.Div(b, ops.MulScalar(b, np, larsTrust), den), one)
		rate := ops.Mul(b, local, ops.Cast(b, r.lr, np.Type.DType))
		step = ops.Mul(b, r.coupled(), r.scalar(rate))
	}
	if m := r.opt.Momentum; m != 0 {
		buf := r.state("momentum")
		step = r.keep(buf, ops.Add(r.b, r.mul(buf, m), step))
	}
	return ops.Sub(r.b, r.p, step)
}

// Names of the optimizers that know tables.
const (
	sparseAdamName = "sparse_adam"
	rowwiseName    = "rowwise_adagrad"
)

// sparseAdam is torch.optim.SparseAdam for tables: Adam in the rows that are looked up, while the moments of the others stay
// as they are; eps is added to sqrt(v) before the corrections, unlike Adam's. The other parameters take Adam.
func sparseAdam(r *run) *ir.Value {
	if !r.isTable() {
		return adam(r)
	}
	m, v := r.moments(r.g)
	size := r.oncef("sparse_step_size", func(b *ir.Builder) *ir.Value {
		rate := ops.Mul(b, r.lr, r.correction("v_correction", r.opt.Beta2, true))
		return ops.Div(b, rate, r.correction("m_correction", r.opt.Beta1, false))
	})
	return r.descend(r.p, size, ops.Div(r.b, m, ops.Add(r.b, ops.Sqrt(r.b, v), r.num(r.opt.Eps))))
}

// rowwiseAdagrad is the exact row-wise Adagrad of FBGEMM and TorchRec (arXiv:1906.00091 names it) for tables: sum, one number a
// row, grows by the mean of the squares of the row's gradient. The other parameters take Adagrad.
func rowwiseAdagrad(r *run) *ir.Value {
	if !r.isTable() {
		return adagrad(r)
	}
	b := r.b
	dims := slices.Clone(r.grad.param.Type.Dims)
	var inner []int
	for d := 1; d < len(dims); d++ {
		dims[d], inner = 1, append(inner, d)
	}
	sum := r.stateOf("row_sum", dims)
	next := r.keep(sum, ops.Add(b, sum, ops.ReduceMean(b, ops.Square(b, r.g), inner...)))
	den := ops.Add(b, ops.Sqrt(b, next), ops.ScalarLike(b, next, r.opt.Eps))
	return r.descend(r.p, r.lr, ops.Div(b, r.g, ops.Expand(b, den, r.g.Type.Dims)))
}
