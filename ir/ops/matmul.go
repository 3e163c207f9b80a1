package ops

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// MatMulDef is the matrix product.
var MatMulDef = ir.NewOp("matmul")

// MatMulAttrs: TransA reads a as [...,k,m], TransB reads b as [...,n,k]. Out is the type of the result where it is not the
// operands': f32 of narrower floats, whose sums a product holds in f32 anyway.
type MatMulAttrs struct {
	TransA, TransB bool
	Out            dtype.DType
}

// MatMul is a·b, of floats or of integers, which wrap: a [batch...,m,k] and b [batch...,k,n] of equal batch dims, or b [k,n] shared by all batches of a.
func MatMul(b *ir.Builder, x, y *ir.Value) *ir.Value { return MatMulT(b, x, y, false, false) }

// MatMulT is MatMul with the last two dims of x or y exchanged first.
func MatMulT(b *ir.Builder, x, y *ir.Value, transX, transY bool) *ir.Value {
	return b.Emit(MatMulDef, MatMulAttrs{TransA: transX, TransB: transY}, x, y)
}

// MatMulBias is MatMulT plus bias [n] added to every row.
func MatMulBias(b *ir.Builder, x, y, bias *ir.Value, transX, transY bool) *ir.Value {
	return MatMulOf(b, MatMulAttrs{TransA: transX, TransB: transY}, x, y, bias)
}

// MatMulOf is the product with all its attributes; bias may be nil.
func MatMulOf(b *ir.Builder, a MatMulAttrs, x, y, bias *ir.Value) *ir.Value {
	if bias == nil {
		return b.Emit(MatMulDef, a, x, y)
	}
	return b.Emit(MatMulDef, a, x, y, bias)
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
		return wrong("operand 0 is %s, but must hold numbers", x.DType)
	}
	if x.DType != y.DType {
		return wrong("operand 0 is %s, but operand 1 is %s", x.DType, y.DType)
	}
	if len(x.Dims) < 2 || len(y.Dims) < 2 {
		return wrong("operands have %d and %d dims, but must have at least 2", len(x.Dims), len(y.Dims))
	}
	m, k, n := mkn(op)
	ky := y.Elems() / max(1, n*ir.Product(y.Dims[:len(y.Dims)-2]))
	if y.Elems() > 0 && ky != k {
		return wrong("operand 1 has inner dimension %d, operand 0 has %d", ky, k)
	}
	batch := x.Dims[:len(x.Dims)-2]
	if len(y.Dims) > 2 && !slices.Equal(batch, y.Dims[:len(y.Dims)-2]) {
		return wrong("batch dims are %v and %v, but must be equal", batch, y.Dims[:len(y.Dims)-2])
	}
	if len(op.In) > 2 && op.In[2] != nil && !op.In[2].Type.Equal(ir.T(x.DType, n)) {
		return wrong("bias is %s, but must be %s", op.In[2].Type, ir.T(x.DType, n))
	}
	out, err := productType(x.DType, op.Attrs.(MatMulAttrs).Out)
	if err != nil {
		return nil, err
	}
	return types(ir.T(out, append(slices.Clone(batch), m, n)...))
}

// productType is the type of a product of operands of type d when out is asked for.
// AsMatMul gives the attributes of op, a matrix product without an end; false for any other op, and for nil.
func AsMatMul(op *ir.Op) (MatMulAttrs, bool) {
	if op == nil {
		return MatMulAttrs{}, false
	}
	a, ok := op.Attrs.(MatMulAttrs)
	return a, ok
}

func productType(d, out dtype.DType) (dtype.DType, error) {
	switch {
	case out == dtype.Invalid || out == d:
		return d, nil
	case out == dtype.F32 && half(d):
		return out, nil
	}
	return d, fmt.Errorf("the result is to be %s, which is not possible with operands of type %s", out, d)
}
