package layers

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/arrays"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var linearRows = []walk.Row{
	{Op: "MatMul", Since: 1, Min: 2, Max: 2, Rule: ImportMatMul},
	{Op: "Gemm", Since: 7, Min: 3, Max: 3, Rule: ImportGemm},
	{Op: "Gemm", Since: 11, Min: 2, Max: 3, Rule: ImportGemm},
	{Op: "Conv", Since: 1, Min: 2, Max: 3, Rule: ImportConv},
	{Op: "ConvTranspose", Since: 1, Min: 2, Max: 3, Rule: importConvTranspose},
	{Op: "Einsum", Since: 12, Min: 1, Max: -1, Rule: arrays.ImportEinsum},
}

// untransposed looks through a transpose of the last two dims, which matmul can do for nothing.
func untransposed(v *ir.Value) (*ir.Value, bool) {
	if v.Op == nil || v.Op.Def != ops.TransposeDef {
		return v, false
	}
	perm := v.Op.Attrs.(ops.TransposeAttrs).Perm
	last := len(perm) - 1
	for i, p := range perm {
		if i < last-1 && p != i {
			return v, false
		}
	}
	if last < 1 || perm[last] != last-1 {
		return v, false
	}
	return v.Op.In[0], true
}

// matmul multiplies as NumPy does, with batch dims broadcast; both have at least two dims.
func matmul(w *walk.Walker, x, y *walk.Val) *ir.Value {
	dx, dy := x.Type.Dims, y.Type.Dims
	if len(dy) > 2 {
		lead, ok := fold.Broadcast(dx[:len(dx)-2], dy[:len(dy)-2])
		if ok && !slices.Equal(lead, dx[:len(dx)-2]) {
			x = walk.Results(w.Spread(x, slices.Concat(lead, dx[len(dx)-2:])))[0]
		}
		if ok && !slices.Equal(lead, dy[:len(dy)-2]) {
			y = walk.Results(w.Spread(y, slices.Concat(lead, dy[len(dy)-2:])))[0]
		}
	}
	vy, transY := untransposed(w.Value(y))
	vx, transX := untransposed(w.Value(x))
	if len(vy.Type.Dims) == 2 && len(vx.Type.Dims) > 2 && transX { // rows of a shared product must lie in order
		vx, transX = w.Value(x), false
	}
	return ops.MatMulT(w.B, vx, vy, transX, transY)
}

// ImportMatMul is the matrix product of the last two dims, the others broadcast; a vector counts as a row on the left, as a column on the right.
func ImportMatMul(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, y := in[0], in[1]
	dx, dy := x.Type.Dims, y.Type.Dims
	if len(dx) == 0 || len(dy) == 0 {
		n.Fail("operands are %s and %s, but must have at least one dimension", x.Type, y.Type)
	}
	if len(dx) == 1 {
		x = walk.Results(ops.Reshape(w.B, w.Value(x), []int{1, dx[0]}))[0]
	}
	if len(dy) == 1 {
		y = walk.Results(ops.Reshape(w.B, w.Value(y), []int{dy[0], 1}))[0]
	}
	if k, m := x.Type.Dims[len(x.Type.Dims)-1], y.Type.Dims[len(y.Type.Dims)-2]; k != m {
		e := ir.Errorf(n.Located(), "operand 1 has inner dimension %d, operand 0 has %d", m, k)
		for i, name := range n.In {
			if len(n.In) == len(in) { // quantised products have scales and zero points between
				e.Note("operand %d is %q %s", i, name, in[i].Type)
			}
		}
		panic(e)
	}
	if _, ok := fold.Broadcast(x.Type.Dims[:len(x.Type.Dims)-2], y.Type.Dims[:len(y.Type.Dims)-2]); !ok {
		n.Fail("operands are %s and %s: batch dimensions do not broadcast", in[0].Type, in[1].Type)
	}
	v := matmul(w, x, y)
	d := slices.Clone(v.Type.Dims)
	if len(dy) == 1 {
		d = d[:len(d)-1]
	}
	if len(dx) == 1 {
		d = slices.Delete(d, len(d)-2+fold.BoolInt(len(dy) == 1), len(d)-1+fold.BoolInt(len(dy) == 1))
	}
	return walk.Results(ops.Reshape(w.B, v, d))
}

// ImportGemm is alpha*a.b + beta*c on matrices, each operand of the product perhaps transposed.
func ImportGemm(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, y := w.Value(in[0]), w.Value(in[1])
	if len(x.Type.Dims) != 2 || len(y.Type.Dims) != 2 {
		n.Fail("operands are %s and %s, but must be matrices", in[0].Type, in[1].Type)
	}
	transA, transB := n.Int("transA", 0) != 0, n.Int("transB", 0) != 0
	if u, t := untransposed(y); t {
		y, transB = u, !transB
	}
	alpha, beta := n.Float("alpha", 1), n.Float("beta", 1)
	cols := y.Type.Dims[1]
	if transB {
		cols = y.Type.Dims[0]
	}
	has := len(in) > 2 && in[2] != nil && beta != 0
	if has && alpha == 1 && beta == 1 && slices.Equal(fold.Squeezed(in[2].Type.Dims), []int{cols}) && cols > 1 {
		bias := ops.Reshape(w.B, w.Value(in[2]), []int{cols})
		return walk.Results(ops.MatMulBias(w.B, x, y, bias, transA, transB))
	}
	out := ops.MatMulT(w.B, x, y, transA, transB)
	if alpha != 1 {
		out = ops.MulScalar(w.B, out, alpha)
	}
	if has {
		c := w.Spread(in[2], out.Type.Dims)
		if beta != 1 {
			c = ops.MulScalar(w.B, c, beta)
		}
		out = ops.Add(w.B, out, c)
	}
	return walk.Results(out)
}

// window is the geometry of a convolution or pool.
type window struct{ kernel, strides, pads, dilations []int }

// windowOf reads kernel_shape, strides, pads, dilations and auto_pad for spatial dims of the given sizes.
func windowOf(n *model.Node, size, kernel []int) window {
	w := window{kernel: n.Ints("kernel_shape"), strides: n.Ints("strides"), pads: n.Ints("pads"), dilations: n.Ints("dilations")}
	k := len(size)
	if w.kernel == nil {
		w.kernel = kernel
	}
	if kernel != nil && !slices.Equal(w.kernel, kernel) {
		n.Fail("kernel_shape is %v, but that of the weight is %v", w.kernel, kernel)
	}
	fill := func(list []int, count, v int) []int {
		for list == nil || len(list) < count && len(list) == 0 {
			list = slices.Repeat([]int{v}, count)
			if count == 0 {
				return []int{}
			}
		}
		return list
	}
	w.strides, w.dilations, w.pads = fill(w.strides, k, 1), fill(w.dilations, k, 1), fill(w.pads, 2*k, 0)
	if len(w.kernel) != k || len(w.strides) != k || len(w.dilations) != k || len(w.pads) != 2*k {
		n.Fail("kernel %v, strides %v, dilations %v and pads %v do not fit %d spatial dimensions", w.kernel, w.strides,
			w.dilations, w.pads, k)
	}
	for _, v := range slices.Concat(w.kernel, w.strides, w.dilations, w.pads) {
		if v < -model.MaxDim || v > model.MaxDim {
			n.Fail("a kernel, stride, dilation or pad is %d, which is out of range", v)
		}
	}
	for i := range k {
		if w.strides[i] < 1 || w.dilations[i] < 1 || w.kernel[i] < 1 {
			n.Fail("kernel %v, strides %v and dilations %v must be positive", w.kernel, w.strides, w.dilations)
		}
	}
	return w
}

// autoPad is the attribute of that name.
func autoPad(n *model.Node) string {
	mode := n.Str("auto_pad", "NOTSET")
	if !slices.Contains([]string{"", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}, mode) {
		n.Fail("auto_pad is %q, but must be NOTSET, VALID, SAME_UPPER or SAME_LOWER", mode)
	}
	return mode
}

// samePads fills in the pads of auto_pad SAME_UPPER and SAME_LOWER for a forward window.
func (w window) samePads(n *model.Node, size []int) window {
	mode := autoPad(n)
	if mode != "SAME_UPPER" && mode != "SAME_LOWER" {
		if mode == "VALID" {
			w.pads = make([]int, 2*len(size))
		}
		return w
	}
	w.pads = make([]int, 2*len(size))
	for i, s := range size {
		out := (s + w.strides[i] - 1) / w.strides[i]
		total := max(0, (out-1)*w.strides[i]+(w.kernel[i]-1)*w.dilations[i]+1-s)
		w.pads[i], w.pads[len(size)+i] = total/2, total-total/2
		if mode == "SAME_LOWER" {
			w.pads[i], w.pads[len(size)+i] = total-total/2, total/2
		}
	}
	return w
}

// spatial checks that operands 0 and 1 are [N,C,…] of equal rank.
func spatial(n *model.Node, in []*walk.Val) (x, k []int) {
	d, e := in[0].Type.Dims, in[1].Type.Dims
	if len(d) < 3 || len(d) != len(e) {
		n.Fail("operands are %s and %s, but must be [N,C,…] and a weight with as many dimensions", in[0].Type, in[1].Type)
	}
	return d[2:], e[2:]
}

// addBias adds bias [C] to y [N,C,…]; an all-zero constant (how exporters spell no bias) is left out.
func addBias(w *walk.Walker, n *model.Node, y *ir.Value, in []*walk.Val, i int) *ir.Value {
	if i >= len(in) || in[i] == nil {
		return y
	}
	c := y.Type.Dims[1]
	if !slices.Equal(in[i].Type.Dims, []int{c}) {
		n.Fail("bias is %s, but must have %d values", in[i].Type, c)
	}
	if a := w.Array(in[i]); a != nil && a.F != nil && w.Scans(a) && !slices.ContainsFunc(a.F, func(x float64) bool { return x != 0 }) {
		return y
	}
	return ops.Add(w.B, y, perChannel(w, in[i], y.Type.Dims))
}

// perChannel repeats x [C] over dims [N,C,…].
func perChannel(w *walk.Walker, x *walk.Val, dims []int) *ir.Value {
	shape := slices.Repeat([]int{1}, len(dims))
	shape[1] = dims[1]
	if a := w.Array(x); a != nil && x.Value == nil {
		return w.Spread(&walk.Val{Type: ir.Type{DType: x.Type.DType, Dims: shape}, Array: fold.View(a, shape)[0]}, dims)
	}
	return ops.Expand(w.B, ops.Reshape(w.B, w.Value(x), shape), dims)
}

// groups is the attribute group; 0 is no number of groups, and would mean one to the operation.
func groups(n *model.Node) int {
	g := n.Int("group", 1)
	if g < 1 {
		n.Fail("attribute \"group\" is %d, but must be 1 or more", g)
	}
	return g
}

// ImportConv is a convolution over the dims behind the channels, with a bias when it has a third operand.
func ImportConv(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	size, kernel := spatial(n, in)
	g := windowOf(n, size, kernel).samePads(n, size)
	y := ops.Conv(w.B, w.Value(in[0]), w.Value(in[1]), ops.ConvAttrs{Strides: g.strides, Pads: g.pads,
		Dilations: g.dilations, Groups: groups(n)})
	return walk.Results(addBias(w, n, y, in, 2))
}

// importConvTranspose is the gradient of a convolution in its input: the same weight, read the other way.
func importConvTranspose(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	size, kernel := spatial(n, in)
	g := windowOf(n, size, kernel)
	extra := n.Ints("output_padding")
	if extra == nil {
		extra = make([]int, len(size))
	}
	want := n.Ints("output_shape")
	if len(extra) != len(size) || want != nil && len(want) != len(size) {
		n.Fail("output_padding %v or output_shape %v do not fit %d spatial dimensions", extra, want, len(size))
	}
	mode := autoPad(n)
	out := make([]int, len(size))
	for i, s := range size {
		full := (s-1)*g.strides[i] + extra[i] + (g.kernel[i]-1)*g.dilations[i] + 1
		switch {
		case want != nil, mode == "SAME_UPPER", mode == "SAME_LOWER":
			out[i] = s * g.strides[i]
			if want != nil {
				out[i] = want[i]
			}
			total := max(0, full-out[i])
			g.pads[i], g.pads[len(size)+i] = total-total/2, total/2
			if mode == "SAME_UPPER" {
				g.pads[i], g.pads[len(size)+i] = total/2, total-total/2
			}
		default:
			out[i] = full - g.pads[i] - g.pads[len(size)+i]
		}
	}
	for i, v := range out {
		if v < 1 || v > model.MaxDim {
			n.Fail("the result would have dims %v, of which the last is not from 1 to %d", out[:i+1], model.MaxDim)
		}
	}
	if _, err := model.Elements(out); err != nil {
		n.Fail("the result would have dims %v: %v", out, err)
	}
	// What lies beyond the reach of the last window is zero.
	near, low, high := slices.Clone(out), make([]int, len(out)+2), make([]int, len(out)+2)
	for i, s := range size {
		reach := (s-1)*g.strides[i] + (g.kernel[i]-1)*g.dilations[i] + g.strides[i] - g.pads[i] - g.pads[len(size)+i]
		near[i] = min(out[i], reach)
		high[i+2] = out[i] - near[i]
	}
	y := ops.ConvInputGrad(w.B, w.Value(in[0]), w.Value(in[1]), ops.ConvInputGradAttrs{Strides: g.strides, Pads: g.pads,
		Dilations: g.dilations, Groups: groups(n), InDims: near})
	y = ops.Pad(w.B, y, low, high, nil, 0)
	return walk.Results(addBias(w, n, y, in, 2))
}
