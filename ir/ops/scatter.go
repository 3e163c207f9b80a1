package ops

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Writing at run-time indices into a copy of a tensor, and its reading counterpart.
var (
	ScatterDef         = ir.NewOp("scatter")
	ScatterElementsDef = ir.NewOp("scatter_elements")
	GatherNDDef        = ir.NewOp("gather_nd")
)

// ScatterAttrs says how an update joins what is there: "" replaces it, "add", "mul", "max" and "min" combine. "same" replaces it,
// too, and promises that all updates of one row are equal: then their order does not matter, and a GPU need not sort them.
type ScatterAttrs struct{ Reduce string }

// ScatterElementsAttrs names the indexed dim, and how an update joins what is there as in ScatterAttrs.
type ScatterElementsAttrs struct {
	Dim    int
	Reduce string
}

// GatherNDAttrs counts the leading dims that operands share.
type GatherNDAttrs struct{ Batch int }

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

// GatherND indexes x by the vectors in the last dim of idx: the first batch dims of both are equal and stay, and
// result[b...,i...,r...] = x[b...,idx[b...,i...,0],idx[b...,i...,1],…,r...].
func GatherND(b *ir.Builder, x, idx *ir.Value, batch int) *ir.Value {
	return b.Emit(GatherNDDef, GatherNDAttrs{batch}, x, idx)
}

// ScatterND is the writing counterpart of GatherND without batch dims: x with the places of idx's vectors replaced by,
// or combined with, upd.
func ScatterND(b *ir.Builder, x, idx, upd *ir.Value, reduce string) *ir.Value {
	dims, id := x.Type.Dims, idx.Type.Dims
	if len(id) == 0 || id[len(id)-1] > len(dims) {
		panic(ir.Errorf(b.Loc, "indices %s do not fit %s", idx.Type, x.Type))
	}
	depth := id[len(id)-1]
	want := slices.Concat(id[:len(id)-1], dims[depth:])
	if !slices.Equal(upd.Type.Dims, want) {
		panic(ir.Errorf(b.Loc, "updates are %s, want dims %v", upd.Type, want))
	}
	rows, n := ir.Product(dims[:depth]), ir.Product(id[:len(id)-1])
	at := Reshape(b, joinIndices(b, idx, dims[:depth]), []int{n})
	flat := func(v *ir.Value, lead int) *ir.Value {
		return Reshape(b, v, append([]int{lead}, dims[depth:]...))
	}
	return Reshape(b, Scatter(b, flat(x, rows), at, flat(upd, n), reduce), dims)
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

func inferScatter(op *ir.Op) ([]ir.Type, error) {
	x, idx, upd := op.In[0].Type, op.In[1].Type, op.In[2].Type
	if err := needInt(op, 1); err != nil {
		return nil, err
	}
	if err := needReduce(op.Attrs.(ScatterAttrs).Reduce, x, upd); err != nil {
		return nil, err
	}
	if len(x.Dims) == 0 || !slices.Equal(upd.Dims, slices.Concat(idx.Dims, x.Dims[1:])) {
		return wrong("operand 2 is %s, operand 0 %s, operand 1 %s: rows do not agree", upd, x, idx)
	}
	return types(x)
}

// needReduce checks the kind of a scatter against the types of its data and updates.
func needReduce(kind string, x, upd ir.Type) error {
	switch {
	case scatterHow(kind) < 0:
		return fmt.Errorf("no reduction is called %q", kind)
	case x.DType != upd.DType:
		return fmt.Errorf("updates are %s, data %s", upd.DType, x.DType)
	case !replaces(kind) && !numeric(x.DType):
		return fmt.Errorf("reduction %q of %s", kind, x.DType)
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
		return wrong("operand 1 is %s, operand 2 %s: want equal dims", idx, upd)
	}
	if err := fitsElements(x.Dims, idx, a.Dim); err != nil {
		return nil, err
	}
	return types(x)
}

func inferGatherND(op *ir.Op) ([]ir.Type, error) {
	x, idx, n := op.In[0].Type, op.In[1].Type, op.Attrs.(GatherNDAttrs).Batch
	if err := needInt(op, 1); err != nil {
		return nil, err
	}
	last := len(idx.Dims) - 1
	if n < 0 || last < n || n > len(x.Dims) || n+idx.Dims[last] > len(x.Dims) || !slices.Equal(x.Dims[:n], idx.Dims[:n]) {
		return wrong("indices %s with %d batch dims do not fit %s", idx, n, x)
	}
	return types(ir.T(x.DType, slices.Concat(idx.Dims[:last], x.Dims[n+idx.Dims[last]:])...))
}
