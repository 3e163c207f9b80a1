package ops

import (
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Order along a dim, and running products.
var (
	TopKDef    = ir.NewOp("top_k")
	CumprodDef = ir.NewOp("cumprod")
)

// TopKAttrs: the K best elements along Dim, the greatest when Largest, else the least.
type TopKAttrs struct {
	Dim, K  int
	Largest bool
}

// TopK gives the a.K greatest (least) elements of x along a.Dim, best first, and their positions (i64). Of equal
// elements the earlier comes first; NaN counts as greater than every number. The gradient goes to the chosen elements.
func TopK(b *ir.Builder, x *ir.Value, a TopKAttrs) (values, idx *ir.Value) {
	out := b.EmitN(TopKDef, a, x)
	return out[0], out[1]
}

// Sort gives x in order along dim, and where its elements were (i64): TopK of all of them.
func Sort(b *ir.Builder, x *ir.Value, dim int, descending bool) (values, idx *ir.Value) {
	if dim < 0 || dim >= len(x.Type.Dims) {
		panic(ir.Errorf(b.Loc, "cannot sort along dim %d of %q %s, which it does not have", dim, x.Name, x.Type))
	}
	return TopK(b, x, TopKAttrs{dim, x.Type.Dims[dim], descending})
}

// Cumprod is the running product along a.Dim. Its gradient is exact where elements are zero.
func Cumprod(b *ir.Builder, x *ir.Value, a CumsumAttrs) *ir.Value { return b.Emit(CumprodDef, a, x) }

func inferTopK(op *ir.Op) ([]ir.Type, error) {
	t, a := op.In[0].Type, op.Attrs.(TopKAttrs)
	if err := needDim(a.Dim, len(t.Dims)); err != nil {
		return nil, err
	}
	if a.K < 0 || a.K > t.Dims[a.Dim] || !numeric(t.DType) {
		return wrong("there are no %d best elements of %s along dim %d", a.K, t, a.Dim)
	}
	dims := with(t.Dims, a.Dim, a.K)
	return types(ir.T(t.DType, dims...), ir.T(dtype.I64, dims...))
}

// inferScan is the Infer of running sums and products.
func inferScan(op *ir.Op) ([]ir.Type, error) {
	t := op.In[0].Type
	if !numeric(t.DType) {
		return wrong("operand 0 is %s, but must hold numbers", t.DType)
	}
	if err := needDim(op.Attrs.(CumsumAttrs).Dim, len(t.Dims)); err != nil {
		return nil, err
	}
	return types(t)
}
