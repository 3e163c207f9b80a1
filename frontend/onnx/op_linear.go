package onnx

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var linearRows = []row{
	{op: "MatMul", since: 1, min: 2, max: 2, rule: importMatMul},
	{op: "Gemm", since: 7, min: 3, max: 3, rule: importGemm},
	{op: "Gemm", since: 11, min: 2, max: 3, rule: importGemm},
	{op: "Conv", since: 1, min: 2, max: 3, rule: importConv},
	{op: "ConvTranspose", since: 1, min: 2, max: 3, rule: importConvTranspose},
	{op: "Einsum", since: 12, min: 1, max: -1, rule: importEinsum},
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
func (w *walker) matmul(x, y *val) *ir.Value {
	dx, dy := x.t.Dims, y.t.Dims
	if len(dy) > 2 {
		lead, ok := broadcast(dx[:len(dx)-2], dy[:len(dy)-2])
		if ok && !slices.Equal(lead, dx[:len(dx)-2]) {
			x = outs(w.spread(x, slices.Concat(lead, dx[len(dx)-2:])))[0]
		}
		if ok && !slices.Equal(lead, dy[:len(dy)-2]) {
			y = outs(w.spread(y, slices.Concat(lead, dy[len(dy)-2:])))[0]
		}
	}
	vy, transY := untransposed(w.value(y))
	vx, transX := untransposed(w.value(x))
	if len(vy.Type.Dims) == 2 && len(vx.Type.Dims) > 2 && transX { // rows of a shared product must lie in order
		vx, transX = w.value(x), false
	}
	return ops.MatMulT(w.b, vx, vy, transX, transY)
}

func importMatMul(w *walker, n *node, in []*val) []*val {
	x, y := in[0], in[1]
	dx, dy := x.t.Dims, y.t.Dims
	if len(dx) == 0 || len(dy) == 0 {
		n.fail("operands are %s and %s: want at least one dimension", x.t, y.t)
	}
	if len(dx) == 1 {
		x = outs(ops.Reshape(w.b, w.value(x), []int{1, dx[0]}))[0]
	}
	if len(dy) == 1 {
		y = outs(ops.Reshape(w.b, w.value(y), []int{dy[0], 1}))[0]
	}
	if k, m := x.t.Dims[len(x.t.Dims)-1], y.t.Dims[len(y.t.Dims)-2]; k != m {
		e := ir.Errorf(n.located(), "operand 1 has inner dimension %d, operand 0 has %d", m, k)
		for i, name := range n.in {
			if len(n.in) == len(in) { // quantised products have scales and zero points between
				e.Note("operand %d is %q %s", i, name, in[i].t)
			}
		}
		panic(e)
	}
	if _, ok := broadcast(x.t.Dims[:len(x.t.Dims)-2], y.t.Dims[:len(y.t.Dims)-2]); !ok {
		n.fail("operands are %s and %s: batch dimensions do not broadcast", in[0].t, in[1].t)
	}
	v := w.matmul(x, y)
	d := slices.Clone(v.Type.Dims)
	if len(dy) == 1 {
		d = d[:len(d)-1]
	}
	if len(dx) == 1 {
		d = slices.Delete(d, len(d)-2+boolInt(len(dy) == 1), len(d)-1+boolInt(len(dy) == 1))
	}
	return outs(ops.Reshape(w.b, v, d))
}

func importGemm(w *walker, n *node, in []*val) []*val {
	x, y := w.value(in[0]), w.value(in[1])
	if len(x.Type.Dims) != 2 || len(y.Type.Dims) != 2 {
		n.fail("operands are %s and %s: want matrices", in[0].t, in[1].t)
	}
	transA, transB := n.int("transA", 0) != 0, n.int("transB", 0) != 0
	if u, t := untransposed(y); t {
		y, transB = u, !transB
	}
	alpha, beta := n.float("alpha", 1), n.float("beta", 1)
	cols := y.Type.Dims[1]
	if transB {
		cols = y.Type.Dims[0]
	}
	has := len(in) > 2 && in[2] != nil && beta != 0
	if has && alpha == 1 && beta == 1 && slices.Equal(squeezed(in[2].t.Dims), []int{cols}) && cols > 1 {
		bias := ops.Reshape(w.b, w.value(in[2]), []int{cols})
		return outs(ops.MatMulBias(w.b, x, y, bias, transA, transB))
	}
	out := ops.MatMulT(w.b, x, y, transA, transB)
	if alpha != 1 {
		out = ops.MulScalar(w.b, out, alpha)
	}
	if has {
		c := w.spread(in[2], out.Type.Dims)
		if beta != 1 {
			c = ops.MulScalar(w.b, c, beta)
		}
		out = ops.Add(w.b, out, c)
	}
	return outs(out)
}

// window is the geometry of a convolution or pool.
type window struct{ kernel, strides, pads, dilations []int }

// windowOf reads kernel_shape, strides, pads, dilations and auto_pad for spatial dims of the given sizes.
func windowOf(n *node, size, kernel []int) window {
	w := window{kernel: n.ints("kernel_shape"), strides: n.ints("strides"), pads: n.ints("pads"), dilations: n.ints("dilations")}
	k := len(size)
	if w.kernel == nil {
		w.kernel = kernel
	}
	if kernel != nil && !slices.Equal(w.kernel, kernel) {
		n.fail("kernel_shape %v, but the weight's is %v", w.kernel, kernel)
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
		n.fail("kernel %v, strides %v, dilations %v and pads %v do not fit %d spatial dimensions", w.kernel, w.strides,
			w.dilations, w.pads, k)
	}
	for _, v := range slices.Concat(w.kernel, w.strides, w.dilations, w.pads) {
		if v < -maxDim || v > maxDim {
			n.fail("an attribute is %d", v)
		}
	}
	for i := range k {
		if w.strides[i] < 1 || w.dilations[i] < 1 || w.kernel[i] < 1 {
			n.fail("kernel %v, strides %v and dilations %v must be positive", w.kernel, w.strides, w.dilations)
		}
	}
	return w
}

// autoPad is the attribute of that name.
func (n *node) autoPad() string {
	mode := n.str("auto_pad", "NOTSET")
	if !slices.Contains([]string{"", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}, mode) {
		n.fail("auto_pad is %q: want NOTSET, VALID, SAME_UPPER or SAME_LOWER", mode)
	}
	return mode
}

// samePads fills in the pads of auto_pad SAME_UPPER and SAME_LOWER for a forward window.
func (w window) samePads(n *node, size []int) window {
	mode := n.autoPad()
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
func spatial(n *node, in []*val) (x, k []int) {
	d, e := in[0].t.Dims, in[1].t.Dims
	if len(d) < 3 || len(d) != len(e) {
		n.fail("operands are %s and %s: want [N,C,…] and a weight of as many dimensions", in[0].t, in[1].t)
	}
	return d[2:], e[2:]
}

// addBias adds bias [C] to y [N,C,…]; an all-zero constant (how exporters spell no bias) is left out.
func (w *walker) addBias(n *node, y *ir.Value, in []*val, i int) *ir.Value {
	if i >= len(in) || in[i] == nil {
		return y
	}
	c := y.Type.Dims[1]
	if !slices.Equal(in[i].t.Dims, []int{c}) {
		n.fail("bias is %s, want %d values", in[i].t, c)
	}
	if a := w.array(in[i]); a != nil && a.F != nil && w.scans(a) && !slices.ContainsFunc(a.F, func(x float64) bool { return x != 0 }) {
		return y
	}
	return ops.Add(w.b, y, w.perChannel(in[i], y.Type.Dims))
}

// perChannel repeats x [C] over dims [N,C,…].
func (w *walker) perChannel(x *val, dims []int) *ir.Value {
	shape := slices.Repeat([]int{1}, len(dims))
	shape[1] = dims[1]
	if a := w.array(x); a != nil && x.v == nil {
		return w.spread(&val{t: ir.Type{DType: x.t.DType, Dims: shape}, arr: view(a, shape)[0]}, dims)
	}
	return ops.Expand(w.b, ops.Reshape(w.b, w.value(x), shape), dims)
}

// groups is the attribute group; 0 is no number of groups, and would mean one to the operation.
func (n *node) groups() int {
	g := n.int("group", 1)
	if g < 1 {
		n.fail("attribute \"group\" is %d: want 1 or more", g)
	}
	return g
}

func importConv(w *walker, n *node, in []*val) []*val {
	size, kernel := spatial(n, in)
	g := windowOf(n, size, kernel).samePads(n, size)
	y := ops.Conv(w.b, w.value(in[0]), w.value(in[1]), ops.ConvAttrs{Strides: g.strides, Pads: g.pads,
		Dilations: g.dilations, Groups: n.groups()})
	return outs(w.addBias(n, y, in, 2))
}

// importConvTranspose is the gradient of a convolution in its input: the same weight, read the other way.
func importConvTranspose(w *walker, n *node, in []*val) []*val {
	size, kernel := spatial(n, in)
	g := windowOf(n, size, kernel)
	extra := n.ints("output_padding")
	if extra == nil {
		extra = make([]int, len(size))
	}
	want := n.ints("output_shape")
	if len(extra) != len(size) || want != nil && len(want) != len(size) {
		n.fail("output_padding %v or output_shape %v do not fit %d spatial dimensions", extra, want, len(size))
	}
	mode := n.autoPad()
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
		if v < 1 || v > maxDim {
			n.fail("result dims %v", out[:i+1])
		}
	}
	if _, err := product(out); err != nil {
		n.fail("result dims %v: %v", out, err)
	}
	// What lies beyond the reach of the last window is zero.
	near, low, high := slices.Clone(out), make([]int, len(out)+2), make([]int, len(out)+2)
	for i, s := range size {
		reach := (s-1)*g.strides[i] + (g.kernel[i]-1)*g.dilations[i] + g.strides[i] - g.pads[i] - g.pads[len(size)+i]
		near[i] = min(out[i], reach)
		high[i+2] = out[i] - near[i]
	}
	y := ops.ConvInputGrad(w.b, w.value(in[0]), w.value(in[1]), ops.ConvInputGradAttrs{Strides: g.strides, Pads: g.pads,
		Dilations: g.dilations, Groups: n.groups(), InDims: near})
	y = ops.Pad(w.b, y, low, high, nil, 0)
	return outs(w.addBias(n, y, in, 2))
}
