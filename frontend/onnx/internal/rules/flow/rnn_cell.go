package flow

import (
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/layers"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// activation is a function of a recurrent cell.
type activation = func(*ir.Builder, *ir.Value) *ir.Value

// cellActivation is one of the functions that recurrent operators may name: how many of alpha and beta it takes, and
// what they are when the file does not say.
type cellActivation struct {
	takes       int
	alpha, beta float64
	make        func(alpha, beta float64) activation
}

// plain is a function without parameters.
func plain(f activation) cellActivation {
	return cellActivation{make: func(_, _ float64) activation { return f }}
}

// cellActivations are the functions of ONNX's recurrent operators, by name in lower case.
var cellActivations = map[string]cellActivation{
	"relu": plain(ops.Relu), "tanh": plain(ops.Tanh), "sigmoid": plain(ops.Sigmoid), "softsign": plain(layers.Softsign),
	"softplus": plain(ops.Softplus),
	"affine": {2, 1, 0, func(alpha, beta float64) activation {
		return func(b *ir.Builder, x *ir.Value) *ir.Value {
			return ops.AddScalar(b, ops.MulScalar(b, x, alpha), beta)
		}
	}},
	"leakyrelu": {1, 0.01, 0, func(alpha, _ float64) activation {
		return func(b *ir.Builder, x *ir.Value) *ir.Value { return ops.LeakyRelu(b, x, alpha) }
	}},
	"thresholdedrelu": {1, 1, 0, func(alpha, _ float64) activation {
		return func(b *ir.Builder, x *ir.Value) *ir.Value {
			return ops.Where(b, ops.Ge(b, x, ops.ScalarLike(b, x, alpha)), x, ops.Zeros(b, x.Type))
		}
	}},
	"scaledtanh": {2, 1, 1, func(alpha, beta float64) activation {
		return func(b *ir.Builder, x *ir.Value) *ir.Value {
			return ops.MulScalar(b, ops.Tanh(b, ops.MulScalar(b, x, beta)), alpha)
		}
	}},
	"hardsigmoid": {2, 0.2, 0.5, func(alpha, beta float64) activation {
		return func(b *ir.Builder, x *ir.Value) *ir.Value { return layers.HardSigmoid(b, x, alpha, beta) }
	}},
	"elu": {1, 1, 0, func(alpha, _ float64) activation {
		return func(b *ir.Builder, x *ir.Value) *ir.Value { return ops.Elu(b, x, alpha) }
	}},
}

// activations reads the functions of each direction; usual are those of a direction when the file gives none. The lists
// of alpha and beta are consumed by the functions that take them, in order, as ONNX Runtime does.
func activations(n *model.Node, dirs int, usual []string) [][]activation {
	names := make([]string, 0, dirs*len(usual))
	if a := n.Attr("activations", onnxpb.AttributeProto_STRINGS); a != nil && len(a.Strings) > 0 {
		for _, s := range a.Strings {
			names = append(names, string(s))
		}
	} else {
		for range dirs {
			names = append(names, usual...)
		}
	}
	if len(names) != dirs*len(usual) {
		n.Fail("there are %d activations, but %d directions need %d each", len(names), dirs, len(usual))
	}
	alphas, betas := n.Floats("activation_alpha"), n.Floats("activation_beta")
	take := func(from *[]float64, def float64) float64 {
		if len(*from) == 0 {
			return def
		}
		x := (*from)[0]
		*from = (*from)[1:]
		return x
	}
	out := make([][]activation, dirs)
	for i, name := range names {
		f, ok := cellActivations[strings.ToLower(name)]
		if !ok {
			n.Fail("activation %q does not exist", name)
		}
		alpha, beta := f.alpha, f.beta
		if f.takes > 0 {
			alpha = take(&alphas, alpha)
		}
		if f.takes > 1 {
			beta = take(&betas, beta)
		}
		d := i / len(usual)
		out[d] = append(out[d], f.make(alpha, beta))
	}
	return out
}

// clipped is what an activation reads.
func (r *recurrent) clipped(x *ir.Value) *ir.Value {
	if r.clip == 0 {
		return x
	}
	return ops.Clip(r.w.B, x, -r.clip, r.clip)
}

// stepMask tells which samples have a value at some time: all, none, or those where v [N,H] is true.
type stepMask struct {
	all, none bool
	v         *ir.Value
}

// readLens takes in the operand of sequence lengths, nil when it is left out.
func (r *recurrent) readLens(x *walk.Val) {
	if x == nil {
		return
	}
	if !x.Type.DType.IsInt() || len(x.Type.Dims) != 1 || x.Type.Dims[0] != r.batch {
		r.n.Fail("the sequence lengths are %s, but must be i32[%d]", x.Type, r.batch)
	}
	if a := r.w.Array(x); a != nil {
		for _, l := range a.I {
			if l < 0 || l > int64(r.time) {
				r.n.Fail("a sequence length is %d, but there are %d time steps", l, r.time)
			}
		}
	}
	r.lens, r.masks = x, map[int]*stepMask{}
}

// mask is that of time t, made once for all directions.
func (r *recurrent) mask(t int) *stepMask {
	if r.lens == nil {
		return &stepMask{all: true}
	}
	m := r.masks[t]
	if m == nil {
		m = r.newMask(t)
		r.masks[t] = m
	}
	return m
}

func (r *recurrent) newMask(t int) *stepMask {
	b := r.w.B
	wide := []int{r.batch, r.hidden}
	if a := r.w.Array(r.lens); a != nil {
		on := ir.NewArray(ir.T(dtype.Bool, r.batch, 1))
		m := &stepMask{all: true, none: true}
		for i, l := range a.I {
			on.I[i] = int64(fold.BoolInt(int64(t) < l))
			m.all, m.none = m.all && on.I[i] == 1, m.none && on.I[i] == 0
		}
		if !m.all && !m.none {
			m.v = ops.Expand(b, ops.Const(b, on.Tensor()), wide)
		}
		return m
	}
	lens := r.w.Value(r.lens)
	on := ops.Gt(b, lens, ops.ScalarLike(b, lens, float64(t)))
	return &stepMask{v: ops.Expand(b, ops.Reshape(b, on, []int{r.batch, 1}), wide)}
}
