package domains

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// importMatMulNBits is x[..., K] times the transpose of a frozen weight [N, K] of 2, 4 or 8 bits, quantised in blocks
// along K (ONNX Runtime's com.microsoft.MatMulNBits). The weight stays quantised in the program, a byte per element, and
// is dequantised by each step; x gets its gradient, the weight none.
func importMatMulNBits(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	rows, k, bits, block := n.Int("N", 0), n.Int("K", 0), n.Int("bits", 4), n.Int("block_size", 0)
	d, ok := map[int]dtype.DType{2: dtype.U2, 4: dtype.U4, 8: dtype.U8}[bits]
	switch {
	case !ok:
		n.Fail("bits is %d, but must be 2, 4 or 8", bits)
	case rows < 1 || k < 1 || block < 16 || block&(block-1) != 0:
		n.Fail("N is %d, K is %d and block_size is %d: N and K must be positive, and block_size a power of two of at least 16",
			rows, k, block)
	case operandAt(in, 4) != nil:
		n.Fail("groups in another order (g_idx) are not supported")
	case !in[0].Type.DType.IsFloat() || len(in[0].Type.Dims) < 1 || in[0].Type.Dims[len(in[0].Type.Dims)-1] != k:
		n.Fail("operand 0 is %s, but must be floats with a last dimension of size K, %d", in[0].Type, k)
	}
	blocks := (k + block - 1) / block
	if model.MaxDim/blocks/block < rows {
		n.Fail("a weight of N %d and K %d is too large", rows, k)
	}
	codes := unpacked(w, n, in[1], d, rows*blocks*block)
	weight := ops.Cast(w.B, ops.Reshape(w.B, codes, []int{rows, blocks, block}), dtype.F32)
	spread := func(v *ir.Value) *ir.Value {
		if v.Type.Elems() != rows*blocks {
			n.Fail("there are %d scales or zero points for %d rows of %d blocks", v.Type.Elems(), rows, blocks)
		}
		v = ops.Reshape(w.B, ops.Cast(w.B, v, dtype.F32), []int{rows, blocks, 1})
		return ops.Expand(w.B, v, []int{rows, blocks, block})
	}
	weight = ops.Sub(w.B, weight, nbitsZero(w, n, operandAt(in, 3), d, weight, spread))
	weight = ops.Mul(w.B, weight, spread(w.Value(in[2])))
	weight = ops.Reshape(w.B, weight, []int{rows, blocks * block})
	if blocks*block != k {
		weight = ops.SliceDim(w.B, weight, 1, 0, k)
	}
	x := ops.Cast(w.B, w.Value(in[0]), dtype.F32)
	if len(x.Type.Dims) == 1 {
		x = ops.Reshape(w.B, x, []int{1, k})
	}
	y := ops.MatMulT(w.B, x, weight, false, true)
	if bias := operandAt(in, 5); bias != nil {
		y = ops.Add(w.B, y, ops.BroadcastTo(w.B, ops.Cast(w.B, w.Value(bias), dtype.F32), y.Type.Dims))
	}
	dims := append(slices.Clone(in[0].Type.Dims[:len(in[0].Type.Dims)-1]), rows)
	return walk.Results(ops.Reshape(w.B, ops.Cast(w.B, y, in[0].Type.DType), dims))
}

// nbitsZero is what to subtract from codes: half their range, packed codes, or floats.
func nbitsZero(w *walk.Walker, n *model.Node, zp *walk.Val, d dtype.DType, weight *ir.Value, spread func(*ir.Value) *ir.Value) *ir.Value {
	rows, blocks := weight.Type.Dims[0], weight.Type.Dims[1]
	switch {
	case zp == nil:
		return ops.ScalarLike(w.B, weight, float64(int(1)<<(d.Bits()-1)))
	case zp.Type.DType.IsFloat():
		return spread(w.Value(zp))
	}
	stride := (blocks*d.Bits() + 7) / 8 * 8 / d.Bits() // rows start at a byte
	v := ops.Reshape(w.B, unpacked(w, n, zp, d, rows*stride), []int{rows, stride})
	return spread(ops.SliceDim(w.B, v, 1, 0, blocks))
}

// unpacked is a constant of packed bytes as elements of d, a byte each.
func unpacked(w *walk.Walker, n *model.Node, x *walk.Val, d dtype.DType, elems int) *ir.Value {
	if x.Type.DType != dtype.U8 || x.Type.Elems() != (elems*d.Bits()+7)/8 {
		n.Fail("an operand of packed values is %s, but must be u8 with %d elements", x.Type, (elems*d.Bits()+7)/8)
	}
	var data []byte
	switch {
	case x.Init != nil:
		raw, err := x.Init.Bytes()
		if err != nil {
			n.Fail("%v", err)
		}
		data = raw
	case x.Array != nil:
		data = x.Array.Tensor().Data
	default:
		n.Fail("the packed weight must be known when compiling, but it depends on the model's inputs or parameters")
	}
	t := &ir.Tensor{Type: ir.T(d, elems), Data: model.Unpack(d, data, elems)}
	return w.B.Rename(ops.Const(w.B, t), w.ConstName(x))
}
