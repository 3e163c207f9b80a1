package ops

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	BatchNormDef.Define(ir.Rules{
		Facts: ir.Facts{PerPart: true, Counts: 3, Apart: func(op *ir.Op) bool { return op.Attrs.(BatchNormAttrs).Sync }},
		Attrs: BatchNormAttrs{}, Operands: 3, Optional: 1, Infer: inferBatchNorm, Factors: batchNormRule, Precision: "narrow",
		Eval: evalBatchNorm, Decompose: batchNormParts, VJP: batchNormVJP, Samples: batchNormSamples,
		Doc: "batch normalisation of x[N,C,...] by the batch's own statistics, which are results too; a fourth operand, bool[N], says which samples count",
	})
	BatchNormGradDef.Define(ir.Rules{
		Attrs: BatchNormAttrs{}, Operands: 5, Optional: 1, Infer: inferBatchNorm, Factors: batchNormRule, Precision: "narrow",
		Eval: evalBatchNormGrad, Decompose: batchNormGradParts, Samples: batchNormGradSamples,
		Doc: "gradients of batch_norm in x, g and bias",
	})
	BatchNormStatDef.Define(ir.Rules{
		Facts: ir.Facts{Inference: batchNormStatParts},
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

// bnCounted says of each sample whether it counts, 1 or 0: all do where none would. n is how many values of a channel count, 0 then.
func bnCounted(dims []int, counts *ir.Array) (weights []float64, n float64) {
	weights = slices.Repeat([]float64{1}, dims[0])
	if counts == nil {
		return weights, float64(dims[0] * ir.Product(dims[2:]))
	}
	for _, c := range counts.I {
		n += float64(c)
	}
	if n == 0 {
		return weights, 0
	}
	for i, c := range counts.I {
		weights[i] = float64(c)
	}
	return weights, n * float64(ir.Product(dims[2:]))
}

func evalBatchNorm(op *ir.Op, in []*ir.Array) []*ir.Array {
	out, dims := arrays(op), in[0].Type.Dims
	weights, n := bnCounted(dims, given(in, 3))
	each := ir.Product(dims[1:])
	eachChannel(dims, func(c int, at []int) {
		var some []float64
		for _, p := range at {
			if weights[p/each] != 0 {
				some = append(some, in[0].F[p])
			}
		}
		mean, variance := moments(some)
		for _, p := range at {
			h := (in[0].F[p] - mean) / math.Sqrt(variance+op.Attrs.(BatchNormAttrs).Eps)
			out[0].F[p] = h*in[1].F[c] + in[2].F[c]
		}
		out[1].F[c], out[2].F[c] = mean, variance
		if len(out) > 3 {
			out[3].F[c] = n
		}
	})
	return out
}

func evalBatchNormGrad(op *ir.Op, in []*ir.Array) []*ir.Array {
	out, dims := arrays(op), in[1].Type.Dims
	dy, x, g, mean, variance := in[0].F, in[1].F, in[2].F, in[3].F, in[4].F
	weights, n := bnCounted(dims, given(in, 5))
	if n == 0 {
		n = float64(ir.Product(dims) / max(1, dims[1]))
	}
	each := ir.Product(dims[1:])
	eachChannel(dims, func(c int, at []int) {
		rstd := 1 / math.Sqrt(variance[c]+op.Attrs.(BatchNormAttrs).Eps)
		var sum, dot float64
		for _, p := range at {
			sum, dot = sum+dy[p], dot+dy[p]*(x[p]-mean[c])*rstd
		}
		for _, p := range at {
			out[0].F[p] = g[c] * rstd * (dy[p] - weights[p/each]*(sum/n+(x[p]-mean[c])*rstd*dot/n))
		}
		out[1].F[c], out[2].F[c] = dot, sum
	})
	return out
}

// given is array i of in, nil where there is none.
func given(in []*ir.Array, i int) *ir.Array {
	if i < len(in) {
		return in[i]
	}
	return nil
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

// bnShare gives weights [N,1,1,...] of samples, 1 for those that count, with x's number of dims; scale [1,1,...], by which the mean over
// all of what they leave must be multiplied to be the mean over what counts, exactly 1 when all do; and n, f32 [1,1,...], the number of
// values of a channel that count. Where no sample counts, all have weight, and n, which is 0, tells. It counts in f32,
// which f16 could not.
func bnShare(b *ir.Builder, x, counts *ir.Value) (weights, scale, n *ir.Value) {
	ones := filled(len(x.Type.Dims), 1)
	rows := Cast(b, Reshape(b, counts, with(ones, 0, x.Type.Dims[0])), dtype.F32)
	some := ReduceSum(b, rows, 0)
	none := Eq(b, some, ScalarLike(b, some, 0))
	all := ScalarLike(b, some, float64(x.Type.Dims[0]))
	weights = Where(b, Expand(b, none, rows.Type.Dims), ScalarLike(b, rows, 1), rows)
	scale = Div(b, all, Where(b, none, all, some))
	return Cast(b, weights, x.Type.DType), Cast(b, scale, x.Type.DType), MulScalar(b, some, float64(ir.Product(x.Type.Dims[2:])))
}

// bnMean is the mean over all dims but the channels, [1,C,1,...], of the samples that count (nil: all). n is as bnShare says, nil when all
// count.
func bnMean(b *ir.Builder, x, counts *ir.Value) (mean func(*ir.Value) *ir.Value, n *ir.Value) {
	dims := batchDims(x)
	if counts == nil {
		return func(v *ir.Value) *ir.Value { return ReduceMean(b, v, dims...) }, nil
	}
	weights, scale, n := bnShare(b, x, counts)
	return func(v *ir.Value) *ir.Value {
		m := ReduceMean(b, Mul(b, v, like(b, weights, v)), dims...)
		return Mul(b, m, like(b, scale, m))
	}, n
}

func batchNormParts(b *ir.Builder, op *ir.Op) []*ir.Value {
	x, c := op.In[0], op.Out[1].Type.Dims
	over, n := bnMean(b, x, bnCount(op))
	mean := over(x)
	d := Sub(b, x, like(b, mean, x))
	variance := over(Square(b, d))
	scale := Mul(b, Rsqrt(b, AddScalar(b, variance, op.Attrs.(BatchNormAttrs).Eps)), channels(b, op.In[1], x))
	y := Add(b, Mul(b, d, like(b, scale, x)), like(b, channels(b, op.In[2], x), x))
	out := []*ir.Value{y, Reshape(b, mean, c), Reshape(b, variance, c)}
	if n != nil {
		out = append(out, Expand(b, Reshape(b, n, []int{1}), c))
	}
	return out
}

// batchNormGradParts: dx = g*rstd*(dy - w*(mean(dy) + h*mean(dy*h))), all but dy, h and the weights of samples w per channel. The
// means divide by how many values count, but sum over all, for what does not count is normalised, too.
func batchNormGradParts(b *ir.Builder, op *ir.Op) []*ir.Value {
	dy, x, g := op.In[0], op.In[1], op.In[2]
	dims, n := batchDims(x), float64(x.Type.Elems()/x.Type.Dims[1])
	rstd := Rsqrt(b, AddScalar(b, channels(b, op.In[4], x), op.Attrs.(BatchNormAttrs).Eps))
	h := Mul(b, Sub(b, x, like(b, channels(b, op.In[3], x), x)), like(b, rstd, x))
	sum, dot := ReduceSum(b, dy, dims...), ReduceSum(b, Mul(b, dy, h), dims...)
	mean := func(v *ir.Value) *ir.Value { return like(b, MulScalar(b, v, 1/n), x) }
	if counts := bnCount(op); counts != nil {
		weights, scale, _ := bnShare(b, x, counts)
		mean = func(v *ir.Value) *ir.Value {
			return Mul(b, like(b, Mul(b, MulScalar(b, v, 1/n), like(b, scale, v)), x), like(b, weights, x))
		}
	}
	inner := Sub(b, Sub(b, dy, mean(sum)), Mul(b, h, mean(dot)))
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
	x, mean, counts := op.In[0], op.Out[1], bnCount(op)
	out := make([]*ir.Value, len(op.In))
	if dy[0] != nil {
		operands := []*ir.Value{dy[0], x, op.In[1], mean, op.Out[2]}
		if counts != nil {
			operands = append(operands, counts)
		}
		out[0], out[1], out[2] = BatchNormGrad(b, op.Attrs.(BatchNormAttrs), operands...)
	}
	n := float64(x.Type.Elems() / x.Type.Dims[1])
	each := func(d *ir.Value, factor float64) *ir.Value { // the share of each value in a statistic
		d = MulScalar(b, channels(b, d, x), factor/n)
		if counts == nil {
			return like(b, d, x)
		}
		weights, scale, _ := bnShare(b, x, counts)
		return Mul(b, like(b, Mul(b, d, like(b, scale, d)), x), like(b, weights, x))
	}
	if dy[1] != nil {
		out[0] = plus(b, out[0], each(dy[1], 1))
	}
	if dy[2] != nil {
		d := Sub(b, x, like(b, channels(b, mean, x), x))
		out[0] = plus(b, out[0], Mul(b, d, each(dy[2], 2)))
	}
	return out
}

// The samples are of Sync, whose rule keeps the batch whole: without it a split means another thing (see batchNormRule).
func batchNormSamples(*rand.Rand) []ir.Sample {
	a := BatchNormAttrs{Eps: 1e-5, Sync: true}
	counts := func(list ...int64) func(*rand.Rand, []*ir.Array) {
		return func(_ *rand.Rand, in []*ir.Array) { copy(in[3].I, list) }
	}
	x, c := []int{4, 2, 2, 2}, []int{2}
	some := append(f32s(x, c, c), ir.T(dtype.Bool, 4))
	return []ir.Sample{
		{In: some, Attrs: a, Fill: counts(1, 1, 1, 0)},
		{In: some, Attrs: a, Fill: counts(0, 0, 0, 0)},
		{In: f32s(x, c, c), Attrs: a},
		{In: f32s([]int{6, 4}, []int{4}, []int{4}), Attrs: a},
		{In: f32s(x, c, c), Attrs: BatchNormAttrs{Eps: a.Eps}},
	}
}

func batchNormGradSamples(*rand.Rand) []ir.Sample {
	x, c := []int{4, 2, 2, 2}, []int{2}
	fill := func(counts ...int64) func(*rand.Rand, []*ir.Array) {
		return func(r *rand.Rand, in []*ir.Array) {
			positive(r, in[4:5])
			if len(in) > 5 {
				copy(in[5].I, counts)
			}
		}
	}
	a := BatchNormAttrs{Eps: 1e-5, Sync: true}
	some := append(f32s(x, x, c, c, c), ir.T(dtype.Bool, 4))
	return []ir.Sample{
		{In: f32s(x, x, c, c, c), Attrs: a, Fill: fill()},
		{In: some, Attrs: a, Fill: fill(1, 0, 1, 1)},
		{In: some, Attrs: a, Fill: fill(0, 0, 0, 0)},
	}
}

func batchNormStatSamples(*rand.Rand) []ir.Sample {
	x, c := []int{4, 2, 2, 2}, []int{2}
	return []ir.Sample{{
		In: f32s(x, c, c, c, c), Attrs: BatchNormStatAttrs{Eps: 1e-5, Momentum: 0.1},
		Fill: func(r *rand.Rand, in []*ir.Array) { positive(r, in[4:]) },
	}}
}
