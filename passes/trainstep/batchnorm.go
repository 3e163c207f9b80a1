package trainstep

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/samples"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// trainingForm rewrites BatchNorm for @step, over those samples that count where the loss weighs samples; Dropout already has its
// training form.
func trainingForm(c *pass.Context, f *ir.Func) {
	norms := 0
	weight, reader := weightOf(f), samples.Reader(f)
	c.Rewrite(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		a, ok := op.Attrs.(ops.BatchNormStatAttrs)
		if !ok {
			return nil
		}
		norms++
		x := op.In[0]
		attrs, n := batchOf(c, op, a.Eps, true)
		if rows := perSample(b, reader, x, 0, weight); rows != nil {
			singleValue(c, op, reader.Batch, n)
			out := ops.BatchNormOf(b, x, op.In[1], op.In[2], ops.Cast(b, rows, dtype.Bool), attrs)
			running(c, b, op.In[3], a.Momentum, statistic{batch: out[1], n: out[3], least: 1})
			running(c, b, op.In[4], a.Momentum, statistic{batch: out[2], n: out[3], least: 2})
			return out[:1]
		}
		y, mean, variance := ops.BatchNorm(b, x, op.In[1], op.In[2], attrs)
		channels := perSample(b, reader, x, 1, weight)
		running(c, b, op.In[3], a.Momentum, statistic{batch: mean, scale: 1, weights: channels})
		running(c, b, op.In[4], a.Momentum, statistic{batch: variance, scale: n / math.Max(1, n-1), weights: channels})
		return []*ir.Value{y}
	})
	if norms == 0 && c.Opt.SyncBN {
		c.Remark(nil, "warning: --sync-bn does nothing: no BatchNorm of the model takes statistics of the batch")
	}
}

// batchOf is how op normalises by the statistics of a batch, and of how many values of each channel one rank sees at a time.
func batchOf(c *pass.Context, op *ir.Op, eps float64, training bool) (ops.BatchNormAttrs, float64) {
	x := op.In[0]
	how := "of each rank's own batch, as DistributedDataParallel does"
	if c.Opt.SyncBN {
		how = "of the global batch"
	} else if c.Opt.DP*c.Opt.Microbatches <= 1 {
		how = "of the batch"
	}
	if training {
		c.Remark(op.Out[0], "normalises by the statistics %s, because @step is in training form", how)
	}
	n := float64(x.Type.Elems() / x.Type.Dims[1])
	if !c.Opt.SyncBN && x.Type.Dims[0] > 1 { // of [1,N*C,…] the channels are split
		n /= float64(max(1, c.Opt.DP) * max(1, c.Opt.Microbatches))
	}
	if n <= 1 {
		panic(ir.Errorf(op.Loc, "it normalises %s by the statistics of a batch with one value for each channel, which has no variance", x.Type).
			Note("PyTorch: Expected more than 1 value per channel when training. Use a larger --batch, fewer --dp or --microbatches, " +
				"--sync-bn, or --freeze its running statistics"))
	}
	return ops.BatchNormAttrs{Eps: eps, Sync: c.Opt.SyncBN}, n
}

// singleValue notes an op that normalises samples of which each has one value for each channel.
func singleValue(c *pass.Context, op *ir.Op, batch int, n float64) {
	if x := op.In[0]; x.Type.Elems() == x.Type.Dims[1]*batch && c.SingleValueStatistics == nil {
		c.SingleValueStatistics = &abi.SingleValueStatistics{Node: (&samples.CrossSample{Op: op, Text: "normalises by the batch"}).String(), Samples: int(n)}
	}
}

// ownBatch has the batch normalisations that have no running statistics, but those of their batch in every function, go by
// the samples that count, and by the global batch with --sync-bn.
func ownBatch(c *pass.Context, f *ir.Func) {
	weight, reader := weightOf(f), samples.Reader(f)
	c.Rewrite(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if !op.Def.Rules.PerPart || len(op.In) > op.Def.Rules.Counts {
			return nil
		}
		x := op.In[0]
		attrs, n := batchOf(c, op, op.Attrs.(ops.BatchNormAttrs).Eps, f.Name == abi.FuncStep)
		if rows := perSample(b, reader, x, 0, weight); rows != nil {
			singleValue(c, op, reader.Batch, n)
			return ops.BatchNormOf(b, x, op.In[1], op.In[2], ops.Cast(b, rows, dtype.Bool), attrs)[:3]
		}
		if !attrs.Sync {
			return nil
		}
		y, mean, variance := ops.BatchNorm(b, x, op.In[1], op.In[2], attrs)
		return []*ir.Value{y, mean, variance}
	})
}

// perSample repeats the weights over dim d of x, whose elements are of one sample each; nil where they are not, and where there are no weights.
func perSample(b *ir.Builder, reader *samples.Facts, x *ir.Value, d int, weight *ir.Value) *ir.Value {
	if weight == nil || !reader.Reach(x) || !reader.Layout(x).Has() {
		return nil
	}
	return reader.Layout(x)[d:d+1].Mask(b, weight)
}

// spellSync spells out the BatchNorms over the global batch, so that their reductions shard like any other.
func spellSync(c *pass.Context, f *ir.Func) {
	c.Rewrite(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if !op.Def.Rules.PerPart || !op.Apart() {
			return nil
		}
		return op.Def.Rules.Decompose(b, op)
	})
}

// weightOf is the weight of samples that f takes, nil when it takes none.
func weightOf(f *ir.Func) *ir.Value {
	for _, p := range f.Params {
		if p.Role == ir.Weight {
			return p
		}
	}
	return nil
}

// statistic is one of a batch: a mean, or a biased variance that becomes that of a sample.
type statistic struct {
	batch *ir.Value // [C]
	// n, f32[C], is how many values it is of, when only some count: with fewer than least nothing moves, and of a variance (least
	// 2) of n values n/(n-1) is taken. Nil: all count, and scale of it is taken.
	n     *ir.Value
	least float64
	scale float64
	// weights, f32[C], are 1 where a channel's sample counts and 0 where it does not; nil where channels are of no samples.
	weights *ir.Value
}

// running updates the running statistic old: (1-m)*old + m*batch.
func running(c *pass.Context, b *ir.Builder, old *ir.Value, m float64, s statistic) {
	if p := repeatedBuffer(old); p != nil {
		s.ofEach(b, p)
		old = p
	}
	if old.Op != nil || old.Role != ir.Buffer {
		c.Remark(old, "keeps its value because it is not a buffer: no running statistic is updated")
		return
	}
	from := old
	if i := slices.IndexFunc(b.F.Results, func(r ir.Result) bool { return r.Updates == old }); i >= 0 {
		from = b.F.Results[i].Value // a module that is called again moves what its last call has left
		b.F.Results = slices.Delete(b.F.Results, i, i+1)
	}
	if s.n == nil {
		next := ops.Add(b, ops.MulScalar(b, from, 1-m), ops.MulScalar(b, s.batch, m*s.scale))
		b.Update(old, b.Rename(next, old.Name+".next"))
		return
	}
	batch := s.batch
	if s.least > 1 {
		others := ops.Maximum(b, ops.AddScalar(b, s.n, -1), ops.ScalarLike(b, s.n, 1))
		batch = ops.Mul(b, batch, ops.Cast(b, ops.Div(b, s.n, others), batch.Type.DType))
	}
	moved := ops.Add(b, ops.MulScalar(b, from, 1-m), ops.MulScalar(b, batch, m))
	enough := ops.Ge(b, s.n, ops.ScalarLike(b, s.n, s.least))
	b.Update(old, b.Rename(ops.Where(b, enough, moved, from), old.Name+".next"))
}

// ofEach is the mean of a statistic of channels that are times those of the buffer p, one after another, as in an instance
// normalisation that is spelled as one over [1,N*C,…].
func (s *statistic) ofEach(b *ir.Builder, p *ir.Value) {
	each := p.Type.Elems()
	rows := func(v *ir.Value) *ir.Value { return ops.Reshape(b, v, []int{v.Type.Elems() / each, each}) }
	if s.n != nil { // it is the same of all channels
		s.n = ops.Reshape(b, ops.ReduceMax(b, rows(s.n), 0), p.Type.Dims)
	}
	if s.weights == nil {
		s.batch = ops.Reshape(b, ops.ReduceMean(b, rows(s.batch), 0), p.Type.Dims)
		return
	}
	w := ops.Cast(b, s.weights, s.batch.Type.DType)
	sum, n := ops.ReduceSum(b, rows(ops.Mul(b, s.batch, w)), 0), ops.ReduceSum(b, rows(w), 0)
	s.batch = ops.Reshape(b, ops.Div(b, sum, n), p.Type.Dims)
}

// repeatedBuffer is the buffer that v repeats whole, over and over; nil when v is anything else.
func repeatedBuffer(v *ir.Value) *ir.Value {
	repeats := false
	for v.Op != nil {
		in := v.Op.In[0]
		switch v.Moved() {
		case ir.Keeps:
		case ir.Repeats:
			d, own := v.Type.Dims, in.Type.Dims
			k := len(d) - 1
			for k >= 0 && d[k] == own[k] { // a dim within the buffer must not repeat
				k--
			}
			if ir.Product(own[:k+1]) != 1 {
				return nil
			}
			repeats = true
		default:
			return nil
		}
		v = in
	}
	if !repeats || v.Role != ir.Buffer {
		return nil
	}
	return v
}
