package ops

import (
	"math"
	"math/rand/v2"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	rules := func(operands, optional int, doc string) ir.Rules {
		return ir.Rules{Attrs: NormAttrs{}, Operands: operands, Optional: optional, Infer: inferNorm, Factors: normRule, Precision: "narrow", Doc: doc}
	}
	ln := rules(1, 2, "layer normalisation over the trailing dims, with the saved mean and 1/std")
	ln.Eval, ln.Decompose, ln.VJP, ln.Samples = evalLayerNorm, layerNormParts, layerNormVJP, layerNormSamples
	ln.Over = "normalises over"
	LayerNormDef.Define(ln)
	lg := rules(4, 1, "gradients of layer_norm in x, g and bias")
	lg.Eval, lg.Decompose, lg.Samples = evalLayerNormGrad, layerNormGradParts, layerNormGradSamples
	LayerNormGradDef.Define(lg)
	rn := rules(1, 1, "division by the root mean square over the trailing dims, and the saved 1/rms")
	rn.Eval, rn.Decompose, rn.VJP, rn.Samples = evalRMSNorm, rmsNormParts, rmsNormVJP, rmsNormSamples
	rn.Over = "normalises over"
	RMSNormDef.Define(rn)
	rg := rules(3, 1, "gradients of rms_norm in x and g")
	rg.Eval, rg.Decompose, rg.Samples = evalRMSNormGrad, rmsNormGradParts, rmsNormGradSamples
	RMSNormGradDef.Define(rg)
}

// rowSize is how many elements are normalised together.
func rowSize(op *ir.Op) int {
	d := op.In[normX(op)].Type.Dims
	return ir.Product(d[len(d)-op.Attrs.(NormAttrs).Dims:])
}

// normDims lists the normalised dims.
func normDims(op *ir.Op) []int {
	d := AllDims(op.In[normX(op)])
	return d[len(d)-op.Attrs.(NormAttrs).Dims:]
}

// paramAt is element i of a parameter that may be absent, in which case it is def.
func paramAt(in []*ir.Array, operand, i int, def float64) float64 {
	if operand < len(in) && in[operand] != nil {
		return in[operand].F[i]
	}
	return def
}

// arrays makes zeros for every result.
func arrays(op *ir.Op) []*ir.Array {
	out := make([]*ir.Array, len(op.Out))
	for i, v := range op.Out {
		out[i] = ir.NewArray(v.Type)
	}
	return out
}

func evalLayerNorm(op *ir.Op, in []*ir.Array) []*ir.Array {
	out, n := arrays(op), rowSize(op)
	for r := range out[1].F {
		x := in[0].F[r*n : (r+1)*n]
		mean, variance := moments(x)
		rstd := 1 / math.Sqrt(variance+op.Attrs.(NormAttrs).Eps)
		for i, v := range x {
			out[0].F[r*n+i] = (v-mean)*rstd*paramAt(in, 1, i, 1) + paramAt(in, 2, i, 0)
		}
		out[1].F[r], out[2].F[r] = mean, rstd
	}
	return out
}

// moments gives the mean and the biased variance.
func moments(x []float64) (mean, variance float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	return mean, variance
}

// evalLayerNormGrad: with h = (x-mean)*rstd and e = dy*g, dx = rstd*(e - mean(e) - h*mean(e*h)).
func evalLayerNormGrad(op *ir.Op, in []*ir.Array) []*ir.Array {
	out, n := arrays(op), rowSize(op)
	dy, x, mean, rstd := in[0].F, in[1].F, in[2].F, in[3].F
	for r := range mean {
		var me, meh float64
		for i := range n {
			h, e := (x[r*n+i]-mean[r])*rstd[r], dy[r*n+i]*paramAt(in, 4, i, 1)
			me, meh = me+e/float64(n), meh+e*h/float64(n)
			if len(out) > 1 {
				out[1].F[i] += dy[r*n+i] * h
				out[2].F[i] += dy[r*n+i]
			}
		}
		for i := range n {
			h, e := (x[r*n+i]-mean[r])*rstd[r], dy[r*n+i]*paramAt(in, 4, i, 1)
			out[0].F[r*n+i] = rstd[r] * (e - me - h*meh)
		}
	}
	return out
}

func evalRMSNorm(op *ir.Op, in []*ir.Array) []*ir.Array {
	out, n := arrays(op), rowSize(op)
	for r := range out[1].F {
		ms := 0.0
		for _, v := range in[0].F[r*n : (r+1)*n] {
			ms += v * v / float64(n)
		}
		rstd := 1 / math.Sqrt(ms+op.Attrs.(NormAttrs).Eps)
		for i := range n {
			out[0].F[r*n+i] = in[0].F[r*n+i] * rstd * paramAt(in, 1, i, 1)
		}
		out[1].F[r] = rstd
	}
	return out
}

// evalRMSNormGrad: with h = x*rstd and e = dy*g, dx = rstd*(e - h*mean(e*h)).
func evalRMSNormGrad(op *ir.Op, in []*ir.Array) []*ir.Array {
	out, n := arrays(op), rowSize(op)
	dy, x, rstd := in[0].F, in[1].F, in[2].F
	for r := range rstd {
		meh := 0.0
		for i := range n {
			h := x[r*n+i] * rstd[r]
			meh += dy[r*n+i] * paramAt(in, 3, i, 1) * h / float64(n)
			if len(out) > 1 {
				out[1].F[i] += dy[r*n+i] * h
			}
		}
		for i := range n {
			out[0].F[r*n+i] = rstd[r] * (dy[r*n+i]*paramAt(in, 3, i, 1) - x[r*n+i]*rstd[r]*meh)
		}
	}
	return out
}

// scaledBy multiplies by a parameter of trailing dims, when it is there.
func scaledBy(b *ir.Builder, x, g *ir.Value) *ir.Value {
	if g == nil {
		return x
	}
	return Mul(b, x, BroadcastTo(b, g, x.Type.Dims))
}

// layerNormParts computes the variance from centred values, as PyTorch: three passes over a row.
func layerNormParts(b *ir.Builder, op *ir.Op) []*ir.Value {
	x, dims := op.In[0], normDims(op)
	mean := ReduceMean(b, x, dims...)
	c := Sub(b, x, like(b, mean, x))
	rstd := Rsqrt(b, AddScalar(b, ReduceMean(b, Square(b, c), dims...), op.Attrs.(NormAttrs).Eps))
	y := scaledBy(b, Mul(b, c, like(b, rstd, x)), operand(op, 1))
	if bias := operand(op, 2); bias != nil {
		y = Add(b, y, BroadcastTo(b, bias, x.Type.Dims))
	}
	return []*ir.Value{y, mean, rstd}
}

// rowsSum adds over all rows: the gradient of a parameter of trailing dims.
func rowsSum(b *ir.Builder, x *ir.Value, op *ir.Op) *ir.Value {
	rows := AllDims(x)[:len(x.Type.Dims)-op.Attrs.(NormAttrs).Dims]
	return Reshape(b, ReduceSum(b, x, rows...), x.Type.Dims[len(rows):])
}

func layerNormGradParts(b *ir.Builder, op *ir.Op) []*ir.Value {
	dy, x, mean, rstd, g, dims := op.In[0], op.In[1], op.In[2], op.In[3], operand(op, 4), normDims(op)
	wide := like(b, rstd, x)
	h, e := Mul(b, Sub(b, x, like(b, mean, x)), wide), scaledBy(b, dy, g)
	me, meh := ReduceMean(b, e, dims...), ReduceMean(b, Mul(b, e, h), dims...)
	dx := Mul(b, wide, Sub(b, Sub(b, e, like(b, me, x)), Mul(b, h, like(b, meh, x))))
	if g == nil {
		return []*ir.Value{dx}
	}
	return []*ir.Value{dx, rowsSum(b, Mul(b, dy, h), op), rowsSum(b, dy, op)}
}

func rmsNormParts(b *ir.Builder, op *ir.Op) []*ir.Value {
	x := op.In[0]
	rstd := Rsqrt(b, AddScalar(b, ReduceMean(b, Square(b, x), normDims(op)...), op.Attrs.(NormAttrs).Eps))
	return []*ir.Value{scaledBy(b, Mul(b, x, like(b, rstd, x)), operand(op, 1)), rstd}
}

func rmsNormGradParts(b *ir.Builder, op *ir.Op) []*ir.Value {
	dy, x, rstd, g := op.In[0], op.In[1], op.In[2], operand(op, 3)
	wide := like(b, rstd, x)
	h, e := Mul(b, x, wide), scaledBy(b, dy, g)
	meh := ReduceMean(b, Mul(b, e, h), normDims(op)...)
	dx := Mul(b, wide, Sub(b, e, Mul(b, h, like(b, meh, x))))
	if g == nil {
		return []*ir.Value{dx}
	}
	return []*ir.Value{dx, rowsSum(b, Mul(b, dy, h), op)}
}

// plus adds gradients, of which either may be absent.
func plus(b *ir.Builder, x, y *ir.Value) *ir.Value {
	switch {
	case x == nil:
		return y
	case y == nil:
		return x
	}
	return Add(b, x, y)
}

// layerNormVJP also handles gradients of the saved statistics, though training has none.
func layerNormVJP(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
	x, mean, rstd, out := op.In[0], op.Out[1], op.Out[2], make([]*ir.Value, len(op.In))
	if dy[0] != nil {
		dx, dg, db := LayerNormGrad(b, op.Attrs.(NormAttrs), dy[0], x, operand(op, 1), [2]*ir.Value{mean, rstd})
		if operand(op, 2) != nil && db == nil {
			db = rowsSum(b, dy[0], op)
		}
		copy(out, []*ir.Value{dx, dg, db})
	}
	n := float64(rowSize(op))
	if dy[1] != nil {
		out[0] = plus(b, out[0], like(b, MulScalar(b, dy[1], 1/n), x))
	}
	if dy[2] != nil {
		cube := MulScalar(b, Mul(b, dy[2], Mul(b, rstd, Square(b, rstd))), -1/n)
		out[0] = plus(b, out[0], Mul(b, like(b, cube, x), Sub(b, x, like(b, mean, x))))
	}
	return out
}

func rmsNormVJP(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
	x, rstd, out := op.In[0], op.Out[1], make([]*ir.Value, len(op.In))
	if dy[0] != nil {
		dx, dg := RMSNormGrad(b, op.Attrs.(NormAttrs), dy[0], x, operand(op, 1), rstd)
		copy(out, []*ir.Value{dx, dg})
	}
	if dy[1] != nil {
		cube := MulScalar(b, Mul(b, dy[1], Mul(b, rstd, Square(b, rstd))), -1/float64(rowSize(op)))
		out[0] = plus(b, out[0], Mul(b, like(b, cube, x), x))
	}
	return out
}

func layerNormSamples(*rand.Rand) []ir.Sample {
	a := NormAttrs{Eps: 1e-5, Dims: 1}
	return []ir.Sample{
		{In: f32s([]int{4, 6}, []int{6}, []int{6}), Attrs: a},
		{In: f32s([]int{2, 2, 4}, []int{4}), Attrs: a},
		{In: f32s([]int{2, 2, 4}), Attrs: NormAttrs{Eps: 1e-3, Dims: 2}},
		{In: f32s([]int{2, 2, 4}, []int{2, 4}, []int{2, 4}), Attrs: NormAttrs{Eps: 1e-3, Dims: 2}},
	}
}

// f32s lists float types.
func f32s(dims ...[]int) []ir.Type {
	out := make([]ir.Type, len(dims))
	for i, d := range dims {
		out[i] = ir.T(dtype.F32, d...)
	}
	return out
}

func layerNormGradSamples(*rand.Rand) []ir.Sample {
	x, a := []int{4, 6}, NormAttrs{Dims: 1}
	return []ir.Sample{
		{In: f32s(x, x, []int{4, 1}, []int{4, 1}, []int{6}), Attrs: a},
		{In: f32s(x, x, []int{4, 1}, []int{4, 1}), Attrs: a},
		{In: f32s([]int{2, 2, 4}, []int{2, 2, 4}, []int{2, 1, 1}, []int{2, 1, 1}, []int{2, 4}), Attrs: NormAttrs{Dims: 2}},
	}
}

func rmsNormSamples(*rand.Rand) []ir.Sample {
	return []ir.Sample{
		{In: f32s([]int{2, 2, 4}, []int{4}), Attrs: NormAttrs{Eps: 1e-6, Dims: 1}},
		{In: f32s([]int{4, 6}), Attrs: NormAttrs{Eps: 1e-3, Dims: 1}},
		{In: f32s([]int{2, 2, 4}, []int{2, 4}), Attrs: NormAttrs{Eps: 1e-6, Dims: 2}},
	}
}

func rmsNormGradSamples(*rand.Rand) []ir.Sample {
	x, a := []int{4, 6}, NormAttrs{Dims: 1}
	return []ir.Sample{
		{In: f32s(x, x, []int{4, 1}, []int{6}), Attrs: a},
		{In: f32s(x, x, []int{4, 1}), Attrs: a},
	}
}
