package ops

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Determinants of square matrices in the last two dims, and their derivatives.
var (
	DetDef      = ir.NewOp("det")
	CofactorDef = ir.NewOp("cofactor")
)

// Det is the determinant of each matrix of x[…,n,n]: […].
func Det(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(DetDef, nil, x) }

// Cofactor is the matrix of cofactors of each matrix of x[…,n,n]: the derivative of its determinant.
func Cofactor(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(CofactorDef, nil, x) }

// square gives the dims before the matrices of operand 0 and their size.
func square(op *ir.Op) (lead []int, n int) {
	d := in(op, 0)
	return d[:len(d)-2], d[len(d)-1]
}

func inferMatrices(op *ir.Op) ([]ir.Type, error) {
	t := op.In[0].Type
	if n := len(t.Dims); n < 2 || t.Dims[n-1] != t.Dims[n-2] || !t.DType.IsFloat() {
		return wrong("operand 0 is %s, but must be float matrices […,n,n]", t)
	}
	if op.Def == DetDef {
		t.Dims = t.Dims[:len(t.Dims)-2]
	}
	return types(ir.T(t.DType, t.Dims...))
}

func matricesRule(op *ir.Op) factor.Rule {
	var m ruleMaker
	lead, n := square(op)
	batch := m.addAll("b", lead, factor.Free)
	whole := slices.Concat(batch, []factor.Dim{m.add("i", n, factor.Blocked), m.add("j", n, factor.Blocked)})
	if op.Def == DetDef {
		return m.rule([][]factor.Dim{whole}, batch)
	}
	return m.rule([][]factor.Dim{whole}, whole)
}

// determinant eliminates with partial pivoting; it overwrites a[n][n].
func determinant(a []float64, n int) float64 {
	det := 1.0
	for k := range n {
		p := k
		for i := k + 1; i < n; i++ {
			if math.Abs(a[i*n+k]) > math.Abs(a[p*n+k]) {
				p = i
			}
		}
		if p != k {
			det = -det
			for j := range n {
				a[k*n+j], a[p*n+j] = a[p*n+j], a[k*n+j]
			}
		}
		if det *= a[k*n+k]; det == 0 {
			return 0
		}
		for i := k + 1; i < n; i++ {
			f := a[i*n+k] / a[k*n+k]
			for j := k; j < n; j++ {
				a[i*n+j] -= f * a[k*n+j]
			}
		}
	}
	return det
}

// minor is a[n][n] without row i and column j.
func minor(a []float64, n, i, j int) []float64 {
	var out []float64
	for r := range n {
		for c := range n {
			if r != i && c != j {
				out = append(out, a[r*n+c])
			}
		}
	}
	return out
}

func matricesImpl(name string) func(op *ir.Op) kir.Impl {
	return func(op *ir.Op) kir.Impl {
		lead, n := square(op)
		d := op.In[0].Type.DType
		if d != dtype.F32 && d != dtype.F64 {
			return kir.Impl{}
		}
		return kir.Impl{Kind: kir.Template, Template: name, Ints: []int{d.Size(), ir.Product(lead), n}}
	}
}

// overMatrices repeats […] over the matrices […,n,n].
func overMatrices(b *ir.Builder, x *ir.Value, n int) *ir.Value {
	d := x.Type.Dims
	return Expand(b, Reshape(b, x, slices.Concat(d, []int{1, 1})), slices.Concat(d, []int{n, n}))
}

func init() {
	DetDef.Define(ir.Rules{
		Operands: 1, Infer: inferMatrices, Factors: matricesRule, Impl: matricesImpl("Det"), Decompose: inF32, Precision: "keep",
		Doc: "determinants of the matrices in the last two dims",
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			_, n := square(op)
			return []*ir.Value{Mul(b, overMatrices(b, dy[0], n), Cofactor(b, op.In[0]))}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out := ir.NewArray(op.Out[0].Type)
			_, n := square(op)
			for k := range out.F {
				out.F[k] = determinant(slices.Clone(x[0].F[k*n*n:(k+1)*n*n]), n)
			}
			return out
		}),
		Samples: samples(sample(nil, []int{2, 3, 3}), sample(nil, []int{4, 4}), sample(nil, []int{2, 1, 1})),
	})
	CofactorDef.Define(ir.Rules{
		Operands: 1, Infer: inferMatrices, Factors: matricesRule, Impl: matricesImpl("Cofactor"), Decompose: inF32, Precision: "keep",
		Doc: "cofactors of the matrices in the last two dims",
		VJP: cofactorVJP,
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out := ir.NewArray(op.Out[0].Type)
			_, n := square(op)
			each(out.Type.Dims, func(index []int, flat int) {
				k, i, j := flat/(n*n), index[len(index)-2], index[len(index)-1]
				out.F[flat] = determinant(minor(x[0].F[k*n*n:(k+1)*n*n], n, i, j), n-1) * float64(1-2*((i+j)%2))
			})
			return out
		}),
		Samples: samples(sample(nil, []int{2, 3, 3}), sample(nil, []int{4, 4}), sample(nil, []int{2, 1, 1})),
	})
}

// cofactorVJP: with C = det(X)·X⁻ᵀ, the gradient of <G,C> is (<G,C>·C - C·Gᵀ·C)/det(X), for regular X.
func cofactorVJP(b *ir.Builder, op *ir.Op, g []*ir.Value) []*ir.Value {
	lead, n := square(op)
	c := op.Out[0]
	flat := []int{ir.Product(lead), n, n}
	cf, gf := Reshape(b, c, flat), Reshape(b, g[0], flat)
	dot := Expand(b, ReduceSum(b, Mul(b, gf, cf), 1, 2), flat)
	perm := []int{0, 2, 1}
	turn := MatMul(b, MatMul(b, cf, Transpose(b, gf, perm)), cf)
	det := Reshape(b, Det(b, op.In[0]), []int{flat[0], 1, 1})
	dx := Div(b, Sub(b, Mul(b, dot, cf), turn), Expand(b, det, flat))
	return []*ir.Value{Reshape(b, dx, c.Type.Dims)}
}
