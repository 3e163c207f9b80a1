package ops

import (
	"math"
	"math/rand/v2"

	"github.com/gtc-compiler/gtc/ir"
)

func init() {
	BatchNormDef.Define(ir.Rules{
		Attrs: BatchNormAttrs{}, Operands: 3, Infer: inferBatchNorm, Factors: batchNormRule, Precision: "keep",
		Eval: evalBatchNorm, Decompose: batchNormParts, VJP: batchNormVJP, Samples: batchNormSamples,
		Doc: "batch normalisation of x[N,C,...] by the batch's own statistics, which are results too",
	})
	BatchNormGradDef.Define(ir.Rules{
		Attrs: BatchNormAttrs{}, Operands: 5, Infer: inferBatchNorm, Factors: batchNormRule, Precision: "keep",
		Eval: evalBatchNormGrad, Decompose: batchNormGradParts, Samples: batchNormGradSamples,
		Doc: "gradients of batch_norm in x, g and bias",
	})
	BatchNormStatDef.Define(ir.Rules{
		Attrs: BatchNormStatAttrs{}, Operands: 5, Infer: inferBatchNorm, Factors: batchNormRule, Precision: "keep",
		Eval: evalBatchNormStat, Decompose: batchNormStatParts, Samples: batchNormStatSamples,
		Doc: "batch normalisation by given running statistics",
	})
}

// eachChannel calls f with the flat positions of all elements of each channel of [N,C,...].
func eachChannel(dims []int, f func(c int, at []int)) {
	n, ch, plane := dims[0], dims[1], ir.Product(dims[2:])
	for c := range ch {
		var at []int
		for s := range n {
			for p := range plane {
				at = append(at, (s*ch+c)*plane+p)
			}
		}
		f(c, at)
	}
}

func pick(x []float64, at []int) []float64 {
	out := make([]float64, len(at))
	for i, p := range at {
		out[i] = x[p]
	}
	return out
}

func evalBatchNorm(op *ir.Op, in []*ir.Array) []*ir.Array {
	out := arrays(op)
	eachChannel(in[0].Type.Dims, func(c int, at []int) {
		mean, variance := moments(pick(in[0].F, at))
		for _, p := range at {
			h := (in[0].F[p] - mean) / math.Sqrt(variance+op.Attrs.(BatchNormAttrs).Eps)
			out[0].F[p] = h*in[1].F[c] + in[2].F[c]
		}
		out[1].F[c], out[2].F[c] = mean, variance
	})
	return out
}

func evalBatchNormGrad(op *ir.Op, in []*ir.Array) []*ir.Array {
	out := arrays(op)
	dy, x, g, mean, variance := in[0].F, in[1].F, in[2].F, in[3].F, in[4].F
	eachChannel(in[1].Type.Dims, func(c int, at []int) {
		rstd, n := 1/math.Sqrt(variance[c]+op.Attrs.(BatchNormAttrs).Eps), float64(len(at))
		var sum, dot float64
		for _, p := range at {
			sum, dot = sum+dy[p], dot+dy[p]*(x[p]-mean[c])*rstd
		}
		for _, p := range at {
			out[0].F[p] = g[c] * rstd * (dy[p] - sum/n - (x[p]-mean[c])*rstd*dot/n)
		}
		out[1].F[c], out[2].F[c] = dot, sum
	})
	return out
}

func evalBatchNormStat(op *ir.Op, in []*ir.Array) []*ir.Array {
	out := arrays(op)
	eachChannel(in[0].Type.Dims, func(c int, at []int) {
		rstd := 1 / math.Sqrt(in[4].F[c]+op.Attrs.(BatchNormStatAttrs).Eps)
		for _, p := range at {
			out[0].F[p] = (in[0].F[p]-in[3].F[c])*rstd*in[1].F[c] + in[2].F[c]
		}
	})
	return out
}

// batchDims lists every dim but the channels.
func batchDims(x *ir.Value) []int {
	d := AllDims(x)
	return append(d[:1:1], d[2:]...)
}

// channels makes [C] into [1,C,1,...] with x's number of dims.
func channels(b *ir.Builder, v, x *ir.Value) *ir.Value {
	return Reshape(b, v, with(filled(len(x.Type.Dims), 1), 1, x.Type.Dims[1]))
}

func batchNormParts(b *ir.Builder, op *ir.Op) []*ir.Value {
	x, dims, c := op.In[0], batchDims(op.In[0]), op.Out[1].Type.Dims
	mean := ReduceMean(b, x, dims...)
	d := Sub(b, x, like(b, mean, x))
	variance := ReduceMean(b, Square(b, d), dims...)
	scale := Mul(b, Rsqrt(b, AddScalar(b, variance, op.Attrs.(BatchNormAttrs).Eps)), channels(b, op.In[1], x))
	y := Add(b, Mul(b, d, like(b, scale, x)), like(b, channels(b, op.In[2], x), x))
	return []*ir.Value{y, Reshape(b, mean, c), Reshape(b, variance, c)}
}

// batchNormGradParts: dx = g*rstd*(dy - mean(dy) - h*mean(dy*h)), all but dy and h per channel.
func batchNormGradParts(b *ir.Builder, op *ir.Op) []*ir.Value {
	dy, x, g := op.In[0], op.In[1], op.In[2]
	dims, n := batchDims(x), float64(x.Type.Elems()/x.Type.Dims[1])
	rstd := Rsqrt(b, AddScalar(b, channels(b, op.In[4], x), op.Attrs.(BatchNormAttrs).Eps))
	h := Mul(b, Sub(b, x, like(b, channels(b, op.In[3], x), x)), like(b, rstd, x))
	sum, dot := ReduceSum(b, dy, dims...), ReduceSum(b, Mul(b, dy, h), dims...)
	inner := Sub(b, Sub(b, dy, like(b, MulScalar(b, sum, 1/n), x)), Mul(b, h, like(b, MulScalar(b, dot, 1/n), x)))
	dx := Mul(b, inner, like(b, Mul(b, rstd, channels(b, g, x)), x))
	return []*ir.Value{dx, Reshape(b, dot, g.Type.Dims), Reshape(b, sum, g.Type.Dims)}
}

func batchNormStatParts(b *ir.Builder, op *ir.Op) []*ir.Value {
	x := op.In[0]
	at := func(i int) *ir.Value { return channels(b, op.In[i], x) }
	scale := Mul(b, Rsqrt(b, AddScalar(b, at(4), op.Attrs.(BatchNormStatAttrs).Eps)), at(1))
	d := Sub(b, x, like(b, at(3), x))
	return []*ir.Value{Add(b, Mul(b, d, like(b, scale, x)), like(b, at(2), x))}
}

// batchNormVJP also handles gradients of the statistics, though training has none: running averages are not trained.
func batchNormVJP(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
	x, mean, out := op.In[0], op.Out[1], make([]*ir.Value, 3)
	if dy[0] != nil {
		out[0], out[1], out[2] = BatchNormGrad(b, op.Attrs.(BatchNormAttrs), dy[0], x, op.In[1], mean, op.Out[2])
	}
	n := float64(x.Type.Elems() / x.Type.Dims[1])
	if dy[1] != nil {
		out[0] = plus(b, out[0], like(b, channels(b, MulScalar(b, dy[1], 1/n), x), x))
	}
	if dy[2] != nil {
		d := Sub(b, x, like(b, channels(b, mean, x), x))
		out[0] = plus(b, out[0], Mul(b, d, like(b, channels(b, MulScalar(b, dy[2], 2/n), x), x)))
	}
	return out
}

// The samples are of Sync, whose rule keeps the batch whole: without it a split means another thing (see batchNormRule).
func batchNormSamples(*rand.Rand) []ir.Sample {
	a := BatchNormAttrs{Eps: 1e-5, Sync: true}
	return []ir.Sample{
		{In: f32s([]int{4, 2, 2, 2}, []int{2}, []int{2}), Attrs: a},
		{In: f32s([]int{6, 4}, []int{4}, []int{4}), Attrs: a},
	}
}

func batchNormGradSamples(*rand.Rand) []ir.Sample {
	x, c := []int{4, 2, 2, 2}, []int{2}
	return []ir.Sample{{
		In: f32s(x, x, c, c, c), Attrs: BatchNormAttrs{Eps: 1e-5, Sync: true},
		Fill: func(r *rand.Rand, in []*ir.Array) { positive(r, in[4:]) },
	}}
}

func batchNormStatSamples(*rand.Rand) []ir.Sample {
	x, c := []int{4, 2, 2, 2}, []int{2}
	return []ir.Sample{{
		In: f32s(x, c, c, c, c), Attrs: BatchNormStatAttrs{Eps: 1e-5, Momentum: 0.1},
		Fill: func(r *rand.Rand, in []*ir.Array) { positive(r, in[4:]) },
	}}
}
