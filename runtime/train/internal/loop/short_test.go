package loop

import (
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// TestLeftOut: where samples meet, 13 samples in batches of 8 are 8, told at the start of training and by the first evaluation; no batch at
// all is an error, as it is for a run of the model that is not full.
func TestLeftOut(t *testing.T) {
	const why = `node "/Mean" (ReduceMean) adds up samples`
	for _, dp := range []int{1, 2} {
		m := newToy()
		m.dp, m.crossSample = dp, map[string]string{abi.FuncStep: why, abi.FuncEval: why, abi.FuncForward: why}
		dir, data := m.folder(t, 13)
		o := m.ok(t, dir, "--data", data, "--eval-data", data, "--epochs", "3", "--eval-every", "1", "--json", "--log-every", "1", "--shuffle=false")
		if n := len(events(t, o.out, "step")); n != 3 {
			t.Errorf("dp %d: %d steps in 3 epochs", dp, n)
		}
		if n := events(t, o.out, "start")[0]["left_out"]; n != 5.0 {
			t.Errorf("dp %d: %v samples are left out", dp, n)
		}
		for _, e := range events(t, o.out, "eval") {
			if e["samples"] != 8.0 || e["unseen"] != 5.0 {
				t.Errorf("dp %d: evaluated %v samples, not %v", dp, e["samples"], e["unseen"])
			}
		}
		for _, text := range []string{"each epoch leaves out the last 5 of 13 samples", "evaluations do not see the last 5 of 13 samples"} {
			if strings.Count(o.err, text) != 1 || strings.Count(o.err, why) != 2 {
				t.Errorf("dp %d: %q is not told once:\n%s", dp, text, o.err)
			}
		}
		if text := m.ok(t, dir, "--data", data, "--steps", "1", "--checkpoint-dir", "none").err; !strings.Contains(text, "each epoch leaves out 5 of 13 samples, others each time") {
			t.Errorf("dp %d: shuffled: %s", dp, text)
		}
		if text := m.ok(t, dir, "--data", data, "--steps", "1", "--checkpoint-dir", "none", "--drop-last").err; strings.Contains(text, why) {
			t.Errorf("dp %d: told what was asked for: %s", dp, text)
		}
		_, single := m.folder(t, 1)
		m.fails(t, dir, `--data: 1 sample cannot fill a batch of 8`, "--data", single)
		m.fails(t, dir, "it has 1 sample, but the program takes 8 at a time", "--dump-forward", dir+"/out.npz", "--inputs", single)
		few, small := m.folder(t, 7)
		m.fails(t, few, `--data: 7 samples cannot fill a batch of 8, so that none is left to look at: `+why, "--data", small)
		m.fails(t, few, `--eval-data: 7 samples cannot fill a batch of 8, so that none is left to look at: `+why, "--data", data, "--eval-data", small)
		m.fails(t, few, "samples that fill up the last of these would count: "+why, "--dump-forward", dir+"/out.npz", "--inputs", data)
	}
}

// TestNoiseTold: evaluations and outputs that depend on random numbers say so, once.
func TestNoiseTold(t *testing.T) {
	m := newToy()
	m.noise = map[string]string{abi.FuncEval: `"/Normal"`, abi.FuncForward: `"/Normal"`}
	dir, data := m.folder(t, 8)
	o := m.ok(t, dir, "--data", data, "--eval-data", data, "--epochs", "3", "--eval-every", "1", "--json")
	if n := strings.Count(o.err, `evaluations are random: "/Normal" draws numbers in them, too`); n != 1 {
		t.Errorf("told %d times:\n%s", n, o.err)
	}
	for _, e := range events(t, o.out, "eval") {
		if e["noise"] != `"/Normal"` {
			t.Errorf("%v", e)
		}
	}
	o = m.ok(t, dir, "--dump-forward", dir+"/out.npz", "--inputs", data)
	if !strings.Contains(o.err, `outputs are random: "/Normal" draws numbers in them, too`) {
		t.Errorf("not told: %s", o.err)
	}
}

// TestNothingLeftOut: where samples do not meet, all count.
func TestNothingLeftOut(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 13)
	o := m.ok(t, dir, "--data", data, "--eval-data", data, "--json")
	e := events(t, o.out, "eval")[0]
	if e["samples"] != 13.0 || e["unseen"] != 0.0 || strings.Contains(o.err, "left out") {
		t.Errorf("%v\n%s", e, o.err)
	}
}

// TestAlone: it is told once when a last batch leaves a rank one sample, of which a node can take no variance.
func TestAlone(t *testing.T) {
	m := newToy()
	m.singleValue = &abi.SingleValueStatistics{Node: `node "/BatchNorm" normalises by the batch`, Samples: 4}
	for samples, want := range map[int]int{9: 1, 13: 1, 12: 0, 14: 0, 16: 0} {
		dir, data := m.folder(t, samples)
		for flag, n := range map[string]int{"--drop-last=false": want, "--drop-last": 0} {
			o := m.ok(t, dir, "--data", data, "--epochs", "2", "--checkpoint-dir", "none", flag)
			if got := strings.Count(o.err, "leaves one sample alone"); got != n || strings.Count(o.err, m.singleValue.Node) != n {
				t.Errorf("%d samples, %s: told %d times, want %d\n%s", samples, flag, got, n, o.err)
			}
		}
	}
}
