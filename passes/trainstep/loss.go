package trainstep

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// elementwise are the losses with a target of the output's dims and a loss for each element. Formulas are
// those of torch.nn.functional.
var elementwise = map[string]func(l *lossBuilder, x, t *ir.Value) *ir.Value{
	"mse":   func(l *lossBuilder, x, t *ir.Value) *ir.Value { return ops.Square(l.b, ops.Sub(l.b, x, t)) },
	"l1":    func(l *lossBuilder, x, t *ir.Value) *ir.Value { return ops.Abs(l.b, ops.Sub(l.b, x, t)) },
	"huber": huber,
	"bce":   bce,
	// x*(1-t) + log(1+exp(-x)), written with softplus(-x), which does not overflow
	"bce_logits": func(l *lossBuilder, x, t *ir.Value) *ir.Value {
		b := l.b
		return ops.Add(b, ops.Mul(b, x, ops.Sub(b, ops.ScalarLike(b, t, 1), t)), ops.Softplus(b, ops.Neg(b, x)))
	},
	"kl_div": klDiv,
}

// lossNames lists the losses for messages.
func lossNames() string {
	names := append(slices.Collect(maps.Keys(elementwise)), "cross_entropy", "nll", "graph", pass.NoLoss)
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// lossBuilder appends a loss to a function.
type lossBuilder struct {
	c       *pass.Context
	b       *ir.Builder
	out     *ir.Value
	metrics bool

	target, weight      *ir.Value
	sum, count, correct *ir.Value // f32[] each; correct only for classification with metrics
}

func (l *lossBuilder) build() error {
	name := l.c.Loss
	element, ok := elementwise[name]
	if !ok && name != "cross_entropy" && name != "nll" {
		return ir.Errorf(ir.Loc{}, "unknown loss %q", name).Note("known losses are %s", lossNames())
	}
	if !l.out.Type.DType.IsFloat() || len(l.out.Type.Dims) == 0 {
		return ir.Errorf(locOf(l.out), "--loss %s needs a float output with a batch dimension, %q is %s", name, l.out.Name, l.out.Type)
	}
	if l.out.Type.Elems() == 0 {
		return ir.Errorf(locOf(l.out), "output %q %s has no elements to take a loss of", l.out.Name, l.out.Type)
	}
	if l.out.Type.DType != dtype.F32 {
		l.out = ops.Cast(l.b, l.out, dtype.F32)
	}
	batch, err := l.batch()
	if err != nil {
		return err
	}
	if ok {
		l.target = l.b.Param("target", l.out.Type, ir.Target)
		l.weight = l.samples(batch)
		w := l.weights(l.out.Type.Dims)
		l.total(ops.Mul(l.b, element(l, l.out, l.target), w))
		l.count = ops.MulScalar(l.b, l.all(l.weight), float64(l.out.Type.Elems()/batch))
		return nil
	}
	return l.classes(batch)
}

// samples is the weight of each sample of the batch, which the function may have already.
func (l *lossBuilder) samples(batch int) *ir.Value {
	if w := weightOf(l.b.F); w != nil {
		return w
	}
	return l.b.Param(abi.SampleWeight, ir.T(dtype.F32, batch), ir.Weight)
}

// graph takes the model's own loss: as sum and count when it is a quotient whose divisor no trained parameter
// reaches, so that no micro-batch waits for the targets of the others.
func (l *lossBuilder) graph(f *ir.Func) {
	b := l.b
	scalar := func(v *ir.Value) *ir.Value { return ops.Reshape(b, ops.Cast(b, v, dtype.F32), nil) }
	v := l.out
	for v.Moved() == ir.Keeps || v.Moved() == ir.Casts && v.Op.In[0].Type.DType.IsFloat() {
		v = v.Op.In[0]
	}
	if v.Op != nil && v.Op.Def.Rules.Divides && v.Type.Elems() == 1 && !trained(f)[v.Op.In[1]] {
		l.sum, l.count = scalar(v.Op.In[0]), scalar(v.Op.In[1])
		if l.metrics {
			l.right(l.sum, l.count)
		} else {
			l.c.Remark(l.out, "is taken as sum and count, because no trained parameter changes its divisor %%%s", v.Op.In[1].Name)
		}
		return
	}
	l.sum, l.count = scalar(l.out), ops.Scalar(b, dtype.F32, 1)
	if w := weightOf(f); w != nil && l.metrics { // an evaluation weighs batches by their samples
		l.count = l.all(w)
		l.sum = ops.Mul(b, l.sum, l.count)
	}
}

// trained marks the values that depend on a trained parameter.
func trained(f *ir.Func) map[*ir.Value]bool {
	on := map[*ir.Value]bool{}
	for _, p := range f.Params {
		on[p] = p.Role == ir.Param
	}
	for _, op := range f.Ops {
		if slices.ContainsFunc(op.In, func(v *ir.Value) bool { return on[v] }) {
			for _, v := range op.Out {
				on[v] = true
			}
		}
	}
	return on
}

// batch is the number of samples: the leading dim of the first input that has dims.
func (l *lossBuilder) batch() (int, error) {
	lead := l.out.Type.Dims[0]
	for _, p := range l.b.F.Params {
		if p.Role != ir.Input || len(p.Type.Dims) == 0 {
			continue
		}
		n := p.Type.Dims[0]
		if n == 0 || lead%n != 0 {
			return 0, ir.Errorf(locOf(l.out), "the leading dimension of output %q %s is not a multiple of the batch: input %q is %s",
				l.out.Name, l.out.Type, p.Name, p.Type)
		}
		return n, nil
	}
	return lead, nil
}

// weights repeats sample_weight over dims, whose leading dim holds the same number of rows for each sample.
func (l *lossBuilder) weights(dims []int) *ir.Value {
	batch := l.weight.Type.Dims[0]
	rows := dims[0] / batch
	ones := make([]int, len(dims)+1)
	for i := range ones {
		ones[i] = 1
	}
	ones[0] = batch
	if rows == 1 {
		return ops.Expand(l.b, ops.Reshape(l.b, l.weight, ones[:len(dims)]), dims)
	}
	w := ops.Expand(l.b, ops.Reshape(l.b, l.weight, ones), slices.Concat([]int{batch, rows}, dims[1:]))
	return ops.Reshape(l.b, w, dims)
}

// all sums every element to a scalar.
func (l *lossBuilder) all(x *ir.Value) *ir.Value {
	return ops.Reshape(l.b, ops.ReduceSum(l.b, x, ops.AllDims(x)...), nil)
}

func (l *lossBuilder) total(x *ir.Value) { l.sum = l.all(x) }

// classDim says which dim of the output holds the classes: dim 1 of images (4 dims or more, PyTorch's NC…),
// the last dim otherwise (rows of logits, language models).
func classDim(dims []int) int {
	if len(dims) >= 4 {
		return 1
	}
	return len(dims) - 1
}

// sameSizes warns where targets do not tell which dim holds the classes.
func (l *lossBuilder) sameSizes(dim int) {
	dims, last := l.out.Type.Dims, len(l.out.Type.Dims)-1
	if last < 2 || dims[1] != dims[last] {
		return
	}
	as, other := "the last, as those of tokens; PyTorch's losses take", 1
	if dim == 1 {
		as, other = "dimension 1, as those of images; logits of tokens have them along", last
	}
	l.c.Remark(nil, "warning: dimensions 1 and %d of output %q %s are of one size: its classes are taken to lie along %s dimension %d (if they lie there, have the model transpose its output)",
		last, l.out.Name, l.out.Type, as, other)
}

// classes builds cross_entropy and nll, which have an integer target for each row of classes.
func (l *lossBuilder) classes(batch int) error {
	b, dims := l.b, l.out.Type.Dims
	if len(dims) < 2 {
		return ir.Errorf(locOf(l.out), "--loss %s needs an output with a class dimension, %q is %s", l.c.Loss, l.out.Name, l.out.Type)
	}
	dim := classDim(dims)
	if !l.metrics {
		l.c.Remark(l.out, "has its %d classes in dim %d of %d", dims[dim], dim, len(dims))
		l.sameSizes(dim)
	}
	lead := slices.Delete(slices.Clone(dims), dim, dim+1)
	l.target = b.Param("target", ir.T(dtype.I64, lead...), ir.Target)
	l.weight = l.samples(batch)

	perm := slices.Delete(ops.AllDims(l.out), dim, dim+1)
	rows := ir.Product(lead)
	x := ops.Reshape(b, ops.Transpose(b, l.out, append(perm, dim)), []int{rows, dims[dim]})
	t := ops.Reshape(b, l.target, []int{rows})
	w := ops.Reshape(b, l.weights(lead), []int{rows})
	ignore := l.c.Opt.IgnoreIndex
	counted := ops.Cast(b, ops.Ne(b, t, ops.ScalarLike(b, t, float64(ignore))), dtype.F32)
	w1 := ops.Mul(b, w, counted)
	if l.c.Loss == "cross_entropy" {
		l.total(ops.Mul(b, ops.Xent(b, x, t, ignore), w))
	} else {
		safe := ops.Mul(b, t, ops.Cast(b, counted, dtype.I64)) // an ignored target may be outside the classes
		picked := ops.GatherElements(b, x, ops.Reshape(b, safe, []int{rows, 1}), 1)
		l.total(ops.Mul(b, ops.Neg(b, ops.Reshape(b, picked, []int{rows})), w1))
	}
	l.count = l.all(w1)
	if l.metrics {
		best := ops.Reshape(b, ops.Argmax(b, x, 1), []int{rows})
		l.correct = l.all(ops.Mul(b, ops.Cast(b, ops.Eq(b, best, t), dtype.F32), w1))
	}
	return nil
}

// huber is d²/2 for |d| < delta, else delta*(|d| - delta/2).
func huber(l *lossBuilder, x, t *ir.Value) *ir.Value {
	b, delta := l.b, l.c.Opt.HuberDelta
	if delta == 0 {
		delta = 1
	}
	if delta < 0 || math.IsNaN(delta) {
		panic(ir.Errorf(ir.Loc{}, "--huber-delta must be positive, not %v", delta))
	}
	d := ops.Sub(b, x, t)
	a := ops.Abs(b, d)
	square := ops.MulScalar(b, ops.Square(b, d), 0.5)
	linear := ops.MulScalar(b, ops.AddScalar(b, a, -delta/2), delta)
	return ops.Where(b, ops.Lt(b, a, ops.ScalarLike(b, a, delta)), square, linear)
}

// tiny is near the least normal f32: below it a probability counts as 0, whose logarithm PyTorch takes as -100.
const tiny = 1.2e-38

// bce is -(t*log(x) + (1-t)*log(1-x)), each logarithm at least -100.
func bce(l *lossBuilder, x, t *ir.Value) *ir.Value {
	b := l.b
	log := func(p *ir.Value) *ir.Value {
		floor := ops.ScalarLike(b, p, tiny)
		return ops.Where(b, ops.Gt(b, p, floor), ops.Log(b, ops.Maximum(b, p, floor)), ops.ScalarLike(b, p, -100))
	}
	one := ops.ScalarLike(b, x, 1)
	return ops.Neg(b, ops.Add(b, ops.Mul(b, t, log(x)), ops.Mul(b, ops.Sub(b, one, t), log(ops.Sub(b, one, x)))))
}

// klDiv is t*(log(t) - x) for x the logarithm of the model's distribution, 0 where t is 0.
func klDiv(l *lossBuilder, x, t *ir.Value) *ir.Value {
	b := l.b
	zero := ops.ScalarLike(b, t, 0)
	some := ops.Gt(b, t, zero)
	logT := ops.Log(b, ops.Where(b, some, t, ops.ScalarLike(b, t, 1)))
	return ops.Where(b, some, ops.Mul(b, t, ops.Sub(b, logT, x)), zero)
}
