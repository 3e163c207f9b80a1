package ops

import (
	"math"
	"math/rand/v2"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	seen := ir.Facts{Apart: always}
	row := ir.Facts{Over: "takes a softmax over", Unseen: less, Apart: always}
	define := func(d *ir.Def, operands int, precision string, facts ir.Facts, doc string, row func(out []float64, in [][]float64), decompose, vjp func(b *ir.Builder, v []*ir.Value, dim int) *ir.Value) {
		r := ir.Rules{
			Attrs: SoftmaxAttrs{}, Operands: operands, Infer: inferSoftmax, Factors: softmaxRule, Precision: precision, Doc: doc, Facts: facts,
			Eval: func(op *ir.Op, in []*ir.Array) []*ir.Array {
				return []*ir.Array{byRow(in, op.Attrs.(SoftmaxAttrs).Dim, row)}
			},
			Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
				return []*ir.Value{decompose(b, op.In, op.Attrs.(SoftmaxAttrs).Dim)}
			},
			Samples: func(*rand.Rand) []ir.Sample { return softmaxSamples(operands) },
		}
		if vjp != nil {
			r.VJP = func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
				return []*ir.Value{vjp(b, []*ir.Value{op.Out[0], dy[0]}, op.Attrs.(SoftmaxAttrs).Dim)}
			}
		}
		d.Define(r)
	}
	define(SoftmaxDef, 1, "narrow", row, "exp(x)/sum(exp(x)) over one dimension", softmaxRow, softmaxParts,
		func(b *ir.Builder, v []*ir.Value, dim int) *ir.Value { return SoftmaxGrad(b, v[0], v[1], dim) })
	define(LogSoftmaxDef, 1, "keep", row, "x - log(sum(exp(x))) over one dimension", logSoftmaxRow, logSoftmaxParts,
		func(b *ir.Builder, v []*ir.Value, dim int) *ir.Value { return LogSoftmaxGrad(b, v[0], v[1], dim) })
	define(SoftmaxGradDef, 2, "narrow", seen, "gradient of softmax from its result: y*(dy - sum(dy*y))", softmaxGradRow, softmaxGradParts, nil)
	define(LogSoftmaxGradDef, 2, "keep", seen, "gradient of log_softmax from its result: dy - exp(y)*sum(dy)", logSoftmaxGradRow, logSoftmaxGradParts, nil)
}

func softmaxSamples(operands int) []ir.Sample {
	var out []ir.Sample
	add := func(dim int, dims ...int) {
		s := ir.Sample{Attrs: SoftmaxAttrs{dim}}
		for range operands {
			s.In = append(s.In, ir.T(dtype.F32, dims...))
		}
		out = append(out, s)
	}
	add(1, 4, 6)
	add(1, 2, 4, 2)
	add(0, 5)
	return out
}

// byRow applies f to every line of the arrays along dim.
func byRow(in []*ir.Array, dim int, f func(out []float64, in [][]float64)) *ir.Array {
	t := in[0].Type
	res, n, step := ir.NewArray(t), t.Dims[dim], ir.Strides(t.Dims)[dim]
	out, rows := make([]float64, n), make([][]float64, len(in))
	for start := range t.Elems() {
		if start/step%n != 0 {
			continue
		}
		for k, a := range in {
			rows[k] = make([]float64, n)
			for i := range n {
				rows[k][i] = a.F[start+i*step]
			}
		}
		f(out, rows)
		for i := range n {
			res.F[start+i*step] = out[i]
		}
	}
	return res
}

// expSum is max(row) and sum(exp(row - max)). The maximum is kept apart: added to the logarithm of the sum it would
// take digits of its own size from it.
func expSum(row []float64) (top, sum float64) {
	top = math.Inf(-1)
	for _, v := range row {
		top = max(top, v)
	}
	for _, v := range row {
		sum += math.Exp(v - top)
	}
	return top, sum
}

// logSumExp is log(sum(exp(row))), and minus infinity when every element is.
func logSumExp(row []float64) float64 {
	top, sum := expSum(row)
	if math.IsInf(top, -1) {
		return top
	}
	return top + math.Log(sum)
}

func softmaxRow(out []float64, in [][]float64) {
	top, sum := expSum(in[0])
	for i, v := range in[0] {
		out[i] = math.Exp(v-top) / sum
	}
}

func logSoftmaxRow(out []float64, in [][]float64) {
	top, sum := expSum(in[0])
	for i, v := range in[0] {
		out[i] = v - top - math.Log(sum)
	}
}

func softmaxGradRow(out []float64, in [][]float64) {
	sum := 0.0
	for i, y := range in[0] {
		sum += y * in[1][i]
	}
	for i, y := range in[0] {
		out[i] = y * (in[1][i] - sum)
	}
}

func logSoftmaxGradRow(out []float64, in [][]float64) {
	sum := 0.0
	for _, dy := range in[1] {
		sum += dy
	}
	for i, y := range in[0] {
		out[i] = in[1][i] - math.Exp(y)*sum
	}
}

// like expands a saved statistic, whose reduced dims are 1, to x's dims.
func like(b *ir.Builder, stat, x *ir.Value) *ir.Value { return Expand(b, stat, x.Type.Dims) }

// softmaxParts takes three passes over a row: maximum, exponentials with their sum, scaling.
func softmaxParts(b *ir.Builder, v []*ir.Value, dim int) *ir.Value {
	x := v[0]
	e := Exp(b, Sub(b, x, like(b, ReduceMax(b, x, dim), x)))
	return Mul(b, e, like(b, Recip(b, ReduceSum(b, e, dim)), x))
}

func logSoftmaxParts(b *ir.Builder, v []*ir.Value, dim int) *ir.Value {
	x := v[0]
	c := Sub(b, x, like(b, ReduceMax(b, x, dim), x))
	return Sub(b, c, like(b, Log(b, ReduceSum(b, Exp(b, c), dim)), x))
}

func softmaxGradParts(b *ir.Builder, v []*ir.Value, dim int) *ir.Value {
	y, dy := v[0], v[1]
	return Mul(b, y, Sub(b, dy, like(b, ReduceSum(b, Mul(b, dy, y), dim), y)))
}

func logSoftmaxGradParts(b *ir.Builder, v []*ir.Value, dim int) *ir.Value {
	y, dy := v[0], v[1]
	return Sub(b, dy, Mul(b, Exp(b, y), like(b, ReduceSum(b, dy, dim), y)))
}
