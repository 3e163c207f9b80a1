package ops

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
)

// The indexed ops.
var (
	GatherDef             = ir.NewOp("gather")
	ScatterAddDef         = ir.NewOp("scatter_add")
	GatherElementsDef     = ir.NewOp("gather_elements")
	ScatterElementsAddDef = ir.NewOp("scatter_elements_add")
)

// GatherAttrs names the indexed dim. NoGrad is 1 more than an index whose row gets no gradient, as with padding_idx of
// PyTorch's Embedding; 0 is none.
type GatherAttrs struct{ Dim, NoGrad int }

// ScatterAddAttrs names the indexed dim and its size in the result.
type ScatterAddAttrs struct{ Dim, Size int }

// GatherElementsAttrs names the indexed dim.
type GatherElementsAttrs struct{ Dim int }

// ScatterElementsAddAttrs names the indexed dim and the dims of the result.
type ScatterElementsAddAttrs struct {
	Dim  int
	Dims []int
}

// Gather is numpy's take: x's dim is replaced by the dims of idx (integers; negative ones count from the end).
func Gather(b *ir.Builder, x, idx *ir.Value, dim int) *ir.Value {
	return b.Emit(GatherDef, GatherAttrs{Dim: dim}, x, idx)
}

// Embed is Gather along dim 0, in which row padding of x gets no gradient (torch.nn.functional.embedding).
func Embed(b *ir.Builder, x, idx *ir.Value, padding int) *ir.Value {
	return b.Emit(GatherDef, GatherAttrs{NoGrad: padding + 1}, x, idx)
}

// ScatterAdd is the adjoint of Gather: zeros of size along dim, with upd added at idx.
func ScatterAdd(b *ir.Builder, idx, upd *ir.Value, dim, size int) *ir.Value {
	return b.Emit(ScatterAddDef, ScatterAddAttrs{dim, size}, idx, upd)
}

// GatherElements is torch.gather: result[i,j,…] = x[i,idx[i,j,…],…], indexed along dim. idx has x's number of dims
// and may be smaller than x in the others.
func GatherElements(b *ir.Builder, x, idx *ir.Value, dim int) *ir.Value {
	return b.Emit(GatherElementsDef, GatherElementsAttrs{dim}, x, idx)
}

// ScatterElementsAdd is the adjoint of GatherElements: zeros of dims, with upd added at idx along dim.
func ScatterElementsAdd(b *ir.Builder, idx, upd *ir.Value, dim int, dims []int) *ir.Value {
	return b.Emit(ScatterElementsAddDef, ScatterElementsAddAttrs{dim, slices.Clone(dims)}, idx, upd)
}

func inferGather(op *ir.Op) ([]ir.Type, error) {
	x, idx, dim := op.In[0].Type, op.In[1].Type, op.Attrs.(GatherAttrs).Dim
	if err := needDim(dim, len(x.Dims)); err != nil {
		return nil, err
	}
	if err := needInt(op, 1); err != nil {
		return nil, err
	}
	return types(ir.T(x.DType, slices.Concat(x.Dims[:dim], idx.Dims, x.Dims[dim+1:])...))
}

func inferScatterAdd(op *ir.Op) ([]ir.Type, error) {
	idx, upd, a := op.In[0].Type, op.In[1].Type, op.Attrs.(ScatterAddAttrs)
	if err := needInt(op, 0); err != nil {
		return nil, err
	}
	if !numeric(upd.DType) || a.Size < 0 {
		return wrong("cannot add elements of type %s into a dim of size %d", upd.DType, a.Size)
	}
	end := a.Dim + len(idx.Dims)
	if a.Dim < 0 || end > len(upd.Dims) || !slices.Equal(upd.Dims[a.Dim:end], idx.Dims) {
		return wrong("operand 1 is %s, which does not have the dims of operand 0, %s, from dim %d on", upd, idx, a.Dim)
	}
	return types(ir.T(upd.DType, slices.Concat(upd.Dims[:a.Dim], []int{a.Size}, upd.Dims[end:])...))
}

// fitsElements checks that idx has the number of dims of dims and exceeds none of the others.
func fitsElements(dims []int, idx ir.Type, dim int) error {
	if err := needDim(dim, len(dims)); err != nil {
		return err
	}
	if len(idx.Dims) != len(dims) {
		_, err := wrong("indices have %d dims, but must have %d", len(idx.Dims), len(dims))
		return err
	}
	for d, n := range idx.Dims {
		if d != dim && n > dims[d] || dims[d] < 0 {
			_, err := wrong("indices have size %d in dim %d, but the data have size %d", n, d, dims[d])
			return err
		}
	}
	return nil
}
