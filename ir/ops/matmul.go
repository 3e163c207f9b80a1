package ops

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
)

// MatMulDef is the matrix product.
var MatMulDef = ir.NewOp("matmul")

// MatMulAttrs: TransA reads a as [...,k,m], TransB reads b as [...,n,k].
type MatMulAttrs struct{ TransA, TransB bool }

// MatMul is a·b, of floats or of integers, which wrap: a [batch...,m,k] and b [batch...,k,n] of equal batch dims, or b [k,n] shared by all batches of a.
func MatMul(b *ir.Builder, x, y *ir.Value) *ir.Value { return MatMulT(b, x, y, false, false) }

// MatMulT is MatMul with the last two dims of x or y exchanged first.
func MatMulT(b *ir.Builder, x, y *ir.Value, transX, transY bool) *ir.Value {
	return b.Emit(MatMulDef, MatMulAttrs{transX, transY}, x, y)
}

// MatMulBias is MatMulT plus bias [n] added to every row.
func MatMulBias(b *ir.Builder, x, y, bias *ir.Value, transX, transY bool) *ir.Value {
	if bias == nil {
		return MatMulT(b, x, y, transX, transY)
	}
	return b.Emit(MatMulDef, MatMulAttrs{transX, transY}, x, y, bias)
}

// mkn gives the sizes of one product; the operands have at least two dims.
func mkn(op *ir.Op) (m, k, n int) {
	a, x, y := op.Attrs.(MatMulAttrs), in(op, 0), in(op, 1)
	m, k = x[len(x)-2], x[len(x)-1]
	if a.TransA {
		m, k = k, m
	}
	n = y[len(y)-1]
	if a.TransB {
		n = y[len(y)-2]
	}
	return m, k, n
}

func inferMatMul(op *ir.Op) ([]ir.Type, error) {
	x, y := op.In[0].Type, op.In[1].Type
	if !numeric(x.DType) {
		return wrong("operand 0 is %s, want numbers", x.DType)
	}
	if x.DType != y.DType {
		return wrong("operand 0 is %s, operand 1 is %s", x.DType, y.DType)
	}
	if len(x.Dims) < 2 || len(y.Dims) < 2 {
		return wrong("operands have %d and %d dims, want at least 2", len(x.Dims), len(y.Dims))
	}
	m, k, n := mkn(op)
	ky := y.Elems() / max(1, n*ir.Product(y.Dims[:len(y.Dims)-2]))
	if y.Elems() > 0 && ky != k {
		return wrong("operand 1 has inner dimension %d, operand 0 has %d", ky, k)
	}
	batch := x.Dims[:len(x.Dims)-2]
	if len(y.Dims) > 2 && !slices.Equal(batch, y.Dims[:len(y.Dims)-2]) {
		return wrong("batch dims are %v and %v", batch, y.Dims[:len(y.Dims)-2])
	}
	if len(op.In) > 2 && op.In[2] != nil && !op.In[2].Type.Equal(ir.T(x.DType, n)) {
		return wrong("bias is %s, want %s", op.In[2].Type, ir.T(x.DType, n))
	}
	return types(ir.T(x.DType, append(slices.Clone(batch), m, n)...))
}
