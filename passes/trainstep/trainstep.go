// Package trainstep makes the functions of a training program from @forward: @step, which autodiff and
// optimizer extend, and @eval, which computes the loss and its metrics without training.
//
// # Design
//
// Both are copies of @forward followed by the loss, in ordinary ops on global shapes, with two more
// parameters: "target" (role target), and "sample_weight" f32[batch] (role weight), 1 for a sample that
// counts and 0 for padding, so that a last batch that does not divide stays exact.
//
// The loss is kept as two sums, never as a mean:
//
//	loss_sum = sum over samples of weight * (sum of the sample's element losses)
//	count    = sum over samples of weight * (number of its elements that count)
//
// and loss = loss_sum/count is what PyTorch's reduction="mean" gives. Sums split exactly over ranks and
// micro-batches whatever the weights and ignored targets are; means do not. The gradient is that of
// loss_sum; the division by the global count comes after it was added up (pass optimizer).
//
// A model that computes its own loss (--loss graph) has no target or weight of ours. When its output is a sum
// divided by a number that no trained parameter changes (a mean over the targets that are not ignored), these are
// loss_sum and count; otherwise loss_sum is the output and count is 1.
//
// In @step BatchNorm and Dropout take their training form: batch_norm_stat becomes batch_norm over the samples of weight 1
// plus updates of the running statistics (unbiased variance, as PyTorch does), decomposed when the
// statistics are to be those of the global batch, so that its reductions shard like any other. In @eval and
// @forward they take their inference form. Context.Noise tells which random numbers remain there. With Options.NoDropout @step
// is without dropout, too.
//
// A batch that is not full is filled up with samples of weight 0. Where these would count all the same, because an op looks at
// several samples at a time (package samples), what is added up over samples is multiplied by the weights, and numbers that depend on the
// size of the batch depend on how many samples count (masked). Where that is not enough Context.CrossSample tells, and the run-time leaves such batches out.
//
// Results: @step loss_sum and count, and with Options.Check also the model's outputs out0… in training
// form (what a reference in training mode compares with); @eval loss_sum, count and, for classification,
// correct: the weighted number of elements whose greatest logit is the target's. @forward stays only with
// Options.Forward, @eval not with Options.Check. With --loss none @forward is all there is: nothing is trained.
package trainstep

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/samples"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Run makes @step and @eval.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	fwd := c.Module.Func(abi.FuncForward)
	if fwd == nil {
		return fmt.Errorf("there is no @forward to train")
	}
	c.Loss = c.Opt.Loss
	if err := lead(c, fwd); err != nil {
		return err
	}
	if c.Loss == pass.NoLoss {
		inferenceForm(c, fwd)
		meet(c, fwd, nil)
		return nil
	}
	out, err := lossOutput(c, fwd)
	if err != nil {
		return err
	}
	made, err := build(c, fwd, out, nil)
	if err != nil {
		return err
	}
	// Masks are for models in which samples meet, and for those with numbers of the batch's size; all others stay as they are.
	var open *samples.CrossSample // where samples meet that no mask can part, among others
	better, why := withMasks(c, fwd, out)
	switch {
	case better == nil:
		if why != nil && made.meets() {
			c.Remark(nil, "what fills a batch up is not masked: %s", why)
		} else if why != nil {
			made.crosses = bySizeAlone(c, samples.Reader(fwd).Batch)
		}
	case !better.meets() && (better.closed || made.meets()):
		made = better
	case made.meets():
		open = better.crossing()
	case better.closed: // numbers depend on the size of the batch, and cannot be those of fewer samples
		made.crosses = better.crossing()
	}
	c.Remarks, c.SingleValueStatistics = append(c.Remarks, made.remarks...), made.singleValue
	trained, evaluated := made.step, made.eval
	if c.Opt.NoDropout {
		if asUsed(c, trained) > 0 { // it is in training form, so that only dropout is left
			c.Remark(nil, "dropout lets everything through, because a reference has other random numbers")
		}
	}
	c.Module.Funcs = []*ir.Func{trained, evaluated}
	if c.Opt.Check {
		c.Module.Funcs = c.Module.Funcs[:1]
	}
	inferenceForm(c, evaluated)
	if c.Opt.Forward {
		inferenceForm(c, fwd)
		c.Module.Funcs = append(c.Module.Funcs, fwd)
	}
	for _, f := range c.Module.Funcs {
		meet(c, f, open)
	}
	if made.crosses != nil {
		c.SetCrossSample(abi.FuncStep, made.crosses.String())
		c.SetCrossSample(abi.FuncEval, made.crosses.String())
	}
	for _, f := range c.Module.Funcs {
		spellSync(c, f)
	}
	return nil
}

// built are @step, in training form, and @eval.
type built struct {
	step, eval  *ir.Func
	remarks     []pass.Remark
	singleValue *abi.SingleValueStatistics
	crosses     *samples.CrossSample // where masks do not keep samples apart
	closed      bool                 // masks have changed something
}

// build makes @step and @eval of a model, with masks where it is known which constants depend on the size of a batch. Remarks are not yet made.
func build(c *pass.Context, fwd *ir.Func, out *ir.Value, places *bySizes) (*built, error) {
	kept, singleValue := len(c.Remarks), c.SingleValueStatistics
	x := &built{}
	for _, f := range []struct {
		at   **ir.Func
		name string
	}{{&x.step, abi.FuncStep}, {&x.eval, abi.FuncEval}} {
		g, to := fwd.Clone()
		first := slices.IndexFunc(fwd.Results, func(r ir.Result) bool { return to[r.Value] == to[out] })
		g.Name = f.name
		if places != nil {
			var closed bool
			x.crosses, closed = masked(c, g, places)
			if x.closed = x.closed || closed; x.crosses != nil {
				break
			}
		}
		results := g.Results
		g.Results = nil
		if err := addLoss(c, g, results[first].Value, f.name == abi.FuncEval); err != nil {
			return nil, err
		}
		if c.Opt.Check && f.name == abi.FuncStep {
			for _, r := range results {
				g.Results = append(g.Results, ir.Result{Name: r.Name, Value: r.Value})
			}
		}
		if places != nil {
			maskedLoss(c, g)
		}
		*f.at = g
	}
	if x.crosses != nil {
		return x, nil
	}
	for _, g := range []*ir.Func{x.step, x.eval} {
		ownBatch(c, g)
	}
	trainingForm(c, x.step)
	x.remarks, x.singleValue = slices.Clone(c.Remarks[kept:]), c.SingleValueStatistics
	c.Remarks, c.SingleValueStatistics = c.Remarks[:kept], singleValue
	return x, nil
}

// meets reports whether samples that fill a batch up would count.
func (x *built) meets() bool { return x.crossing() != nil }

// crossing is where they would; nil for nowhere.
func (x *built) crossing() *samples.CrossSample {
	if x.crosses != nil {
		return x.crosses
	}
	for _, f := range []*ir.Func{x.step, x.eval} {
		if m := samples.Kept(f, isLoss).Crosses; m != nil {
			return m
		}
	}
	return nil
}

// withMasks is build with masks; nil where it is not known what depends on the size of a batch, and why, where that is worth telling.
func withMasks(c *pass.Context, fwd *ir.Func, out *ir.Value) (*built, error) {
	if c.Larger == nil || samples.Reader(fwd).Batch < 2 {
		return nil, nil
	}
	var larger [2]*ir.Func
	for i := range larger {
		f, err := c.Larger(2 << i)
		if err == nil {
			err = leadAgain(c, f)
		}
		if err != nil {
			return nil, err
		}
		if !times(fwd, f, 2<<i) {
			return nil, nil
		}
		larger[i] = f
	}
	places, err := sized(fwd, larger[0], larger[1], samples.Reader(fwd).Batch)
	if err != nil {
		return nil, err
	}
	crosses, err := steady(c, samples.Reader(fwd).Batch)
	if err != nil {
		return nil, err
	}
	if crosses != nil {
		return &built{crosses: crosses, closed: true}, nil
	}
	return build(c, fwd, out, places)
}

// meet notes where samples meet in f: a batch may then not be filled up with samples that do not count. It is open that tells why, unless nil.
func meet(c *pass.Context, f *ir.Func, open *samples.CrossSample) {
	all := f.Name == abi.FuncForward
	m := samples.Kept(f, func(name string) bool { return all || isLoss(name) }).Crosses
	if m == nil {
		return
	}
	if open != nil && !all {
		m = open
	}
	c.SetCrossSample(f.Name, m.String())
	if f.Name == abi.FuncStep {
		c.Remark(nil, "a batch that is not full is left out, because samples that fill it up would count: %s", m)
	}
}

// isLoss reports whether a result is one that addLoss gives a function.
func isLoss(name string) bool { return name == abi.LossSum || name == abi.Count || name == abi.Correct }

// lossOutput finds the model output that the loss reads, and settles which loss it is.
func lossOutput(c *pass.Context, f *ir.Func) (*ir.Value, error) {
	var outs []ir.Result
	for _, r := range f.Results {
		if r.Updates == nil {
			outs = append(outs, r)
		}
	}
	if len(outs) == 0 {
		return nil, ir.Errorf(ir.Loc{}, "the model has no output to take a loss of")
	}
	v := outs[0].Value
	scalar := v.Type.Elems() == 1 && len(v.Type.Dims) <= 1 && v.Type.DType.IsFloat()
	if c.Loss == "" {
		if len(outs) > 1 && scalar {
			return nil, ir.Errorf(locOf(v), "the first of the model's %d outputs, %q, is one number: if it is the loss, say --loss graph", len(outs), v.Name)
		}
		if !scalar {
			return nil, ir.Errorf(locOf(v), "the model's output %q is %s, not a scalar loss: choose one with --loss", v.Name, v.Type).
				Note("known losses are %s", lossNames())
		}
		c.Loss = "graph"
		c.Remark(v, "is the loss because it is the model's only output and a scalar")
	}
	if c.Loss == "graph" && !scalar {
		return nil, ir.Errorf(locOf(v), "--loss graph needs a scalar float as the model's first output, %q is %s", v.Name, v.Type)
	}
	for _, r := range outs[1:] {
		c.Remark(r.Value, "takes no part in the loss because only the first output, %%%s, does", v.Name)
	}
	return v, nil
}

func locOf(v *ir.Value) ir.Loc {
	if v.Op != nil {
		return v.Op.Loc
	}
	return ir.Loc{}
}

// Inference brings f into the form in which @forward stays with Options.Forward: Dropout lets everything through, and
// BatchNorm normalises by the running statistics.
func Inference(c *pass.Context, f *ir.Func) (err error) {
	defer ir.Recover(&err)
	inferenceForm(c, f)
	return nil
}

// inferenceForm removes Dropout, spells out BatchNorm over the running statistics, and notes which random numbers remain.
func inferenceForm(c *pass.Context, f *ir.Func) {
	asUsed(c, f)
	var drawn []string
	for _, op := range f.Ops {
		if name := op.Loc.String(); op.Draws() && !slices.Contains(drawn, name) {
			drawn = append(drawn, name)
		}
	}
	if len(drawn) > 0 {
		c.SetNoise(f.Name, strings.Join(drawn[:min(len(drawn), 8)], ", "))
	}
}

// asUsed replaces the ops of f that are others when a model is used and not trained, dropout by what it reads, and counts them.
func asUsed(c *pass.Context, f *ir.Func) int {
	n := c.Rewrite(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if used := op.Def.Rules.Inference; used != nil {
			return slices.Clone(used(b, op))
		}
		return nil
	})
	uses := f.Uses()
	f.Params = slices.DeleteFunc(f.Params, func(p *ir.Value) bool { return p.Role == ir.State && len(uses[p]) == 0 })
	for i, p := range f.Params {
		p.Index = i
	}
	return n
}

// addLoss appends the loss of out to f: results loss_sum, count and, when metrics are asked for, correct.
func addLoss(c *pass.Context, f *ir.Func, out *ir.Value, metrics bool) error {
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "loss", Derived: c.Pass}
	if out.Op != nil {
		b.Loc = c.Loc(out.Op.Loc)
	}
	l := &lossBuilder{c: c, b: b, out: out, metrics: metrics}
	if c.Loss == "graph" {
		l.graph(f)
	} else if err := l.build(); err != nil {
		return err
	}
	if l.sum.Op == nil { // a model that returns its input: results must not alias a parameter's name
		l.sum = ops.AddScalar(b, l.sum, 0)
	}
	for _, r := range []struct {
		name string
		v    *ir.Value
	}{{abi.LossSum, l.sum}, {abi.Count, l.count}, {abi.Correct, l.correct}} {
		if r.v != nil {
			if r.v != out {
				b.Rename(r.v, r.name)
			}
			b.Result(r.name, r.v)
		}
	}
	return nil
}
