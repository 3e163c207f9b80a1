package flow

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var recurrentRows = []walk.Row{
	{Op: "LSTM", Since: 7, Min: 3, Max: 8, Rule: importLSTM},
	{Op: "GRU", Since: 7, Min: 3, Max: 6, Rule: importGRU},
	{Op: "RNN", Since: 7, Min: 3, Max: 6, Rule: importRNN},
}

// maxUnroll bounds the time steps of a recurrent network, which is unrolled.
const maxUnroll = 4096

// recurrent holds one direction of a recurrent node: operands as matrices, ready to unroll.
type recurrent struct {
	w        *walk.Walker
	n        *model.Node
	time     int
	batch    int
	hidden   int
	gates    int
	layout   int
	x        *ir.Value // [T,N,I]
	in       []*walk.Val
	dirs     int
	backward []bool
	acts     [][]activation // by direction, in the order of the attribute
	clip     float64        // of what activations read; 0 for none
	lens     *walk.Val      // of each sample's sequence; nil when all have time steps
	masks    map[int]*stepMask
}

// newRecurrent checks what the three recurrent operators have in common.
func newRecurrent(w *walk.Walker, n *model.Node, in []*walk.Val, gates int) *recurrent {
	r := &recurrent{w: w, n: n, in: in, gates: gates, layout: n.Int("layout", 0), hidden: n.Int("hidden_size", 0)}
	d := in[0].Type.Dims
	if len(d) != 3 || !in[0].Type.DType.IsFloat() {
		n.Fail("operand 0 is %s, but must be [time,batch,features]", in[0].Type)
	}
	r.x = w.Value(in[0])
	if r.layout == 1 {
		r.x = ops.Transpose(w.B, r.x, []int{1, 0, 2})
	}
	r.time, r.batch = r.x.Type.Dims[0], r.x.Type.Dims[1]
	switch dir := n.Str("direction", "forward"); dir {
	case "forward":
		r.backward = []bool{false}
	case "reverse":
		r.backward = []bool{true}
	case "bidirectional":
		r.backward = []bool{false, true}
	default:
		n.Fail("direction is %q, but must be forward, reverse or bidirectional", dir)
	}
	r.dirs = len(r.backward)
	if r.hidden == 0 && len(in[2].Type.Dims) == 3 {
		r.hidden = in[2].Type.Dims[2]
	}
	if r.time < 1 || r.time > maxUnroll {
		n.Fail("there are %d time steps, but only 1 to %d can be unrolled", r.time, maxUnroll)
	}
	want := func(i int, dims ...int) {
		if i < len(in) && in[i] != nil && !slices.Equal(in[i].Type.Dims, dims) {
			n.Fail("operand %d is %s, but must have dims %v", i, in[i].Type, dims)
		}
	}
	want(1, r.dirs, gates*r.hidden, r.x.Type.Dims[2])
	want(2, r.dirs, gates*r.hidden, r.hidden)
	want(3, r.dirs, 2*gates*r.hidden)
	if len(in) > 4 {
		r.readLens(in[4])
	}
	r.clip = n.Float("clip", 0)
	if r.clip < 0 {
		n.Fail("clip is %g, but must not be negative", r.clip)
	}
	r.acts = activations(n, r.dirs, map[int][]string{1: {"Tanh"}, 3: {"Sigmoid", "Tanh"}, 4: {"Sigmoid", "Tanh", "Tanh"}}[gates])
	return r
}

// part is the slice of operand i for direction d, without the direction dim; nil when the operand is left out.
func (r *recurrent) part(i, d int) *ir.Value {
	if i >= len(r.in) || r.in[i] == nil {
		return nil
	}
	v := r.w.Value(r.in[i])
	v = ops.SliceDim(r.w.B, v, 0, d, 1)
	return ops.Reshape(r.w.B, v, v.Type.Dims[1:])
}

// initial is the initial state in operand i for direction d, zeros when it is left out.
func (r *recurrent) initial(i, d int) *ir.Value {
	t := ir.T(r.x.Type.DType, r.batch, r.hidden)
	if i >= len(r.in) || r.in[i] == nil {
		return ops.Zeros(r.w.B, t)
	}
	v := r.w.Value(r.in[i])
	if r.layout == 1 && len(v.Type.Dims) == 3 {
		v = ops.Transpose(r.w.B, v, []int{1, 0, 2})
	}
	if !slices.Equal(v.Type.Dims, []int{r.dirs, r.batch, r.hidden}) {
		r.n.Fail("operand %d is %s, but must have dims %v", i, v.Type, []int{r.dirs, r.batch, r.hidden})
	}
	return ops.Reshape(r.w.B, ops.SliceDim(r.w.B, v, 0, d, 1), t.Dims)
}

// project is x·W' + bias for all time steps in one product: [N,T,gates*H]. Its rows are sample by sample, so that
// a part of the batch is a run of rows.
func (r *recurrent) project(d int, bias *ir.Value) *ir.Value {
	b := r.w.B
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
	return ops.SliceDim(r.w.B, v, 0, 0, half), ops.SliceDim(r.w.B, v, 0, half, half)
}

// at is time step t of a projection: [N,gates*H].
func (r *recurrent) at(p *ir.Value, t int) *ir.Value {
	return ops.Reshape(r.w.B, ops.SliceDim(r.w.B, p, 1, t, 1), []int{r.batch, r.gates * r.hidden})
}

// gate is the g-th block of columns.
func (r *recurrent) gate(v *ir.Value, g int) *ir.Value {
	return ops.SliceDim(r.w.B, v, 1, g*r.hidden, r.hidden)
}

// cell is one direction of a recurrent node at some time: its state, the hidden part first.
type cell struct {
	px    *ir.Value // x·W' + biases of all times
	state []*ir.Value
	// next gives the state after a step from the projected input of its time.
	next func(px *ir.Value, state []*ir.Value) []*ir.Value
}

// unroll runs each direction over time and collects Y [T,D,N,H] and the last states, each [D,N,H].
func (r *recurrent) unroll(start func(dir int) *cell) []*walk.Val {
	b, first := r.w.B, len(r.w.B.F.Ops)
	var all []*ir.Value
	var last [][]*ir.Value
	for d, back := range r.backward {
		c := start(d)
		hs := make([]*ir.Value, r.time)
		for i := range r.time {
			t := i
			if back {
				t = r.time - 1 - i
			}
			hs[t] = ops.Reshape(b, r.step(c, t), []int{1, 1, r.batch, r.hidden})
			Bound(r.w, r.n, first)
		}
		all = append(all, ops.Concat(b, 0, hs...))
		for k, v := range c.state {
			if d == 0 {
				last = append(last, nil)
			}
			last[k] = append(last[k], ops.Reshape(b, v, []int{1, r.batch, r.hidden}))
		}
	}
	out := []*ir.Value{ops.Concat(b, 1, all...)}
	for _, vs := range last {
		out = append(out, ops.Concat(b, 0, vs...))
	}
	if r.layout == 1 {
		out[0] = ops.Transpose(b, out[0], []int{2, 0, 1, 3})
		for i := 1; i < len(out); i++ {
			out[i] = ops.Transpose(b, out[i], []int{1, 0, 2})
		}
	}
	return walk.Results(out...)
}

// step advances c by time t and returns its output. A sample whose sequence is over, or has not begun when it is read
// backward, keeps its state and gives zeros.
func (r *recurrent) step(c *cell, t int) *ir.Value {
	b, m := r.w.B, r.mask(t)
	zeros := ops.Zeros(b, c.state[0].Type)
	if m.none {
		return zeros
	}
	next := c.next(r.at(c.px, t), c.state)
	if m.all {
		c.state = next
		return next[0]
	}
	y := ops.Where(b, m.v, next[0], zeros)
	for k := range next {
		next[k] = ops.Where(b, m.v, next[k], c.state[k])
	}
	c.state = next
	return y
}

// importLSTM unrolls i, o, f, c gates: c = f*c + i*g(c'), h = o*h(c). Peepholes add the state of the cell to what the
// gates read: the old one for i and f, the new one for o. input_forget makes f = 1-i.
func importLSTM(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	r, b := newRecurrent(w, n, in, 4), w.B
	if len(in) > 7 && in[7] != nil && !slices.Equal(in[7].Type.Dims, []int{r.dirs, 3 * r.hidden}) {
		n.Fail("operand 7 is %s, but must have dims %v", in[7].Type, []int{r.dirs, 3 * r.hidden})
	}
	coupled := n.Int("input_forget", 0) != 0
	return r.unroll(func(d int) *cell {
		bias, rec := r.biases(d)
		if bias != nil {
			bias = ops.Add(b, bias, rec)
		}
		weight, act, peep := r.part(2, d), r.acts[d], r.part(7, d)
		gate := func(pre *ir.Value, g, p int, c *ir.Value, f activation) *ir.Value {
			x := r.gate(pre, g)
			if peep != nil && p >= 0 {
				row := ops.SliceDim(b, peep, 0, p*r.hidden, r.hidden)
				x = ops.Add(b, x, ops.Mul(b, ops.BroadcastTo(b, row, c.Type.Dims), c))
			}
			return f(b, r.clipped(x))
		}
		next := func(px *ir.Value, state []*ir.Value) []*ir.Value {
			h, c := state[0], state[1]
			pre := ops.Add(b, px, ops.MatMulT(b, h, weight, false, true))
			i := gate(pre, 0, 0, c, act[0])
			var f *ir.Value
			if coupled {
				f = ops.Sub(b, ops.ScalarLike(b, i, 1), i)
			} else {
				f = gate(pre, 2, 2, c, act[0])
			}
			c = ops.Add(b, ops.Mul(b, f, c), ops.Mul(b, i, gate(pre, 3, -1, nil, act[1])))
			o := gate(pre, 1, 1, c, act[0])
			return []*ir.Value{ops.Mul(b, o, act[2](b, c)), c}
		}
		return &cell{r.project(d, bias), []*ir.Value{r.initial(5, d), r.initial(6, d)}, next}
	})
}

// importGRU unrolls z, r, h gates: h = (1-z)*h' + z*h. linear_before_reset (PyTorch's form) applies the reset
// gate to the product with the state instead of to the state.
func importGRU(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	r, b := newRecurrent(w, n, in, 3), w.B
	before := n.Int("linear_before_reset", 0) != 0
	return r.unroll(func(d int) *cell {
		bias, rec := r.biases(d)
		weight, act := r.part(2, d), r.acts[d]
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
		next := func(px *ir.Value, state []*ir.Value) []*ir.Value {
			h := state[0]
			zr := ops.Add(b, ops.SliceDim(b, px, 1, 0, 2*r.hidden), ops.MatMulBias(b, h, wzr, bzr, false, true))
			zr = act[0](b, r.clipped(zr))
			z, reset := r.gate(zr, 0), r.gate(zr, 1)
			var u *ir.Value
			if before {
				u = ops.Mul(b, reset, ops.MatMulBias(b, h, wh, bh, false, true))
			} else {
				u = ops.MatMulBias(b, ops.Mul(b, reset, h), wh, bh, false, true)
			}
			u = act[1](b, r.clipped(ops.Add(b, r.gate(px, 2), u)))
			return []*ir.Value{ops.Add(b, u, ops.Mul(b, z, ops.Sub(b, h, u)))}
		}
		return &cell{r.project(d, bias), []*ir.Value{r.initial(5, d)}, next}
	})
}

// importRNN unrolls h = f(x·W' + h·R' + biases).
func importRNN(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	r, b := newRecurrent(w, n, in, 1), w.B
	return r.unroll(func(d int) *cell {
		bias, rec := r.biases(d)
		if bias != nil {
			bias = ops.Add(b, bias, rec)
		}
		weight, act := r.part(2, d), r.acts[d]
		next := func(px *ir.Value, state []*ir.Value) []*ir.Value {
			pre := ops.Add(b, px, ops.MatMulT(b, state[0], weight, false, true))
			return []*ir.Value{act[0](b, r.clipped(pre))}
		}
		return &cell{r.project(d, bias), []*ir.Value{r.initial(5, d)}, next}
	})
}
