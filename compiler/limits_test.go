package compiler

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// TestLimits: options out of range, or that nothing would read, are refused as faults of the user, by the name of their flag.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		want string
		set  func(*Options)
	}{
		{"", func(*Options) {}},
		{"", func(o *Options) { *o = Options{} }},
		{"", func(o *Options) { o.Pass.DP, o.Pass.Zero, o.Pass.BucketBytes = 2, 3, 1 }},
		{"", func(o *Options) { o.Pass.PP, o.Pass.Pipeline, o.Pass.Microbatches = 2, "gpipe", 4 }},
		{"--target", func(o *Options) { o.Pass.Target = "abacus" }},
		{"--precision", func(o *Options) { o.Pass.Precision = "fp8" }},
		{"--loss-scale", func(o *Options) { o.Pass.LossScale = 2 }},
		{"--loss-scale", func(o *Options) { o.Pass.Precision, o.Pass.LossScale = "fp16", math.NaN() }},
		{"--comm nccl", func(o *Options) { o.Comm = "nccl" }},
		{"--comm", func(o *Options) { o.Comm = "pigeon" }},
		{"--huber-delta", func(o *Options) { o.Pass.HuberDelta = -1 }},
		{"--batch", func(o *Options) { o.Import.Batch = -1 }},
		{"--dp must", func(o *Options) { o.Pass.DP = -1 }},
		{"--microbatches", func(o *Options) { o.Pass.Microbatches = -1 }},
		{"--tp must", func(o *Options) { o.Pass.TP = -1 }},
		{"--pp must", func(o *Options) { o.Pass.PP = -1 }},
		{"at most 16384 ranks", func(o *Options) { o.Pass.DP, o.Pass.TP, o.Pass.PP = 128, 128, 2 }},
		{"at most 16384 ranks", func(o *Options) { o.Pass.DP, o.Pass.TP = math.MaxInt, math.MaxInt }},
		{"--threads", func(o *Options) { o.Pass.Threads = -1 }},
		{"--rewrites", func(o *Options) { o.Pass.Rewrites = new(int); *o.Pass.Rewrites = -1 }},
		{"--lora", func(o *Options) { o.Pass.LoRA.Rank = -1 }},
		{"--lora", func(o *Options) { o.Pass.LoRA.Alpha = math.NaN() }},
		{"--lora: rank must be at most 65536, not 4611686018427387904", func(o *Options) { o.Pass.LoRA.Rank = 1 << 62 }},
		{"--sp", func(o *Options) { o.Pass.SP = true }},
		{"--zero must", func(o *Options) { o.Pass.DP, o.Pass.Zero = 2, 4 }},
		{"--zero 1", func(o *Options) { o.Pass.Zero = 1 }},
		{"--bucket-mb", func(o *Options) { o.Pass.BucketBytes = 1 }},
		{"--bucket-mb", func(o *Options) { o.Pass.DP, o.Pass.BucketBytes = 2, -1 }},
		{"--chunks cannot", func(o *Options) { o.Pass.PP, o.Pass.Chunks = 2, -1 }},
		{"--chunks needs", func(o *Options) { o.Pass.Chunks = 2 }},
		{"--schedule gpipe", func(o *Options) { o.Pass.Pipeline = "gpipe" }},
		{"--pp 2", func(o *Options) { o.Pass.PP, o.Pass.Pipeline = 2, "interpretive" }},
	} {
		o := Defaults()
		c.set(&o)
		err := o.Limits()
		var fault *InputError
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &fault) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
}
