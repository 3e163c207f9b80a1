package ahead

import (
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// TestAhead has a loss compare logits with labels in the spellings that language models have: which token is the target is
// what each of them says, and nothing is said where it is not clear.
func TestAhead(t *testing.T) {
	const batch, places, width, classes = 3, 5, 4, 7
	type net struct {
		b              *ir.Builder
		h, w, labels   *ir.Value
		logits, target *ir.Value
	}
	cut := func(b *ir.Builder, x *ir.Value, from, size int) *ir.Value { return ops.SliceDim(b, x, 1, from, size) }
	head := func(n *net, h *ir.Value) *ir.Value { return ops.MatMulT(n.b, h, n.w, false, true) }
	pad := func(n *net) *ir.Value { // [l1 … l4 -100]
		return ops.Concat(n.b, 1, cut(n.b, n.labels, 1, places-1), ops.Expand(n.b, ops.Const(n.b, &ir.Tensor{Type: ir.T(dtype.I64, 1, 1), Data: []byte{0x9c, 255, 255, 255, 255, 255, 255, 255}}), []int{batch, 1}))
	}
	for name, c := range map[string]struct {
		make func(n *net)
		want int
	}{
		"labels cut at the start, logits at the end": {func(n *net) {
			n.logits, n.target = cut(n.b, head(n, n.h), 0, places-1), cut(n.b, n.labels, 1, places-1)
		}, 1},
		"labels padded with what is ignored": {func(n *net) { n.logits, n.target = head(n, n.h), pad(n) }, 1},
		"states cut before the last product": {func(n *net) {
			n.logits, n.target = head(n, cut(n.b, n.h, 0, places-1)), cut(n.b, n.labels, 1, places-1)
		}, 1},
		"two tokens":                          {func(n *net) { n.logits, n.target = cut(n.b, head(n, n.h), 0, 3), cut(n.b, n.labels, 2, 3) }, 2},
		"softcapped, in parts of the classes": {func(n *net) { n.logits, n.target = ops.Tanh(n.b, head(n, n.h)), pad(n) }, 1},
		"as they are":                         {func(n *net) { n.logits, n.target = head(n, n.h), n.labels }, 0},
		"the first four of both":              {func(n *net) { n.logits, n.target = cut(n.b, head(n, n.h), 0, 4), cut(n.b, n.labels, 0, 4) }, 0},
		"turned round": {func(n *net) {
			n.logits = head(n, n.h)
			n.target = ops.Concat(n.b, 1, cut(n.b, n.labels, 1, places-1), cut(n.b, n.labels, 0, 1))
		}, 0},
	} {
		for _, flat := range []bool{true, false} {
			f := &ir.Func{Name: "forward"}
			n := &net{b: ir.NewBuilder(f)}
			b := n.b
			ids := b.Param("ids", ir.T(dtype.I64, batch, places), ir.Input)
			n.labels = b.Param("labels", ir.T(dtype.I64, batch, places), ir.Input)
			table := b.Param("table", ir.T(dtype.F32, classes, width), ir.Param)
			n.w = b.Param("w", ir.T(dtype.F32, classes, width), ir.Param)
			n.h = ops.Gather(b, table, ids, 0)
			n.h = ops.Add(b, n.h, ops.Relu(b, n.h))
			c.make(n)
			rows := ir.Product(n.target.Type.Dims)
			if x, target := n.logits, n.target; flat {
				b.Result("loss", ops.Xent(b, ops.Reshape(b, x, []int{rows, classes}), ops.Reshape(b, target, []int{rows}), -100))
			} else {
				index := ops.Reshape(b, target, append(target.Type.Dims, 1))
				b.Result("loss", ops.GatherElements(b, ops.LogSoftmax(b, x, 2), index, 2))
			}
			if got := Of(f)["labels"]; got != c.want {
				t.Errorf("%s, flat %v: the loss looks %d places ahead, not %d", name, flat, got, c.want)
			}
		}
	}
}

var fails = ir.NewOp("test_fails_on_places")

func init() {
	fails.Define(ir.Rules{Operands: 1, Infer: func(op *ir.Op) ([]ir.Type, error) { return []ir.Type{op.In[0].Type}, nil },
		Eval: func(_ *ir.Op, in []*ir.Array) []*ir.Array { return []*ir.Array{{I: in[0].I[in[0].I[0]:]}} }})
}

// TestAheadOfAnything: ops on labels that fail for numbers which no data have, or make much of them, only keep it from being told.
func TestAheadOfAnything(t *testing.T) {
	const batch, places, classes = 3, 5, 7
	for name, remap := range map[string]func(b *ir.Builder, labels *ir.Value) *ir.Value{
		"a failing op": func(b *ir.Builder, labels *ir.Value) *ir.Value { return b.Emit(fails, nil, labels) },
		"a table of classes": func(b *ir.Builder, labels *ir.Value) *ir.Value {
			return ops.Gather(b, ops.Iota(b, dtype.I64, []int{classes}, 0), labels, 0)
		},
		"a table of pairs": func(b *ir.Builder, labels *ir.Value) *ir.Value {
			return ops.GatherElements(b, ops.Iota(b, dtype.I64, []int{batch, classes}, 1), labels, 1)
		},
		"many ones": func(b *ir.Builder, labels *ir.Value) *ir.Value {
			wide := []int{batch, places, 1 << 30}
			each := ops.Expand(b, ops.Reshape(b, labels, []int{batch, places, 1}), wide)
			hit := ops.Cast(b, ops.Eq(b, each, ops.Iota(b, dtype.I64, wide, 2)), dtype.I64)
			return ops.Reshape(b, ops.ReduceSum(b, hit, 2), []int{batch, places})
		},
	} {
		f := &ir.Func{Name: "forward"}
		b := ir.NewBuilder(f)
		x := b.Param("x", ir.T(dtype.F32, batch, places, classes), ir.Input)
		labels := b.Param("labels", ir.T(dtype.I64, batch, places), ir.Input)
		rows := ops.Reshape(b, remap(b, labels), []int{batch * places})
		b.Result("loss", ops.Xent(b, ops.Reshape(b, x, []int{batch * places, classes}), rows, -100))
		if found := Of(f); len(found) > 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
}
