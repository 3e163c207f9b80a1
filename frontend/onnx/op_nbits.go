package onnx

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// importMatMulNBits is x[..., K] times the transpose of a frozen weight [N, K] of 2, 4 or 8 bits, quantised in blocks
// along K (ONNX Runtime's com.microsoft.MatMulNBits). The weight stays quantised in the program, a byte per element, and
// is dequantised by each step; x gets its gradient, the weight none.
func importMatMulNBits(w *walker, n *node, in []*val) []*val {
	rows, k, bits, block := n.int("N", 0), n.int("K", 0), n.int("bits", 4), n.int("block_size", 0)
	d, ok := map[int]dtype.DType{2: dtype.U2, 4: dtype.U4, 8: dtype.U8}[bits]
	switch {
	case !ok:
		n.fail("bits is %d, want 2, 4 or 8", bits)
	case rows < 1 || k < 1 || block < 16 || block&(block-1) != 0:
		n.fail("N is %d, K is %d and block_size is %d: want positive sizes and a block of a power of two, at least 16",
			rows, k, block)
	case operandAt(in, 4) != nil:
		n.fail("groups in another order (g_idx) are not supported")
	case !in[0].t.DType.IsFloat() || len(in[0].t.Dims) < 1 || in[0].t.Dims[len(in[0].t.Dims)-1] != k:
		n.fail("operand 0 is %s, want floats with a last dimension of K, %d", in[0].t, k)
	}
	blocks := (k + block - 1) / block
	if maxDim/blocks/block < rows {
		n.fail("a weight of N %d and K %d is too large", rows, k)
	}
	codes := w.unpacked(n, in[1], d, rows*blocks*block)
	weight := ops.Cast(w.b, ops.Reshape(w.b, codes, []int{rows, blocks, block}), dtype.F32)
	spread := func(v *ir.Value) *ir.Value {
		if v.Type.Elems() != rows*blocks {
			n.fail("there are %d scales or zero points for %d rows of %d blocks", v.Type.Elems(), rows, blocks)
		}
		v = ops.Reshape(w.b, ops.Cast(w.b, v, dtype.F32), []int{rows, blocks, 1})
		return ops.Expand(w.b, v, []int{rows, blocks, block})
	}
	weight = ops.Sub(w.b, weight, w.nbitsZero(n, operandAt(in, 3), d, weight, spread))
	weight = ops.Mul(w.b, weight, spread(w.value(in[2])))
	weight = ops.Reshape(w.b, weight, []int{rows, blocks * block})
	if blocks*block != k {
		weight = ops.SliceDim(w.b, weight, 1, 0, k)
	}
	x := ops.Cast(w.b, w.value(in[0]), dtype.F32)
	if len(x.Type.Dims) == 1 {
		x = ops.Reshape(w.b, x, []int{1, k})
	}
	y := ops.MatMulT(w.b, x, weight, false, true)
	if bias := operandAt(in, 5); bias != nil {
		y = ops.Add(w.b, y, ops.BroadcastTo(w.b, ops.Cast(w.b, w.value(bias), dtype.F32), y.Type.Dims))
	}
	dims := append(slices.Clone(in[0].t.Dims[:len(in[0].t.Dims)-1]), rows)
	return outs(ops.Reshape(w.b, ops.Cast(w.b, y, in[0].t.DType), dims))
}

// nbitsZero is what to subtract from codes: half their range, packed codes, or floats.
func (w *walker) nbitsZero(n *node, zp *val, d dtype.DType, weight *ir.Value, spread func(*ir.Value) *ir.Value) *ir.Value {
	rows, blocks := weight.Type.Dims[0], weight.Type.Dims[1]
	switch {
	case zp == nil:
		return ops.ScalarLike(w.b, weight, float64(int(1)<<(d.Bits()-1)))
	case zp.t.DType.IsFloat():
		return spread(w.value(zp))
	}
	stride := (blocks*d.Bits() + 7) / 8 * 8 / d.Bits() // rows start at a byte
	v := ops.Reshape(w.b, w.unpacked(n, zp, d, rows*stride), []int{rows, stride})
	return spread(ops.SliceDim(w.b, v, 1, 0, blocks))
}

// unpacked is a constant of packed bytes as elements of d, a byte each.
func (w *walker) unpacked(n *node, x *val, d dtype.DType, elems int) *ir.Value {
	if x.t.DType != dtype.U8 || x.t.Elems() != (elems*d.Bits()+7)/8 {
		n.fail("an operand is %s, want u8 with %d elements", x.t, (elems*d.Bits()+7)/8)
	}
	var data []byte
	switch {
	case x.init != nil:
		raw, err := x.init.bytes()
		if err != nil {
			n.fail("%v", err)
		}
		data = raw
	case x.arr != nil:
		data = x.arr.Tensor().Data
	default:
		n.fail("the packed weight must be known when compiling, but it depends on the model's inputs or parameters")
	}
	t := &ir.Tensor{Type: ir.T(d, elems), Data: unpack(d, data, elems)}
	return w.b.Rename(ops.Const(w.b, t), w.constName(x))
}
