package ops

import (
	"math/rand/v2"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/kir"
)

func init() {
	MatMulDef.Define(ir.Rules{
		Attrs: MatMulAttrs{}, Operands: 2, Optional: 1, Precision: "low",
		Facts: ir.Facts{Linear: bilinear, Bias: func(op *ir.Op) int { return len(outDims(op)[0]) - 1 }, Out: func(op *ir.Op, d dtype.DType) any {
			a := op.Attrs.(MatMulAttrs)
			a.Out = d
			return a
		}},
		Doc:     "matrix product of the last two dims, plus an optional bias row",
		Infer:   inferMatMul,
		Factors: matMulRule,
		VJP:     matMulVJP,
		Eval:    one(evalMatMul),
		Impl:    matMulImpl, Decompose: inF32,
		Samples: func(*rand.Rand) []ir.Sample {
			return []ir.Sample{
				sample(MatMulAttrs{}, []int{4, 6}, []int{6, 2}),
				sample(MatMulAttrs{TransA: true}, []int{6, 4}, []int{6, 2}),
				sample(MatMulAttrs{TransB: true}, []int{4, 6}, []int{2, 6}, []int{2}),
				sample(MatMulAttrs{TransA: true, TransB: true}, []int{6, 4}, []int{2, 6}),
				sample(MatMulAttrs{}, []int{2, 2, 4, 6}, []int{2, 2, 6, 2}),
				sample(MatMulAttrs{TransA: true}, []int{2, 6, 4}, []int{2, 6, 2}),
				sample(MatMulAttrs{TransB: true}, []int{2, 4, 6}, []int{2, 2, 6}),
				sample(MatMulAttrs{TransA: true, TransB: true}, []int{2, 6, 4}, []int{2, 2, 6}),
				sample(MatMulAttrs{}, []int{2, 4, 6}, []int{6, 2}, []int{2}),
				sample(MatMulAttrs{TransB: true}, []int{2, 4, 6}, []int{2, 6}),
				sample(MatMulAttrs{TransA: true}, []int{2, 6, 4}, []int{6, 2}),
				sample(MatMulAttrs{TransA: true, TransB: true}, []int{2, 6, 4}, []int{2, 6}),
				of(dtype.F64, sample(MatMulAttrs{}, []int{2, 5, 6}, []int{6, 2}, []int{2})),
				of(dtype.F64, sample(MatMulAttrs{TransA: true, TransB: true}, []int{6, 5}, []int{3, 6}, []int{3})),
				of(dtype.F16, sample(MatMulAttrs{}, []int{5, 6}, []int{6, 2}, []int{2})),
				of(dtype.BF16, sample(MatMulAttrs{TransA: true, Out: dtype.F32}, []int{6, 5}, []int{6, 3})),
				of(dtype.I32, sample(MatMulAttrs{TransA: true}, []int{2, 6, 4}, []int{2, 6, 3})),
				of(dtype.U8, sample(MatMulAttrs{TransB: true}, []int{4, 60}, []int{3, 60})),
			}
		},
	})
}

// shared reports whether all batches of operand 0 use one matrix.
func shared(op *ir.Op) bool { return len(in(op, 1)) == 2 && len(in(op, 0)) > 2 }

func bias(op *ir.Op) *ir.Value { return operand(op, 2) }

// matMulRule is "…mk,…kn->…mn". A bias would be added once for each part of k, so it keeps k whole.
func matMulRule(op *ir.Op) factor.Rule {
	a, batch := op.Attrs.(MatMulAttrs), ""
	for i := range len(in(op, 0)) - 2 {
		batch += string(rune('A' + i))
	}
	pick := func(trans bool, s, t string) string {
		if trans {
			return t
		}
		return s
	}
	spec := batch + pick(a.TransA, "mk", "km") + ","
	if !shared(op) {
		spec += batch
	}
	spec += pick(a.TransB, "kn", "nk")
	kinds := map[byte]factor.Kind{}
	ins := inDims(op)[:2]
	if bias(op) != nil {
		spec += ",n"
		ins = inDims(op)
		kinds['k'] = factor.Blocked
	}
	r := mustRule(factor.Parse(spec+"->"+batch+"mn", ins, outDims(op), kinds))
	for len(r.In) < len(op.In) {
		r.In = append(r.In, nil)
	}
	return r
}

// swapLast exchanges the last two dims.
func swapLast(b *ir.Builder, x *ir.Value) *ir.Value {
	perm := AllDims(x)
	n := len(perm)
	perm[n-2], perm[n-1] = n-1, n-2
	return Transpose(b, x, perm)
}

// rows joins all dims but the last.
func rows(b *ir.Builder, x *ir.Value) *ir.Value {
	n := x.Type.Dims[len(x.Type.Dims)-1]
	return Reshape(b, x, []int{ir.Product(x.Type.Dims[:len(x.Type.Dims)-1]), n})
}

func matMulVJP(b *ir.Builder, op *ir.Op, dys []*ir.Value) []*ir.Value {
	a, x, y, dy := op.Attrs.(MatMulAttrs), op.In[0], op.In[1], Cast(b, dys[0], op.In[0].Type.DType)
	out := make([]*ir.Value, len(op.In))
	switch {
	case !a.TransA:
		out[0] = MatMulT(b, dy, y, false, !a.TransB)
	case shared(op):
		out[0] = swapLast(b, MatMulT(b, dy, y, false, !a.TransB))
	default:
		out[0] = MatMulT(b, y, dy, a.TransB, true)
	}
	transA := a.TransA
	if shared(op) { // one product over all rows of all batches
		if transA {
			x, transA = swapLast(b, x), false
		}
		x, dy = rows(b, x), rows(b, dy)
	}
	if a.TransB {
		out[1] = MatMulT(b, dy, x, true, transA)
	} else {
		out[1] = MatMulT(b, x, dy, !transA, false)
	}
	if v := bias(op); v != nil {
		flat := rows(b, Cast(b, dys[0], v.Type.DType))
		out[2] = Reshape(b, ReduceSum(b, flat, 0), v.Type.Dims)
	}
	return out
}

func evalMatMul(op *ir.Op, x []*ir.Array) *ir.Array {
	out := ir.NewArray(op.Out[0].Type)
	operands := func(i int) *ir.Array {
		if i < len(x) && x[i] != nil {
			return x[i]
		}
		return &ir.Array{}
	}
	if out.F != nil {
		multiply(op, out.F, x[0].F, x[1].F, operands(2).F)
		return out
	}
	multiply(op, out.I, x[0].I, x[1].I, operands(2).I)
	for i, v := range out.I {
		out.I[i] = out.Type.DType.Wrap(v)
	}
	return out
}

// multiply adds the products of op, and the bias when there is one, to out.
func multiply[T int64 | float64](op *ir.Op, out, x, y, bias []T) {
	a := op.Attrs.(MatMulAttrs)
	m, k, n := mkn(op)
	for batch := range ir.Product(in(op, 0)[:len(in(op, 0))-2]) {
		p, q := x[batch*m*k:][:m*k], y
		if !shared(op) {
			q = q[batch*k*n:]
		}
		p, q = rowMajor(p, m, k, a.TransA), rowMajor(q[:k*n], k, n, a.TransB)
		for i := range m {
			row := out[(batch*m+i)*n:][:n]
			for l := range k {
				v := p[i*k+l]
				for j, w := range q[l*n:][:n] {
					row[j] += v * w
				}
			}
			for j, w := range bias {
				row[j] += w
			}
		}
	}
}

// rowMajor is the matrix x [m,n], or its transpose when x holds [n,m].
func rowMajor[T int64 | float64](x []T, m, n int, trans bool) []T {
	if !trans {
		return x
	}
	out := make([]T, len(x))
	for i := range m {
		for j := range n {
			out[i*n+j] = x[j*m+i]
		}
	}
	return out
}

// matMulImpl calls kernels/cpu.Gemm, which documents the integers, or GemmAny for integers and f64. A shared matrix
// makes one tall product.
func matMulImpl(op *ir.Op) kir.Impl {
	a, d := op.Attrs.(MatMulAttrs), op.In[0].Type.DType
	if half(d) && !templateFloat(d) || elemCode(d) == 0 {
		return kir.Impl{}
	}
	m, k, n := mkn(op)
	batch := ir.Product(in(op, 0)[:len(in(op, 0))-2])
	strideB := k * n
	if shared(op) {
		strideB = 0
		if !a.TransA {
			m, batch = m*batch, 1
		}
	}
	strideA, strideC := m*k, m*n
	if batch == 1 {
		strideA, strideB, strideC = 0, 0, 0
	}
	order := []int{0, 1, -1, len(op.In)}
	if bias(op) != nil {
		order[2] = 2
	}
	ints := []int{batch, m, n, k, int(b2i(a.TransA)), int(b2i(a.TransB)), strideA, strideB, strideC}
	if !templateFloat(d) {
		return kir.Impl{Kind: kir.Template, Template: "GemmAny", Order: order, Ints: append(ints, elemCode(d))}
	}
	return kir.Impl{Kind: kir.Template, Template: "Gemm", Order: order, Ints: append(ints, 0, 0)}
}
