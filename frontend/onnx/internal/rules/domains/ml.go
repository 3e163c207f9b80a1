package domains

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/flow"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Operators of ai.onnx.ml that work on numbers. Those on strings and maps are left out by design.
var mlRows = []walk.Row{
	{Op: "ai.onnx.ml.ArrayFeatureExtractor", Since: 1, Min: 2, Max: 2, Rule: importFeatures},
	{Op: "ai.onnx.ml.Binarizer", Since: 1, Min: 1, Max: 1, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		x := w.Value(in[0])
		above := ops.Gt(w.B, x, ops.ScalarLike(w.B, x, n.Float("threshold", 0)))
		return walk.Results(ops.Cast(w.B, above, x.Type.DType))
	}},
	{Op: "ai.onnx.ml.LabelEncoder", Since: 1, Min: 1, Max: 1, Rule: importLabelEncoder},
	{Op: "ai.onnx.ml.TreeEnsemble", Since: 5, Min: 1, Max: 1, Rule: importTreeEnsemble},
}

// importFeatures takes columns of the last dim; a vector is one row.
func importFeatures(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, index := w.Value(in[0]), w.Value(in[1])
	if len(x.Type.Dims) == 1 {
		x = ops.Reshape(w.B, x, []int{1, x.Type.Dims[0]})
	}
	if len(x.Type.Dims) == 0 || !index.Type.DType.IsInt() {
		n.Fail("operands are %s and %s, but must be a tensor and integer indices into its last dimension", in[0].Type, in[1].Type)
	}
	index = ops.Reshape(w.B, index, []int{index.Type.Elems()})
	return walk.Results(ops.Gather(w.B, x, index, len(x.Type.Dims)-1))
}

// labels is a list attribute of LabelEncoder in one of its forms: ints, floats or a tensor; nil when there is none.
func labels(n *model.Node, ints, floats, tensor string) *ir.Array {
	if a := n.Attrs[tensor]; a != nil {
		return n.TensorAttr(n.Attr(tensor, onnxpb.AttributeProto_TENSOR))
	}
	if list := n.Ints(ints); list != nil {
		a := ir.NewArray(ir.T(dtype.I64, len(list)))
		for i, v := range list {
			a.I[i] = int64(v)
		}
		return a
	}
	if list := n.Floats(floats); list != nil {
		return &ir.Array{Type: ir.T(dtype.F32, len(list)), F: list}
	}
	return nil
}

// importLabelEncoder maps keys to values: an element that equals key k (NaN equals NaN) becomes value k, any other the
// default. The k+1 of the key that is hit, or 0, is a row of the table of default and values.
func importLabelEncoder(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	keys, values := labels(n, "keys_int64s", "keys_floats", "keys_tensor"), labels(n, "values_int64s", "values_floats", "values_tensor")
	if keys == nil || values == nil {
		n.Fail("it maps from or to strings, which gtc does not support")
	}
	x, count := w.Value(in[0]), keys.Type.Elems()
	if keys.Type.DType != x.Type.DType || count != values.Type.Elems() || count > model.MaxFold {
		n.Fail("it has keys %s and values %s, which do not fit each other or operand 0, %s", keys.Type, values.Type, x.Type)
	}
	table := ir.NewArray(ir.T(values.Type.DType, count+1))
	fold.Copy(table, 1, values, 0, count)
	if a := n.Attrs["default_tensor"]; a != nil {
		def := n.TensorAttr(n.Attr("default_tensor", onnxpb.AttributeProto_TENSOR))
		if def.Type.DType != values.Type.DType || def.Type.Elems() != 1 {
			n.Fail("the default is %s, but must be one element of the type of the values, %s", def.Type, values.Type)
		}
		fold.Copy(table, 0, def, 0, 1)
	} else if table.F != nil {
		table.F[0] = n.Float("default_float", 0)
	} else {
		table.I[0] = int64(n.Int("default_int64", -1))
	}
	elems := x.Type.Elems()
	wide := []int{elems, count}
	if _, err := model.Elements(wide); err != nil {
		n.Fail("%v", err)
	}
	each := ops.Expand(w.B, ops.Reshape(w.B, x, []int{elems, 1}), wide)
	key := ops.Expand(w.B, ops.Const(w.B, fold.View(keys, []int{1, count})[0].Tensor()), wide)
	hit := ops.Eq(w.B, each, key)
	if x.Type.DType.IsFloat() {
		hit = ops.Or(w.B, hit, ops.And(w.B, ops.IsNaN(w.B, each), ops.IsNaN(w.B, key)))
	}
	number := ops.AddScalar(w.B, ops.Iota(w.B, dtype.I64, wide, 1), 1)
	number = ops.Where(w.B, hit, number, ops.Zeros(w.B, number.Type))
	row := ops.Reshape(w.B, ops.ReduceMax(w.B, number, 1), x.Type.Dims)
	return walk.Results(ops.Gather(w.B, ops.Const(w.B, table.Tensor()), row, 0))
}

// trees is a TreeEnsemble: interior nodes come first in every table, leaves after them, as nodes that lead to
// themselves.
type trees struct {
	w      *walk.Walker
	n      *model.Node
	x      *ir.Value // [N,F]
	roots  []int
	nodes  int
	leaves int
	depth  int // steps from a root to the last of its leaves
	yes    []int64
	no     []int64
}

// importTreeEnsemble walks all trees at once, one level at a time: each step looks up the node that a sample has
// reached in each tree, compares a feature and goes on. The result is a step function of the features.
func importTreeEnsemble(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	t := &trees{w: w, n: n, x: w.Value(in[0]), roots: n.Ints("tree_roots")}
	if len(t.x.Type.Dims) != 2 || !t.x.Type.DType.IsFloat() {
		n.Fail("operand 0 is %s, but must be floats [samples,features]", t.x.Type)
	}
	t.link()
	b, samples := w.B, t.x.Type.Dims[0]
	wide := []int{samples, len(t.roots)}
	first := ir.NewArray(ir.T(dtype.I64, 1, len(t.roots)))
	for i, r := range t.roots {
		first.I[i] = int64(r)
	}
	at := ops.Expand(b, ops.Const(b, first.Tensor()), wide)
	start := len(b.F.Ops)
	tables := t.compareTables()
	for range t.depth {
		at = ops.Where(b, t.compare(tables, at), t.lookup(t.yes, at), t.lookup(t.no, at))
		flow.Bound(w, n, start)
	}
	return walk.Results(t.aggregate(at))
}

// link reads the branches and finds the depth.
func (t *trees) link() {
	n := t.n
	yes, no := n.Ints("nodes_truenodeids"), n.Ints("nodes_falsenodeids")
	yesLeaf, noLeaf := n.Ints("nodes_trueleafs"), n.Ints("nodes_falseleafs")
	t.nodes, t.leaves = len(yes), len(n.Ints("leaf_targetids"))
	if t.nodes == 0 || len(no) != t.nodes || len(yesLeaf) != t.nodes || len(noLeaf) != t.nodes ||
		len(n.Ints("nodes_featureids")) != t.nodes || t.leaves == 0 || len(t.roots) == 0 {
		n.Fail("its lists of tree nodes differ in length or are empty")
	}
	follow := func(id, leaf int) int64 {
		size := t.nodes
		if leaf != 0 {
			size = t.leaves
		}
		if id < 0 || id >= size {
			n.Fail("a branch of a tree leads to node or leaf %d, but there are %d", id, size)
		}
		return int64(id + leaf*t.nodes)
	}
	for i := range t.nodes {
		t.yes, t.no = append(t.yes, follow(yes[i], fold.BoolInt(yesLeaf[i] != 0))), append(t.no, follow(no[i], fold.BoolInt(noLeaf[i] != 0)))
	}
	for l := range t.leaves {
		t.yes, t.no = append(t.yes, int64(t.nodes+l)), append(t.no, int64(t.nodes+l))
	}
	levels := make([]int, t.nodes+t.leaves) // below and with a node; 0 not known yet, -1 being worked on
	for _, r := range t.roots {
		if r < 0 || r >= t.nodes {
			n.Fail("the root of a tree is node %d, but there are %d nodes", r, t.nodes)
		}
		t.measure(levels, int64(r))
		t.depth = max(t.depth, levels[r])
	}
}

// measure finds the levels from node root down, with a stack of its own: a file may hold a very deep tree.
func (t *trees) measure(levels []int, root int64) {
	for stack := []int64{root}; len(stack) > 0; {
		i := stack[len(stack)-1]
		if i >= int64(t.nodes) || levels[i] > 0 {
			stack = stack[:len(stack)-1]
			continue
		}
		deepest, ready := 0, true
		for _, to := range []int64{t.yes[i], t.no[i]} {
			switch {
			case to >= int64(t.nodes):
			case levels[to] < 0:
				t.n.Fail("its trees have a cycle")
			case levels[to] == 0:
				stack, ready = append(stack, to), false
			default:
				deepest = max(deepest, levels[to])
			}
		}
		levels[i] = -1
		if ready {
			levels[i] = deepest + 1
		}
	}
}

// lookup is table[at], elementwise.
func (t *trees) lookup(table []int64, at *ir.Value) *ir.Value {
	a := &ir.Array{Type: ir.T(dtype.I64, len(table)), I: table}
	return ops.Gather(t.w.B, ops.Const(t.w.B, a.Tensor()), at, 0)
}

// numbers is table[at] for a table of floats of the operand's type.
func (t *trees) numbers(table []float64, at *ir.Value) *ir.Value {
	a := &ir.Array{Type: ir.T(t.x.Type.DType, len(table)), F: table}
	return ops.Gather(t.w.B, ops.Const(t.w.B, a.Tensor()), at, 0)
}

// compareTables holds what the nodes compare; leaves repeat node 0, whatever it gives leads back to them.
type compareTables struct {
	feature, mode, missing []int64
	split                  []float64
	members                [][]float64 // of the nodes in member mode
	used                   map[int64]bool
}

func (t *trees) compareTables() *compareTables {
	n, size := t.n, t.nodes+t.leaves
	c := &compareTables{feature: make([]int64, size), mode: make([]int64, size), missing: make([]int64, size),
		split: make([]float64, size), members: make([][]float64, size), used: map[int64]bool{}}
	modes, splits := n.TensorAttr(needAttr(n, "nodes_modes")), n.TensorAttr(needAttr(n, "nodes_splits"))
	if len(modes.I) != t.nodes || len(splits.F) != t.nodes {
		n.Fail("it has nodes_modes %s and nodes_splits %s for %d nodes", modes.Type, splits.Type, t.nodes)
	}
	var sets []float64
	if n.Attrs["membership_values"] != nil {
		sets = n.TensorAttr(needAttr(n, "membership_values")).F
	}
	tracks := n.Ints("nodes_missing_value_tracks_true")
	for i, f := range n.Ints("nodes_featureids") {
		if f < 0 || f >= t.x.Type.Dims[1] || modes.I[i] < 0 || modes.I[i] > 6 {
			n.Fail("node %d of a tree compares feature %d, of %d, in mode %d: one of the two is out of range", i, f, t.x.Type.Dims[1], modes.I[i])
		}
		c.feature[i], c.mode[i], c.split[i] = int64(f), modes.I[i], splits.F[i]
		c.used[c.mode[i]] = true
		if i < len(tracks) {
			c.missing[i] = int64(tracks[i])
		}
		if c.mode[i] == 6 {
			end := slices.IndexFunc(sets, math.IsNaN)
			if end < 0 {
				n.Fail("membership_values has no set for node %d", i)
			}
			c.members[i], sets = sets[:end], sets[end+1:]
		}
	}
	return c
}

// needAttr is a tensor attribute that must be present.
func needAttr(n *model.Node, name string) *onnxpb.AttributeProto {
	a := n.Attr(name, onnxpb.AttributeProto_TENSOR)
	if a == nil {
		n.Fail("attribute %q is missing", name)
	}
	return a
}

// compare tells where the true branch is taken at nodes at [N,T].
func (t *trees) compare(c *compareTables, at *ir.Value) *ir.Value {
	b := t.w.B
	x := ops.GatherElements(b, t.x, t.lookup(c.feature, at), 1)
	split, mode := t.numbers(c.split, at), t.lookup(c.mode, at)
	var taken *ir.Value
	for m, f := range []func(*ir.Builder, *ir.Value, *ir.Value) *ir.Value{ops.Le, ops.Lt, ops.Ge, ops.Gt, ops.Eq, ops.Ne, nil} {
		if !c.used[int64(m)] {
			continue
		}
		var hit *ir.Value
		if f != nil {
			hit = f(b, x, split)
		} else {
			hit = t.member(c, at, x)
		}
		if taken != nil {
			hit = ops.Where(b, ops.Eq(b, mode, ops.ScalarLike(b, mode, float64(m))), hit, taken)
		}
		taken = hit
	}
	if slices.Max(c.missing) != 0 {
		tracks := ops.Cast(b, t.lookup(c.missing, at), dtype.Bool)
		taken = ops.Where(b, ops.IsNaN(b, x), tracks, taken)
	}
	return taken
}

// member tells where x [N,T] is one of the members that its node lists.
func (t *trees) member(c *compareTables, at, x *ir.Value) *ir.Value {
	b, most := t.w.B, 1
	for _, m := range c.members {
		most = max(most, len(m))
	}
	if len(c.members)*most > model.MaxFold {
		t.n.Fail("sets of up to %d members for %d nodes of trees are too large to compare", most, len(c.members))
	}
	table := ir.NewArray(ir.T(t.x.Type.DType, len(c.members), most))
	fold.Each(table.F, func(float64) float64 { return math.NaN() }) // equals nothing
	for i, m := range c.members {
		copy(table.F[i*most:], m)
	}
	rows := ops.Gather(b, ops.Const(b, table.Tensor()), at, 0) // [N,T,most]
	d := slices.Concat(x.Type.Dims, []int{1})
	hit := ops.Eq(b, rows, ops.Expand(b, ops.Reshape(b, x, d), rows.Type.Dims))
	count := ops.ReduceSum(b, ops.Cast(b, hit, dtype.I64), 2)
	return ops.Reshape(b, ops.Gt(b, count, ops.Zeros(b, count.Type)), x.Type.Dims)
}

// aggregate joins the weights of the leaves at [N,T] by target.
func (t *trees) aggregate(at *ir.Value) *ir.Value {
	n, b, targets := t.n, t.w.B, t.n.Int("n_targets", 1)
	ids, weights := make([]int64, t.nodes), make([]float64, t.nodes)
	leaf := n.TensorAttr(needAttr(n, "leaf_weights"))
	for i, id := range n.Ints("leaf_targetids") {
		if id < 0 || id >= targets || len(leaf.F) != t.leaves || targets > model.MaxName {
			n.Fail("leaf %d of %d leaf_weights is for target %d of %d, which is out of range", i, len(leaf.F), id, targets)
		}
		ids, weights = append(ids, int64(id)), append(weights, leaf.F[i])
	}
	one := slices.Concat(at.Type.Dims, []int{1})
	wide := slices.Concat(at.Type.Dims, []int{targets})
	weight := ops.Expand(b, ops.Reshape(b, t.numbers(weights, at), one), wide)
	id := ops.Expand(b, ops.Reshape(b, t.lookup(ids, at), one), wide)
	mine := ops.Eq(b, id, ops.Iota(b, dtype.I64, wide, 2))
	join := func(reduce func(*ir.Builder, *ir.Value, ...int) *ir.Value, rest float64) *ir.Value {
		y := reduce(b, ops.Where(b, mine, weight, ops.ScalarLike(b, weight, rest)), 1)
		y = ops.Reshape(b, y, []int{wide[0], targets})
		if math.IsInf(rest, 0) {
			y = ops.Where(b, ops.Eq(b, y, ops.ScalarLike(b, y, rest)), ops.Zeros(b, y.Type), y)
		}
		return y
	}
	var y *ir.Value
	switch f := n.Int("aggregate_function", 1); f {
	case 0:
		y = ops.MulScalar(b, join(ops.ReduceSum, 0), 1/float64(len(t.roots)))
	case 1:
		y = join(ops.ReduceSum, 0)
	case 2:
		y = join(ops.ReduceMin, math.Inf(1))
	case 3:
		y = join(ops.ReduceMax, math.Inf(-1))
	default:
		n.Fail("aggregate_function is %d, but must be 0 (average), 1 (sum), 2 (min) or 3 (max)", f)
	}
	switch f := n.Int("post_transform", 0); f {
	case 0:
		return y
	case 1:
		return ops.Softmax(b, y, 1)
	case 2:
		return ops.Sigmoid(b, y)
	default:
		n.Fail("post_transform %d is not supported, but none, softmax and logistic are", f)
	}
	return nil
}
