package ops

import (
	"github.com/gtc-compiler/gtc/ir"
)

// The reductions.
var (
	ReduceSumDef  = ir.NewOp("reduce_sum")
	ReduceMaxDef  = ir.NewOp("reduce_max")
	ReduceMinDef  = ir.NewOp("reduce_min")
	ReduceProdDef = ir.NewOp("reduce_prod")
	ArgmaxDef     = ir.NewOp("argmax")
	CumsumDef     = ir.NewOp("cumsum")
)

// ReduceAttrs names the reduced dims, increasing. They stay in the result as size 1.
type ReduceAttrs struct{ Dims []int }

// ArgmaxAttrs names the reduced dim. Last takes the last of equal elements rather than the first; Least looks for the
// least element.
type ArgmaxAttrs struct {
	Dim         int
	Last, Least bool
}

// CumsumAttrs: running sums along Dim; Exclusive leaves out the element itself, Reverse runs from the end.
type CumsumAttrs struct {
	Dim                int
	Exclusive, Reverse bool
}

// ReduceSum adds over dims (increasing), which stay as size 1. It returns x when dims is empty.
func ReduceSum(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
	return reduce(b, ReduceSumDef, x, dims)
}

// ReduceMax is the greatest element over dims (increasing), which stay as size 1; NaN wins.
func ReduceMax(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
	return reduce(b, ReduceMaxDef, x, dims)
}

// ReduceMin is the least element over dims (increasing), which stay as size 1; NaN wins.
func ReduceMin(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
	return reduce(b, ReduceMinDef, x, dims)
}

// ReduceProd multiplies over dims (increasing), which stay as size 1.
func ReduceProd(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
	return reduce(b, ReduceProdDef, x, dims)
}

func reduce(b *ir.Builder, d *ir.Def, x *ir.Value, dims []int) *ir.Value {
	if len(dims) == 0 {
		return x
	}
	return b.Emit(d, ReduceAttrs{append([]int(nil), dims...)}, x)
}

// ReduceMean is the mean over dims (increasing), which stay as size 1. x is a float.
func ReduceMean(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
	n := 1
	for _, d := range dims {
		if d < 0 || d >= len(x.Type.Dims) {
			panic(ir.Errorf(b.Loc, "there is no mean over dim %d of %q %s, which it does not have", d, x.Name, x.Type))
		}
		n *= x.Type.Dims[d]
	}
	return MulScalar(b, ReduceSum(b, x, dims...), 1/float64(n))
}

// Reduction is by what op reduces dims (sum, max, min or prod); "" when it is no reduction.
func Reduction(op *ir.Op) string {
	if op == nil || op.Def.Rules.Impl == nil {
		return ""
	}
	return op.Def.Rules.Impl(op).ReduceOp
}

// AllDims is 0, 1, …, one for each dim of x: the argument that reduces everything.
func AllDims(x *ir.Value) []int {
	out := make([]int, len(x.Type.Dims))
	for i := range out {
		out[i] = i
	}
	return out
}

// Argmax is the index (i64) of the first greatest element along dim, which stays as size 1.
func Argmax(b *ir.Builder, x *ir.Value, dim int) *ir.Value {
	return b.Emit(ArgmaxDef, ArgmaxAttrs{Dim: dim}, x)
}

// ArgExtreme is Argmax in any of its forms.
func ArgExtreme(b *ir.Builder, x *ir.Value, a ArgmaxAttrs) *ir.Value { return b.Emit(ArgmaxDef, a, x) }

// Cumsum is the running sum along a.Dim.
func Cumsum(b *ir.Builder, x *ir.Value, a CumsumAttrs) *ir.Value { return b.Emit(CumsumDef, a, x) }

// reducedDims is dims with the given ones set to 1.
func reducedDims(dims, over []int) []int {
	out := append([]int{}, dims...)
	for _, d := range over {
		out[d] = 1
	}
	return out
}

func inferReduce(op *ir.Op) ([]ir.Type, error) {
	t, dims := op.In[0].Type, op.Attrs.(ReduceAttrs).Dims
	if err := needDims(dims, len(t.Dims)); err != nil {
		return nil, err
	}
	if !numeric(t.DType) {
		return wrong("operand 0 is %s, but must hold numbers", t.DType)
	}
	out := ir.T(t.DType, reducedDims(t.Dims, dims)...)
	if t.Elems() == 0 && out.Elems() > 0 && (op.Def == ReduceMaxDef || op.Def == ReduceMinDef) {
		return wrong("the operand is %s, which is empty and has no largest or smallest element", t)
	}
	return types(out)
}
