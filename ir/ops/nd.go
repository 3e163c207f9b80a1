package ops

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Reading and writing at places that vectors of indices name. The leading dims that operands share, such as the
// samples of a batch, index nothing, so they can be split over ranks and micro-batches.
var (
	GatherNDDef     = ir.NewOp("gather_nd")
	ScatterNDDef    = ir.NewOp("scatter_nd")
	ScatterNDAddDef = ir.NewOp("scatter_nd_add")
)

// GatherNDAttrs counts the leading dims that operands share.
type GatherNDAttrs struct{ Batch int }

// ScatterNDAttrs counts the leading dims that operands share, and says how an update joins what is there as in
// ScatterAttrs.
type ScatterNDAttrs struct {
	Batch  int
	Reduce string
}

// ScatterNDAddAttrs counts the leading dims that operands share, and gives the dims of the result.
type ScatterNDAddAttrs struct {
	Batch int
	Dims  []int
}

// GatherND indexes x by the vectors in the last dim of idx: the first batch dims of both are equal and stay, and
// result[b...,i...,r...] = x[b...,idx[b...,i...,0],idx[b...,i...,1],…,r...].
func GatherND(b *ir.Builder, x, idx *ir.Value, batch int) *ir.Value {
	return b.Emit(GatherNDDef, GatherNDAttrs{batch}, x, idx)
}

// ScatterND is the writing counterpart of GatherND: x with the places of idx's vectors replaced by, or combined with,
// upd, which has the dims that GatherND would give. Gradients are Scatter's.
func ScatterND(b *ir.Builder, x, idx, upd *ir.Value, batch int, reduce string) *ir.Value {
	return b.Emit(ScatterNDDef, ScatterNDAttrs{batch, reduce}, x, idx, upd)
}

// ScatterNDAdd is the adjoint of GatherND: zeros of dims, with upd added at the places of idx's vectors.
func ScatterNDAdd(b *ir.Builder, idx, upd *ir.Value, batch int, dims []int) *ir.Value {
	return b.Emit(ScatterNDAddDef, ScatterNDAddAttrs{batch, slices.Clone(dims)}, idx, upd)
}

// joinIndices brings the vectors in the last dim of idx, which index dims, to positions in them flattened: i64, of
// idx's other dims. A vector that is outside becomes the position just behind the last, which is an error where it is
// used.
func joinIndices(b *ir.Builder, idx *ir.Value, dims []int) *ir.Value {
	id := idx.Type.Dims
	lead, k := id[:len(id)-1], id[len(id)-1]
	all := Cast(b, idx, dtype.I64)
	strides := ir.Strides(dims)
	sum := Zeros(b, ir.T(dtype.I64, lead...))
	bad := Zeros(b, ir.T(dtype.Bool, lead...))
	for d := range k {
		p := Reshape(b, SliceDim(b, all, len(id)-1, d, 1), lead)
		p, out := wrapped(b, p, dims[d])
		sum, bad = Add(b, sum, MulScalar(b, p, float64(strides[d]))), Or(b, bad, out)
	}
	return Where(b, bad, ScalarLike(b, sum, float64(ir.Product(dims))), sum)
}

// wrapped counts negative positions p (i64) from the end of size, and says which are outside.
func wrapped(b *ir.Builder, p *ir.Value, size int) (at, outside *ir.Value) {
	zero, n := ScalarLike(b, p, 0), ScalarLike(b, p, float64(size))
	p = Where(b, Lt(b, p, zero), Add(b, p, n), p)
	return p, Or(b, Lt(b, p, zero), Ge(b, p, n))
}

// rowDims checks indices against a table with n batch dims and gives the dims of what GatherND reads.
func rowDims(op *ir.Op, table, idx []int, n int) ([]int, error) {
	last := len(idx) - 1
	if n < 0 || last < n || n > len(table) || n+idx[last] > len(table) || !slices.Equal(table[:n], idx[:n]) {
		_, err := wrong("%s: indices %v with %d batch dims do not fit %v", op.Def.Name, idx, n, table)
		return nil, err
	}
	return slices.Concat(idx[:last], table[n+idx[last]:]), nil
}

func inferGatherND(op *ir.Op) ([]ir.Type, error) {
	if err := needInt(op, 1); err != nil {
		return nil, err
	}
	dims, err := rowDims(op, in(op, 0), in(op, 1), op.Attrs.(GatherNDAttrs).Batch)
	if err != nil {
		return nil, err
	}
	return types(ir.T(op.In[0].Type.DType, dims...))
}

func inferScatterND(op *ir.Op) ([]ir.Type, error) {
	x, upd, a := op.In[0].Type, op.In[2].Type, op.Attrs.(ScatterNDAttrs)
	if err := needInt(op, 1); err != nil {
		return nil, err
	}
	if err := needReduce(a.Reduce, x, upd); err != nil {
		return nil, err
	}
	want, err := rowDims(op, x.Dims, in(op, 1), a.Batch)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(upd.Dims, want) {
		return wrong("updates are %s, but must have dims %v", upd, want)
	}
	return types(x)
}

func inferScatterNDAdd(op *ir.Op) ([]ir.Type, error) {
	upd, a := op.In[1].Type, op.Attrs.(ScatterNDAddAttrs)
	if err := needInt(op, 0); err != nil {
		return nil, err
	}
	want, err := rowDims(op, a.Dims, in(op, 0), a.Batch)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(upd.Dims, want) || !numeric(upd.DType) {
		return wrong("updates are %s, but must be numbers with dims %v", upd, want)
	}
	return types(ir.T(upd.DType, a.Dims...))
}
