package abi

import (
	"testing"

	"github.com/gtc-compiler/gtc/distributed/schedule"
)

// TestNames: what a constructor makes its parser takes apart, and no other name.
func TestNames(t *testing.T) {
	for _, p := range []Prefix{Gradient, OptimState, Accum, WholeData, Stashed, SentBack, AtStep, Constant, Curve} {
		name := p.Of("a/b")
		if of, ok := p.Cut(name); !ok || of != "a/b" || !p.Has(name) || p.Trim(name) != "a/b" {
			t.Errorf("%q: %q %t", name, of, ok)
		}
		if of, ok := p.Cut("a/b"); ok || p.Has("a/b") || p.Trim("a/b") != "a/b" {
			t.Errorf("%s takes %q from a/b", p, of)
		}
	}
	if kind, param, ok := CutOptim(Optim("exp_avg", "a/b")); !ok || kind != "exp_avg" || param != "a/b" {
		t.Errorf("%q %q %t", kind, param, ok)
	}
	if _, _, ok := CutOptim("optimal"); ok {
		t.Error("optimal is no state")
	}
	for name, want := range map[string]bool{StepCount: true, EmptySteps: true, NoiseSeed: true, SkippedSteps: true, Optim(KindError, "w"): true, Constant.Of("x"): true,
		"w": false, "steps": false, Gradient.Of("w"): false} {
		if OfRun(name) != want {
			t.Errorf("%q belongs to a run: %t", name, !want)
		}
	}
}

// TestFunctions: the same of functions.
func TestFunctions(t *testing.T) {
	for _, k := range []schedule.Kind{schedule.F, schedule.B, schedule.W} {
		for _, chunk := range []int{0, 1, 12} {
			name := ChunkFunc(k, chunk)
			if kind, n, ok := ParseChunkFunc(name); !ok || kind != k || n != chunk {
				t.Errorf("%s is %v of chunk %d, %t", name, kind, n, ok)
			}
		}
	}
	for _, name := range []string{FuncStep, FuncMicro, "fwd", "fwd.", "fwd.x", "fwd.-1", "fwd.+1", "fwd.01", "fwd.0.0", "merge.fwd.0", "dgrad.0", ""} {
		if _, _, ok := ParseChunkFunc(name); ok {
			t.Errorf("%q is taken for a function of a chunk", name)
		}
	}
	if m := MergeFunc(FuncMicro, 2); m != "merge.micro.2" || !IsMergeFunc(m) || IsMergeFunc(FuncMicro) {
		t.Errorf("%q", m)
	}
}
