package layers

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/roles"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
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
func importBatchNorm(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	if n.Int("spatial", 1) != 1 {
		n.Fail("spatial=0 is not supported")
	}
	d := in[0].Type.Dims
	if len(d) < 2 {
		n.Fail("operand 0 is %s, but must be [N,C,…]", in[0].Type)
	}
	operands := []*ir.Value{w.Value(in[0])}
	for _, x := range in[1:5] {
		if !slices.Equal(x.Type.Dims, d[1:2]) || x.Type.DType != in[0].Type.DType {
			n.Fail("scale, bias, mean or variance is %s, but must be %s", x.Type, ir.T(in[0].Type.DType, d[1]))
		}
		operands = append(operands, w.Value(x))
	}
	// ONNX keeps momentum of the old statistics, PyTorch gives it to the new ones.
	m := math.Round((1-n.Float("momentum", 0.9))*1e9) / 1e9
	a := ops.BatchNormStatAttrs{Eps: n.Float("epsilon", 1e-5), Momentum: m}
	if ofOwnBatch(operands[0], operands[3], operands[4]) && !w.Frozen(n, 1) {
		return trainedBatchNorm(w, n, operands, a)
	}
	if keepsStatistics(w, n, operands[3:]) {
		return walk.Results(ops.BatchNormStatDef.Rules.Decompose(w.B, &ir.Op{Def: ops.BatchNormStatDef, Attrs: a, In: operands})...)
	}
	if isRead(w, n, 1) || isRead(w, n, 2) {
		return trainedBatchNorm(w, n, operands, a)
	}
	if m == 1 {
		w.File.Warn("batch normalization %s has momentum 0: each step replaces its running statistics by those of its batch. PyTorch's "+
			"momentum=None, an average over all steps, is written so too, and cannot be told from it", n.Loc.Node)
	}
	return walk.Results(ops.BatchNormStat(w.B, a, operands...))
}

// keepsStatistics reports whether n normalizes by its mean and variance, stats, and leaves them as they are.
func keepsStatistics(w *walk.Walker, n *model.Node, stats []*ir.Value) bool {
	if w.Frozen(n, 1) || slices.ContainsFunc(stats, func(v *ir.Value) bool { return frozenStatistic(w, v) }) {
		return true
	}
	if w.File.Marks != nil && w.File.Marks.Fixed != nil { // the module says it of each of its own
		if s := statistic(stats[0]); s != nil {
			return w.File.Marks.Fixed[model.ModuleOf(s.Name)]
		}
	}
	if trains(n) {
		return false
	}
	if slices.ContainsFunc(stats, func(v *ir.Value) bool { return statistic(v) == nil }) {
		return true
	}
	if w.File.Record != nil {
		return true
	}
	if believesNorms(w.File) {
		return true
	}
	w.File.Warn("batch normalization is in inference form (%s); it is trained in training form, on the statistics of each batch", n.Loc.Node)
	return false
}

// trains reports whether batch normalization n is in training form: by its attribute, before opset 14 by its further
// results, or by the call that PyTorch's exporter recorded, which writes inference form for all.
func trains(n *model.Node) bool {
	if n.Torch.Is("_native_batch_norm_legit_functional", "_native_batch_norm_legit", "native_batch_norm") && len(n.Torch.Args) > 5 {
		return n.Torch.Args[5] == "True"
	}
	if n.Int("training_mode", 0) != 0 {
		return true
	}
	return n.From == 0 && n.Opset < 14 && slices.ContainsFunc(n.Out[min(1, len(n.Out)):], func(o string) bool { return o != "" })
}

// believesNorms reports whether some batch normalization of the file trains, so that inference form is meant where it is
// written, and says of which nodes that is so.
func believesNorms(m *model.File) bool {
	var fixed []string
	some := false
	if m.EachNode(func(n *model.Node) {
		switch {
		case n.Op != "BatchNormalization":
		case trains(n):
			some = true
		case !slices.Contains(fixed, n.Loc.Node):
			fixed = append(fixed, n.Loc.Node)
		}
	}) != nil || !some {
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
	m.Warn("%s in inference form in a file in which others train: %s, in training too", list, verb)
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
func frozenStatistic(w *walk.Walker, v *ir.Value) bool {
	s := statistic(v)
	return s != nil && slices.ContainsFunc(w.Roles.Params, func(p *roles.Parameter) bool {
		return p.Name == s.Name && strings.HasPrefix(p.Reason, roles.FrozenBy)
	})
}

// isRead reports whether result i of n is an output of the main graph or an operand of another node of this one.
// Exporters name results that nothing reads.
func isRead(w *walk.Walker, n *model.Node, i int) bool {
	if w.Read == nil {
		w.Read = map[string]bool{}
		for _, name := range w.File.OutputNames {
			w.Read[name] = true
		}
		for _, o := range w.Nodes {
			for _, name := range o.In {
				w.Read[name] = true
			}
		}
	}
	return n.Wants(i) && w.Read[n.Out[i]]
}

// trainedBatchNorm is the training form spelled out, in a graph that goes on with the new statistics: it is the same in
// every function, and updates nothing by itself. Further results, of opsets before 14, are the batch's own statistics.
func trainedBatchNorm(w *walk.Walker, n *model.Node, operands []*ir.Value, a ops.BatchNormStatAttrs) []*walk.Val {
	b := w.B
	y, mean, variance := ops.BatchNorm(b, operands[0], operands[1], operands[2], ops.BatchNormAttrs{Eps: a.Eps})
	next := func(old, batch *ir.Value) *ir.Value {
		return ops.Add(b, ops.MulScalar(b, old, 1-a.Momentum), ops.MulScalar(b, batch, a.Momentum))
	}
	return walk.Results(y, next(operands[3], mean), next(operands[4], variance), mean, variance)
}
