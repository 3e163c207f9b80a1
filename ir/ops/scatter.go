package ops

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
)

// Writing at run-time indices into a copy of a tensor.
var (
	ScatterDef         = ir.NewOp("scatter")
	ScatterElementsDef = ir.NewOp("scatter_elements")
)

// ScatterAttrs says how an update joins what is there: "" replaces it, "add", "mul", "max" and "min" combine. "same" replaces it,
// too, and promises that all updates of one row are equal: then their order does not matter, and a GPU need not sort them.
type ScatterAttrs struct{ Reduce string }

// ScatterElementsAttrs names the indexed dim, and how an update joins what is there as in ScatterAttrs.
type ScatterElementsAttrs struct {
	Dim    int
	Reduce string
}

// Scatter is x[R,rest...] with rows replaced by, or combined with, upd[idx.dims...,rest...]: one row for each of idx
// (integers below R, negative ones counting from the end), in order. An index outside R is an error when the program
// runs.
//
// Gradients are PyTorch's of index_put and scatter_reduce: an update that a later one replaces still gets the gradient
// of the row, ties of max and min share it evenly, and products of zeros are exact.
func Scatter(b *ir.Builder, x, idx, upd *ir.Value, reduce string) *ir.Value {
	return b.Emit(ScatterDef, ScatterAttrs{reduce}, x, idx, upd)
}

// ScatterElements is torch.scatter: x with x[i,idx[i,j,…],…] replaced by, or combined with, upd[i,j,…], indexed along
// dim, in row-major order of idx. idx and upd have equal dims, which may be smaller than x's. Gradients are Scatter's.
func ScatterElements(b *ir.Builder, x, idx, upd *ir.Value, dim int, reduce string) *ir.Value {
	return b.Emit(ScatterElementsDef, ScatterElementsAttrs{dim, reduce}, x, idx, upd)
}

func inferScatter(op *ir.Op) ([]ir.Type, error) {
	x, idx, upd := op.In[0].Type, op.In[1].Type, op.In[2].Type
	if err := needInt(op, 1); err != nil {
		return nil, err
	}
	if err := needReduce(op.Attrs.(ScatterAttrs).Reduce, x, upd); err != nil {
		return nil, err
	}
	if len(x.Dims) == 0 || !slices.Equal(upd.Dims, slices.Concat(idx.Dims, x.Dims[1:])) {
		return wrong("operand 2 is %s, operand 0 %s and operand 1 %s: their rows do not agree", upd, x, idx)
	}
	return types(x)
}

// needReduce checks the kind of a scatter against the types of its data and updates.
func needReduce(kind string, x, upd ir.Type) error {
	switch {
	case scatterHow(kind) < 0:
		return fmt.Errorf("no reduction is called %q", kind)
	case x.DType != upd.DType:
		return fmt.Errorf("updates are %s, but data %s", upd.DType, x.DType)
	case !replaces(kind) && !numeric(x.DType):
		return fmt.Errorf("there is no reduction %q of elements of type %s", kind, x.DType)
	}
	return nil
}

// replaces reports whether updates of that kind take the place of what is there.
func replaces(kind string) bool { return kind == "" || kind == "same" }

// scatterHow is kernels/cpu's number of a kind of scatter; -1 when there is none.
func scatterHow(kind string) int {
	return slices.Index([]string{"", "add", "mul", "max", "min", "same"}, kind)
}

func inferScatterElements(op *ir.Op) ([]ir.Type, error) {
	x, idx, upd, a := op.In[0].Type, op.In[1].Type, op.In[2].Type, op.Attrs.(ScatterElementsAttrs)
	if err := needInt(op, 1); err != nil {
		return nil, err
	}
	if err := needReduce(a.Reduce, x, upd); err != nil {
		return nil, err
	}
	if !slices.Equal(idx.Dims, upd.Dims) {
		return wrong("operand 1 is %s and operand 2 %s, but must have equal dims", idx, upd)
	}
	if err := fitsElements(x.Dims, idx, a.Dim); err != nil {
		return nil, err
	}
	return types(x)
}
