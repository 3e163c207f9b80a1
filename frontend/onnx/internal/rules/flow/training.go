package flow

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/grad"
	"github.com/gtc-compiler/gtc/ir/ops"
)

const wide = dtype.F64 // for schedules, which are scalars

// The operators of ONNX's training domain, as in its Operators-training document.
var trainingRows = []walk.Row{
	{Op: model.TrainingDomain + ".Adam", Since: 1, Min: 3, Max: model.MaxName, Rule: importAdam},
	{Op: model.TrainingDomain + ".Adagrad", Since: 1, Min: 3, Max: model.MaxName, Rule: importAdagrad},
	{Op: model.TrainingDomain + ".Momentum", Since: 1, Min: 3, Max: model.MaxName, Rule: importMomentum},
	{Op: model.GradientOp, Since: 1, Min: 1, Max: model.MaxName, Rule: importGradient},
}

// update is one optimizer node: a learning rate, a step count and, for each tensor, kinds operands.
type update struct {
	w     *walk.Walker
	n     *model.Node
	b     *ir.Builder
	rate  *walk.Val // R
	count *walk.Val // T
	in    [][]*ir.Value
}

// newUpdate sorts the operands R, T, X1…, G1…, …: kinds of each tensor.
func newUpdate(w *walk.Walker, n *model.Node, in []*walk.Val, kinds int) *update {
	u := &update{w: w, n: n, b: w.B, rate: in[0], count: in[1]}
	rest := in[2:]
	if slices.Contains(in, nil) || len(rest) == 0 || len(rest)%kinds != 0 {
		n.Fail("it has %d inputs, but must have a learning rate, a step count and %d for each tensor", len(in), kinds)
	}
	if u.rate.Type.Elems() != 1 || u.count.Type.Elems() != 1 || !u.rate.Type.DType.IsFloat() {
		n.Fail("the learning rate is %s and the step count %s, but must be scalars", u.rate.Type, u.count.Type)
	}
	tensors := len(rest) / kinds
	for i := range tensors {
		var of []*ir.Value
		for k := range kinds {
			x := rest[k*tensors+i]
			if !x.Type.Equal(rest[i].Type) || !x.Type.DType.IsFloat() {
				n.Fail("operand %d is %s, but the tensor it belongs to is %s", 2+k*tensors+i, x.Type, rest[i].Type)
			}
			of = append(of, w.Value(x))
		}
		u.in = append(u.in, of)
	}
	return u
}

// scalar is x in element type and dims of like.
func (u *update) scalar(x *ir.Value, like *ir.Value) *ir.Value {
	return ops.BroadcastTo(u.b, ops.Cast(u.b, ops.Reshape(u.b, x, nil), like.Type.DType), like.Type.Dims)
}

// regularized is norm_coefficient*X + G.
func (u *update) regularized(x, g *ir.Value) *ir.Value {
	if c := u.n.Float("norm_coefficient", 0); c != 0 {
		g = ops.Add(u.b, ops.MulScalar(u.b, x, c), g)
	}
	return g
}

// mix is a*x + b*y.
func (u *update) mix(a float64, x *ir.Value, b float64, y *ir.Value) *ir.Value {
	return ops.Add(u.b, ops.MulScalar(u.b, x, a), ops.MulScalar(u.b, y, b))
}

// positive is whether T > 0, as bool[].
func (u *update) positive() *ir.Value {
	t := ops.Reshape(u.b, u.w.Value(u.count), nil)
	return ops.Gt(u.b, t, ops.ScalarLike(u.b, t, 0))
}

// results orders the new tensors by kind, as the operators return them.
func (u *update) results(each func(of []*ir.Value) []*ir.Value) []*walk.Val {
	var byTensor [][]*ir.Value
	for _, of := range u.in {
		byTensor = append(byTensor, each(of))
	}
	var all []*ir.Value
	for k := range byTensor[0] {
		for _, out := range byTensor {
			all = append(all, out[k])
		}
	}
	return walk.Results(all...)
}

// importAdam: X, G, V, H give X, V, H. Bias corrections are computed in f64, as gtc's own optimizer does.
func importAdam(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	u, b := newUpdate(w, n, in, 4), w.B
	alpha, beta := n.Float("alpha", 0.9), n.Float("beta", 0.999)
	f64 := ir.T(wide)
	t := ops.Cast(b, ops.Reshape(b, w.Value(u.count), nil), wide)
	part := func(x float64) *ir.Value { // 1 - x^T
		return ops.Sub(b, ops.Full(b, f64, 1), ops.Pow(b, ops.Full(b, f64, x), t))
	}
	rate := ops.Cast(b, ops.Reshape(b, w.Value(u.rate), nil), wide)
	rate = ops.Where(b, u.positive(), ops.Div(b, ops.Mul(b, rate, ops.Sqrt(b, part(beta))), part(alpha)), rate)
	return u.results(func(of []*ir.Value) []*ir.Value {
		x, v, h := of[0], of[2], of[3]
		g := u.regularized(x, of[1])
		v = u.mix(alpha, v, 1-alpha, g)
		h = u.mix(beta, h, 1-beta, ops.Square(b, g))
		root := ops.AddScalar(b, ops.Sqrt(b, h), n.Float("epsilon", 1e-6))
		x = ops.Sub(b, x, ops.Div(b, ops.Mul(b, u.scalar(rate, x), v), root))
		if c := n.Float("norm_coefficient_post", 0); c != 0 {
			x = ops.MulScalar(b, x, 1-c)
		}
		return []*ir.Value{x, v, h}
	})
}

// importAdagrad: X, G, H give X, H.
func importAdagrad(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	u, b := newUpdate(w, n, in, 3), w.B
	t := ops.Cast(b, ops.Reshape(b, w.Value(u.count), nil), wide)
	rate := ops.Cast(b, ops.Reshape(b, w.Value(u.rate), nil), wide)
	rate = ops.Div(b, rate, ops.AddScalar(b, ops.MulScalar(b, t, n.Float("decay_factor", 0)), 1))
	return u.results(func(of []*ir.Value) []*ir.Value {
		x := of[0]
		g := u.regularized(x, of[1])
		h := ops.Add(b, of[2], ops.Square(b, g))
		root := ops.AddScalar(b, ops.Sqrt(b, h), n.Float("epsilon", 1e-6))
		return []*ir.Value{ops.Sub(b, x, ops.Div(b, ops.Mul(b, u.scalar(rate, x), g), root)), h}
	})
}

// importMomentum: X, G, V give X, V, in the standard form or Nesterov's.
func importMomentum(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	u, b := newUpdate(w, n, in, 3), w.B
	for _, name := range []string{"alpha", "beta", "norm_coefficient", "mode"} {
		if n.Attrs[name] == nil {
			n.Fail("attribute %q is missing", name)
		}
	}
	alpha, mode := n.Float("alpha", 0), n.Str("mode", "")
	if mode != "standard" && mode != "nesterov" {
		n.Fail("mode is %q, but must be standard or nesterov", mode)
	}
	one := ops.Full(b, ir.T(wide), 1)
	beta := ops.Where(b, u.positive(), ops.MulScalar(b, one, n.Float("beta", 0)), one)
	rate := w.Value(u.rate)
	return u.results(func(of []*ir.Value) []*ir.Value {
		x := of[0]
		g := u.regularized(x, of[1])
		v := ops.Add(b, ops.MulScalar(b, of[2], alpha), ops.Mul(b, u.scalar(beta, x), g))
		way := v
		if mode == "nesterov" {
			way = ops.Add(b, g, ops.MulScalar(b, v, alpha))
		}
		return []*ir.Value{ops.Sub(b, x, ops.Mul(b, u.scalar(rate, x), way)), v}
	})
}

// gradientOf is a Gradient node with the names it gives in the graph's terms.
type gradientOf struct {
	n      *model.Node
	xs, zs []string
	y      string
}

// gradientNames reads the attributes of a Gradient node.
func gradientNames(n *model.Node) *gradientOf {
	g := &gradientOf{n: n, y: n.Subst.Name(n.Str("y", ""))}
	names := func(attr string) []string {
		var out []string
		if a := n.Attr(attr, onnxpb.AttributeProto_STRINGS); a != nil {
			for _, s := range a.Strings {
				out = append(out, n.Subst.Name(string(s)))
			}
		}
		return out
	}
	g.xs, g.zs = names("xs"), names("zs")
	return g
}

// importGradient differentiates the graph between the values named in xs and y, at the operands. When the operands are
// those values, the graph's own forward pass is differentiated; else it is walked again on the operands. The gradient of
// a y that is no scalar is that of the sum of its elements. A value on which y does not depend gets zeros.
func importGradient(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	g := gradientNames(n)
	if len(g.xs) == 0 || g.y == "" || len(in) != len(g.xs)+len(g.zs) {
		n.Fail("it has %d inputs, %d names in xs, %d in zs and y %q, which do not fit together", len(in), len(g.xs), len(g.zs), g.y)
	}
	start, xs := len(w.B.F.Ops), make([]*ir.Value, len(g.xs))
	same := true
	for i, x := range in {
		if x == nil || x.IsSeq || x.None {
			n.Fail("input %d is not a tensor", i)
		}
		if i < len(g.xs) {
			if !x.Type.DType.IsFloat() {
				n.Fail("input %d is %s: only float tensors have gradients", i, x.Type)
			}
			xs[i] = w.Value(x)
		}
		named := w.Lookup(slices.Concat(g.xs, g.zs)[i])
		same = same && named != nil && named.Value == x.Value && x.Value != nil && x.Array == nil && x.Init == nil
	}
	var y *walk.Val
	if same {
		y = w.Lookup(g.y)
	} else {
		y = again(w, g, in, xs)
	}
	if y == nil || y.IsSeq || y.None || !y.Type.DType.IsFloat() {
		n.Fail("y is %q, which is not a float tensor that comes before this node", g.y)
	}
	return walk.Results(differentiate(w, n, xs, w.Value(y), start)...)
}

// again walks the part of the graph that leads from g's names to y once more, with the operands in their place.
func again(w *walk.Walker, g *gradientOf, in []*walk.Val, xs []*ir.Value) *walk.Val {
	w.Count(g.n, 1+len(w.Nodes))
	sub := *w
	sub.Env, sub.Outer, sub.Gate, sub.Depth = map[string]*walk.Val{}, w, nil, w.Depth+1
	if sub.Depth > model.MaxInline {
		g.n.Fail("gradients nest deeper than %d", model.MaxInline)
	}
	bound := map[string]bool{}
	for i, name := range slices.Concat(g.xs, g.zs) {
		x := in[i]
		if i < len(xs) {
			x = &walk.Val{Type: xs[i].Type, Value: xs[i]} // even a known one: what depends on it must not be folded
		}
		sub.Env[name], bound[name] = x, true
	}
	need := map[string]bool{g.y: true}
	var back []*model.Node
	for _, k := range slices.Backward(w.Nodes) {
		if k != g.n && slices.ContainsFunc(k.Out, func(o string) bool { return need[o] && !bound[o] }) {
			back = append(back, k)
			for _, name := range slices.Concat(k.In, k.Captured(0)) {
				need[name] = true
			}
		}
	}
	for _, k := range slices.Backward(back) {
		if slices.ContainsFunc(slices.Concat(k.In, k.Captured(0)), func(name string) bool { return bound[name] }) {
			sub.Visit(k)
			for _, o := range k.Out {
				bound[o] = true
			}
		}
	}
	w.B.Loc = g.n.Loc
	return sub.Lookup(g.y)
}

// differentiate is the gradient of the sum of y with respect to each of xs.
func differentiate(w *walk.Walker, n *model.Node, xs []*ir.Value, y *ir.Value, start int) []*ir.Value {
	program := slices.Clone(w.B.F.Ops)
	w.Count(n, len(program)/256)
	active := map[*ir.Value]bool{}
	for _, x := range xs {
		active[x] = true
	}
	grad.Spread(active, program)
	r := grad.New(w.B, active, nil)
	if active[y] {
		r.Add(y, ops.ScalarLike(w.B, y, 1))
	}
	for _, op := range slices.Backward(program) {
		if err := r.Step(op); err != nil {
			panic(err)
		}
		Bound(w, n, start)
	}
	out := make([]*ir.Value, len(xs))
	for i, x := range xs {
		if out[i] = r.Of(x); out[i] == nil {
			out[i] = ops.Zeros(w.B, x.Type)
		}
	}
	return out
}
