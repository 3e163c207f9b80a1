package ops

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	rules := func(operands int, doc string) ir.Rules {
		return ir.Rules{
			Attrs: XentAttrs{}, Operands: operands, Infer: inferXent, Factors: xentRule, Precision: "keep", Doc: doc, Facts: ir.Facts{AsStored: []int{0}, Apart: always},
			Eval: evalXent, Impl: xentImpl, Samples: func(*rand.Rand) []ir.Sample { return xentSamples(operands) },
		}
	}
	loss := rules(2, "softmax cross entropy of each row of logits with its integer target")
	loss.Decompose = xentDecompose(func(b *ir.Builder, op *ir.Op) []*ir.Value { return []*ir.Value{newXentParts(b, op).loss()} })
	loss.VJP = func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
		return []*ir.Value{XentGrad(b, op.In[0], op.In[1], dy[0], op.Attrs.(XentAttrs).IgnoreIndex), nil}
	}
	loss.Over, loss.Unseen = "takes a cross entropy over", less
	XentDef.Define(loss)

	grad := rules(3, "gradient of xent in the logits")
	grad.Decompose = orInF32(func(b *ir.Builder, op *ir.Op) []*ir.Value { return []*ir.Value{newXentParts(b, op).grad(op.In[2])} })
	grad.Impl, grad.Precision = nil, "narrow"
	XentGradDef.Define(grad)

	both := rules(3, "weighted xent and its gradient in the logits, in one pass")
	both.NoGrad = "made after differentiation"
	both.Decompose = xentDecompose(func(b *ir.Builder, op *ir.Op) []*ir.Value {
		p := newXentParts(b, op)
		return []*ir.Value{Mul(b, p.loss(), op.In[2]), p.grad(op.In[2])}
	})
	XentBothDef.Define(both)
}

// xentDecompose brings narrow floats and targets to what the templates take, and leaves the rest to parts.
func xentDecompose(parts func(b *ir.Builder, op *ir.Op) []*ir.Value) func(b *ir.Builder, op *ir.Op) []*ir.Value {
	return orInF32(func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if op.In[0].Type.DType == dtype.F32 && op.In[1].Type.DType != dtype.I64 {
			in := slices.Clone(op.In)
			in[1] = Cast(b, in[1], dtype.I64)
			return b.EmitN(op.Def, op.Attrs, in...)
		}
		return parts(b, op)
	})
}

// evalXent evaluates all three. A row with a target out of range is NaN: programs stop there.
func evalXent(op *ir.Op, in []*ir.Array) []*ir.Array {
	n, ignore := in[0].Type.Dims[1], op.Attrs.(XentAttrs).IgnoreIndex
	loss, grad := ir.NewArray(ir.T(sumType(in[0].Type.DType), in[0].Type.Dims[0])), ir.NewArray(in[0].Type)
	for r, t := range in[1].I {
		w, x := 1.0, in[0].F[r*n:(r+1)*n]
		if len(in) > 2 {
			w = in[2].F[r]
		}
		lse := logSumExp(x)
		switch {
		case t == int64(ignore):
			continue
		case t < 0 || t >= int64(n):
			w, t = math.NaN(), 0
		}
		loss.F[r] = w * (lse - x[t])
		for c, v := range x {
			grad.F[r*n+c] = w * (math.Exp(v-lse) - b2f(c == int(t)))
		}
	}
	switch op.Def {
	case XentDef:
		return []*ir.Array{loss}
	case XentGradDef:
		return []*ir.Array{grad}
	}
	return []*ir.Array{loss, grad}
}

// xentParts are the shared pieces of the decomposition.
type xentParts struct {
	b       *ir.Builder
	c       *ir.Value // logits less their row's maximum
	e, sum  *ir.Value // exp(c) and its row sums [R,1]
	onehot  *ir.Value // bool [R,C]
	ignored *ir.Value // bool [R,1]
	at      *ir.Value // i64 [R,1]: the target, 0 where ignored, C (an error where it is read) where out of range
}

func newXentParts(b *ir.Builder, op *ir.Op) xentParts {
	x, t := op.In[0], op.In[1]
	p := xentParts{b: b}
	p.c = Sub(b, x, like(b, ReduceMax(b, x, 1), x))
	p.e = Exp(b, p.c)
	p.sum = ReduceSum(b, p.e, 1)
	column := Reshape(b, t, []int{t.Type.Dims[0], 1})
	classes := Expand(b, Iota(b, t.Type.DType, []int{1, x.Type.Dims[1]}, 1), x.Type.Dims)
	p.onehot = Eq(b, like(b, column, x), classes)
	p.ignored = Eq(b, column, ScalarLike(b, column, float64(op.Attrs.(XentAttrs).IgnoreIndex)))
	wide := Cast(b, column, dtype.I64)
	zero, classesN := ScalarLike(b, wide, 0), ScalarLike(b, wide, float64(x.Type.Dims[1]))
	p.at = Where(b, p.ignored, zero, Where(b, Lt(b, wide, zero), classesN, wide))
	return p
}

func (p xentParts) loss() *ir.Value {
	b, rows := p.b, p.sum.Type.Dims[:1]
	l := Sub(b, Log(b, p.sum), GatherElements(b, p.c, p.at, 1))
	return Reshape(b, Where(b, p.ignored, ScalarLike(b, l, 0), l), rows)
}

func (p xentParts) grad(dloss *ir.Value) *ir.Value {
	b := p.b
	w := Reshape(b, dloss, p.sum.Type.Dims)
	w = Where(b, p.ignored, ScalarLike(b, w, 0), w)
	soft := Mul(b, p.e, like(b, Recip(b, p.sum), p.e))
	one := Where(b, p.onehot, ScalarLike(b, soft, 1), ScalarLike(b, soft, 0))
	return Mul(b, like(b, w, soft), Sub(b, soft, one))
}

func xentSamples(operands int) []ir.Sample {
	var out []ir.Sample
	add := func(rows, classes int, target dtype.DType, ignore int) {
		in := []ir.Type{ir.T(dtype.F32, rows, classes), ir.T(target, rows), ir.T(dtype.F32, rows)}
		out = append(out, ir.Sample{In: in[:operands], Attrs: XentAttrs{ignore}, Limit: classes})
	}
	add(4, 6, dtype.I64, -100)
	add(4, 5, dtype.I64, 1)
	add(2, 3, dtype.I32, -1)
	wide := ir.Sample{Attrs: out[1].Attrs, Limit: out[1].Limit}
	for i, t := range out[1].In {
		if i != 1 {
			t = t.With(dtype.F64)
		}
		wide.In = append(wide.In, t)
	}
	return append(out, wide)
}
