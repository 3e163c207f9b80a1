package ops

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
)

// Rows gathered from each sample's own table, and the adjoint. They are ops of their own, rather than a gather over
// one table of all samples, so that the batch can be split over ranks.
var (
	BatchGatherDef     = ir.NewOp("batch_gather")
	BatchScatterAddDef = ir.NewOp("batch_scatter_add")
)

// BatchScatterAddAttrs gives the rows of each result.
type BatchScatterAddAttrs struct{ Size int }

// BatchGather is y[b,m,c] = x[b,idx[b,m],c] for x[B,R,C] and idx[B,M] of integers (negative ones count from the end).
func BatchGather(b *ir.Builder, x, idx *ir.Value) *ir.Value {
	return b.Emit(BatchGatherDef, nil, x, idx)
}

// BatchScatterAdd is the adjoint of BatchGather: zeros [B,size,C] with upd[B,M,C] added at the rows idx[B,M].
func BatchScatterAdd(b *ir.Builder, idx, upd *ir.Value, size int) *ir.Value {
	return b.Emit(BatchScatterAddDef, BatchScatterAddAttrs{size}, idx, upd)
}

// rowsByBatch checks that t is [B,M,C] with the batch of idx [B,M].
func rowsByBatch(t, idx ir.Type, same bool) bool {
	return len(t.Dims) == 3 && len(idx.Dims) == 2 && t.Dims[0] == idx.Dims[0] && (!same || t.Dims[1] == idx.Dims[1])
}

// flatRows numbers the rows of all samples as one table: idx, wrapped into [0,rows), plus the sample times rows. What
// is outside of its own sample's rows lands outside of the table, where the kernels report it.
func flatRows(b *ir.Builder, idx *ir.Value, rows int) *ir.Value {
	d := idx.Type.Dims
	i := Cast(b, idx, dtype.I64)
	zero := ScalarLike(b, i, 0)
	i = Where(b, Lt(b, i, zero), AddScalar(b, i, float64(rows)), i)
	inside := And(b, Ge(b, i, zero), Lt(b, i, ScalarLike(b, i, float64(rows))))
	base := MulScalar(b, Iota(b, dtype.I64, []int{d[0], 1}, 0), float64(rows))
	i = Where(b, inside, Add(b, i, Expand(b, base, d)), ScalarLike(b, i, float64(d[0]*rows)))
	return Reshape(b, i, []int{d[0] * d[1]})
}

func init() {
	defineBatchGather()
	defineBatchScatterAdd()
}

func defineBatchGather() {
	BatchGatherDef.Define(ir.Rules{
		Operands: 2, Precision: "own", Doc: "rows of each sample's table at that sample's indices",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			x, idx := op.In[0].Type, op.In[1].Type
			if err := needInt(op, 1); err != nil {
				return nil, err
			}
			if !rowsByBatch(x, idx, false) {
				return wrong("operands are %s and %s, but must be [B,R,C] and [B,M]", x, idx)
			}
			return types(ir.T(x.DType, x.Dims[0], idx.Dims[1], x.Dims[2]))
		},
		Factors: func(op *ir.Op) factor.Rule {
			var m ruleMaker
			x, idx := in(op, 0), in(op, 1)
			b, r, c := m.add("b", x[0], factor.Free), m.add("r", x[1], factor.Blocked), m.add("c", x[2], factor.Free)
			i := m.add("m", idx[1], factor.Free)
			return m.rule([][]factor.Dim{{b, r, c}, {b, i}}, []factor.Dim{b, i, c})
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			return []*ir.Value{BatchScatterAdd(b, op.In[1], dy[0], in(op, 0)[1]), nil}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out, rows := ir.NewArray(op.Out[0].Type), in(op, 0)[1]
			each(out.Type.Dims, func(at []int, flat int) {
				if p := position(x[1].I[at[0]*out.Type.Dims[1]+at[1]], rows); p >= 0 {
					copyElem(out, flat, x[0], (at[0]*rows+p)*out.Type.Dims[2]+at[2])
				}
			})
			return out
		}),
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
			x, d := op.In[0], in(op, 0)
			y := Gather(b, Reshape(b, x, []int{d[0] * d[1], d[2]}), flatRows(b, op.In[1], d[1]), 0)
			return []*ir.Value{Reshape(b, y, op.Out[0].Type.Dims)}
		},
		Samples: samples(
			indexed(sample(nil, []int{2, 6, 4}, []int{2, 4}), 1, 6),
			indexed(sample(nil, []int{2, 3, 1}, []int{2, 8}), 1, 3)),
	})
}

func defineBatchScatterAdd() {
	BatchScatterAddDef.Define(ir.Rules{
		Attrs: BatchScatterAddAttrs{}, Operands: 2, Precision: "keep",
		Doc: "zeros with rows added at each sample's indices",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			idx, upd, size := op.In[0].Type, op.In[1].Type, op.Attrs.(BatchScatterAddAttrs).Size
			if err := needInt(op, 0); err != nil {
				return nil, err
			}
			if !rowsByBatch(upd, idx, true) || !numeric(upd.DType) || size < 0 {
				return wrong("operands are %s and %s, but must be [B,M] and numbers [B,M,C]", idx, upd)
			}
			return types(ir.T(upd.DType, upd.Dims[0], size, upd.Dims[2]))
		},
		Factors: func(op *ir.Op) factor.Rule {
			var m ruleMaker
			upd := in(op, 1)
			b, i, c := m.add("b", upd[0], factor.Free), m.add("m", upd[1], factor.Sum), m.add("c", upd[2], factor.Free)
			r := m.add("r", op.Attrs.(BatchScatterAddAttrs).Size, factor.Blocked)
			return m.rule([][]factor.Dim{{b, i}, {b, i, c}}, []factor.Dim{b, r, c})
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			return []*ir.Value{nil, BatchGather(b, dy[0], op.In[0])}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out, rows, d := ir.NewArray(op.Out[0].Type), op.Attrs.(BatchScatterAddAttrs).Size, in(op, 1)
			each(d, func(at []int, flat int) {
				if p := position(x[0].I[at[0]*d[1]+at[1]], rows); p >= 0 {
					addElem(out, (at[0]*rows+p)*d[2]+at[2], x[1], flat)
				}
			})
			return out
		}),
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
			d, size := in(op, 1), op.Attrs.(BatchScatterAddAttrs).Size
			at := flatRows(b, op.In[0], size)
			y := ScatterAdd(b, at, Reshape(b, op.In[1], []int{d[0] * d[1], d[2]}), 0, d[0]*size)
			return []*ir.Value{Reshape(b, y, slices.Clone(op.Out[0].Type.Dims))}
		},
		Samples: samples(
			indexed(sample(BatchScatterAddAttrs{6}, []int{2, 4}, []int{2, 4, 2}), 0, 6),
			indexed(sample(BatchScatterAddAttrs{3}, []int{2, 8}, []int{2, 8, 1}), 0, 3)),
	})
}
