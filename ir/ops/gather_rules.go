package ops

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/kir"
)

func init() {
	defineGather()
	defineScatterAdd()
	defineGatherElements()
	defineScatterElementsAdd()
}

// indexed is a sample whose operand i holds indices below limit.
func indexed(s ir.Sample, i, limit int) ir.Sample {
	s.In[i].DType, s.Limit = dtype.I64, limit
	return s
}

// position is an index brought into [0, size), negative ones counting from the end; -1 when it is outside.
func position(i int64, size int) int {
	if i < 0 {
		i += int64(size)
	}
	if i < 0 || i >= int64(size) {
		return -1
	}
	return int(i)
}

// rowForm are the sizes of a gather or scatter_add along dim: outer blocks, indexed size, width of a row.
func rowForm(dims []int, dim int) (outer, size, width int) {
	return ir.Product(dims[:dim]), dims[dim], ir.Product(dims[dim+1:])
}

// front moves n dims that start at dim to the front; back undoes it.
func front(b *ir.Builder, x *ir.Value, dim, n int) *ir.Value {
	all := AllDims(x)
	return Transpose(b, x, slices.Concat(all[dim:dim+n], all[:dim], all[dim+n:]))
}

func back(b *ir.Builder, x *ir.Value, dim, n int) *ir.Value {
	all := AllDims(x)
	return Transpose(b, x, slices.Concat(all[n:n+dim], all[:n], all[n+dim:]))
}

func defineGather() {
	GatherDef.Define(ir.Rules{
		Attrs: GatherAttrs{}, Operands: 2, Precision: "own", Infer: inferGather, Facts: ir.Facts{Move: ir.LooksUp},
		Doc: "numpy's take along Dim: rows of operand 0 at the indices of operand 1",
		Factors: func(op *ir.Op) factor.Rule {
			var m ruleMaker
			dim, x := op.Attrs.(GatherAttrs).Dim, in(op, 0)
			before := m.addAll("a", x[:dim], factor.Free)
			table := m.add("v", x[dim], tableKind(op.In[0]))
			after := m.addAll("z", x[dim+1:], factor.Free)
			idx := m.addAll("i", in(op, 1), factor.Free)
			return m.rule([][]factor.Dim{slices.Concat(before, []factor.Dim{table}, after), idx}, slices.Concat(before, idx, after))
		},
		Indexed: func(b *ir.Builder, op *ir.Op, attrs any, x []*ir.Value, first *ir.Value) []*ir.Value {
			dim := op.Attrs.(GatherAttrs).Dim
			at, mine := ownIndex(b, x[1], first, in(op, 0)[dim], x[0].Type.Dims[dim])
			y := b.Emit(GatherDef, attrs, x[0], at)
			return []*ir.Value{Where(b, alongRows(b, mine, y, dim), y, ScalarLike(b, y, 0))}
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			dim := op.Attrs.(GatherAttrs).Dim
			return []*ir.Value{ScatterAdd(b, op.In[1], withoutPadding(b, op, dy[0]), dim, in(op, 0)[dim]), nil}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out, n := ir.NewArray(op.Out[0].Type), op.In[1].Type.Elems()
			_, size, width := rowForm(in(op, 0), op.Attrs.(GatherAttrs).Dim)
			for e := range out.Type.Elems() {
				outer, i, w := e/(n*width), e/width%n, e%width
				if p := position(x[1].I[i], size); p >= 0 {
					copyElem(out, e, x[0], (outer*size+p)*width+w)
				} else {
					noElem(out, e)
				}
			}
			return out
		}),
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
			return []*ir.Value{b.Emit(GatherDef, op.Attrs, op.In[0], Cast(b, op.In[1], dtype.I64))}
		},
		Impl: gatherImpl,
		Samples: samples(
			indexed(sample(GatherAttrs{Dim: 0}, []int{6, 4}, []int{2, 4}), 1, 6),
			indexed(sample(GatherAttrs{Dim: 1}, []int{2, 6, 4}, []int{4}), 1, 6),
			indexed(sample(GatherAttrs{Dim: 1}, []int{2, 6}, []int{}), 1, 6),
			indexed(sample(GatherAttrs{Dim: 2}, []int{2, 2, 4}, []int{2, 1}), 1, 4),
			ir.Sample{In: []ir.Type{ir.T(dtype.U8, 5, 3), ir.T(dtype.I32, 4)}, Limit: 5, Attrs: GatherAttrs{}},
			ir.Sample{In: []ir.Type{ir.T(dtype.F64, 2, 5), ir.T(dtype.I32, 4)}, Limit: 5, Attrs: GatherAttrs{Dim: 1}}),
	})
}

// withoutPadding is the gradient dy of a gather's result, zeros where the index is NoGrad's.
func withoutPadding(b *ir.Builder, op *ir.Op, dy *ir.Value) *ir.Value {
	a, idx := op.Attrs.(GatherAttrs), op.In[1]
	if a.NoGrad == 0 {
		return dy
	}
	pad := Eq(b, idx, ScalarLike(b, idx, float64(a.NoGrad-1)))
	return Where(b, alongRows(b, pad, dy, a.Dim), ScalarLike(b, dy, 0), dy)
}

// alongRows expands mask, which has the dims of the indices, to those of the rows y gathered along dim.
func alongRows(b *ir.Builder, mask, y *ir.Value, dim int) *ir.Value {
	dims := slices.Concat(slices.Repeat([]int{1}, dim), mask.Type.Dims)
	dims = append(dims, slices.Repeat([]int{1}, len(y.Type.Dims)-len(dims))...)
	return Expand(b, Reshape(b, mask, dims), y.Type.Dims)
}

// tableKind is the kind of the indexed dim of table: its parts are gathered from, where their sum is that of all.
func tableKind(table *ir.Value) factor.Kind {
	if !numeric(table.Type.DType) {
		return factor.Blocked
	}
	return factor.Index
}

// ownIndex brings indices of a whole dim of size whole to those (i64) of the part of size own that begins at first, and
// says which lie in it. The others become 0; those that are outside of the whole stay outside of the part, which
// is an error where they are used.
func ownIndex(b *ir.Builder, idx, first *ir.Value, whole, own int) (at, mine *ir.Value) {
	p, bad := wrapped(b, Cast(b, idx, dtype.I64), whole)
	zero, end := ScalarLike(b, p, 0), ScalarLike(b, p, float64(own))
	at = Sub(b, p, BroadcastTo(b, first, p.Type.Dims))
	mine = And(b, And(b, Ge(b, at, zero), Lt(b, at, end)), Not(b, bad))
	return Where(b, mine, at, Where(b, bad, end, zero)), mine
}

// gatherImpl calls GatherRows where rows are whole and lie in 4-byte units, else Take.
func gatherImpl(op *ir.Op) kir.Impl {
	outer, size, width := rowForm(in(op, 0), op.Attrs.(GatherAttrs).Dim)
	bytes, n, d := width*op.In[0].Type.DType.Size(), op.In[1].Type.Elems(), op.In[1].Type.DType
	switch {
	case d == dtype.I64 && outer == 1 && bytes%4 == 0:
		return kir.Impl{Kind: kir.Template, Template: "GatherRows", Status: true, Ints: []int{size, bytes / 4, n}}
	case d == dtype.I64 || d == dtype.I32:
		return kir.Impl{Kind: kir.Template, Template: "Take", Status: true, Ints: []int{outer, size, bytes, n, int(b2i(d == dtype.I32))}}
	}
	return kir.Impl{}
}

func defineScatterAdd() {
	ScatterAddDef.Define(ir.Rules{
		Attrs: ScatterAddAttrs{}, Operands: 2, Infer: inferScatterAdd, Precision: "keep", Facts: ir.Facts{Linear: linear([]int{1})},
		Doc: "zeros with operand 1 added at the indices of operand 0 along Dim",
		Factors: func(op *ir.Op) factor.Rule {
			var m ruleMaker
			a, upd := op.Attrs.(ScatterAddAttrs), in(op, 1)
			before := m.addAll("a", upd[:a.Dim], factor.Free)
			after := m.addAll("z", upd[a.Dim+len(in(op, 0)):], factor.Free)
			idx := m.addAll("i", in(op, 0), factor.Sum)
			table := m.add("v", a.Size, factor.Index)
			return m.rule([][]factor.Dim{idx, slices.Concat(before, idx, after)}, slices.Concat(before, []factor.Dim{table}, after))
		},
		Resize: func(op *ir.Op, _, out [][]int) any {
			a := op.Attrs.(ScatterAddAttrs)
			a.Size = out[0][a.Dim]
			return a
		},
		Indexed: func(b *ir.Builder, op *ir.Op, attrs any, x []*ir.Value, first *ir.Value) []*ir.Value {
			a := attrs.(ScatterAddAttrs)
			at, mine := ownIndex(b, x[0], first, op.Attrs.(ScatterAddAttrs).Size, a.Size)
			upd := Where(b, alongRows(b, mine, x[1], a.Dim), x[1], ScalarLike(b, x[1], 0))
			return []*ir.Value{b.Emit(ScatterAddDef, a, at, upd)}
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			return []*ir.Value{nil, Gather(b, dy[0], op.In[0], op.Attrs.(ScatterAddAttrs).Dim)}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out, n := ir.NewArray(op.Out[0].Type), op.In[0].Type.Elems()
			_, size, width := rowForm(out.Type.Dims, op.Attrs.(ScatterAddAttrs).Dim)
			for e := range x[1].Type.Elems() {
				outer, i, w := e/(n*width), e/width%n, e%width
				if p := position(x[0].I[i], size); p >= 0 {
					addElem(out, (outer*size+p)*width+w, x[1], e)
				}
			}
			return out
		}),
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
			a, n := op.Attrs.(ScatterAddAttrs), len(in(op, 0))
			idx, upd, d := Cast(b, op.In[0], dtype.I64), front(b, op.In[1], a.Dim, n), op.In[1].Type.DType
			if half(d) {
				upd = Cast(b, upd, dtype.F32)
			}
			var y *ir.Value
			if upd.Type.DType == dtype.F32 {
				y = ScatterAdd(b, idx, upd, 0, a.Size)
			} else {
				zeros := Zeros(b, ir.T(d, append([]int{a.Size}, upd.Type.Dims[n:]...)...))
				y = Scatter(b, zeros, idx, upd, "add")
			}
			return []*ir.Value{Cast(b, back(b, y, a.Dim, 1), d)}
		},
		Impl: func(op *ir.Op) kir.Impl {
			outer, size, width := rowForm(outDims(op)[0], op.Attrs.(ScatterAddAttrs).Dim)
			if outer != 1 || op.In[0].Type.DType != dtype.I64 || !templateFloat(op.In[1].Type.DType) {
				return kir.Impl{}
			}
			return kir.Impl{Kind: kir.Template, Template: "ScatterAddRows", Status: true,
				Ints: []int{size, width, op.In[0].Type.Elems(), 1}}
		},
		Samples: samples(
			indexed(sample(ScatterAddAttrs{0, 6}, []int{2, 4}, []int{2, 4, 2}), 0, 6),
			indexed(sample(ScatterAddAttrs{1, 6}, []int{4}, []int{2, 4, 2}), 0, 6),
			indexed(sample(ScatterAddAttrs{1, 3}, []int{}, []int{2, 4}), 0, 3),
			ir.Sample{In: []ir.Type{ir.T(dtype.I64, 4), ir.T(dtype.F64, 4, 3)}, Limit: 5, Attrs: ScatterAddAttrs{0, 5}},
			ir.Sample{In: []ir.Type{ir.T(dtype.I32, 4), ir.T(dtype.I32, 3, 4)}, Limit: 5, Attrs: ScatterAddAttrs{1, 5}}),
	})
}

// elementsRule: dims of full size are free; the others, and the indexed dim of the table, stay whole.
// kind is that of the indices along dim, indexed that of the table. idx are the factors of the indices, table those of the indexed tensor.
func elementsRule(m *ruleMaker, tableDims, idxDims []int, dim int, kind, indexed factor.Kind) (table, idx []factor.Dim) {
	for d, n := range idxDims {
		switch {
		case d == dim:
			idx = append(idx, m.add(dimName('i', d), n, kind))
			table = append(table, m.add("v", tableDims[d], indexed))
		case n == tableDims[d]:
			f := m.add(dimName('a', d), n, factor.Free)
			idx, table = append(idx, f), append(table, f)
		default:
			idx = append(idx, m.add(dimName('a', d), n, factor.Blocked))
			table = append(table, m.add(dimName('A', d), tableDims[d], factor.Blocked))
		}
	}
	return table, idx
}

// elementAt calls f with the place in the table of every element of the indices that is inside.
func elementAt(idx *ir.Array, tableDims []int, dim int, f func(flat, at int)) {
	strides := ir.Strides(tableDims)
	each(idx.Type.Dims, func(index []int, flat int) {
		if p := position(idx.I[flat], tableDims[dim]); p >= 0 {
			f(flat, dot(index, strides)+(p-index[dim])*strides[dim])
		}
	})
}

// flatIndex computes, as ops, the place in the flattened table of every element of the indices: i64, one dim. Indices
// outside their dim become the place just behind the last, which is an error where it is used.
func flatIndex(b *ir.Builder, idx *ir.Value, tableDims []int, dim int) *ir.Value {
	strides := ir.Strides(tableDims)
	p, bad := wrapped(b, Cast(b, idx, dtype.I64), tableDims[dim])
	p = MulScalar(b, p, float64(strides[dim]))
	for d, n := range idx.Type.Dims {
		if d != dim && n > 1 {
			p = Add(b, p, MulScalar(b, Iota(b, dtype.I64, idx.Type.Dims, d), float64(strides[d])))
		}
	}
	p = Where(b, bad, ScalarLike(b, p, float64(ir.Product(tableDims))), p)
	return Reshape(b, p, []int{idx.Type.Elems()})
}

func defineGatherElements() {
	GatherElementsDef.Define(ir.Rules{
		Attrs: GatherElementsAttrs{}, Operands: 2, Precision: "own",
		Doc: "torch.gather: elements of operand 0 at the indices of operand 1 along Dim",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			x, idx := op.In[0].Type, op.In[1].Type
			if err := needInt(op, 1); err != nil {
				return nil, err
			}
			if err := fitsElements(x.Dims, idx, op.Attrs.(GatherElementsAttrs).Dim); err != nil {
				return nil, err
			}
			return types(ir.T(x.DType, idx.Dims...))
		},
		Factors: func(op *ir.Op) factor.Rule {
			var m ruleMaker
			table, idx := elementsRule(&m, in(op, 0), in(op, 1), op.Attrs.(GatherElementsAttrs).Dim, factor.Free, tableKind(op.In[0]))
			return m.rule([][]factor.Dim{table, idx}, idx)
		},
		Indexed: func(b *ir.Builder, op *ir.Op, attrs any, x []*ir.Value, first *ir.Value) []*ir.Value {
			dim := op.Attrs.(GatherElementsAttrs).Dim
			at, mine := ownIndex(b, x[1], first, in(op, 0)[dim], x[0].Type.Dims[dim])
			y := b.Emit(GatherElementsDef, attrs, x[0], at)
			return []*ir.Value{Where(b, mine, y, ScalarLike(b, y, 0))}
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			dim := op.Attrs.(GatherElementsAttrs).Dim
			return []*ir.Value{ScatterElementsAdd(b, op.In[1], dy[0], dim, in(op, 0)), nil}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out := ir.NewArray(op.Out[0].Type)
			elementAt(x[1], in(op, 0), op.Attrs.(GatherElementsAttrs).Dim, func(flat, at int) { copyElem(out, flat, x[0], at) })
			return out
		}),
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
			x, idx := op.In[0], op.In[1]
			at := flatIndex(b, idx, x.Type.Dims, op.Attrs.(GatherElementsAttrs).Dim)
			y := Gather(b, Reshape(b, x, []int{x.Type.Elems()}), at, 0)
			return []*ir.Value{Reshape(b, y, idx.Type.Dims)}
		},
		Samples: samples(
			indexed(sample(GatherElementsAttrs{1}, []int{4, 6}, []int{4, 2}), 1, 6),
			indexed(sample(GatherElementsAttrs{0}, []int{6, 4, 2}, []int{2, 3, 2}), 1, 6)),
	})
}

func defineScatterElementsAdd() {
	ScatterElementsAddDef.Define(ir.Rules{
		Attrs: ScatterElementsAddAttrs{}, Operands: 2, Precision: "keep", Facts: ir.Facts{Linear: linear([]int{1})},
		Doc: "zeros of Dims with operand 1 added at the indices of operand 0 along Dim",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			idx, upd, a := op.In[0].Type, op.In[1].Type, op.Attrs.(ScatterElementsAddAttrs)
			if err := needInt(op, 0); err != nil {
				return nil, err
			}
			if !slices.Equal(idx.Dims, upd.Dims) || !numeric(upd.DType) {
				return wrong("operand 0 is %s and operand 1 %s, but must have equal dims, and operand 1 numbers", idx, upd)
			}
			if err := fitsElements(a.Dims, idx, a.Dim); err != nil {
				return nil, err
			}
			return types(ir.T(upd.DType, a.Dims...))
		},
		Factors: func(op *ir.Op) factor.Rule {
			var m ruleMaker
			a := op.Attrs.(ScatterElementsAddAttrs)
			table, idx := elementsRule(&m, a.Dims, in(op, 0), a.Dim, factor.Sum, factor.Index)
			return m.rule([][]factor.Dim{idx, idx}, table)
		},
		Indexed: func(b *ir.Builder, op *ir.Op, attrs any, x []*ir.Value, first *ir.Value) []*ir.Value {
			a, whole := attrs.(ScatterElementsAddAttrs), op.Attrs.(ScatterElementsAddAttrs)
			at, mine := ownIndex(b, x[0], first, whole.Dims[a.Dim], a.Dims[a.Dim])
			return []*ir.Value{b.Emit(ScatterElementsAddDef, a, at, Where(b, mine, x[1], ScalarLike(b, x[1], 0)))}
		},
		Resize: func(op *ir.Op, _, out [][]int) any {
			a := op.Attrs.(ScatterElementsAddAttrs)
			a.Dims = out[0]
			return a
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			return []*ir.Value{nil, GatherElements(b, dy[0], op.In[0], op.Attrs.(ScatterElementsAddAttrs).Dim)}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out, a := ir.NewArray(op.Out[0].Type), op.Attrs.(ScatterElementsAddAttrs)
			elementAt(x[0], a.Dims, a.Dim, func(flat, at int) { addElem(out, at, x[1], flat) })
			return out
		}),
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
			a, upd := op.Attrs.(ScatterElementsAddAttrs), op.In[1]
			at := flatIndex(b, op.In[0], a.Dims, a.Dim)
			y := ScatterAdd(b, at, Reshape(b, upd, []int{upd.Type.Elems()}), 0, ir.Product(a.Dims))
			return []*ir.Value{Reshape(b, y, a.Dims)}
		},
		Samples: samples(
			indexed(sample(ScatterElementsAddAttrs{1, []int{4, 6}}, []int{4, 2}, []int{4, 2}), 0, 6),
			indexed(sample(ScatterElementsAddAttrs{0, []int{6, 4, 2}}, []int{2, 3, 2}, []int{2, 3, 2}), 0, 6)),
	})
}
