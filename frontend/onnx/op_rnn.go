package onnx

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var rnnRows = []row{
	{op: "LSTM", since: 7, min: 3, max: 8, rule: importLSTM},
	{op: "GRU", since: 7, min: 3, max: 6, rule: importGRU},
	{op: "RNN", since: 7, min: 3, max: 6, rule: importRNN},
}

// maxUnroll bounds the time steps of a recurrent network, which is unrolled.
const maxUnroll = 1024

// recurrent holds one direction of a recurrent node: operands as matrices, ready to unroll.
type recurrent struct {
	w        *walker
	n        *node
	time     int
	batch    int
	hidden   int
	gates    int
	layout   int
	x        *ir.Value // [T,N,I]
	in       []*val
	dirs     int
	backward []bool
}

// newRecurrent checks what the three recurrent operators have in common.
func newRecurrent(w *walker, n *node, in []*val, gates int) *recurrent {
	r := &recurrent{w: w, n: n, in: in, gates: gates, layout: n.int("layout", 0), hidden: n.int("hidden_size", 0)}
	d := in[0].t.Dims
	if len(d) != 3 || !in[0].t.DType.IsFloat() {
		n.fail("operand 0 is %s: want [time,batch,features]", in[0].t)
	}
	r.x = w.value(in[0])
	if r.layout == 1 {
		r.x = ops.Transpose(w.b, r.x, []int{1, 0, 2})
	}
	r.time, r.batch = r.x.Type.Dims[0], r.x.Type.Dims[1]
	switch dir := n.str("direction", "forward"); dir {
	case "forward":
		r.backward = []bool{false}
	case "reverse":
		r.backward = []bool{true}
	case "bidirectional":
		r.backward = []bool{false, true}
	default:
		n.fail("direction %q", dir)
	}
	r.dirs = len(r.backward)
	if r.hidden == 0 && len(in[2].t.Dims) == 3 {
		r.hidden = in[2].t.Dims[2]
	}
	if r.time < 1 || r.time > maxUnroll {
		n.fail("%d time steps; 1 to %d can be unrolled", r.time, maxUnroll)
	}
	want := func(i int, dims ...int) {
		if i < len(in) && in[i] != nil && !slices.Equal(in[i].t.Dims, dims) {
			n.fail("operand %d is %s, want %v", i, in[i].t, dims)
		}
	}
	want(1, r.dirs, gates*r.hidden, r.x.Type.Dims[2])
	want(2, r.dirs, gates*r.hidden, r.hidden)
	want(3, r.dirs, 2*gates*r.hidden)
	if len(in) > 4 && in[4] != nil {
		n.fail("sequence lengths are not supported; pad on the data side and mask the loss")
	}
	if n.attrs["activations"] != nil || n.attrs["clip"] != nil {
		n.checkActivations(gates, r.dirs)
	}
	return r
}

// checkActivations accepts the default activation functions, and for a plain RNN those of activation.
func (n *node) checkActivations(gates, dirs int) {
	if n.attrs["clip"] != nil {
		n.fail("clip is not supported")
	}
	if gates == 1 {
		for d := range dirs {
			n.activation(d)
		}
		return
	}
	want := map[int][]string{3: {"Sigmoid", "Tanh"}, 4: {"Sigmoid", "Tanh", "Tanh"}}[gates]
	for i, s := range n.attrs["activations"].Strings {
		if string(s) != want[i%len(want)] {
			n.fail("activation %q is not supported, %v are", s, slices.Repeat(want, dirs))
		}
	}
}

// activation is that of direction d of a plain RNN: Tanh when the file gives none, or Relu.
func (n *node) activation(d int) func(*ir.Builder, *ir.Value) *ir.Value {
	name := "Tanh"
	if a := n.attr("activations", onnxpb.AttributeProto_STRINGS); a != nil && d < len(a.Strings) {
		name = string(a.Strings[d])
	}
	switch name {
	case "Tanh":
		return ops.Tanh
	case "Relu":
		return ops.Relu
	}
	n.fail("activation %q is not supported, Tanh and Relu are", name)
	return nil
}

// part is the slice of operand i for direction d, without the direction dim; nil when the operand is left out.
func (r *recurrent) part(i, d int) *ir.Value {
	if i >= len(r.in) || r.in[i] == nil {
		return nil
	}
	v := r.w.value(r.in[i])
	v = ops.SliceDim(r.w.b, v, 0, d, 1)
	return ops.Reshape(r.w.b, v, v.Type.Dims[1:])
}

// initial is the initial state in operand i for direction d, zeros when it is left out.
func (r *recurrent) initial(i, d int) *ir.Value {
	t := ir.T(r.x.Type.DType, r.batch, r.hidden)
	if i >= len(r.in) || r.in[i] == nil {
		return ops.Zeros(r.w.b, t)
	}
	v := r.w.value(r.in[i])
	if r.layout == 1 && len(v.Type.Dims) == 3 {
		v = ops.Transpose(r.w.b, v, []int{1, 0, 2})
	}
	if !slices.Equal(v.Type.Dims, []int{r.dirs, r.batch, r.hidden}) {
		r.n.fail("operand %d is %s, want %v", i, v.Type, []int{r.dirs, r.batch, r.hidden})
	}
	return ops.Reshape(r.w.b, ops.SliceDim(r.w.b, v, 0, d, 1), t.Dims)
}

// project is x·W' + bias for all time steps in one product: [N,T,gates*H]. Its rows are sample by sample, so that
// a part of the batch is a run of rows.
func (r *recurrent) project(d int, bias *ir.Value) *ir.Value {
	b := r.w.b
	rows := ops.Reshape(b, ops.Transpose(b, r.x, []int{1, 0, 2}), []int{r.batch * r.time, r.x.Type.Dims[2]})
	y := ops.MatMulBias(b, rows, r.part(1, d), bias, false, true)
	return ops.Reshape(b, y, []int{r.batch, r.time, r.gates * r.hidden})
}

// biases gives the input and recurrent biases of direction d; nil when there are none.
func (r *recurrent) biases(d int) (input, state *ir.Value) {
	v := r.part(3, d)
	if v == nil {
		return nil, nil
	}
	half := r.gates * r.hidden
	return ops.SliceDim(r.w.b, v, 0, 0, half), ops.SliceDim(r.w.b, v, 0, half, half)
}

// at is time step t of a projection: [N,gates*H].
func (r *recurrent) at(p *ir.Value, t int) *ir.Value {
	return ops.Reshape(r.w.b, ops.SliceDim(r.w.b, p, 1, t, 1), []int{r.batch, r.gates * r.hidden})
}

// gate is the g-th block of columns.
func (r *recurrent) gate(v *ir.Value, g int) *ir.Value {
	return ops.SliceDim(r.w.b, v, 1, g*r.hidden, r.hidden)
}

// unroll runs step over time in each direction and collects Y [T,D,N,H] and the last states [D,N,H].
// step gets the direction and the projected input of one time and returns the new hidden state.
func (r *recurrent) unroll(start func(dir int) (step func(px *ir.Value) *ir.Value, p *ir.Value), cell func(dir int) *ir.Value) []*val {
	b := r.w.b
	var all, last, cells []*ir.Value
	for d, back := range r.backward {
		step, p := start(d)
		hs := make([]*ir.Value, r.time)
		for i := range r.time {
			t := i
			if back {
				t = r.time - 1 - i
			}
			h := step(r.at(p, t))
			hs[t] = ops.Reshape(b, h, []int{1, 1, r.batch, r.hidden})
			if i == r.time-1 {
				last = append(last, ops.Reshape(b, h, []int{1, r.batch, r.hidden}))
			}
		}
		all = append(all, ops.Concat(b, 0, hs...))
		if cell != nil {
			cells = append(cells, ops.Reshape(b, cell(d), []int{1, r.batch, r.hidden}))
		}
	}
	y := ops.Concat(b, 1, all...)
	out := []*ir.Value{y, ops.Concat(b, 0, last...)}
	if cell != nil {
		out = append(out, ops.Concat(b, 0, cells...))
	}
	if r.layout == 1 {
		out[0] = ops.Transpose(b, out[0], []int{2, 0, 1, 3})
		for i := 1; i < len(out); i++ {
			out[i] = ops.Transpose(b, out[i], []int{1, 0, 2})
		}
	}
	return outs(out...)
}

// importLSTM unrolls i, o, f, c gates: c = f*c + i*tanh(c'), h = o*tanh(c) (ONNX LSTM, without peepholes).
func importLSTM(w *walker, n *node, in []*val) []*val {
	if len(in) > 7 && in[7] != nil || n.int("input_forget", 0) != 0 {
		n.fail("peepholes and input_forget are not supported")
	}
	r, b := newRecurrent(w, n, in, 4), w.b
	cells := make([]*ir.Value, r.dirs)
	return r.unroll(func(d int) (func(*ir.Value) *ir.Value, *ir.Value) {
		bias, rec := r.biases(d)
		if bias != nil {
			bias = ops.Add(b, bias, rec)
		}
		weight, h, c := r.part(2, d), r.initial(5, d), r.initial(6, d)
		return func(px *ir.Value) *ir.Value {
			g := ops.Add(b, px, ops.MatMulT(b, h, weight, false, true))
			i, o := ops.Sigmoid(b, r.gate(g, 0)), ops.Sigmoid(b, r.gate(g, 1))
			f, u := ops.Sigmoid(b, r.gate(g, 2)), ops.Tanh(b, r.gate(g, 3))
			c = ops.Add(b, ops.Mul(b, f, c), ops.Mul(b, i, u))
			h, cells[d] = ops.Mul(b, o, ops.Tanh(b, c)), c
			return h
		}, r.project(d, bias)
	}, func(d int) *ir.Value { return cells[d] })
}

// importGRU unrolls z, r, h gates: h = (1-z)*h' + z*h. linear_before_reset (PyTorch's form) applies the reset
// gate to the product with the state instead of to the state.
func importGRU(w *walker, n *node, in []*val) []*val {
	r, b := newRecurrent(w, n, in, 3), w.b
	before := n.int("linear_before_reset", 0) != 0
	return r.unroll(func(d int) (func(*ir.Value) *ir.Value, *ir.Value) {
		bias, rec := r.biases(d)
		weight, h := r.part(2, d), r.initial(5, d)
		rows := func(g, count int) *ir.Value {
			return ops.SliceDim(b, weight, 0, g*r.hidden, count*r.hidden)
		}
		recBias := func(g, count int) *ir.Value {
			if rec == nil {
				return nil
			}
			return ops.SliceDim(b, rec, 0, g*r.hidden, count*r.hidden)
		}
		wzr, wh, bzr, bh := rows(0, 2), rows(2, 1), recBias(0, 2), recBias(2, 1)
		return func(px *ir.Value) *ir.Value {
			zr := ops.Add(b, ops.SliceDim(b, px, 1, 0, 2*r.hidden), ops.MatMulBias(b, h, wzr, bzr, false, true))
			zr = ops.Sigmoid(b, zr)
			z, reset := r.gate(zr, 0), r.gate(zr, 1)
			var u *ir.Value
			if before {
				u = ops.Mul(b, reset, ops.MatMulBias(b, h, wh, bh, false, true))
			} else {
				u = ops.MatMulBias(b, ops.Mul(b, reset, h), wh, bh, false, true)
			}
			u = ops.Tanh(b, ops.Add(b, r.gate(px, 2), u))
			h = ops.Add(b, u, ops.Mul(b, z, ops.Sub(b, h, u)))
			return h
		}, r.project(d, bias)
	}, nil)
}

// importRNN unrolls h = f(x·W' + h·R' + biases).
func importRNN(w *walker, n *node, in []*val) []*val {
	r, b := newRecurrent(w, n, in, 1), w.b
	return r.unroll(func(d int) (func(*ir.Value) *ir.Value, *ir.Value) {
		bias, rec := r.biases(d)
		if bias != nil {
			bias = ops.Add(b, bias, rec)
		}
		weight, h, act := r.part(2, d), r.initial(5, d), n.activation(d)
		return func(px *ir.Value) *ir.Value {
			h = act(b, ops.Add(b, px, ops.MatMulT(b, h, weight, false, true)))
			return h
		}, r.project(d, bias)
	}, nil)
}
