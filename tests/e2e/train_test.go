package e2e

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/npz"
)

// Variants of spec one that must train alike.
var (
	halves    = spec{model: mlp, batch: 32, dp: 1, micro: 2, lr: 2e-3}
	bothWays  = spec{model: mlp, batch: 32, dp: 2, micro: 2, lr: 2e-3}
	sameSteps = []string{"--data", digits, "--seed", "11", "--checkpoint-dir"}
)

// alike compares losses step by step: relative difference at most tol.
func alike(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) || len(got) == 0 {
		t.Fatalf("%s: %d steps, want %d", what, len(got), len(want))
	}
	worst, at := 0.0, 0
	for i := range got {
		if d := math.Abs(got[i]-want[i]) / math.Abs(want[i]); !(d <= worst) {
			worst, at = d, i
		}
	}
	t.Logf("%s: the losses of %d steps differ by %.1e at most (step %d: %.7g and %.7g)", what, len(got), worst, at+1, got[at], want[at])
	if !(worst <= tol) {
		t.Errorf("%s: the losses differ by %g at step %d, at most %g is allowed", what, worst, at+1, tol)
	}
}

// The MLP learns the digits as it does in PyTorch: expected.json has a mean training loss of 0.43 over the first 282 steps
// and 0.19 over the next.
func TestTrains(t *testing.T) {
	events := run(t, compiled(t, one).Dir, 1, "--data", digits, "--eval-data", unseen, "--steps", "300", "--checkpoint-dir", "none")
	all, eval := losses(events), last(t, events, "eval")
	mean := 0.0
	for _, l := range all[250:] {
		mean += l / 50
	}
	t.Logf("loss %.3f at first, %.3f over the last 50 of 300 steps; %.1f %% of %d digits", all[0], mean, 100*eval.Accuracy, eval.Samples)
	if math.Abs(all[0]-math.Log(10)) > 0.15 || mean > 0.35 || eval.Accuracy < 0.9 || eval.Samples != 1000 {
		t.Errorf("loss %g, then %g; accuracy %g of %d", all[0], mean, eval.Accuracy, eval.Samples)
	}
}

// Two ranks, and two micro-batches, and both, take the same steps as one rank: sums are only added in another order.
func TestLayoutsTrainAlike(t *testing.T) {
	want := losses(run(t, compiled(t, one).Dir, 1, append(sameSteps, "none", "--steps", "30")...))
	for _, v := range []struct {
		name  string
		spec  spec
		ranks int
	}{{"dp 2", two, 2}, {"2 micro-batches", halves, 1}, {"dp 2, 2 micro-batches", bothWays, 2}} {
		got := losses(run(t, compiled(t, v.spec).Dir, v.ranks, append(sameSteps, "none", "--steps", "30")...))
		alike(t, v.name+", first 10 steps", got[:10], want[:10], 1e-5)
		alike(t, v.name, got, want, 1e-4)
	}
}

// A last batch that is not full counts for its samples alone, however many ranks and micro-batches share it: of 40 samples
// in batches of 32, the second batch has 8, all of them on the first rank. So does the last batch of an evaluation.
func TestLastBatch(t *testing.T) {
	few := pictures(t, "few.npz", 40, func(_, _ *npz.Array) {})
	args := []string{"--data", few, "--steps", "6", "--eval-data", few, "--checkpoint-dir", "none"}
	want := run(t, compiled(t, one).Dir, 1, args...)
	if e := last(t, want, "eval"); e.Samples != 40 {
		t.Errorf("%d samples were evaluated", e.Samples)
	}
	for _, v := range []struct {
		name  string
		spec  spec
		ranks int
	}{{"dp 2", two, 2}, {"2 micro-batches", halves, 1}, {"dp 2, 2 micro-batches", bothWays, 2}} {
		got := run(t, compiled(t, v.spec).Dir, v.ranks, args...)
		alike(t, v.name, losses(got), losses(want), 1e-5)
		a, b := last(t, got, "eval"), last(t, want, "eval")
		alike(t, v.name+", evaluation", []float64{a.Loss}, []float64{b.Loss}, 1e-5)
		if a.Samples != b.Samples || a.Accuracy != b.Accuracy {
			t.Errorf("%s: accuracy %g of %d samples, want %g of %d", v.name, a.Accuracy, a.Samples, b.Accuracy, b.Samples)
		}
	}
}

// A transformer on token files: embeddings, attention and the tied head, on windows that start anywhere.
func TestTransformerLayouts(t *testing.T) {
	args := []string{"--data", plays(t), "--steps", "5", "--checkpoint-dir", "none"}
	split := shakespeare
	split.dp, split.micro = 2, 3
	want := losses(run(t, compiled(t, shakespeare).Dir, 1, args...))
	alike(t, "dp 2, 3 micro-batches", losses(run(t, compiled(t, split).Dir, 2, args...)), want, 1e-5)
}

// A checkpoint of one rank goes on with two, and the other way round, with the samples that would have come next. Batches
// differ in their losses by far more than the tolerance.
func TestResumeOnOtherRanks(t *testing.T) {
	first, second := compiled(t, one).Dir, compiled(t, two).Dir
	want := losses(run(t, first, 1, append(sameSteps, "none", "--steps", "60")...))
	if slices.Max(want[30:])-slices.Min(want[30:]) < 0.1 {
		t.Fatal("the batches do not tell orders apart")
	}
	for _, v := range []struct {
		name                string
		before, after       string
		beforeRank, afterTo int
	}{{"from 1 rank to 2", first, second, 1, 2}, {"from 2 ranks to 1", second, first, 2, 1}} {
		dir := filepath.Join(t.TempDir(), "checkpoints")
		got := losses(run(t, v.before, v.beforeRank, append(sameSteps, dir, "--steps", "30")...))
		got = append(got, losses(run(t, v.after, v.afterTo, append(sameSteps, dir, "--steps", "60", "--resume")...))...)
		alike(t, v.name, got, want, 1e-4)
	}
}

// Two runs of one program, and a run with a break, give the same bits.
func TestRepeats(t *testing.T) {
	dir := compiled(t, one).Dir
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	want := last(t, run(t, dir, 1, append(sameSteps, a, "--steps", "290")...), "end") // into the second epoch of 282 steps
	run(t, dir, 1, append(sameSteps, b, "--steps", "137")...)
	if got := last(t, run(t, dir, 1, append(sameSteps, b, "--steps", "290", "--resume")...), "end"); got.Bits != want.Bits {
		t.Errorf("loss bits %s after a break, %s without", got.Bits, want.Bits)
	}
	sameTensors(t, a, b)
}
