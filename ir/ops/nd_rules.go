package ops

import (
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
)

func init() {
	defineGatherND()
	defineScatterND()
	defineScatterNDAdd()
}

// ndFactors makes the factors of a table, of indices with n batch dims, and of the rows that they name. at is the kind
// of the loops over vectors.
func ndFactors(m *ruleMaker, table, idx []int, n int, at factor.Kind) (x, i, rows []factor.Dim) {
	last := len(idx) - 1
	batch := m.addAll("b", table[:n], factor.Free)
	places := m.addAll("v", table[n:n+idx[last]], factor.Blocked)
	rest, vectors := m.addAll("z", table[n+idx[last]:], factor.Free), m.addAll("i", idx[n:last], at)
	depth := m.add("k", idx[last], factor.Blocked)
	return slices.Concat(batch, places, rest), slices.Concat(batch, vectors, []factor.Dim{depth}), slices.Concat(batch, vectors, rest)
}

// eachVector calls f with the number of every vector of idx, where its row begins in a table, and the row's width; rows
// that are outside begin at -1.
func eachVector(idx *ir.Array, table []int, n int, f func(vector, from, width int)) {
	id := idx.Type.Dims
	k := id[len(id)-1]
	strides, width := ir.Strides(table), ir.Product(table[n+k:])
	each(id[:len(id)-1], func(index []int, i int) {
		from := dot(index, strides[:n])
		for d := range k {
			p := position(idx.I[i*k+d], table[n+d])
			if p < 0 {
				from = -1
				break
			}
			from += p * strides[n+d]
		}
		f(i, from, width)
	})
}

func defineGatherND() {
	GatherNDDef.Define(ir.Rules{
		Attrs: GatherNDAttrs{}, Operands: 2, Precision: "own", Infer: inferGatherND,
		Doc: "places of operand 0 that the vectors in the last dim of operand 1 name; the first Batch dims are shared",
		Factors: func(op *ir.Op) factor.Rule {
			var m ruleMaker
			x, idx, rows := ndFactors(&m, in(op, 0), in(op, 1), op.Attrs.(GatherNDAttrs).Batch, factor.Free)
			return m.rule([][]factor.Dim{x, idx}, rows)
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			n := op.Attrs.(GatherNDAttrs).Batch
			if n > 0 {
				return []*ir.Value{ScatterNDAdd(b, op.In[1], dy[0], n, in(op, 0)), nil}
			}
			f := newNDForm(b, in(op, 0), op.In[1], n)
			dx := ScatterAdd(b, f.at, Reshape(b, dy[0], append([]int{f.n}, f.rest...)), 0, f.rows)
			return []*ir.Value{Reshape(b, dx, in(op, 0)), nil}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out := ir.NewArray(op.Out[0].Type)
			eachVector(x[1], in(op, 0), op.Attrs.(GatherNDAttrs).Batch, func(i, from, width int) {
				for w := range width {
					if from < 0 {
						noElem(out, i*width+w)
					} else {
						copyElem(out, i*width+w, x[0], from+w)
					}
				}
			})
			return out
		}),
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
			f := newNDForm(b, in(op, 0), op.In[1], op.Attrs.(GatherNDAttrs).Batch)
			y := Gather(b, Reshape(b, op.In[0], append([]int{f.rows}, f.rest...)), f.at, 0)
			return []*ir.Value{Reshape(b, y, outDims(op)[0])}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			return []ir.Sample{
				indexed(sample(GatherNDAttrs{}, []int{4, 4, 2}, []int{3, 2}), 1, 4),
				indexed(sample(GatherNDAttrs{}, []int{4, 3}, []int{2, 2, 1}), 1, 4),
				indexed(sample(GatherNDAttrs{1}, []int{2, 4, 2}, []int{2, 3, 1}), 1, 4),
				indexed(sample(GatherNDAttrs{2}, []int{2, 2, 4}, []int{2, 2, 1}), 1, 4),
			}
		},
	})
}

func defineScatterND() {
	ScatterNDDef.Define(ir.Rules{
		Attrs: ScatterNDAttrs{}, Operands: 3, Infer: inferScatterND, Precision: "keep",
		Doc: "operand 0 with the places that the vectors in the last dim of operand 1 name replaced by, or combined with, operand 2; the first Batch dims are shared",
		Factors: func(op *ir.Op) factor.Rule {
			var m ruleMaker
			x, idx, rows := ndFactors(&m, in(op, 0), in(op, 1), op.Attrs.(ScatterNDAttrs).Batch, factor.Blocked)
			return m.rule([][]factor.Dim{x, idx, rows}, x)
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			idx, a := op.In[1], op.Attrs.(ScatterNDAttrs)
			p := scatterParts{b: b, x: op.In[0], upd: op.In[2], out: op.Out[0], dy: dy[0]}
			p.gather = func(v *ir.Value) *ir.Value { return GatherND(b, v, idx, a.Batch) }
			p.scatter = func(x, upd *ir.Value, kind string) *ir.Value { return ScatterND(b, x, idx, upd, a.Batch, kind) }
			dx, du := p.grads(a.Reduce)
			return []*ir.Value{dx, nil, du}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out, a := ir.NewArray(op.Out[0].Type), op.Attrs.(ScatterNDAttrs)
			copyAll(out, x[0])
			eachVector(x[1], in(op, 0), a.Batch, func(i, from, width int) {
				if from < 0 {
					noElem(out, 0)
				}
				for w := 0; from >= 0 && w < width; w++ {
					join(a.Reduce, out, from+w, x[2], i*width+w)
				}
			})
			return out
		}),
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
			a := op.Attrs.(ScatterNDAttrs)
			f := newNDForm(b, in(op, 0), op.In[1], a.Batch)
			x := Reshape(b, op.In[0], append([]int{f.rows}, f.rest...))
			upd := Reshape(b, op.In[2], append([]int{f.n}, f.rest...))
			return []*ir.Value{Reshape(b, Scatter(b, x, f.at, upd, a.Reduce), in(op, 0))}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			var out []ir.Sample
			for _, kind := range []string{"", "add", "mul", "max", "min"} {
				s := indexed(sample(ScatterNDAttrs{0, kind}, []int{6, 4}, []int{2, 1}, []int{2, 4}), 1, 6)
				s.Fill = scatterFill(kind, 6)
				t := indexed(sample(ScatterNDAttrs{1, kind}, []int{2, 6, 2}, []int{2, 3, 1}, []int{2, 3, 2}), 1, 6)
				t.Fill = scatterFill(kind, 6)
				out = append(out, s, t)
			}
			return out
		},
	})
}

func defineScatterNDAdd() {
	ScatterNDAddDef.Define(ir.Rules{
		Attrs: ScatterNDAddAttrs{}, Operands: 2, Infer: inferScatterNDAdd, Precision: "keep",
		Doc: "zeros of Dims with operand 1 added at the places that the vectors in the last dim of operand 0 name; the first Batch dims are shared",
		Factors: func(op *ir.Op) factor.Rule {
			var m ruleMaker
			a := op.Attrs.(ScatterNDAddAttrs)
			x, idx, rows := ndFactors(&m, a.Dims, in(op, 0), a.Batch, factor.Sum)
			return m.rule([][]factor.Dim{idx, rows}, x)
		},
		Resize: func(op *ir.Op, _, out [][]int) any {
			a := op.Attrs.(ScatterNDAddAttrs)
			a.Dims = out[0]
			return a
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			return []*ir.Value{nil, GatherND(b, dy[0], op.In[0], op.Attrs.(ScatterNDAddAttrs).Batch)}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out, a := ir.NewArray(op.Out[0].Type), op.Attrs.(ScatterNDAddAttrs)
			eachVector(x[0], a.Dims, a.Batch, func(i, from, width int) {
				for w := 0; from >= 0 && w < width; w++ {
					addElem(out, from+w, x[1], i*width+w)
				}
			})
			return out
		}),
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
			a := op.Attrs.(ScatterNDAddAttrs)
			f := newNDForm(b, a.Dims, op.In[0], a.Batch)
			y := ScatterAdd(b, f.at, Reshape(b, op.In[1], append([]int{f.n}, f.rest...)), 0, f.rows)
			return []*ir.Value{Reshape(b, y, a.Dims)}
		},
		Samples: samples(
			indexed(sample(ScatterNDAddAttrs{0, []int{4, 4, 2}}, []int{3, 2}, []int{3, 2}), 0, 4),
			indexed(sample(ScatterNDAddAttrs{1, []int{2, 4, 2}}, []int{2, 3, 1}, []int{2, 3, 2}), 0, 4),
			indexed(sample(ScatterNDAddAttrs{2, []int{2, 2, 4}}, []int{2, 2, 1}, []int{2, 2}), 0, 4)),
	})
}

// ndForm is an op on a table and vectors of indices as one on rows: n positions at, of rows whose dims are rest.
type ndForm struct {
	at      *ir.Value
	n, rows int
	rest    []int
}

// newNDForm makes the form for a table x whose first n dims idx shares.
func newNDForm(b *ir.Builder, x []int, idx *ir.Value, n int) ndForm {
	id := idx.Type.Dims
	k := id[len(id)-1]
	at := joinIndices(b, idx, x[n:n+k])
	inner, lead := ir.Product(x[n:n+k]), id[:len(id)-1]
	f := ndForm{n: ir.Product(lead), rows: ir.Product(x[:n]) * inner, rest: x[n+k:]}
	if n > 0 { // each batch indexes its own block
		bad := Ge(b, at, ScalarLike(b, at, float64(inner)))
		for d, s := range ir.Strides(x[:n]) {
			at = Add(b, at, MulScalar(b, Iota(b, dtype.I64, lead, d), float64(s*inner)))
		}
		at = Where(b, bad, ScalarLike(b, at, float64(f.rows)), at)
	}
	f.at = Reshape(b, at, []int{f.n})
	return f
}
