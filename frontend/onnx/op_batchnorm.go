package onnx

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// importBatchNorm makes the form that trainstep turns into training: normalization by the batch, with the running
// statistics updated. A node in inference form is meant so
//
//   - when its mean or variance is computed in the graph or given as an input: such operands are used as they are, and get
//     gradients. Those of its own batch make it a normalisation by the batch in every function, evaluation too;
//   - when another node of the file trains, or python/gtc has recorded what trains: the module holds this one in evaluation mode;
//   - when the user has frozen its scale or its statistics.
//
// It then normalizes by its statistics, which stay, as ordinary ops. In a file in which none trains it is taken for one that
// does: exporters write inference form also for models traced in train().
func importBatchNorm(w *walker, n *node, in []*val) []*val {
	if n.int("spatial", 1) != 1 {
		n.fail("spatial=0 is not supported")
	}
	d := in[0].t.Dims
	if len(d) < 2 {
		n.fail("operand 0 is %s: want [N,C,…]", in[0].t)
	}
	operands := []*ir.Value{w.value(in[0])}
	for _, x := range in[1:5] {
		if !slices.Equal(x.t.Dims, d[1:2]) || x.t.DType != in[0].t.DType {
			n.fail("scale, bias, mean or variance is %s, want %s", x.t, ir.T(in[0].t.DType, d[1]))
		}
		operands = append(operands, w.value(x))
	}
	// ONNX keeps momentum of the old statistics, PyTorch gives it to the new ones.
	m := math.Round((1-n.float("momentum", 0.9))*1e9) / 1e9
	a := ops.BatchNormStatAttrs{Eps: n.float("epsilon", 1e-5), Momentum: m}
	if ofOwnBatch(operands[0], operands[3], operands[4]) && !w.frozen(n, 1) {
		return trainedBatchNorm(w, n, operands, a)
	}
	if w.keepsStatistics(n, operands[3:]) {
		return outs(ops.BatchNormStatDef.Rules.Decompose(w.b, &ir.Op{Def: ops.BatchNormStatDef, Attrs: a, In: operands})...)
	}
	if w.isRead(n, 1) || w.isRead(n, 2) {
		return trainedBatchNorm(w, n, operands, a)
	}
	if m == 1 {
		w.m.warn("batch normalization %s has momentum 0: each step replaces its running statistics by those of its batch. PyTorch's "+
			"momentum=None, an average over all steps, is written so too, and cannot be told from it", n.loc.Node)
	}
	return outs(ops.BatchNormStat(w.b, a, operands...))
}

// keepsStatistics reports whether n normalizes by its mean and variance, stats, and leaves them as they are.
func (w *walker) keepsStatistics(n *node, stats []*ir.Value) bool {
	if w.frozen(n, 1) || slices.ContainsFunc(stats, w.frozenStatistic) {
		return true
	}
	if w.m.marks != nil && w.m.marks.fixed != nil { // the module says it of each of its own
		if s := statistic(stats[0]); s != nil {
			return w.m.marks.fixed[module(s.Name)]
		}
	}
	if n.trains() {
		return false
	}
	if slices.ContainsFunc(stats, func(v *ir.Value) bool { return statistic(v) == nil }) {
		return true
	}
	if w.m.record != nil {
		return true
	}
	if w.m.believesNorms() {
		return true
	}
	w.m.warn("batch normalization is in inference form (%s); it is trained in training form, on the statistics of each batch", n.loc.Node)
	return false
}

// trains reports whether batch normalization n is in training form: by its attribute, before opset 14 by its further
// results, or by the call that PyTorch's exporter recorded, which writes inference form for all.
func (n *node) trains() bool {
	if n.fx.is("_native_batch_norm_legit_functional", "_native_batch_norm_legit", "native_batch_norm") && len(n.fx.args) > 5 {
		return n.fx.args[5] == "True"
	}
	if n.int("training_mode", 0) != 0 {
		return true
	}
	return n.from == 0 && n.opset < 14 && slices.ContainsFunc(n.out[min(1, len(n.out)):], func(o string) bool { return o != "" })
}

// believesNorms reports whether some batch normalization of the file trains, so that inference form is meant where it is
// written, and says of which nodes that is so.
func (m *Model) believesNorms() bool {
	var fixed []string
	trains := false
	if m.eachNode(func(n *node) {
		switch {
		case n.op != "BatchNormalization":
		case n.trains():
			trains = true
		case !slices.Contains(fixed, n.loc.Node):
			fixed = append(fixed, n.loc.Node)
		}
	}) != nil || !trains {
		return false
	}
	list, verb := fmt.Sprintf("%q is", fixed[0]), "it normalizes by its running statistics and keeps them"
	if len(fixed) > 1 {
		more := fixed[:min(len(fixed), 4)]
		list = fmt.Sprintf("%d batch normalizations (%s", len(fixed), strings.Join(more, ", "))
		if len(fixed) > len(more) {
			list += ", …"
		}
		list, verb = list+") are", "they normalize by their running statistics and keep them"
	} else {
		list = "batch normalization " + list
	}
	m.warn("%s in inference form in a file in which others train: %s, in training too", list, verb)
	return true
}

// statistic is the buffer that v holds, seen through ops that only move its elements or change their type; nil when v is
// computed from anything else.
func statistic(v *ir.Value) *ir.Value {
	for v.Op != nil {
		switch v.Op.Def {
		case ops.ReshapeDef, ops.ExpandDef, ops.CastDef:
			v = v.Op.In[0]
		default:
			return nil
		}
	}
	if v.Role != ir.Buffer {
		return nil
	}
	return v
}

// frozenStatistic reports whether v is a buffer that --freeze names.
func (w *walker) frozenStatistic(v *ir.Value) bool {
	s := statistic(v)
	return s != nil && slices.ContainsFunc(w.r.params, func(p *Parameter) bool {
		return p.Name == s.Name && strings.HasPrefix(p.Reason, frozenBy)
	})
}

// isRead reports whether result i of n is an output of the main graph or an operand of another node of this one.
// Exporters name results that nothing reads.
func (w *walker) isRead(n *node, i int) bool {
	if w.read == nil {
		w.read = map[string]bool{}
		for _, name := range w.m.outputs {
			w.read[name] = true
		}
		for _, o := range w.nodes {
			for _, name := range o.in {
				w.read[name] = true
			}
		}
	}
	return n.wants(i) && w.read[n.out[i]]
}

// trainedBatchNorm is the training form spelled out, in a graph that goes on with the new statistics: it is the same in
// every function, and updates nothing by itself. Further results, of opsets before 14, are the batch's own statistics.
func trainedBatchNorm(w *walker, n *node, operands []*ir.Value, a ops.BatchNormStatAttrs) []*val {
	b := w.b
	y, mean, variance := ops.BatchNorm(b, operands[0], operands[1], operands[2], ops.BatchNormAttrs{Eps: a.Eps})
	next := func(old, batch *ir.Value) *ir.Value {
		return ops.Add(b, ops.MulScalar(b, old, 1-a.Momentum), ops.MulScalar(b, batch, a.Momentum))
	}
	return outs(y, next(operands[3], mean), next(operands[4], variance), mean, variance)
}

// isStatistic reports whether u is the mean or variance of a batch normalization.
func isStatistic(u operand) bool { return u.n.op == "BatchNormalization" && u.i >= 3 }

// statisticMovers are the operators through which running statistics are looked for.
var statisticMovers = setOf("Identity Cast Reshape Unsqueeze Squeeze Flatten Expand Tile")

// becomesStatistic reports whether what u's node makes of it by moving elements is the mean or variance of a batch
// normalization, and nothing else.
func (r *roles) becomesStatistic(u operand) bool {
	for range 4 {
		if !statisticMovers[u.n.op] || u.i != 0 || len(u.n.out) == 0 {
			return false
		}
		next := r.readersOf(u.n.out[0])
		if len(next) == 0 {
			return false
		}
		if allOf(next, isStatistic) {
			return true
		}
		u = next[0]
	}
	return false
}

// readersOf lists the operands that read a value of any graph of the file.
func (r *roles) readersOf(name string) []operand {
	if r.readers == nil {
		r.readers = map[string][]operand{}
		_ = r.m.eachNode(func(n *node) { // its errors came up in findUses
			for i, in := range n.in {
				r.readers[in] = append(r.readers[in], operand{n, i})
			}
		})
	}
	return r.readers[name]
}
