package compiler

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/distributed/schedule"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// maxRanks bounds the mesh: searches and proofs go over its ranks, and nobody waits for those of a slip of the hand.
const maxRanks = 1 << 14

// maxAdapterRank bounds the rank of adapters. B*A of a weight has no rank above that of the weight itself, and none that people adapt is as wide.
const maxAdapterRank = 1 << 16

// Defaults are the options that hold where nobody says otherwise: one rank, fp32, plain SGD at 1e-3.
func Defaults() Options {
	return Options{Pass: pass.Options{IgnoreIndex: -100, HuberDelta: 1, DP: 1, TP: 1, PP: 1, Microbatches: 1, Precision: "fp32", GradNorm: true,
		Optimizer: pass.Optimizer{Name: "sgd", LR: 1e-3}, Schedule: pass.Schedule{Name: "constant"}}}
}

// Limits refuses options that are out of range, or that do nothing beside the others: whoever gives one expects it to count. Errors
// name options as the command line does. What depends on the model is refused when it is compiled.
func (o *Options) Limits() error {
	for _, check := range []func() error{o.arithmetic, o.counts, o.parallel, o.pipeline} {
		if err := check(); err != nil {
			return Input(err)
		}
	}
	return nil
}

// arithmetic checks the types of numbers, and who they travel by.
func (o *Options) arithmetic() error {
	p := &o.Pass
	t, err := pass.TargetOf(p.Target)
	switch {
	case err != nil:
		return err
	case !slices.Contains([]string{"", "fp32", "tf32", "bf16", "fp16"}, p.Precision):
		return fmt.Errorf("--precision must be fp32, tf32, bf16 or fp16, not %q", p.Precision)
	case p.LossScale != 0 && p.Precision != "fp16":
		return fmt.Errorf("--loss-scale needs --precision fp16: no other precision scales the loss")
	case p.LossScale != 0 && !(p.LossScale >= 1.0/(1<<40) && p.LossScale <= 1<<40): // beyond, it or its inverse is soon none in f32
		return fmt.Errorf("--loss-scale must be dynamic or a number from 2^-40 to 2^40, not %g", p.LossScale)
	case !slices.Contains(append([]string{"", build.Local, build.MPI}, t.Traits().Comm...), o.Comm):
		return libraryOf(o.Comm)
	case p.HuberDelta < 0 || math.IsNaN(p.HuberDelta):
		return fmt.Errorf("--huber-delta must be positive")
	}
	return nil
}

// libraryOf says what a library that the target's ranks cannot talk by needs.
func libraryOf(comm string) error {
	all := []string{build.Local, build.MPI}
	for _, t := range pass.Targets {
		if slices.Contains(t.Traits().Comm, comm) {
			return fmt.Errorf("--comm %s needs --target %s", comm, t.Traits().Name)
		}
		all = append(all, t.Traits().Comm...)
	}
	last := len(all) - 1
	return fmt.Errorf("--comm must be %s or %s, not %q", strings.Join(all[:last], ", "), all[last], comm)
}

// counts checks that numbers of things are such.
func (o *Options) counts() error {
	p := &o.Pass
	for _, c := range []struct {
		name string
		n    int
	}{{"--batch", o.Import.Batch}, {"--dp", p.DP}, {"--microbatches", p.Microbatches}, {"--tp", p.TP}, {"--pp", p.PP}} {
		if c.n < 0 {
			return fmt.Errorf("%s must be at least 1", c.name)
		}
	}
	if dp, tp, pp := max(p.DP, 1), max(p.TP, 1), max(p.PP, 1); dp > maxRanks || tp > maxRanks/dp || pp > maxRanks/(dp*tp) {
		return fmt.Errorf("--dp %d --tp %d --pp %d: gtc compiles for at most %d ranks", dp, tp, pp, maxRanks)
	}
	switch {
	case p.Threads < 0:
		return fmt.Errorf("--threads cannot be negative")
	case p.Rewrites != nil && *p.Rewrites < 0:
		return fmt.Errorf("--rewrites must be 0 or more, not %d", *p.Rewrites)
	case p.LoRA.Rank > maxAdapterRank:
		return fmt.Errorf("--lora: rank must be at most %d, not %d", maxAdapterRank, p.LoRA.Rank)
	case p.LoRA.Rank < 0 || !(p.LoRA.Alpha >= 0) || math.IsInf(p.LoRA.Alpha, 0):
		return fmt.Errorf("--lora: rank must be at least 1, and alpha a finite number above 0 (adapters are scaled by alpha/rank)")
	}
	return nil
}

// parallel checks what divides the work of ranks.
func (o *Options) parallel() error {
	switch p := &o.Pass; {
	case p.SP && p.TP < 2:
		return fmt.Errorf("--sp needs --tp of at least 2: it splits what tensor-parallel ranks would repeat")
	case p.Zero < 0 || p.Zero > 3:
		return fmt.Errorf("--zero must be 0 (off), 1, 2 or 3, not %d", p.Zero)
	case p.Zero > 0 && p.DP < 2:
		return fmt.Errorf("--zero %d needs --dp of at least 2: it splits what data-parallel ranks hold", p.Zero)
	case p.BucketBytes < 0:
		return fmt.Errorf("--bucket-mb must be a number from 0 to 2^30, not %g", float64(p.BucketBytes)/(1<<20))
	case p.BucketBytes > 0 && p.DP < 2 && !p.SP:
		return fmt.Errorf("--bucket-mb needs --dp of at least 2, or --sp: it bounds the messages in which ranks add up gradients")
	}
	return nil
}

// pipeline checks the options of pipelines.
func (o *Options) pipeline() error {
	p := &o.Pass
	switch {
	case p.Chunks < 0:
		return fmt.Errorf("--chunks cannot be negative")
	case p.PP <= 1 && p.Pipeline != "":
		return fmt.Errorf("--schedule %s needs --pp of at least 2: it is the order in which the stages of a pipeline work", p.Pipeline)
	case p.PP <= 1 && p.Chunks > 0:
		return fmt.Errorf("--chunks needs --pp of at least 2 and --schedule interleaved")
	case p.PP <= 1:
		return nil
	}
	if _, err := schedule.Make(p.Pipeline, p.PP, p.Chunks, max(p.Microbatches, 1)); err != nil {
		return fmt.Errorf("--pp %d: %w", p.PP, err)
	}
	return nil
}
