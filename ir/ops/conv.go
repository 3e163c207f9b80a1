package ops

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
)

// The convolutions. They are the three sides of one trilinear form, so each one's gradients are the other two.
var (
	ConvDef           = ir.NewOp("conv")
	ConvInputGradDef  = ir.NewOp("conv_input_grad")
	ConvWeightGradDef = ir.NewOp("conv_weight_grad")
)

// ConvAttrs is the geometry of a convolution over n spatial dims. Strides and Dilations have n elements; Pads
// has 2n, all the low ends first (as ONNX). Constructors fill absent lists with 1, 1 and 0, and Groups 0 with 1.
type ConvAttrs struct {
	Strides, Pads, Dilations []int
	Groups                   int
}

// ConvInputGradAttrs is ConvAttrs and InDims, the spatial dims of the convolution's input (of the result here).
type ConvInputGradAttrs struct {
	Strides, Pads, Dilations []int
	Groups                   int
	InDims                   []int
}

// ConvWeightGradAttrs is ConvAttrs and WDims, the spatial dims of the convolution's kernel (of the result here). Out is as in
// MatMulAttrs.
type ConvWeightGradAttrs struct {
	Strides, Pads, Dilations []int
	Groups                   int
	WDims                    []int
	Out                      dtype.DType
}

// InputGrad is the same geometry for the gradient of an input with the given spatial dims.
func (a ConvAttrs) InputGrad(in []int) ConvInputGradAttrs {
	return ConvInputGradAttrs{a.Strides, a.Pads, a.Dilations, a.Groups, in}
}

// WeightGrad is the same geometry for the gradient of a kernel with the given spatial dims.
func (a ConvAttrs) WeightGrad(w []int) ConvWeightGradAttrs {
	return ConvWeightGradAttrs{a.Strides, a.Pads, a.Dilations, a.Groups, w, dtype.Invalid}
}

// Conv is the geometry alone.
func (a ConvInputGradAttrs) Conv() ConvAttrs {
	return ConvAttrs{a.Strides, a.Pads, a.Dilations, a.Groups}
}

// Conv is the geometry alone.
func (a ConvWeightGradAttrs) Conv() ConvAttrs {
	return ConvAttrs{a.Strides, a.Pads, a.Dilations, a.Groups}
}

// Conv computes y[N,O,out...] from x[N,C,in...] and w[O,C/g,k...] (cross-correlation, as ONNX and PyTorch).
func Conv(b *ir.Builder, x, w *ir.Value, a ConvAttrs) *ir.Value {
	return b.Emit(ConvDef, a.filled(len(x.Type.Dims)-2), x, w)
}

// ConvBias is Conv plus bias[O], which may be nil, in every position.
func ConvBias(b *ir.Builder, x, w, bias *ir.Value, a ConvAttrs) *ir.Value {
	if bias == nil {
		return Conv(b, x, w, a)
	}
	return b.Emit(ConvDef, a.filled(len(x.Type.Dims)-2), x, w, bias)
}

// ConvInputGrad is Conv's adjoint in x, which is also the transposed convolution: dx[N,C,InDims...] from
// dy[N,O,out...] and w[O,C/g,k...].
func ConvInputGrad(b *ir.Builder, dy, w *ir.Value, a ConvInputGradAttrs) *ir.Value {
	return b.Emit(ConvInputGradDef, a.Conv().filled(len(dy.Type.Dims)-2).InputGrad(a.InDims), dy, w)
}

// ConvWeightGrad is Conv's adjoint in w: dw[O,C/g,WDims...] from x[N,C,in...] and dy[N,O,out...].
func ConvWeightGrad(b *ir.Builder, x, dy *ir.Value, a ConvWeightGradAttrs) *ir.Value {
	return b.Emit(ConvWeightGradDef, a.Conv().filled(len(x.Type.Dims)-2).WeightGrad(a.WDims), x, dy)
}

func (a ConvAttrs) filled(spatial int) ConvAttrs {
	a.Strides, a.Dilations = filledList(a.Strides, spatial, 1), filledList(a.Dilations, spatial, 1)
	a.Pads, a.Groups = filledList(a.Pads, 2*spatial, 0), max(a.Groups, 1)
	return a
}

// filledList is list, or n times v when list is empty.
func filledList(list []int, n, v int) []int {
	if len(list) > 0 || n <= 0 {
		return list
	}
	list = make([]int, n)
	for i := range list {
		list[i] = v
	}
	return list
}

// checkWindow checks the geometry of a convolution or pool over n spatial dims.
func checkWindow(n int, strides, pads, dilations []int) error {
	switch {
	case n < 1:
		return fmt.Errorf("operand 0 needs a batch, a channel and at least one spatial dimension")
	case len(strides) != n || len(dilations) != n || len(pads) != 2*n:
		return fmt.Errorf("%d strides, %d dilations and %d pads do not fit %d spatial dimensions",
			len(strides), len(dilations), len(pads), n)
	}
	for i := range n {
		if strides[i] < 1 || dilations[i] < 1 || pads[i] < 0 || pads[n+i] < 0 {
			return fmt.Errorf("strides %v and dilations %v must be positive, pads %v not negative", strides, dilations, pads)
		}
	}
	return nil
}

// convOut gives the spatial output dims of a convolution over in with the given kernel dims.
func (a ConvAttrs) convOut(in, kernel []int) ([]int, error) {
	n := len(in)
	if err := checkWindow(n, a.Strides, a.Pads, a.Dilations); err != nil {
		return nil, err
	}
	if len(kernel) != n {
		return nil, fmt.Errorf("kernel %v does not fit %d spatial dimensions", kernel, n)
	}
	out := make([]int, n)
	for i := range n {
		room := in[i] + a.Pads[i] + a.Pads[n+i] - a.Dilations[i]*(kernel[i]-1) - 1
		if kernel[i] < 1 || room < 0 {
			return nil, fmt.Errorf("kernel %v (dilations %v) is larger than the padded input %v (pads %v)", kernel, a.Dilations, in, a.Pads)
		}
		out[i] = room/a.Strides[i] + 1
	}
	return out, nil
}

// convDims are the dims of the three tensors of one convolution.
type convDims struct{ x, w, y []int }

// convOf gives the geometry and all dims of any of the three ops, or says what does not fit.
func convOf(op *ir.Op) (ConvAttrs, convDims, error) {
	p, q := op.In[0].Type, op.In[1].Type
	if len(p.Dims) < 3 || len(q.Dims) != len(p.Dims) {
		return ConvAttrs{}, convDims{}, fmt.Errorf("operands have %d and %d dimensions; both need batch or channels, channels and the same spatial ones", len(p.Dims), len(q.Dims))
	}
	if err := sameFloat(op, 0, 1, 2); err != nil {
		return ConvAttrs{}, convDims{}, err
	}
	if bias := operand(op, 2); bias != nil && !bias.Type.Equal(ir.T(p.DType, q.Dims[0])) {
		return ConvAttrs{}, convDims{}, fmt.Errorf("the bias is %s, but must be %s", bias.Type, ir.T(p.DType, q.Dims[0]))
	}
	switch a := op.Attrs.(type) {
	case ConvInputGradAttrs:
		d, err := a.Conv().inputGradDims(p.Dims, q.Dims, a.InDims)
		return a.Conv(), d, err
	case ConvWeightGradAttrs:
		d, err := a.Conv().weightGradDims(p.Dims, q.Dims, a.WDims)
		return a.Conv(), d, err
	}
	a := op.Attrs.(ConvAttrs)
	d, err := a.convForwardDims(p.Dims, q.Dims)
	return a, d, err
}

func (a ConvAttrs) convForwardDims(x, w []int) (convDims, error) {
	if a.Groups < 1 || x[1] != w[1]*a.Groups || w[0]%a.Groups != 0 {
		return convDims{}, fmt.Errorf("operand 1 has %d output channels of %d input channels each, operand 0 has %d channels, groups is %d", w[0], w[1], x[1], a.Groups)
	}
	out, err := a.convOut(x[2:], w[2:])
	return convDims{x, w, append([]int{x[0], w[0]}, out...)}, err
}

func (a ConvAttrs) inputGradDims(y, w, in []int) (convDims, error) {
	if a.Groups < 1 || y[1] != w[0] || w[0]%a.Groups != 0 {
		return convDims{}, fmt.Errorf("operand 0 has %d channels and operand 1 %d output channels, which must be equal and divisible by groups, %d", y[1], w[0], a.Groups)
	}
	if len(in) > 0 && slices.Min(in) < 0 {
		return convDims{}, fmt.Errorf("InDims are %v, but must not be negative", in)
	}
	d, err := a.convForwardDims(append([]int{y[0], w[1] * a.Groups}, in...), w)
	return d, a.sameOut(d, y, err)
}

func (a ConvAttrs) weightGradDims(x, y, k []int) (convDims, error) {
	if a.Groups < 1 || x[1]%a.Groups != 0 || x[0] != y[0] {
		return convDims{}, fmt.Errorf("operands have %d and %d samples; operand 0 has %d channels, groups is %d", x[0], y[0], x[1], a.Groups)
	}
	d, err := a.convForwardDims(x, append([]int{y[1], x[1] / a.Groups}, k...))
	return d, a.sameOut(d, y, err)
}

func (a ConvAttrs) sameOut(d convDims, y []int, err error) error {
	for i := range y {
		if err == nil && y[i] != d.y[i] {
			err = fmt.Errorf("the gradient of the output has dims %v, the geometry gives %v", y, d.y)
		}
	}
	return err
}

// convRule is the dimension rule of x, w, y in the order of the op's operands and result. Spatial dims stay
// whole (a split needs halos); with groups, whole groups may be split, channels within one not.
func convRule(op *ir.Op) factor.Rule {
	a, d, err := convOf(op)
	if err != nil {
		return factor.Rule{}
	}
	var r ruleMaker
	kind := func(result string, k factor.Kind) factor.Kind {
		if k == factor.Free && !resultOf(op, result) {
			return factor.Sum
		}
		return k
	}
	n := r.add("n", d.x[0], kind("xy", factor.Free))
	var x, w, y []factor.Dim
	var o factor.Dim
	if a.Groups > 1 {
		g := r.add("g", a.Groups, factor.Free)
		o = append(slices.Clone(g), r.add("og", d.w[0]/a.Groups, factor.Blocked)...)
		c := r.add("cg", d.w[1], factor.Blocked)
		x, w, y = []factor.Dim{n, append(slices.Clone(g), c...)}, []factor.Dim{o, c}, []factor.Dim{n, o}
	} else {
		o = r.add("o", d.w[0], kind("wy", factor.Free))
		ck := kind("xw", factor.Free)
		if ck == factor.Sum && operand(op, 2) != nil {
			ck = factor.Blocked // every part would add the bias
		}
		c := r.add("c", d.x[1], ck)
		x, w, y = []factor.Dim{n, c}, []factor.Dim{o, c}, []factor.Dim{n, o}
	}
	for i := 2; i < len(d.x); i++ {
		x = append(x, r.add(fmt.Sprintf("in%d", i-2), d.x[i], factor.Blocked))
		w = append(w, r.add(fmt.Sprintf("k%d", i-2), d.w[i], factor.Blocked))
		y = append(y, r.add(fmt.Sprintf("out%d", i-2), d.y[i], factor.Blocked))
	}
	switch op.Def {
	case ConvInputGradDef:
		return r.rule([][]factor.Dim{y, w}, x)
	case ConvWeightGradDef:
		return r.rule([][]factor.Dim{x, y}, w)
	}
	in := [][]factor.Dim{x, w}
	if len(op.In) > 2 {
		in = append(in, []factor.Dim{o})
		if op.In[2] == nil {
			in[2] = nil
		}
	}
	return r.rule(in, y)
}

// convResize gives a part of a convolution its groups: as many of them as it has of the channels, which with more than one
// group are only split between groups.
func convResize(op *ir.Op, in, _ [][]int) any {
	part := func(groups int) int {
		if groups == 1 {
			return 1
		}
		whole, local := op.In[0].Type.Dims[1], in[0][1]
		return groups * local / whole
	}
	switch a := op.Attrs.(type) {
	case ConvInputGradAttrs:
		a.Groups = part(a.Groups)
		return a
	case ConvWeightGradAttrs:
		a.Groups = part(a.Groups)
		return a
	}
	a := op.Attrs.(ConvAttrs)
	a.Groups = part(a.Groups)
	return a
}

// resultOf reports whether the op's result is one of the named tensors (x, w, y) of the convolution.
func resultOf(op *ir.Op, names string) bool {
	result := byte('y')
	switch op.Def {
	case ConvInputGradDef:
		result = 'x'
	case ConvWeightGradDef:
		result = 'w'
	}
	for i := range len(names) {
		if names[i] == result {
			return true
		}
	}
	return false
}
