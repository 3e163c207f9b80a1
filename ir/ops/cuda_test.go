package ops

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/kernels/cuda/cudatest"
)

// elsewhere are the templates of the CUDA target that have tests of their own.
var elsewhere = []string{"Gemm"}

// TestCudaTemplatesAreEval runs the kernels that each op's Impl names on the CUDA target, on this processor, and holds them
// against the definition: the samples of all ops and some larger tensors of odd sizes, in f32 and by turns in bf16 or f16, with
// GTC_LONG=1 in both.
func TestCudaTemplatesAreEval(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var calls []*cudaCall
	for _, d := range ir.Defs() {
		if d.Rules.Impl == nil || d.Rules.Samples == nil || d.Rules.Eval == nil {
			continue
		}
		for i, s := range slices.Concat(d.Rules.Samples(r), larger[d], largerAttention(d)) {
			halves := []dtype.DType{dtype.BF16, dtype.F16}
			if os.Getenv("GTC_LONG") == "" {
				halves = halves[i%2:][:1]
			}
			for _, v := range inTypes(d, s, halves) {
				if c := newCudaCall(t, d, v, r); c != nil {
					calls = append(calls, c)
				}
			}
		}
	}
	runCuda(t, calls)
	for _, c := range calls {
		c.check(t)
	}
	if len(calls) < 100 {
		t.Errorf("only %d template calls", len(calls))
	}
}

// inTypes are the sample itself and, if it has floats of 32 bits, forms of it with those, or operand 0 alone, of the types halves.
func inTypes(d *ir.Def, s ir.Sample, halves []dtype.DType) []ir.Sample {
	out := []ir.Sample{s}
	if !slices.ContainsFunc(s.In, func(typ ir.Type) bool { return typ.DType == dtype.F32 }) {
		return out
	}
	for _, to := range halves {
		all, one := s, s
		all.In, one.In = slices.Clone(s.In), slices.Clone(s.In)
		for i := range s.In {
			if s.In[i].DType == dtype.F32 {
				all.In[i].DType = to
			}
		}
		one.In[0].DType = all.In[0].DType
		if infers(d, all) {
			out = append(out, all)
		} else if infers(d, one) {
			out = append(out, one)
		}
	}
	return out
}

// infers reports whether the op takes the sample's types.
func infers(d *ir.Def, s ir.Sample) bool {
	op := &ir.Op{Def: d, Attrs: s.Attrs}
	for _, typ := range s.In {
		op.In = append(op.In, &ir.Value{Type: typ})
	}
	_, err := d.Rules.Infer(op)
	return err == nil
}

// larger are samples that reach the parts of kernels that small ones leave out.
var larger = map[*ir.Def][]ir.Sample{
	XentDef:     {sized(XentAttrs{-100}, 700, ir.T(f32, 3, 700), ir.T(dtype.I64, 3)), sized(XentAttrs{5}, 60, ir.T(f32, 9, 60), ir.T(dtype.I64, 9))},
	XentBothDef: {sized(XentAttrs{3}, 2501, ir.T(f32, 4, 2501), ir.T(dtype.I64, 4), ir.T(f32, 4)), sized(XentAttrs{-1}, 30001, ir.T(f32, 2, 30001), ir.T(dtype.I64, 2), ir.T(f32, 2))},
	GatherDef:   {sized(GatherAttrs{Dim: 1}, 19, ir.T(f32, 3, 19, 7), ir.T(dtype.I32, 31)), sized(GatherAttrs{Dim: 0}, 300, ir.T(f32, 300, 24), ir.T(dtype.I64, 5, 77))},
	ScatterAddDef: {
		sized(ScatterAddAttrs{0, 300}, 300, ir.T(dtype.I64, 4500), ir.T(f32, 4500, 24)),
		sized(ScatterAddAttrs{0, 70000}, 70000, ir.T(dtype.I64, 3001), ir.T(f32, 3001, 3)),
		sized(ScatterAddAttrs{0, 3}, 2, ir.T(dtype.I64, 5000), ir.T(f32, 5000, 40)),
	},
	ScatterDef: {
		sized(ScatterAttrs{""}, 900, ir.T(f32, 1000, 17), ir.T(dtype.I64, 2100), ir.T(f32, 2100, 17)),
		sized(ScatterAttrs{"max"}, 900, ir.T(f32, 1000, 17), ir.T(dtype.I64, 2100), ir.T(f32, 2100, 17)),
		sized(ScatterAttrs{"min"}, 3, ir.T(dtype.I32, 5, 6), ir.T(dtype.I64, 2100), ir.T(dtype.I32, 2100, 6)),
		sized(ScatterAttrs{"add"}, 3, ir.T(dtype.I8, 5, 6), ir.T(dtype.I64, 2100), ir.T(dtype.I8, 2100, 6)),
		sized(ScatterAttrs{"mul"}, 1000, ir.T(dtype.F64, 1000, 2), ir.T(dtype.I64, 1100), ir.T(dtype.F64, 1100, 2)),
	},
	MaxPoolDef: {sized(MaxPoolAttrs{Kernel: []int{3, 3}, Strides: []int{2, 2}, Pads: []int{1, 1, 1, 1}, Dilations: []int{1, 1}}, 0, ir.T(f32, 2, 3, 29, 31))},
	AvgPoolDef: {sized(AvgPoolAttrs{Kernel: []int{7, 7}, Strides: []int{3, 5}, Pads: []int{3, 2, 1, 3}, Dilations: []int{1, 1}}, 0, ir.T(f32, 2, 3, 29, 31))},
	TopKDef: {sized(TopKAttrs{0, 40, true}, 0, ir.T(f32, 9000, 2)), sized(TopKAttrs{0, 3000, false}, 50, ir.T(dtype.I32, 5000)),
		sized(TopKAttrs{1, 7, false}, 0, ir.T(f32, 3, 1000))},
	CumsumDef: {sized(CumsumAttrs{Dim: 1, Reverse: true}, 0, ir.T(f32, 2, 1300)), sized(CumsumAttrs{Dim: 0, Exclusive: true}, 0, ir.T(f32, 70, 130)),
		sized(CumsumAttrs{Dim: 0}, 9, ir.T(dtype.I16, 900, 2))},
	ConvDef: {
		sized(convAttrs(2, 1, 1, 1), 0, ir.T(f32, 2, 3, 13, 15), ir.T(f32, 70, 3, 5, 5), ir.T(f32, 70)),
		sized(convAttrs(1, 1, 1, 1), 0, ir.T(f32, 2, 20, 5, 7), ir.T(f32, 66, 20, 3, 3)),
		sized(convAttrs(1, 0, 1, 2), 0, ir.T(f32, 2, 64, 9, 11), ir.T(f32, 72, 32, 1, 1)),
		sized(convAttrs(1, 0, 1, 1), 0, ir.T(f32, 2, 64, 5, 9), ir.T(f32, 50, 64, 1, 1)),
		sized(convAttrs(1, 2, 2, 8), 0, ir.T(f32, 2, 8, 9, 11), ir.T(f32, 16, 1, 3, 3)),
	},
	ConvInputGradDef: {
		sized(convAttrs(2, 1, 1, 1).InputGrad([]int{9, 10}), 0, ir.T(f32, 2, 24, 5, 5), ir.T(f32, 24, 36, 3, 3)),
		sized(convAttrs(3, 2, 2, 1).InputGrad([]int{17, 13}), 0, ir.T(f32, 1, 65, 5, 5), ir.T(f32, 65, 20, 4, 3)),
		sized(convAttrs(2, 0, 1, 2).InputGrad([]int{19, 16}), 0, ir.T(f32, 2, 48, 10, 8), ir.T(f32, 48, 40, 1, 1)),
		sized(convAttrs(1, 0, 1, 1).InputGrad([]int{9, 8}), 0, ir.T(f32, 2, 64, 9, 8), ir.T(f32, 64, 40, 1, 1)),
		sized(convAttrs(1, 1, 1, 8).InputGrad([]int{9, 8}), 0, ir.T(f32, 2, 8, 9, 8), ir.T(f32, 8, 1, 3, 3)),
	},
	ConvWeightGradDef: {
		sized(convAttrs(2, 1, 1, 1).WeightGrad([]int{5, 5}), 0, ir.T(f32, 2, 3, 13, 15), ir.T(f32, 2, 70, 6, 7)),
		sized(convAttrs(1, 1, 1, 1).WeightGrad([]int{3, 3}), 0, ir.T(f32, 5, 12, 9, 11), ir.T(f32, 5, 66, 9, 11)),
		sized(convAttrs(1, 0, 1, 2).WeightGrad([]int{1, 1}), 0, ir.T(f32, 2, 64, 9, 11), ir.T(f32, 2, 72, 9, 11)),
		sized(convAttrs(1, 0, 1, 1).WeightGrad([]int{1, 1}), 0, ir.T(f32, 3, 64, 4, 12), ir.T(f32, 3, 50, 4, 12)),
		sized(convAttrs(1, 2, 2, 8).WeightGrad([]int{3, 3}), 0, ir.T(f32, 2, 8, 9, 11), ir.T(f32, 2, 16, 9, 11)),
	},
	DetDef:    {sized(nil, 0, ir.T(f32, 3, 17, 17))},
	MatMulDef: {sized(MatMulAttrs{}, 9, ir.T(dtype.I32, 2, 35, 19), ir.T(dtype.I32, 2, 19, 40)), sized(MatMulAttrs{TransA: true, TransB: true}, 9, ir.T(dtype.F64, 35, 19), ir.T(dtype.F64, 40, 35))},
}

// largerAttention are samples that tensor cores take in half precision, with dropout and windows, which other tests lack.
func largerAttention(d *ir.Def) []ir.Sample {
	counter, drop := ir.T(dtype.I64), AttentionAttrs{Scale: 0.2, P: 0.3, Seed: 5}
	window := AttentionAttrs{Scale: 0.2, Layout: "bshd", Causal: true, Window: 20, P: 0.5, Seed: 1}
	out := []ir.Sample{
		{In: append(f32s([]int{1, 2, 70, 32}, []int{1, 1, 75, 32}, []int{1, 1, 75, 48}, []int{1, 1, 1, 75}), counter, ir.T(dtype.I64, 1, 2)), Attrs: drop},
		{In: append(f32s([]int{2, 33, 2, 136}, []int{2, 40, 2, 136}, []int{2, 40, 2, 24}, []int{2, 1, 33, 40}), counter, ir.T(dtype.I64, 2, 2)), Attrs: window},
		{In: append(f32s([]int{2, 33, 2, 72}, []int{2, 40, 2, 72}, []int{2, 40, 2, 24}, []int{2, 1, 33, 40}), counter, ir.T(dtype.I64, 2, 2)), Attrs: window},
	}
	switch d {
	case AttentionDef:
		return out
	case AttentionGradDef:
		for i := range out {
			out[i] = attentionGradSample(out[i])
		}
		return out
	}
	return nil
}

// convAttrs is a convolution of two dims, each alike.
func convAttrs(stride, pad, dilation, groups int) ConvAttrs {
	return ConvAttrs{Strides: []int{stride, stride}, Pads: []int{pad, pad, pad, pad}, Dilations: []int{dilation, dilation}, Groups: groups}
}

func sized(attrs any, limit int, in ...ir.Type) ir.Sample {
	return ir.Sample{Attrs: attrs, In: in, Limit: limit}
}

// cudaCall is one call of a template, made ready to run.
type cudaCall struct {
	op   *ir.Op
	want []*ir.Array
	outs [][]byte // of the results, in the op's order
	run  *cudatest.Case
}

// newCudaCall builds the op of a sample and plans its template; nil where the op has none, or not for those types.
func newCudaCall(t *testing.T, d *ir.Def, s ir.Sample, r *rand.Rand) *cudaCall {
	t.Helper()
	in := randomArrays(r, s)
	_, op := build(d, s.Attrs, s.In...)
	impl := d.Rules.Impl(op)
	if impl.Kind != kir.Template || slices.Contains(elsewhere, impl.Template) {
		return nil
	}
	return cudaCallOf(t, op, impl, in)
}

func cudaCallOf(t *testing.T, op *ir.Op, impl kir.Impl, in []*ir.Array) *cudaCall {
	t.Helper()
	c := &cudaCall{op: op}
	var all [][]byte
	for i, a := range in {
		all = append(all, a.Tensor().Data)
		in[i] = (&ir.Tensor{Type: a.Type, Data: slices.Clone(all[i])}).Array() // rounded
	}
	for _, v := range op.Out {
		c.outs = append(c.outs, make([]byte, v.Type.Bytes()))
	}
	all = append(all, c.outs...)
	values := append(slices.Clone(op.In), op.Out...)
	call := cuda.Call{Name: impl.Template, Ints: impl.Ints, Floats: impl.Floats, Compute: "f32"}
	order := impl.Order
	if order == nil {
		for i := range values {
			order = append(order, i)
		}
	}
	c.run = &cudatest.Case{Name: op.String() + " " + impl.Template}
	for _, k := range order {
		if k < 0 {
			call.Types, c.run.Buffers = append(call.Types, dtype.Invalid), append(c.run.Buffers, nil)
			continue
		}
		call.Types, c.run.Buffers = append(call.Types, values[k].Type.DType), append(c.run.Buffers, all[k])
	}
	if !cuda.Native(call.Name, call.Types) {
		return nil
	}
	plan, err := cuda.Lower(call)
	if err != nil {
		t.Errorf("%s: %v", c.run.Name, err)
		return nil
	}
	c.run.Types = call.Types
	c.run.Plan, c.want = plan, op.Def.Rules.Eval(op, in)
	return c
}

func runCuda(t *testing.T, calls []*cudaCall) {
	t.Helper()
	var cases []*cudatest.Case
	for _, c := range calls {
		cases = append(cases, c.run)
	}
	cudatest.RunAll(t, cases)
}

// check holds the results against the definition, by elements.
func (c *cudaCall) check(t *testing.T) {
	t.Helper()
	if c.run.Err != nil {
		t.Error(c.run.Err)
		return
	}
	if c.run.Status != math.MaxInt64 {
		t.Errorf("%s: status %d", c.run.Name, c.run.Status)
	}
	for i, v := range c.op.Out {
		got := numbersOf((&ir.Tensor{Type: v.Type, Data: c.outs[i]}).Array())
		want := numbersOf(c.want[i])
		tol := 1e-5
		if half(v.Type.DType) {
			tol = 2e-2
		}
		var diff, norm float64
		for k := range want {
			if got[k] == want[k] || math.IsNaN(got[k]) && math.IsNaN(want[k]) {
				norm += squareOf(want[k])
				continue
			}
			diff, norm = diff+squareOf(got[k]-want[k]), norm+squareOf(want[k])
		}
		if !(math.Sqrt(diff) <= tol*math.Sqrt(norm)) {
			t.Errorf("%s: result %d differs by %g of %g\n got %.12v\nwant %.12v", c.run.Name, i, math.Sqrt(diff), math.Sqrt(norm), first(got), first(want))
		}
	}
}

func squareOf(x float64) float64 { return x * x }

func first(x []float64) []float64 { return x[:min(len(x), 12)] }
