package ops

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// This file says how the hand-made templates of kernels/cpu and kernels/cuda are called: the integers in their order. They
// take f32 (and i64 targets, i32 positions), and f16 or bf16 where the target says so (pass.Options.Native); other types have
// no template.

// templateFloats reports whether every float operand and result is of a type that targets may have templates for.
func templateFloats(op *ir.Op) bool {
	return !slices.ContainsFunc(slices.Concat(op.In, op.Out), func(v *ir.Value) bool {
		return v != nil && v.Type.DType.IsFloat() && !templateFloat(v.Type.DType)
	})
}

func templateFloat(d dtype.DType) bool { return d == dtype.F32 || d == dtype.F16 || d == dtype.BF16 }

// elemCode is kernels/cpu's number of an element type (ElemF32 and so on there); 0 when it has none.
func elemCode(d dtype.DType) int {
	return 1 + slices.Index([]dtype.DType{dtype.F32, dtype.F64, dtype.F16, dtype.BF16, dtype.I8, dtype.I16, dtype.I32, dtype.I64,
		dtype.U8, dtype.U16, dtype.U32, dtype.U64, dtype.Bool}, d)
}

// inF32 is the Decompose of an op that has a template for f32 and runs in it for narrower types: floats of 16 bits and
// fewer become f32 and the results go back. Integers without a code become i64.
func inF32(b *ir.Builder, op *ir.Op) []*ir.Value {
	in := slices.Clone(op.In)
	for i, v := range in {
		if v == nil {
			continue
		}
		switch d := v.Type.DType; {
		case half(d):
			in[i] = Cast(b, v, dtype.F32)
		case d.IsInt() && elemCode(d) == 0:
			in[i] = Cast(b, v, dtype.I64)
		}
	}
	out := slices.Clone(b.EmitN(op.Def, op.Attrs, in...))
	for i, v := range out {
		out[i] = Cast(b, v, op.Out[i].Type.DType)
	}
	return out
}

// bitsCode is elemCode of an unsigned integer type of d's size, for templates that only move elements.
func bitsCode(d dtype.DType) int {
	switch d.Size() {
	case 1:
		return elemCode(dtype.U8)
	case 2:
		return elemCode(dtype.U16)
	case 4:
		return elemCode(dtype.U32)
	case 8:
		return elemCode(dtype.U64)
	}
	return 0
}

// plane pads the last two entries of a per-spatial-dim list for 1-D ops: they are 2-D ones with one row.
func plane(list []int, def int) (h, w int) {
	if len(list) == 1 {
		return def, list[0]
	}
	return list[0], list[1]
}

// convImpl calls ConvFwd, ConvBwdData or ConvBwdWeight.
func convImpl(op *ir.Op) kir.Impl {
	a, d, err := convOf(op)
	n := len(a.Strides)
	if err != nil || n > 2 || !templateFloats(op) {
		return kir.Impl{}
	}
	h, w := plane(d.x[2:], 1)
	kh, kw := plane(d.w[2:], 1)
	oh, ow := plane(d.y[2:], 1)
	top, left := plane(a.Pads[:n], 0)
	sh, sw := plane(a.Strides, 1)
	dh, dw := plane(a.Dilations, 1)
	impl := kir.Impl{Kind: kir.Template, Template: "ConvBwdData",
		Ints: []int{d.x[0], d.x[1], h, w, d.w[0], kh, kw, oh, ow, top, left, sh, sw, dh, dw, a.Groups}}
	switch op.Def {
	case ConvWeightGradDef:
		impl.Template = "ConvBwdWeight"
	case ConvDef:
		impl.Template, impl.Order = "ConvFwd", []int{0, 1, -1, len(op.In)}
		if operand(op, 2) != nil {
			impl.Order[2] = 2
		}
	}
	return impl
}

// poolImpl calls MaxPoolFwd, MaxPoolBwd, AvgPoolFwd or AvgPoolBwd; for three dims, and types other than f32, those of
// that name with a 3.
func poolImpl(op *ir.Op) kir.Impl {
	a, x, y, err := poolOf(op)
	d := op.In[0].Type.DType
	if err != nil || len(a.Kernel) > 3 || half(d) && !templateFloat(d) || elemCode(d) == 0 {
		return kir.Impl{}
	}
	impl, mode := kir.Impl{Kind: kir.Template}, 0
	switch at := op.Attrs.(type) {
	case AvgPoolAttrs:
		impl.Template, mode = "AvgPool%sFwd", at.divisor()
	case AvgPoolGradAttrs:
		impl.Template, mode = "AvgPool%sBwd", at.Pool().divisor()
	case MaxPoolGradAttrs:
		impl.Template = "MaxPool%sBwd"
	default:
		impl.Template = "MaxPool%sFwd"
	}
	if !templateFloat(d) || len(a.Kernel) > 2 {
		impl.Template = fmt.Sprintf(impl.Template, "3")
		impl.Ints = append(poolInts(a, x, y, 3), mode, elemCode(d))
		return impl
	}
	mean := op.Def == AvgPoolDef || op.Def == AvgPoolGradDef
	impl.Template = fmt.Sprintf(impl.Template, "")
	ints := poolInts(a, x, y, 2) // planes, sizes, kernel, outputs, low, high, strides, dilations
	impl.Ints = slices.Concat(x[:2], ints[1:9])
	if mean {
		impl.Ints = append(impl.Ints, ints[9:11]...)
	}
	if impl.Ints = append(impl.Ints, ints[11:15]...); mean {
		impl.Ints = append(impl.Ints, mode)
	}
	return impl
}

// poolInts lists the planes and then, for n spatial dims (those that the pool has not, of one element, come first), the
// input's sizes, the kernel's, the output's, low and high pads, strides and dilations.
func poolInts(a MaxPoolAttrs, x, y []int, n int) []int {
	k := len(a.Kernel)
	out := []int{x[0] * x[1]}
	add := func(list []int, def int) { out = slices.Concat(out, slices.Repeat([]int{def}, n-k), list) }
	add(x[2:], 1)
	add(a.Kernel, 1)
	add(y[2:], 1)
	add(a.Pads[:k], 0)
	add(a.Pads[k:], 0)
	add(a.Strides, 1)
	add(a.Dilations, 1)
	return out
}

// attentionImpl calls AttnFwd or AttnBwd, or AttnFwdDropout or AttnBwdDropout, on dense operands.
func attentionImpl(op *ir.Op) kir.Impl {
	d, err := attnOf(op)
	if err != nil || !templateFloats(op) {
		return kir.Impl{}
	}
	a := op.Attrs.(AttentionAttrs)
	// strides are those of batch, head and sequence in a dense tensor of the layout.
	strides := func(heads, seq, depth int) []int {
		if a.Layout == "bshd" {
			return []int{seq * heads * depth, depth, heads * depth}
		}
		return []int{heads * seq * depth, seq * depth, depth}
	}
	q, k, v, o := strides(d.H, d.Sq, d.D), strides(d.Hkv, d.Sk, d.D), strides(d.Hkv, d.Sk, d.Dv), strides(d.H, d.Sq, d.Dv)
	causal := 0
	if a.Causal {
		causal = 1 + d.Sk - d.Sq
	}
	mask, hasMask := make([]int, 3), operand(op, 3) != nil
	if hasMask {
		dims := op.In[3].Type.Dims
		for i, s := range ir.Strides(dims)[:3] {
			if dims[i] > 1 {
				mask[i] = s
			}
		}
	}
	ints := slices.Concat([]int{d.B, d.H, d.Hkv, d.Sq, d.Sk, d.D, d.Dv}, q, k, v, o, []int{causal, a.Window}, mask)
	impl := kir.Impl{Kind: kir.Template, Template: "AttnFwd", Ints: ints, Floats: []float64{a.Scale}}
	strided := func(at int) []int { // places of the strides of a tensor whose batch, head, sequence strides start there
		if a.Layout == "bshd" {
			return []int{at, at + 2, at + 1, -1}
		}
		return []int{at, at + 1, at + 2, -1}
	}
	impl.Strided = map[int][]int{0: strided(7), 1: strided(10), 2: strided(13)}
	n := len(op.In)
	impl.Order = []int{0, 1, 2, -1, n, n + 1}
	if op.Def == AttentionGradDef {
		impl.Template, impl.Order = "AttnBwd", []int{0, 1, 2, -1, 4, 5, 6, n, n + 1, n + 2}
		impl.Ints = slices.Concat(ints, o, q, k, v)
		for i, at := range []int{6, n, n + 1, n + 2} { // dout and the results
			impl.Strided[at] = strided(len(ints) + 3*i)
		}
	}
	if hasMask {
		impl.Order[3] = 3
	}
	if at := dropoutOperands(op); a.P > 0 { // the same with more behind: pointers, the seed, p
		impl.Template += "Dropout"
		impl.Order = append(impl.Order, at, at+1)
		impl.Ints = append(slices.Clone(impl.Ints), a.Seed)
		impl.Floats = append(impl.Floats, a.P)
	}
	return impl
}

// orInF32 is inF32 for narrow floats, else parts.
func orInF32(parts func(b *ir.Builder, op *ir.Op) []*ir.Value) func(b *ir.Builder, op *ir.Op) []*ir.Value {
	return func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if half(op.In[0].Type.DType) {
			return inF32(b, op)
		}
		return parts(b, op)
	}
}

// xentImpl calls XentFwd or XentFwdBwd. xent_grad alone has no template: its parts fuse.
func xentImpl(op *ir.Op) kir.Impl {
	if !templateFloats(op) || op.In[1].Type.DType != dtype.I64 {
		return kir.Impl{}
	}
	d := op.In[0].Type.Dims
	impl := kir.Impl{Kind: kir.Template, Template: "XentFwdBwd", Ints: []int{d[0], d[1], op.Attrs.(XentAttrs).IgnoreIndex}, Status: true,
		InPlace: 1, InPlaceOut: 1}
	if op.Def == XentDef {
		impl.Template, impl.Order, impl.InPlace, impl.InPlaceOut = "XentFwd", []int{0, 1, -1, 2, -1}, 0, 0
	}
	return impl
}
