package onnx

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

const boolean = dtype.Bool

var loopRows = []row{
	{op: "If", since: 1, min: 1, max: 1, rule: importIf},
	{op: "Loop", since: 1, min: 0, max: maxName, seq: true, rule: importLoop},
	{op: "Scan", since: 8, min: 0, max: maxName, rule: importScan8},
	{op: "Scan", since: 9, min: 1, max: maxName, rule: importScan},
}

// importIf walks the branch that a known condition chooses. A condition of run time costs both branches: they are
// computed and their results selected, which is right because no operator has effects. The branch that is not taken
// gets a gradient of zero.
func importIf(w *walker, n *node, in []*val) []*val {
	truth, isKnown, cond := w.condition(n, in[0], "the condition")
	switch {
	case isKnown && truth:
		return w.call(w.body(n, "then_branch"), nil)
	case isKnown:
		return w.call(w.body(n, "else_branch"), nil)
	}
	w.checkBranches(n)
	yes := w.call(w.body(n, "then_branch"), newGate(cond))
	no := w.call(w.body(n, "else_branch"), newGate(ops.Not(w.b, cond)))
	if len(yes) != len(no) {
		n.fail("its branches have %d and %d results", len(yes), len(no))
	}
	out := make([]*val, len(yes))
	for i := range out {
		out[i] = w.choose(n, cond, yes[i], no[i], "the results of its branches")
	}
	return out
}

// loop is one Loop node as it is unrolled.
type loop struct {
	w       *walker
	n       *node
	body    *body
	carried []*val
	scans   [][]*val  // for each scan output, one value a step
	stopped bool      // by a condition known to be false
	alive   *ir.Value // condition of run time under which steps count; nil while it is known to be true
	start   int       // operations before the node
}

// importLoop unrolls a loop. The trip count must be known; a loop without one must have a condition that becomes known
// to be false. With a known count, a condition of run time makes each step keep the carried values once it is false:
// all steps are computed, none after the last one counts.
func importLoop(w *walker, n *node, in []*val) []*val {
	if len(n.in) < 2 {
		n.fail("has %d inputs: want a trip count, a condition (each may be left out) and the carried values", len(n.in))
	}
	l := &loop{w: w, n: n, body: w.body(n, "body"), carried: append([]*val{}, in[2:]...), start: len(w.b.F.Ops)}
	for i, x := range l.carried {
		if x == nil {
			n.fail("carried value %d is left out", i)
		}
	}
	if extra := len(l.body.out) - 1 - len(l.carried); extra < 0 || len(l.body.in) != 2+len(l.carried) {
		n.fail("its body has %d inputs and %d results for %d carried values", len(l.body.in), len(l.body.out), len(l.carried))
	} else {
		l.scans = make([][]*val, extra)
	}
	count := int64(math.MaxInt64)
	if in[0] != nil {
		count = int64(scalarInt(n, w.known(n, in, 0)))
	}
	if in[1] != nil {
		l.test(in[1])
	}
	for i := int64(0); i < count && !l.stopped; i++ {
		if l.alive != nil && count > maxUnrolledOps {
			n.fail("the condition depends on the model's inputs or parameters and nothing bounds the number of steps; "+
				"give the loop a known trip count%s", w.hintValue(&val{v: l.alive}))
		}
		l.step(i)
	}
	if l.alive != nil && len(l.scans) > 0 {
		n.fail("the number of steps depends on the model's inputs or parameters, and with it the size of its scan outputs%s", w.hintValue(&val{v: l.alive}))
	}
	out := l.carried
	for i, parts := range l.scans {
		out = append(out, w.stack(n, parts, 0, l.body.types[1+len(l.carried)+i]))
	}
	return out
}

// test takes in a condition.
func (l *loop) test(x *val) {
	truth, isKnown, cond := l.w.condition(l.n, x, "the loop's condition")
	switch {
	case isKnown:
		l.stopped = !truth
	case l.alive == nil:
		l.alive = cond
	default:
		l.alive = ops.And(l.w.b, l.alive, cond)
	}
}

// step unrolls one step.
func (l *loop) step(i int64) {
	w := l.w
	going := known(&ir.Array{Type: ir.T(boolean), I: []int64{1}})[0]
	args := append([]*val{known(&ir.Array{Type: ir.T(i64), I: []int64{i}})[0], going}, l.carried...)
	var g *gate
	if l.alive != nil {
		g = newGate(l.alive)
	}
	out := w.call(l.body, g, args...)
	for k := range l.carried {
		next := out[1+k]
		if l.alive != nil {
			next = w.choose(l.n, l.alive, next, l.carried[k], "the values carried in and out of a step")
		}
		l.carried[k] = next
	}
	for k := range l.scans {
		l.scans[k] = append(l.scans[k], out[1+len(l.carried)+k])
	}
	l.test(out[0])
	w.bound(l.n, l.start)
}

// bound fails when a node has been unrolled into too many operations.
func (w *walker) bound(n *node, start int) {
	if got := len(w.b.F.Ops) - start; got > maxUnrolledOps {
		n.fail("unrolled, it comes to more than %d operations", maxUnrolledOps)
	}
}

// stack joins the values of all steps along a new dim axis. Without any, the declared type tells what is empty.
func (w *walker) stack(n *node, parts []*val, axis int, declared *onnxpb.TypeProto) *val {
	if len(parts) == 0 {
		return emptyStack(n, axis, declared)
	}
	first := parts[0]
	for _, p := range parts {
		if p.isSeq || p.none || !p.t.Equal(first.t) {
			n.fail("%s and %s do not stack: all must be of one type", describe(first), describe(p))
		}
	}
	axis = n.dim(axis, len(first.t.Dims)+1)
	wide := slices.Insert(slices.Clone(first.t.Dims), axis, 1)
	if arrays := w.arrays(parts); arrays != nil {
		for i, a := range arrays {
			arrays[i] = view(a, wide)[0]
		}
		a := joinArrays(n, arrays, axis)
		return known(a)[0]
	}
	xs := make([]*ir.Value, len(parts))
	for i, p := range parts {
		xs[i] = ops.Reshape(w.b, w.value(p), wide)
	}
	return outs(ops.Concat(w.b, axis, xs...))[0]
}

// emptyStack is the scan output of a loop that takes no step.
func emptyStack(n *node, axis int, declared *onnxpb.TypeProto) *val {
	tt := declared.GetTensorType()
	d, err := convertType(tt.GetElemType())
	if err != nil || tt.GetShape() == nil {
		n.fail("takes no step, and its body does not declare the type of a scan output")
	}
	t := ir.Type{DType: d}
	for _, dim := range tt.Shape.Dim {
		size, ok := dim.GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue)
		if !ok || size.DimValue < 0 || size.DimValue > maxDim {
			n.fail("takes no step, and its body does not declare the size of a scan output")
		}
		t.Dims = append(t.Dims, int(size.DimValue))
	}
	t.Dims = slices.Insert(t.Dims, n.dim(axis, len(t.Dims)+1), 0)
	if _, err := product(t.Dims); err != nil {
		n.fail("%v", err)
	}
	return known(ir.NewArray(t))[0]
}

// at is the slice of x at position i of a dim, without that dim.
func (w *walker) at(n *node, x *val, axis, i int) *val {
	rest := without(x.t.Dims, []int{axis})
	if a := w.array(x); a != nil {
		cuts := sliceCuts(n, a.Type.Dims, []int{i}, []int{i + 1}, []int{axis}, nil)
		return known(view(sliceArray(n, a, cuts), rest)[0])[0]
	}
	return outs(ops.Reshape(w.b, ops.SliceDim(w.b, w.value(x), axis, i, 1), rest))[0]
}

// scanSpec is how a Scan walks its operands.
type scanSpec struct {
	body    *body
	states  int
	inAxes  []int  // of each scanned operand
	inBack  []bool // read from the end
	outAxes []int
	outBack []bool
}

// newScan reads the attributes that every form of Scan has; the scanned operands are the last ones.
func newScan(w *walker, n *node, operands int) *scanSpec {
	s := &scanSpec{body: w.body(n, "body")}
	scanned := n.int("num_scan_inputs", 0)
	s.states = operands - scanned
	if scanned < 1 || s.states < 0 || len(s.body.in) != operands || len(s.body.out) < s.states {
		n.fail("has %d operands, %d of them scanned, and a body of %d inputs and %d results", operands, scanned,
			len(s.body.in), len(s.body.out))
	}
	flags := func(attr string, count int) []bool {
		out := make([]bool, count)
		for i, f := range n.ints(attr) {
			if i >= count || f != 0 && f != 1 {
				n.fail("%s %v for %d values", attr, n.ints(attr), count)
			}
			out[i] = f == 1
		}
		return out
	}
	axes := func(attr string, count int) []int {
		out := make([]int, count)
		if copy(out, n.ints(attr)); len(n.ints(attr)) > count {
			n.fail("%s %v for %d values", attr, n.ints(attr), count)
		}
		return out
	}
	results := len(s.body.out) - s.states
	s.inBack = flags("scan_input_directions", scanned)
	if n.attrs["directions"] != nil { // opset 8
		s.inBack = flags("directions", scanned)
	}
	s.outBack = flags("scan_output_directions", results)
	s.inAxes, s.outAxes = axes("scan_input_axes", scanned), axes("scan_output_axes", results)
	return s
}

// run unrolls steps of a scan and returns the last states and, for each scan output, one value a step.
func (s *scanSpec) run(w *walker, n *node, in []*val, steps int) (states []*val, scans [][]*val) {
	start := len(w.b.F.Ops)
	states, scans = append([]*val{}, in[:s.states]...), make([][]*val, len(s.outAxes))
	for t := range steps {
		args := append([]*val{}, states...)
		for k, x := range in[s.states:] {
			at := t
			if s.inBack[k] {
				at = steps - 1 - t
			}
			args = append(args, w.at(n, x, s.inAxes[k], at))
		}
		out := w.call(s.body, nil, args...)
		copy(states, out)
		for k := range scans {
			scans[k] = append(scans[k], out[s.states+k])
		}
		w.bound(n, start)
	}
	for k := range scans {
		if s.outBack[k] {
			slices.Reverse(scans[k])
		}
	}
	return states, scans
}

// importScan unrolls a Scan over the size of its scanned dims (opset 9 on).
func importScan(w *walker, n *node, in []*val) []*val {
	s := newScan(w, n, len(in))
	steps := -1
	for i, x := range in {
		if x == nil {
			n.fail("operand %d is left out", i)
		}
		if i < s.states {
			continue
		}
		k := i - s.states
		s.inAxes[k] = n.dim(s.inAxes[k], len(x.t.Dims))
		size := x.t.Dims[s.inAxes[k]]
		if steps >= 0 && size != steps {
			n.fail("scans dimensions of %d and %d", steps, size)
		}
		steps = size
	}
	states, scans := s.run(w, n, in, steps)
	for k, parts := range scans {
		states = append(states, w.stack(n, parts, s.outAxes[k], s.body.types[s.states+k]))
	}
	return states
}

// importScan8 is the first form: operands have a batch dim first and the scanned one second, the body neither, and
// sequence lengths may cut the steps of each sample short; what lies beyond them is zero.
func importScan8(w *walker, n *node, in []*val) []*val {
	if len(in) < 2 {
		n.fail("has %d inputs", len(in))
	}
	lens := w.known(n, in, 0)
	in = in[1:]
	s := newScan(w, n, len(in))
	batch, steps := s.sizes(n, in)
	if lens != nil && len(toInts(n, lens)) != batch {
		n.fail("%d sequence lengths for a batch of %d", len(lens.I), batch)
	}
	results, start := make([][]*val, len(s.body.out)), len(w.b.F.Ops) // of each sample
	for sample := range batch {
		w.count(n, 1)
		w.bound(n, start)
		count := steps
		if lens != nil {
			if count = int(lens.I[sample]); count < 0 || count > steps {
				n.fail("a sequence length of %d; there are %d steps", count, steps)
			}
		}
		var args []*val
		for i, x := range in {
			x = w.at(n, x, 0, sample)
			if i >= s.states && count < steps {
				x = outs(ops.SliceDim(w.b, w.value(x), 0, 0, count))[0]
			}
			args = append(args, x)
		}
		states, scans := s.run(w, n, args, count)
		for k, parts := range scans {
			x := w.stack(n, parts, 0, s.body.types[s.states+k])
			if count < steps {
				high := make([]int, len(x.t.Dims))
				high[0] = steps - count
				x = outs(ops.Pad(w.b, w.value(x), make([]int, len(high)), high, nil, 0))[0]
			}
			states = append(states, x)
		}
		for i, x := range states {
			results[i] = append(results[i], x)
		}
	}
	out := make([]*val, len(results))
	for i, parts := range results {
		out[i] = w.stack(n, parts, 0, nil)
	}
	return out
}

// sizes checks the batch and time dims of the first form's operands.
func (s *scanSpec) sizes(n *node, in []*val) (batch, steps int) {
	batch, steps = -1, -1
	for i, x := range in {
		if x == nil || len(x.t.Dims) < 1+boolInt(i >= s.states) {
			n.fail("operand %d has no batch and time dimensions", i+1)
		}
		if batch >= 0 && x.t.Dims[0] != batch || i > s.states && x.t.Dims[1] != steps {
			n.fail("operand %d is %s: its batch or time dimension differs from that of others", i+1, x.t)
		}
		if batch = x.t.Dims[0]; i >= s.states {
			steps = x.t.Dims[1]
		}
	}
	return batch, steps
}
