package domains

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/flow"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var tfidfRows = []walk.Row{{Op: "TfIdfVectorizer", Since: 9, Min: 1, Max: 1, Rule: importTfIdf}}

// grams are the n-grams of one length that are counted, and where each is counted.
type grams struct {
	n     int
	items []int64 // n to each
	index []int64 // column of the result
}

// importTfIdf counts n-grams of the integers in x, [C] or [B,C]: for each distance between their items, every window of x
// is compared with every n-gram at once. Single items are counted once, since distance means nothing to them.
func importTfIdf(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	b, x := w.B, w.Value(in[0])
	if d := len(x.Type.Dims); !x.Type.DType.IsInt() || d < 1 || d > 2 {
		n.Fail("operand 0 is %s, but must be integers [C] or [B,C]; strings are not supported", x.Type)
	}
	width := 0
	for _, i := range n.Ints("ngram_indexes") {
		if i < 0 || i >= model.MaxName {
			n.Fail("ngram_indexes holds %d, which is not from 0 to %d", i, model.MaxName-1)
		}
		width = max(width, i+1)
	}
	length := x.Type.Dims[len(x.Type.Dims)-1]
	rows := ops.Reshape(b, x, []int{x.Type.Elems() / max(length, 1), length})
	if len(x.Type.Dims) == 2 {
		rows = x
	}
	y := ops.Zeros(b, ir.T(dtype.F32, rows.Type.Dims[0], width))
	start := len(b.F.Ops)
	for _, g := range readGrams(n) {
		far := n.Int("max_skip_count", 0) + 1
		if g.n == 1 {
			far = 1
		}
		for step := 1; step <= far && step*(g.n-1) < length; step++ {
			y = ops.Add(b, y, countGrams(w, n, rows, g, step, width))
			flow.Bound(w, n, start)
		}
	}
	y = weighGrams(w, n, y)
	return walk.Results(ops.Reshape(b, y, append(slices.Clone(x.Type.Dims[:len(x.Type.Dims)-1]), width)))
}

// readGrams takes the pool apart: ngram_counts tells where the n-grams of each length begin. Of equal n-grams the last
// counts.
func readGrams(n *model.Node) []*grams {
	pool, counts, index := n.Ints("pool_int64s"), n.Ints("ngram_counts"), n.Ints("ngram_indexes")
	if pool == nil {
		n.Fail("attribute pool_int64s is missing: strings are not supported")
	}
	least, most := n.Int("min_gram_length", 1), n.Int("max_gram_length", 1)
	var out []*grams
	next := 0
	for k, from := range counts {
		to := len(pool)
		if k+1 < len(counts) {
			to = counts[k+1]
		}
		size := k + 1
		if from < 0 || to < from || to > len(pool) || (to-from)%size != 0 || next+(to-from)/size > len(index) {
			n.Fail("ngram_counts %v do not fit a pool of %d items and %d indexes", counts, len(pool), len(index))
		}
		g := &grams{n: size}
		seen := map[string]int{}
		for at := from; at < to; at += size {
			key := fmt.Sprint(pool[at : at+size])
			if old, ok := seen[key]; ok {
				g.index[old] = int64(index[next])
			} else {
				seen[key] = len(g.index)
				g.index = append(g.index, int64(index[next]))
				for _, v := range pool[at : at+size] {
					g.items = append(g.items, int64(v))
				}
			}
			next++
		}
		if size >= least && size <= most && len(g.index) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// countGrams counts the n-grams whose items lie step apart, f32 [B,width].
func countGrams(w *walk.Walker, n *model.Node, rows *ir.Value, g *grams, step, width int) *ir.Value {
	b, batch, count := w.B, rows.Type.Dims[0], len(g.index)
	windows := rows.Type.Dims[1] - step*(g.n-1)
	wide := []int{batch, windows, count}
	if _, err := model.Elements(wide); err != nil {
		n.Fail("%v", err)
	}
	var hit *ir.Value
	for k := range g.n {
		column := ir.NewArray(ir.T(rows.Type.DType, 1, 1, count))
		for i := range count {
			column.I[i] = g.items[i*g.n+k]
		}
		item := ops.Reshape(b, ops.SliceDim(b, rows, 1, k*step, windows), []int{batch, windows, 1})
		same := ops.Eq(b, ops.Expand(b, item, wide), ops.Expand(b, ops.Const(b, column.Tensor()), wide))
		if hit == nil {
			hit = same
		} else {
			hit = ops.And(b, hit, same)
		}
	}
	found := ops.Reshape(b, ops.ReduceSum(b, ops.Cast(b, hit, dtype.F32), 1), []int{batch, count})
	index := ir.Ints(ir.T(dtype.I64, count), g.index...)
	return ops.ScatterAdd(b, ops.Const(b, index), found, 1, width)
}

// weighGrams turns counts into what the mode wants. Weights belong to columns.
func weighGrams(w *walk.Walker, n *model.Node, y *ir.Value) *ir.Value {
	b, mode := w.B, n.Str("mode", "")
	weights := n.Floats("weights")
	if mode != "TF" && mode != "IDF" && mode != "TFIDF" {
		n.Fail("mode is %q, but must be TF, IDF or TFIDF", mode)
	}
	if mode == "IDF" {
		y = ops.Cast(b, ops.Gt(b, y, ops.Zeros(b, y.Type)), dtype.F32)
	}
	if mode == "TF" || weights == nil {
		return y
	}
	if len(weights) != y.Type.Dims[1] {
		n.Fail("it has %d weights for %d columns of the result", len(weights), y.Type.Dims[1])
	}
	row := ops.Const(b, ir.Floats(ir.T(dtype.F32, len(weights)), weights...))
	return ops.Mul(b, y, ops.BroadcastTo(b, row, y.Type.Dims))
}
