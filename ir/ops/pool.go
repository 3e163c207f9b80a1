package ops

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
)

// Window pooling over the spatial dims of x[N,C,...].
var (
	MaxPoolDef     = ir.NewOp("max_pool")
	MaxPoolGradDef = ir.NewOp("max_pool_grad")
	AvgPoolDef     = ir.NewOp("avg_pool")
	AvgPoolGradDef = ir.NewOp("avg_pool_grad")
)

// MaxPoolAttrs is the geometry of max_pool over n spatial dims: Kernel, Strides and Dilations have n elements,
// Pads 2n (all the low ends first). CeilMode rounds the output size up, but no window may start in the high padding.
type MaxPoolAttrs struct {
	Kernel, Strides, Pads, Dilations []int
	CeilMode                         bool
}

// MaxPoolGradAttrs is MaxPoolAttrs and the spatial dims of the pooled input.
type MaxPoolGradAttrs struct {
	Kernel, Strides, Pads, Dilations []int
	CeilMode                         bool
	InDims                           []int
}

// AvgPoolAttrs is the geometry of avg_pool, as in MaxPoolAttrs. IncludePad counts padding (as zeros) in the
// divisor, but never what CeilMode adds beyond it. Sum divides by nothing.
type AvgPoolAttrs struct {
	Kernel, Strides, Pads, Dilations []int
	CeilMode, IncludePad, Sum        bool
}

// AvgPoolGradAttrs is AvgPoolAttrs and the spatial dims of the pooled input.
type AvgPoolGradAttrs struct {
	Kernel, Strides, Pads, Dilations []int
	CeilMode, IncludePad, Sum        bool
	InDims                           []int
}

// InputGrad is the same geometry for the gradient of an input with the given spatial dims.
func (a MaxPoolAttrs) InputGrad(in []int) MaxPoolGradAttrs {
	return MaxPoolGradAttrs{a.Kernel, a.Strides, a.Pads, a.Dilations, a.CeilMode, in}
}

// Pool is the geometry alone.
func (a MaxPoolGradAttrs) Pool() MaxPoolAttrs {
	return MaxPoolAttrs{a.Kernel, a.Strides, a.Pads, a.Dilations, a.CeilMode}
}

// InputGrad is the same geometry for the gradient of an input with the given spatial dims.
func (a AvgPoolAttrs) InputGrad(in []int) AvgPoolGradAttrs {
	return AvgPoolGradAttrs{a.Kernel, a.Strides, a.Pads, a.Dilations, a.CeilMode, a.IncludePad, a.Sum, in}
}

// Pool is the geometry alone.
func (a AvgPoolGradAttrs) Pool() AvgPoolAttrs {
	return AvgPoolAttrs{a.Kernel, a.Strides, a.Pads, a.Dilations, a.CeilMode, a.IncludePad, a.Sum}
}

// MaxPool gives y[N,C,out...] and, for each element, where it came from: i32, flat in the input's spatial plane.
// The first maximum wins; NaN wins over all. x may be of integers.
func MaxPool(b *ir.Builder, x *ir.Value, a MaxPoolAttrs) (y, idx *ir.Value) {
	out := b.EmitN(MaxPoolDef, a.filled(), x)
	return out[0], out[1]
}

// MaxPoolGrad adds dy[N,C,out...] into dx[N,C,InDims...] at the places that MaxPool gave.
func MaxPoolGrad(b *ir.Builder, dy, idx *ir.Value, a MaxPoolGradAttrs) *ir.Value {
	return b.Emit(MaxPoolGradDef, a.Pool().filled().InputGrad(a.InDims), dy, idx)
}

// AvgPool gives the mean (a.Sum: the sum) of each window.
func AvgPool(b *ir.Builder, x *ir.Value, a AvgPoolAttrs) *ir.Value {
	return b.Emit(AvgPoolDef, a.filled(), x)
}

// AvgPoolGrad is the adjoint of AvgPool: dx[N,C,InDims...] from dy[N,C,out...].
func AvgPoolGrad(b *ir.Builder, dy *ir.Value, a AvgPoolGradAttrs) *ir.Value {
	return b.Emit(AvgPoolGradDef, a.Pool().filled().InputGrad(a.InDims), dy)
}

func (a MaxPoolAttrs) filled() MaxPoolAttrs {
	n := len(a.Kernel)
	a.Strides, a.Dilations, a.Pads = filledList(a.Strides, n, 1), filledList(a.Dilations, n, 1), filledList(a.Pads, 2*n, 0)
	return a
}

func (a AvgPoolAttrs) filled() AvgPoolAttrs {
	n := len(a.Kernel)
	a.Strides, a.Dilations, a.Pads = filledList(a.Strides, n, 1), filledList(a.Dilations, n, 1), filledList(a.Pads, 2*n, 0)
	return a
}

// asMax is the geometry as max_pool's.
func (a AvgPoolAttrs) asMax() MaxPoolAttrs {
	return MaxPoolAttrs{a.Kernel, a.Strides, a.Pads, a.Dilations, a.CeilMode}
}

// divisor is kernels/cpu's number of what a window's sum is divided by.
func (a AvgPoolAttrs) divisor() int {
	switch {
	case a.Sum:
		return 2
	case a.IncludePad:
		return 1
	}
	return 0
}

// poolOut gives the spatial output dims over in, as PyTorch's pooling_output_shape.
func (a MaxPoolAttrs) poolOut(in []int) ([]int, error) {
	n := len(in)
	if len(a.Kernel) != n {
		return nil, fmt.Errorf("kernel %v does not fit %d spatial dimensions", a.Kernel, n)
	}
	if err := checkWindow(n, a.Strides, a.Pads, a.Dilations); err != nil {
		return nil, err
	}
	out := make([]int, n)
	for i := range n {
		room := in[i] + a.Pads[i] + a.Pads[n+i] - a.Dilations[i]*(a.Kernel[i]-1) - 1
		if a.Kernel[i] < 1 || room < 0 {
			return nil, fmt.Errorf("kernel %v is larger than the padded input %v (pads %v)", a.Kernel, in, a.Pads)
		}
		if reach := a.Dilations[i] * (a.Kernel[i] - 1); a.Pads[i] > reach || a.Pads[n+i] > reach {
			return nil, fmt.Errorf("pads %v let windows of kernel %v miss the input", a.Pads, a.Kernel)
		}
		out[i] = room/a.Strides[i] + 1
		if a.CeilMode && room%a.Strides[i] != 0 && out[i]*a.Strides[i] < in[i]+a.Pads[i] {
			out[i]++
		}
	}
	return out, nil
}

// poolOf gives the geometry of any of the four ops and the dims of its larger and smaller side.
func poolOf(op *ir.Op) (a MaxPoolAttrs, x, y []int, err error) {
	t, in, grad := op.In[0].Type, []int(nil), true
	switch at := op.Attrs.(type) {
	case MaxPoolAttrs:
		a, grad = at, false
	case MaxPoolGradAttrs:
		a, in = at.Pool(), at.InDims
	case AvgPoolAttrs:
		a, grad = at.asMax(), false
	case AvgPoolGradAttrs:
		a, in = at.Pool().asMax(), at.InDims
	}
	if op.Def != MaxPoolDef || !t.DType.IsInt() {
		if err := sameFloat(op, 0); err != nil {
			return a, nil, nil, err
		}
	}
	if len(t.Dims) < 3 {
		return a, nil, nil, fmt.Errorf("operand 0 has %d dimensions, needs batch, channels and spatial ones", len(t.Dims))
	}
	if !grad {
		in = t.Dims[2:]
	}
	out, err := a.poolOut(in)
	if err != nil {
		return a, nil, nil, err
	}
	x, y = slices.Concat(t.Dims[:2], in), slices.Concat(t.Dims[:2], out)
	if grad && !slices.Equal(y, t.Dims) {
		return a, nil, nil, fmt.Errorf("the gradient of the output has dims %v, the geometry gives %v", t.Dims, y)
	}
	return a, x, y, nil
}

// inferPool is the Infer of all four.
func inferPool(op *ir.Op) ([]ir.Type, error) {
	_, x, y, err := poolOf(op)
	if err != nil {
		return nil, err
	}
	d := op.In[0].Type.DType
	switch op.Def {
	case MaxPoolDef:
		return []ir.Type{ir.T(d, y...), ir.T(dtype.I32, y...)}, nil
	case MaxPoolGradDef:
		if idx := ir.T(dtype.I32, y...); !op.In[1].Type.Equal(idx) {
			return nil, fmt.Errorf("operand 1 is %s, but must be %s", op.In[1].Type, idx)
		}
		return []ir.Type{ir.T(d, x...)}, nil
	case AvgPoolDef:
		return []ir.Type{ir.T(d, y...)}, nil
	}
	return []ir.Type{ir.T(d, x...)}, nil
}

// poolRule: samples and channels are independent, planes stay whole.
func poolRule(op *ir.Op) factor.Rule {
	_, x, y, err := poolOf(op)
	if err != nil {
		return factor.Rule{}
	}
	var r ruleMaker
	nc := []factor.Dim{r.add("n", x[0], factor.Free), r.add("c", x[1], factor.Free)}
	big := slices.Concat(nc, r.addAll("in", x[2:], factor.Blocked))
	small := slices.Concat(nc, r.addAll("out", y[2:], factor.Blocked))
	switch op.Def {
	case MaxPoolDef:
		return r.rule([][]factor.Dim{big}, small, small)
	case MaxPoolGradDef:
		return r.rule([][]factor.Dim{small, small}, big)
	case AvgPoolDef:
		return r.rule([][]factor.Dim{big}, small)
	}
	return r.rule([][]factor.Dim{small}, big)
}
