package flow

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/arrays"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

var loopRows = []walk.Row{
	{Op: "If", Since: 1, Min: 1, Max: 1, Rule: importIf},
	{Op: "Loop", Since: 1, Min: 0, Max: model.MaxName, Seq: true, Rule: importLoop},
	{Op: "Scan", Since: 8, Min: 0, Max: model.MaxName, Rule: importScan8},
	{Op: "Scan", Since: 9, Min: 1, Max: model.MaxName, Rule: importScan},
}

// importIf walks the branch that a known condition chooses. A condition of run time costs both branches: they are
// computed and their results selected, which is right because no operator has effects. The branch that is not taken
// gets a gradient of zero.
func importIf(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	truth, isKnown, cond := w.Condition(n, in[0], "the condition")
	switch {
	case isKnown && truth:
		return w.Call(w.Body(n, "then_branch"), nil)
	case isKnown:
		return w.Call(w.Body(n, "else_branch"), nil)
	}
	w.CheckBranches(n)
	yes := w.Call(w.Body(n, "then_branch"), walk.NewGate(cond))
	no := w.Call(w.Body(n, "else_branch"), walk.NewGate(ops.Not(w.B, cond)))
	if len(yes) != len(no) {
		n.Fail("its branches have %d and %d results, but must have equally many", len(yes), len(no))
	}
	out := make([]*walk.Val, len(yes))
	for i := range out {
		out[i] = w.Choose(n, cond, yes[i], no[i], "the results of its branches")
	}
	return out
}

// loop is one Loop node as it is unrolled.
type loop struct {
	w       *walk.Walker
	n       *model.Node
	body    *model.Body
	carried []*walk.Val
	scans   [][]*walk.Val // for each scan output, one value a step
	stopped bool          // by a condition known to be false
	alive   *ir.Value     // condition of run time under which steps count; nil while it is known to be true
	start   int           // operations before the node
}

// importLoop unrolls a loop. The trip count must be known; a loop without one must have a condition that becomes known
// to be false. With a known count, a condition of run time makes each step keep the carried values once it is false:
// all steps are computed, none after the last one counts.
func importLoop(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	if len(n.In) < 2 {
		n.Fail("it has %s, but must have a trip count, a condition (each may be left out) and the carried values", printable.Count(len(n.In), "input"))
	}
	l := &loop{w: w, n: n, body: w.Body(n, "body"), carried: append([]*walk.Val{}, in[2:]...), start: len(w.B.F.Ops)}
	for i, x := range l.carried {
		if x == nil {
			n.Fail("carried value %d is left out", i)
		}
	}
	if extra := len(l.body.Out) - 1 - len(l.carried); extra < 0 || len(l.body.In) != 2+len(l.carried) {
		n.Fail("its body has %d inputs and %d results for %d carried values", len(l.body.In), len(l.body.Out), len(l.carried))
	} else {
		l.scans = make([][]*walk.Val, extra)
	}
	count := int64(math.MaxInt64)
	if in[0] != nil {
		count = int64(fold.Int(n, arrays.MustKnow(w, n, in, 0)))
	}
	if in[1] != nil {
		l.test(in[1])
	}
	for i := int64(0); i < count && !l.stopped; i++ {
		if l.alive != nil && count > walk.MaxUnrolledOps {
			n.Fail("the condition depends on the model's inputs or parameters and nothing bounds the number of steps; "+
				"give the loop a known trip count%s", w.HintValue(&walk.Val{Value: l.alive}))
		}
		l.step(i)
	}
	if l.alive != nil && len(l.scans) > 0 {
		n.Fail("the number of steps depends on the model's inputs or parameters, and with it the size of its scan outputs%s", w.HintValue(&walk.Val{Value: l.alive}))
	}
	out := l.carried
	for i, parts := range l.scans {
		out = append(out, stack(w, n, parts, 0, l.body.Types[1+len(l.carried)+i]))
	}
	return out
}

// test takes in a condition.
func (l *loop) test(x *walk.Val) {
	truth, isKnown, cond := l.w.Condition(l.n, x, "the loop's condition")
	switch {
	case isKnown:
		l.stopped = !truth
	case l.alive == nil:
		l.alive = cond
	default:
		l.alive = ops.And(l.w.B, l.alive, cond)
	}
}

// step unrolls one step.
func (l *loop) step(i int64) {
	w := l.w
	going := walk.Known(&ir.Array{Type: ir.T(dtype.Bool), I: []int64{1}})[0]
	args := append([]*walk.Val{walk.Known(&ir.Array{Type: ir.T(dtype.I64), I: []int64{i}})[0], going}, l.carried...)
	var g *walk.Gate
	if l.alive != nil {
		g = walk.NewGate(l.alive)
	}
	out := w.Call(l.body, g, args...)
	for k := range l.carried {
		next := out[1+k]
		if l.alive != nil {
			next = w.Choose(l.n, l.alive, next, l.carried[k], "the values carried in and out of a step")
		}
		l.carried[k] = next
	}
	for k := range l.scans {
		l.scans[k] = append(l.scans[k], out[1+len(l.carried)+k])
	}
	l.test(out[0])
	Bound(w, l.n, l.start)
}

// Bound fails when a node has been unrolled into too many operations.
func Bound(w *walk.Walker, n *model.Node, start int) {
	if got := len(w.B.F.Ops) - start; got > walk.MaxUnrolledOps {
		n.Fail("it comes to more than %d operations when unrolled", walk.MaxUnrolledOps)
	}
}

// stack joins the values of all steps along a new dim axis. Without any, the declared type tells what is empty.
func stack(w *walk.Walker, n *model.Node, parts []*walk.Val, axis int, declared *onnxpb.TypeProto) *walk.Val {
	if len(parts) == 0 {
		return emptyStack(n, axis, declared)
	}
	first := parts[0]
	for _, p := range parts {
		if p.IsSeq || p.None || !p.Type.Equal(first.Type) {
			n.Fail("%s and %s cannot be stacked: all must be of one type", walk.Describe(first), walk.Describe(p))
		}
	}
	axis = n.Dim(axis, len(first.Type.Dims)+1)
	wide := slices.Insert(slices.Clone(first.Type.Dims), axis, 1)
	if arrays := allKnown(w, parts); arrays != nil {
		for i, a := range arrays {
			arrays[i] = fold.View(a, wide)[0]
		}
		a := fold.Join(n, arrays, axis)
		return walk.Known(a)[0]
	}
	xs := make([]*ir.Value, len(parts))
	for i, p := range parts {
		xs[i] = ops.Reshape(w.B, w.Value(p), wide)
	}
	return walk.Results(ops.Concat(w.B, axis, xs...))[0]
}

// emptyStack is the scan output of a loop that takes no step.
func emptyStack(n *model.Node, axis int, declared *onnxpb.TypeProto) *walk.Val {
	tt := declared.GetTensorType()
	d, err := model.DTypeOf(tt.GetElemType())
	if err != nil || tt.GetShape() == nil {
		n.Fail("the loop takes no step, and its body does not declare the type of a scan output")
	}
	t := ir.Type{DType: d}
	for _, dim := range tt.Shape.Dim {
		size, ok := dim.GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue)
		if !ok || size.DimValue < 0 || size.DimValue > model.MaxDim {
			n.Fail("the loop takes no step, and its body does not declare the size of a scan output")
		}
		t.Dims = append(t.Dims, int(size.DimValue))
	}
	t.Dims = slices.Insert(t.Dims, n.Dim(axis, len(t.Dims)+1), 0)
	if _, err := model.Elements(t.Dims); err != nil {
		n.Fail("%v", err)
	}
	return walk.Known(ir.NewArray(t))[0]
}

// sliceAt is the slice of x at position i of a dim, without that dim.
func sliceAt(w *walk.Walker, n *model.Node, x *walk.Val, axis, i int) *walk.Val {
	rest := arrays.Without(x.Type.Dims, []int{axis})
	if a := w.Array(x); a != nil {
		cuts := fold.Cuts(n, a.Type.Dims, []int{i}, []int{i + 1}, []int{axis}, nil)
		return walk.Known(fold.View(fold.Slice(n, a, cuts), rest)[0])[0]
	}
	return walk.Results(ops.Reshape(w.B, ops.SliceDim(w.B, w.Value(x), axis, i, 1), rest))[0]
}

// scanSpec is how a Scan walks its operands.
type scanSpec struct {
	body    *model.Body
	states  int
	inAxes  []int  // of each scanned operand
	inBack  []bool // read from the end
	outAxes []int
	outBack []bool
}

// newScan reads the attributes that every form of Scan has; the scanned operands are the last ones.
func newScan(w *walk.Walker, n *model.Node, operands int) *scanSpec {
	s := &scanSpec{body: w.Body(n, "body")}
	scanned := n.Int("num_scan_inputs", 0)
	s.states = operands - scanned
	if scanned < 1 || s.states < 0 || len(s.body.In) != operands || len(s.body.Out) < s.states {
		n.Fail("it has %d inputs, %d of them scanned, which do not fit a body of %d inputs and %d results", operands, scanned,
			len(s.body.In), len(s.body.Out))
	}
	flags := func(attr string, count int) []bool {
		out := make([]bool, count)
		for i, f := range n.Ints(attr) {
			if i >= count || f != 0 && f != 1 {
				n.Fail("%s is %v, which does not fit %d values", attr, n.Ints(attr), count)
			}
			out[i] = f == 1
		}
		return out
	}
	axes := func(attr string, count int) []int {
		out := make([]int, count)
		if copy(out, n.Ints(attr)); len(n.Ints(attr)) > count {
			n.Fail("%s is %v, which does not fit %d values", attr, n.Ints(attr), count)
		}
		return out
	}
	results := len(s.body.Out) - s.states
	s.inBack = flags("scan_input_directions", scanned)
	if n.Attrs["directions"] != nil { // opset 8
		s.inBack = flags("directions", scanned)
	}
	s.outBack = flags("scan_output_directions", results)
	s.inAxes, s.outAxes = axes("scan_input_axes", scanned), axes("scan_output_axes", results)
	return s
}

// run unrolls steps of a scan and returns the last states and, for each scan output, one value a step.
func (s *scanSpec) run(w *walk.Walker, n *model.Node, in []*walk.Val, steps int) (states []*walk.Val, scans [][]*walk.Val) {
	start := len(w.B.F.Ops)
	states, scans = append([]*walk.Val{}, in[:s.states]...), make([][]*walk.Val, len(s.outAxes))
	for t := range steps {
		args := append([]*walk.Val{}, states...)
		for k, x := range in[s.states:] {
			at := t
			if s.inBack[k] {
				at = steps - 1 - t
			}
			args = append(args, sliceAt(w, n, x, s.inAxes[k], at))
		}
		out := w.Call(s.body, nil, args...)
		copy(states, out)
		for k := range scans {
			scans[k] = append(scans[k], out[s.states+k])
		}
		Bound(w, n, start)
	}
	for k := range scans {
		if s.outBack[k] {
			slices.Reverse(scans[k])
		}
	}
	return states, scans
}

// importScan unrolls a Scan over the size of its scanned dims (opset 9 on).
func importScan(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	s := newScan(w, n, len(in))
	steps := -1
	for i, x := range in {
		if x == nil {
			n.Fail("operand %d is left out", i)
		}
		if i < s.states {
			continue
		}
		k := i - s.states
		s.inAxes[k] = n.Dim(s.inAxes[k], len(x.Type.Dims))
		size := x.Type.Dims[s.inAxes[k]]
		if steps >= 0 && size != steps {
			n.Fail("it scans dimensions of different sizes, %d and %d", steps, size)
		}
		steps = size
	}
	states, scans := s.run(w, n, in, steps)
	for k, parts := range scans {
		states = append(states, stack(w, n, parts, s.outAxes[k], s.body.Types[s.states+k]))
	}
	return states
}

// importScan8 is the first form: operands have a batch dim first and the scanned one second, the body neither, and
// sequence lengths may cut the steps of each sample short; what lies beyond them is zero.
func importScan8(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	if len(in) < 2 {
		n.Fail("it has %s, but needs at least 2", printable.Count(len(in), "input"))
	}
	lens := arrays.MustKnow(w, n, in, 0)
	in = in[1:]
	s := newScan(w, n, len(in))
	batch, steps := s.sizes(n, in)
	if lens != nil && len(fold.Ints(n, lens)) != batch {
		n.Fail("there are %d sequence lengths for a batch of %d", len(lens.I), batch)
	}
	results, start := make([][]*walk.Val, len(s.body.Out)), len(w.B.F.Ops) // of each sample
	for sample := range batch {
		w.Count(n, 1)
		Bound(w, n, start)
		count := steps
		if lens != nil {
			if count = int(lens.I[sample]); count < 0 || count > steps {
				n.Fail("a sequence length is %d, but there are %d steps", count, steps)
			}
		}
		var args []*walk.Val
		for i, x := range in {
			x = sliceAt(w, n, x, 0, sample)
			if i >= s.states && count < steps {
				x = walk.Results(ops.SliceDim(w.B, w.Value(x), 0, 0, count))[0]
			}
			args = append(args, x)
		}
		states, scans := s.run(w, n, args, count)
		for k, parts := range scans {
			x := stack(w, n, parts, 0, s.body.Types[s.states+k])
			if count < steps {
				high := make([]int, len(x.Type.Dims))
				high[0] = steps - count
				x = walk.Results(ops.Pad(w.B, w.Value(x), make([]int, len(high)), high, nil, 0))[0]
			}
			states = append(states, x)
		}
		for i, x := range states {
			results[i] = append(results[i], x)
		}
	}
	out := make([]*walk.Val, len(results))
	for i, parts := range results {
		out[i] = stack(w, n, parts, 0, nil)
	}
	return out
}

// sizes checks the batch and time dims of the first form's operands.
func (s *scanSpec) sizes(n *model.Node, in []*walk.Val) (batch, steps int) {
	batch, steps = -1, -1
	for i, x := range in {
		if x == nil || len(x.Type.Dims) < 1+fold.BoolInt(i >= s.states) {
			n.Fail("operand %d has no batch and time dimensions", i+1)
		}
		if batch >= 0 && x.Type.Dims[0] != batch || i > s.states && x.Type.Dims[1] != steps {
			n.Fail("operand %d is %s: its batch or time dimension differs from that of others", i+1, x.Type)
		}
		if batch = x.Type.Dims[0]; i >= s.states {
			steps = x.Type.Dims[1]
		}
	}
	return batch, steps
}
