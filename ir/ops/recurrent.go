package ops

import "github.com/gtc-compiler/gtc/ir"

// RNNWeights are one direction's weights of a recurrent layer with G gates and hidden size H, as ONNX lays them
// out: W [G*H,I], R [G*H,H], Bias [2*G*H] (input biases, then recurrent ones) or nil.
type RNNWeights struct{ W, R, Bias *ir.Value }

// rnn is one direction of an unrolled recurrent layer under construction.
type rnn struct {
	b                    *ir.Builder
	steps, batch, hidden int
	pre                  *ir.Value // [S,B,G*H]: what the inputs and the input biases give to all gates
	r                    *ir.Value
	recurrent            *ir.Value // recurrent biases [G*H], nil when already in pre or absent
	backwards            bool
}

// newRNN projects the inputs of all steps in one product. With keepBias the recurrent biases stay apart.
func newRNN(b *ir.Builder, x *ir.Value, w RNNWeights, gates int, reverse, keepBias bool) *rnn {
	if len(x.Type.Dims) != 3 || len(w.R.Type.Dims) != 2 {
		panic(ir.Errorf(b.Loc, "recurrent input %s must be [steps,batch,features], weights %s [gates*hidden,hidden]", x.Type, w.R.Type))
	}
	n := &rnn{b: b, steps: x.Type.Dims[0], batch: x.Type.Dims[1], hidden: w.R.Type.Dims[1], r: w.R, backwards: reverse}
	bias := w.Bias
	if bias != nil {
		size := gates * n.hidden
		in, rec := SliceDim(b, bias, 0, 0, size), SliceDim(b, bias, 0, size, size)
		if bias = in; keepBias {
			n.recurrent = rec
		} else {
			bias = Add(b, in, rec)
		}
	}
	n.pre = MatMulBias(b, x, w.W, bias, false, true)
	return n
}

// state is v, or zeros [B,H] for nil.
func (n *rnn) state(v *ir.Value) *ir.Value {
	dims := []int{n.batch, n.hidden}
	if v == nil {
		return Zeros(n.b, ir.T(n.pre.Type.DType, dims...))
	}
	return Reshape(n.b, v, dims)
}

// run calls step for each time in order with what the inputs give [B,G*H]; step returns the new hidden state.
func (n *rnn) run(step func(pre *ir.Value) *ir.Value) (y, last *ir.Value) {
	outs := make([]*ir.Value, n.steps)
	for i := range n.steps {
		t := i
		if n.backwards {
			t = n.steps - 1 - i
		}
		pre := Reshape(n.b, SliceDim(n.b, n.pre, 0, t, 1), n.pre.Type.Dims[1:])
		last = step(pre)
		outs[t] = Reshape(n.b, last, []int{1, n.batch, n.hidden})
	}
	return Concat(n.b, 0, outs...), last
}

// gate is gate number k of [B,G*H].
func (n *rnn) gate(v *ir.Value, k int) *ir.Value { return SliceDim(n.b, v, 1, k*n.hidden, n.hidden) }

// LSTM unrolls one direction of an ONNX LSTM (gates in the order i, o, f, c; no peepholes): x [S,B,I] gives
// y [S,B,H] and the last states hn, cn [B,H]. h0 and c0 are [B,H] (or [1,B,H]), nil for zeros; reverse runs from the
// last step to the first.
func LSTM(b *ir.Builder, x *ir.Value, w RNNWeights, h0, c0 *ir.Value, reverse bool) (y, hn, cn *ir.Value) {
	n := newRNN(b, x, w, 4, reverse, false)
	h, c := n.state(h0), n.state(c0)
	y, hn = n.run(func(pre *ir.Value) *ir.Value {
		g := Add(b, pre, MatMulT(b, h, n.r, false, true))
		iof := Sigmoid(b, SliceDim(b, g, 1, 0, 3*n.hidden))
		c = Add(b, Mul(b, n.gate(iof, 2), c), Mul(b, n.gate(iof, 0), Tanh(b, n.gate(g, 3))))
		h = Mul(b, n.gate(iof, 1), Tanh(b, c))
		return h
	})
	return y, hn, c
}

// GRU unrolls one direction of an ONNX GRU (gates in the order z, r, h). linearBeforeReset is ONNX's attribute,
// true for PyTorch's. Shapes and reverse are as in LSTM.
func GRU(b *ir.Builder, x *ir.Value, w RNNWeights, h0 *ir.Value, linearBeforeReset, reverse bool) (y, hn *ir.Value) {
	n := newRNN(b, x, w, 3, reverse, linearBeforeReset)
	h, cut := n.state(h0), 2*n.hidden
	zr := func(v *ir.Value) *ir.Value { return SliceDim(b, v, 1, 0, cut) }
	return n.run(func(pre *ir.Value) *ir.Value {
		var gates, cand *ir.Value
		if linearBeforeReset {
			rec := MatMulBias(b, h, n.r, n.recurrent, false, true)
			gates = Sigmoid(b, Add(b, zr(pre), zr(rec)))
			cand = Mul(b, n.gate(gates, 1), n.gate(rec, 2))
		} else {
			gates = Sigmoid(b, Add(b, zr(pre), MatMulT(b, h, SliceDim(b, n.r, 0, 0, cut), false, true)))
			cand = MatMulT(b, Mul(b, n.gate(gates, 1), h), SliceDim(b, n.r, 0, cut, n.hidden), false, true)
		}
		cand = Tanh(b, Add(b, n.gate(pre, 2), cand))
		h = Add(b, cand, Mul(b, n.gate(gates, 0), Sub(b, h, cand)))
		return h
	})
}

// RNN unrolls one direction of an ONNX RNN: h = act(x.W' + h.R' + biases), act being Tanh or Relu. Shapes and
// reverse are as in LSTM.
func RNN(b *ir.Builder, x *ir.Value, w RNNWeights, h0 *ir.Value, act func(*ir.Builder, *ir.Value) *ir.Value, reverse bool) (y, hn *ir.Value) {
	n := newRNN(b, x, w, 1, reverse, false)
	h := n.state(h0)
	return n.run(func(pre *ir.Value) *ir.Value {
		h = act(b, Add(b, pre, MatMulT(b, h, n.r, false, true)))
		return h
	})
}
