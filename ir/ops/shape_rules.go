package ops

import (
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/kir"
)

func init() {
	defineReshape()
	defineTranspose()
	defineExpand()
	defineSlice()
	definePad()
	defineConcat()
}

// sample is a shorthand for operands of type f32.
func sample(attrs any, dims ...[]int) ir.Sample {
	s := ir.Sample{Attrs: attrs}
	for _, d := range dims {
		s.In = append(s.In, ir.T(dtype.F32, d...))
	}
	return s
}

// of is the sample with all operands of type d.
func of(d dtype.DType, s ir.Sample) ir.Sample {
	for i, t := range s.In {
		s.In[i] = t.With(d)
	}
	return s
}

// samples returns fixed samples.
func samples(s ...ir.Sample) func(*rand.Rand) []ir.Sample {
	return func(*rand.Rand) []ir.Sample { return s }
}

func defineReshape() {
	ReshapeDef.Define(ir.Rules{
		Attrs: ReshapeAttrs{}, Operands: 1, Precision: "own", Facts: ir.Facts{Linear: linear([]int{0}), Move: ir.Keeps},
		Doc: "the same elements in the same order with other dims",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			t, dims := op.In[0].Type, op.Attrs.(ReshapeAttrs).Dims
			if ir.Product(dims) != t.Elems() || slices.ContainsFunc(dims, func(d int) bool { return d < 0 }) {
				return wrong("%d elements do not fill dims %v", t.Elems(), dims)
			}
			return types(ir.T(t.DType, dims...))
		},
		Factors: func(op *ir.Op) factor.Rule { return factor.Reshape(in(op, 0), outDims(op)[0]) },
		Resize:  func(_ *ir.Op, _, out [][]int) any { return ReshapeAttrs{out[0]} },
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			return []*ir.Value{Reshape(b, dy[0], in(op, 0))}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			return &ir.Array{Type: op.Out[0].Type, F: x[0].F, I: x[0].I}
		}),
		Impl: func(*ir.Op) kir.Impl { return kir.Impl{Kind: kir.View, View: &kir.ViewMap{}} },
		Samples: samples(
			sample(ReshapeAttrs{[]int{8, 6}}, []int{2, 4, 6}), sample(ReshapeAttrs{[]int{2, 4, 6}}, []int{8, 6}),
			sample(ReshapeAttrs{[]int{3, 4}}, []int{4, 3}), sample(ReshapeAttrs{[]int{2, 1, 6}}, []int{2, 6}),
			sample(ReshapeAttrs{}, []int{1, 1})),
	})
}

func defineTranspose() {
	TransposeDef.Define(ir.Rules{
		Attrs: TransposeAttrs{}, Operands: 1, Precision: "own", Facts: ir.Facts{Linear: linear([]int{0}), Move: ir.Permutes},
		Doc: "dims permuted: result dim i is operand dim Perm[i]",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			t, perm := op.In[0].Type, op.Attrs.(TransposeAttrs).Perm
			if len(perm) != len(t.Dims) || needDims(slices.Sorted(slices.Values(perm)), len(perm)) != nil {
				return wrong("%v is not a permutation of %d dims", perm, len(t.Dims))
			}
			return types(ir.T(t.DType, permute(t.Dims, perm)...))
		},
		Factors: func(op *ir.Op) factor.Rule {
			r := factor.Pointwise(in(op, 0), 1, 0)
			out := make([]factor.Dim, len(r.Factors))
			for i, p := range op.Attrs.(TransposeAttrs).Perm {
				out[i] = factor.Dim{p}
			}
			r.Out = [][]factor.Dim{out}
			return r
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			return []*ir.Value{Transpose(b, dy[0], inverse(op.Attrs.(TransposeAttrs).Perm))}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			return strided(op.Out[0].Type, x[0], 0, permute(ir.Strides(in(op, 0)), op.Attrs.(TransposeAttrs).Perm))
		}),
		Impl: func(op *ir.Op) kir.Impl {
			return view(0, permute(ir.Strides(in(op, 0)), op.Attrs.(TransposeAttrs).Perm))
		},
		Samples: samples(sample(TransposeAttrs{[]int{1, 0}}, []int{2, 4}), sample(TransposeAttrs{[]int{2, 0, 1}}, []int{2, 4, 6})),
	})
}

// inverse is the permutation that undoes perm.
func inverse(perm []int) []int {
	out := make([]int, len(perm))
	for i, p := range perm {
		out[p] = i
	}
	return out
}

// view is the Impl of an affine view. Strides is not nil even for a scalar, which nil would make a reshape.
func view(offset int, strides []int) kir.Impl {
	return kir.Impl{Kind: kir.View, View: &kir.ViewMap{Offset: offset, Strides: append([]int{}, strides...)}}
}

func defineExpand() {
	strides := func(op *ir.Op) []int {
		s := ir.Strides(in(op, 0))
		for d, n := range in(op, 0) {
			if n == 1 {
				s[d] = 0
			}
		}
		return s
	}
	ExpandDef.Define(ir.Rules{
		Attrs: ExpandAttrs{}, Operands: 1, Precision: "own", Facts: ir.Facts{Linear: linear([]int{0}), Move: ir.Repeats},
		Doc: "dims of size 1 repeated",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			t, dims := op.In[0].Type, op.Attrs.(ExpandAttrs).Dims
			if len(dims) != len(t.Dims) {
				return wrong("operand 0 has %d dims, but Dims has %d", len(t.Dims), len(dims))
			}
			for d, n := range dims {
				if n < 0 || t.Dims[d] != n && t.Dims[d] != 1 {
					return wrong("dim %d of size %d cannot be repeated to size %d", d, t.Dims[d], n)
				}
			}
			return types(ir.T(t.DType, dims...))
		},
		Factors: func(op *ir.Op) factor.Rule {
			r := factor.Pointwise(outDims(op)[0], 0, 1)
			x := make([]factor.Dim, len(r.Factors))
			for d, n := range in(op, 0) {
				if n == outDims(op)[0][d] {
					x[d] = factor.Dim{d}
				}
			}
			r.In = [][]factor.Dim{x}
			return r
		},
		Resize: func(_ *ir.Op, _, out [][]int) any { return ExpandAttrs{out[0]} },
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			var over []int
			for d, n := range in(op, 0) {
				if n != outDims(op)[0][d] {
					over = append(over, d)
				}
			}
			return []*ir.Value{ReduceSum(b, dy[0], over...)}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array { return strided(op.Out[0].Type, x[0], 0, strides(op)) }),
		Impl: func(op *ir.Op) kir.Impl { return view(0, strides(op)) },
		Samples: samples(sample(ExpandAttrs{[]int{4, 6}}, []int{4, 1}), sample(ExpandAttrs{[]int{2, 4, 1}}, []int{1, 1, 1}),
			sample(ExpandAttrs{[]int{2, 4}}, []int{1, 4})),
	})
}

// partly is the rule of an op that works on some dims whole (their sizes may change) and leaves others alone.
func partly(op *ir.Op, whole func(d int) bool) factor.Rule {
	var m ruleMaker
	x := make([][]factor.Dim, len(op.In))
	y := make([]factor.Dim, len(in(op, 0)))
	for d := range y {
		if !whole(d) {
			y[d] = m.add(dimName('a', d), outDims(op)[0][d], factor.Free)
		} else {
			y[d] = m.add(dimName('A', d), outDims(op)[0][d], factor.Blocked)
		}
		for i := range x {
			if !whole(d) {
				x[i] = append(x[i], y[d])
			} else {
				x[i] = append(x[i], m.add(dimName('A', d)+"i", in(op, i)[d], factor.Blocked))
			}
		}
	}
	return m.rule(x, y)
}

func dimName(base rune, d int) string { return string(base + rune(d)) }

func defineSlice() {
	untouched := func(op *ir.Op, d int) bool { return op.Attrs.(SliceAttrs).Sizes[d] == in(op, 0)[d] }
	affine := func(op *ir.Op) (int, []int) {
		a, s := op.Attrs.(SliceAttrs), ir.Strides(in(op, 0))
		offset := dot(a.Starts, s)
		for d := range s {
			s[d] *= at(a.Steps, d, 1)
		}
		if op.Out[0].Type.Elems() == 0 {
			offset = 0
		}
		return offset, s
	}
	SliceDef.Define(ir.Rules{
		Attrs: SliceAttrs{}, Operands: 1, Precision: "own", Facts: ir.Facts{Linear: linear([]int{0}), Move: ir.Selects},
		Doc:     "Sizes elements from Starts, every Steps-th",
		Infer:   inferSlice,
		Factors: func(op *ir.Op) factor.Rule { return partly(op, func(d int) bool { return !untouched(op, d) }) },
		Resize: func(op *ir.Op, _, out [][]int) any {
			a := op.Attrs.(SliceAttrs)
			a.Sizes = out[0]
			return a
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			a, n := op.Attrs.(SliceAttrs), len(in(op, 0))
			high, gaps := make([]int, n), make([]int, n)
			for d, size := range in(op, 0) {
				gaps[d] = at(a.Steps, d, 1) - 1
				high[d] = size - a.Starts[d] - max(0, (a.Sizes[d]-1)*(gaps[d]+1)+1)
			}
			return []*ir.Value{Pad(b, dy[0], a.Starts, high, gaps, 0)}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			offset, s := affine(op)
			return strided(op.Out[0].Type, x[0], offset, s)
		}),
		Impl: func(op *ir.Op) kir.Impl { return view(affine(op)) },
		Samples: samples(
			sample(SliceAttrs{[]int{1, 0}, []int{2, 6}, nil}, []int{4, 6}),
			sample(SliceAttrs{[]int{0, 1, 1}, []int{2, 2, 3}, []int{1, 1, 2}}, []int{2, 4, 6})),
	})
}

func definePad() {
	box := func(op *ir.Op) kir.Box {
		a, n := op.Attrs.(PadAttrs), len(in(op, 0))
		x := kir.Box{Start: make([]int, n), Step: make([]int, n)}
		for d := range n {
			x.Start[d], x.Step[d] = at(a.Low, d, 0), at(a.Interior, d, 0)+1
		}
		return x
	}
	PadDef.Define(ir.Rules{
		Attrs: PadAttrs{}, Operands: 1, Precision: "own", Facts: ir.Facts{Linear: linearPad, Move: ir.Joins},
		Doc:   "Value added before, after and between the elements",
		Infer: inferPad,
		Factors: func(op *ir.Op) factor.Rule {
			a := op.Attrs.(PadAttrs)
			return partly(op, func(d int) bool {
				return at(a.Low, d, 0) != 0 || at(a.High, d, 0) != 0 || at(a.Interior, d, 0) != 0
			})
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			x := box(op)
			return []*ir.Value{Slice(b, dy[0], x.Start, in(op, 0), x.Step)}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out := ir.NewArray(op.Out[0].Type)
			fill(out, op.Attrs.(PadAttrs).Value)
			place(out, x[0], box(op))
			return out
		}),
		Impl: func(op *ir.Op) kir.Impl {
			return kir.Impl{Kind: kir.Assemble, Fill: op.Attrs.(PadAttrs).Value, Boxes: []kir.Box{box(op)}}
		},
		Samples: samples(
			sample(PadAttrs{Low: []int{1, 0}, High: []int{2, 0}, Value: -1}, []int{2, 4}),
			sample(PadAttrs{Low: []int{0, 0, 1}, Interior: []int{0, 0, 2}}, []int{2, 4, 3})),
	})
}

func fill(x *ir.Array, v float64) {
	for i := range x.F {
		x.F[i] = v
	}
	d, n := x.Type.DType, int64(v)
	if d == dtype.Bool {
		n = b2i(v != 0)
	}
	for i := range x.I {
		x.I[i] = d.Wrap(n)
	}
}

// place copies part into its box of whole.
func place(whole, part *ir.Array, box kir.Box) {
	strides := ir.Strides(whole.Type.Dims)
	each(part.Type.Dims, func(index []int, flat int) {
		to := 0
		for d, i := range index {
			to += (box.Start[d] + i*box.Step[d]) * strides[d]
		}
		copyElem(whole, to, part, flat)
	})
}

func defineConcat() {
	boxes := func(op *ir.Op) []kir.Box {
		dim, n, at := op.Attrs.(ConcatAttrs).Dim, len(in(op, 0)), 0
		var out []kir.Box
		for i := range op.In {
			out = append(out, kir.Box{Start: with(make([]int, n), dim, at), Step: filled(n, 1)})
			at += in(op, i)[dim]
		}
		return out
	}
	ConcatDef.Define(ir.Rules{
		Attrs: ConcatAttrs{}, Operands: -1, Precision: "own", Facts: ir.Facts{Linear: linearInAll, Move: ir.Joins},
		Doc:   "operands joined along Dim",
		Infer: inferConcat,
		Factors: func(op *ir.Op) factor.Rule {
			return partly(op, func(d int) bool { return d == op.Attrs.(ConcatAttrs).Dim })
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			out := make([]*ir.Value, len(op.In))
			for i, x := range boxes(op) {
				out[i] = Slice(b, dy[0], x.Start, in(op, i), nil)
			}
			return out
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out := ir.NewArray(op.Out[0].Type)
			for i, box := range boxes(op) {
				place(out, x[i], box)
			}
			return out
		}),
		Impl: func(op *ir.Op) kir.Impl { return kir.Impl{Kind: kir.Assemble, Boxes: boxes(op)} },
		Samples: samples(
			sample(ConcatAttrs{1}, []int{2, 3}, []int{2, 1}, []int{2, 4}),
			sample(ConcatAttrs{0}, []int{1, 4}, []int{2, 4})),
	})
}
