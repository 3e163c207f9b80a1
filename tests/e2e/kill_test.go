package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// survivor checks how the rank that was left behind ended: in time, with the code for it, naming the dead rank, the
// collective and the tensor.
func survivor(t *testing.T, j *job, limit time.Duration, want ...string) {
	t.Helper()
	begin := time.Now()
	code := j.code(0, limit)
	first, _, _ := strings.Cut(j.errs[0].String(), "\n")
	t.Logf("rank 0 ended %v after rank 1 with code %d: %s", time.Since(begin).Round(time.Millisecond), code, first)
	collective := `all_reduce of "`
	if strings.Contains(j.errs[0].String(), "agreement to go on") { // rank 1 went between two steps
		collective = `agreement to go on of "stop"`
	}
	told(t, code, 3, j.errs[0].String(), append([]string{"rank 1", collective}, want...)...)
}

// A rank is killed in the middle of training: the other ends with an error that names it, and after --resume the job
// comes to the same loss and the same checkpoint, to the bit, as one that was not disturbed.
func TestKilledRankAndResume(t *testing.T) {
	dir := compiled(t, two).Dir
	straight, killed := filepath.Join(t.TempDir(), "straight"), filepath.Join(t.TempDir(), "killed")
	args := []string{"--data", digits, "--steps", "1500", "--save-every", "300", "--timeout", "10s", "--seed", "3", "--checkpoint-dir"}
	want := last(t, run(t, dir, 2, append(args, straight)...), "end")

	j := start(t, dir, 2, append(args, killed)...)
	j.until("step", 700)
	syscall.Kill(j.pid(1), syscall.SIGKILL)
	survivor(t, j, 10*time.Second)
	if step, _ := tensors(t, killed); step < 600 || step == 1500 {
		t.Errorf("the newest checkpoint after the kill is of step %d", step)
	}
	again := run(t, dir, 2, append(args, killed, "--resume")...)
	if first := again[0]; first.Step < 600 || first.Step == 1500 {
		t.Errorf("the job went on from step %d", first.Step)
	}
	if got := last(t, again, "end"); got.Bits != want.Bits || got.Step != want.Step {
		t.Errorf("step %d has loss bits %s, an undisturbed run has %s at step %d", got.Step, got.Bits, want.Bits, want.Step)
	}
	sameTensors(t, straight, killed)
}

// A rank that hangs is an error on the other within --timeout, not a hang.
func TestStoppedRank(t *testing.T) {
	dir := compiled(t, two).Dir
	j := start(t, dir, 2, "--data", digits, "--steps", "1000000", "--timeout", "3s", "--checkpoint-dir", "none")
	j.until("step", 50)
	syscall.Kill(j.pid(1), syscall.SIGSTOP)
	survivor(t, j, 8*time.Second, "no progress for 3")
}

// eight is every kind of parallelism at once.
var eight = spec{model: mlp, batch: 32, dp: 2, tp: 2, pp: 2, micro: 4, lr: 2e-3}

// Random ranks of dp 2 x tp 2 x pp 2 are killed at random moments: between steps and in them, before the first checkpoint, while
// one is written and when the job is about to end. All others end in time with the code for it and name the dead rank, and
// the job that goes on comes to the same loss and the same checkpoint, to the bit, as one that was never disturbed.
// GTC_LONG=1 kills 20 instead of 3, and some in other layouts.
func TestRandomKills(t *testing.T) {
	if os.Getenv("GTC_LONG") == "" {
		randomKills(t, eight, 3)
		return
	}
	randomKills(t, eight, 20)
	for _, s := range []spec{
		{dp: 2, tp: 2, zero: 3},
		{dp: 2, pp: 2, micro: 4, zero: 1, schedule: "interleaved"},
		{dp: 2, pp: 2, micro: 4, schedule: "zb-h1"},
	} {
		s.model, s.batch, s.lr, s.micro = mlp, 32, 2e-3, max(s.micro, 1)
		t.Run(fmt.Sprintf("dp%d tp%d pp%d zero%d %s", s.dp, s.tp, s.pp, s.zero, s.schedule), func(t *testing.T) { randomKills(t, s, 5) })
	}
}

// randomKills kills jobs of one layout so many times.
func randomKills(t *testing.T, s spec, kills int) {
	dir, ranks := compiled(t, s).Dir, s.ranks()
	straight := filepath.Join(t.TempDir(), "straight")
	args := []string{"--data", digits, "--steps", "240", "--save-every", "60", "--timeout", "10s", "--seed", "3", "--checkpoint-dir"}
	j := start(t, dir, ranks, append(args, straight)...)
	j.until("step", 1)
	begin := time.Now()
	for r := range ranks {
		if code := j.code(r, minute); code != 0 {
			t.Fatalf("rank %d ended with code %d:\n%s", r, code, j.text())
		}
	}
	length := time.Since(begin)
	want := last(t, j.events, "end")

	rng := rand.New(rand.NewPCG(4, uint64(kills)))
	for i := range kills {
		victim, after := rng.IntN(ranks), time.Duration(rng.Int64N(int64(length)))
		if i == 0 {
			victim = 0 // the rank by which the others know of each other
		}
		t.Run(fmt.Sprintf("%d: rank %d", i, victim), func(t *testing.T) {
			killed := filepath.Join(t.TempDir(), "killed")
			j := start(t, dir, ranks, append(args, killed)...)
			first := j.until("step", 1)
			if kills > 3 && i%4 == 1 {
				after /= 20 // before the first checkpoint
			}
			hit := killAfter(t, j, victim, after)
			t.Logf("killed after %v (of %v) and step %d: %v", after.Round(time.Millisecond), length.Round(time.Millisecond), first.Step, hit)
			if events, whole := goOn(t, j, dir, args, killed); !whole {
				if got := last(t, events, "end"); got.Bits != want.Bits || got.Step != want.Step {
					t.Errorf("step %d has loss bits %s, an undisturbed run has %s at step %d", got.Step, got.Bits, want.Bits, want.Step)
				}
			}
			sameTensors(t, straight, killed)
		})
	}
}

// killAfter kills a rank and checks how the others end. It reports whether the kill came before the end of the job.
func killAfter(t *testing.T, j *job, victim int, after time.Duration) bool {
	t.Helper()
	timer := time.After(after)
wait:
	for {
		select {
		case e, ok := <-j.out:
			if ok {
				j.events = append(j.events, e)
			} else {
				j.out = nil
			}
		case <-timer:
			break wait
		}
	}
	syscall.Kill(j.pid(victim), syscall.SIGKILL)
	begin := time.Now()
	hit := j.code(victim, minute) == -1
	for r := range j.ranks {
		if r == victim {
			continue
		}
		// A peer's death is known in milliseconds; the rest is for a busy machine. The time-out is 10 s.
		code := j.code(r, 8*time.Second-min(time.Since(begin), 7*time.Second))
		text := j.errs[r].String()
		switch {
		case code == 0 && !hit:
		case code == 0 && ended(j):
			// It was done when the other was killed in its last moments.
		case code != 3 || !strings.Contains(text, fmt.Sprintf("rank %d", victim)):
			t.Errorf("rank %d ended with code %d after the kill of rank %d and said:\n%s", r, code, victim, text)
		}
		if strings.Contains(text, "BUG") || strings.Contains(text, "panic") || strings.Contains(text, "goroutine ") {
			t.Errorf("a fault of gtc on rank %d:\n%s", r, text)
		}
	}
	return hit
}

// ended reports whether rank 0 has said that the job is at its end.
func ended(j *job) bool {
	for _, e := range j.events {
		if e.Event == "end" {
			return true
		}
	}
	return false
}

// goOn starts a job again that was killed, from its newest checkpoint or, where there was none yet, from the start. It gives the
// events of the run that came to the end, or whole when the last checkpoint had been written before the kill.
func goOn(t *testing.T, j *job, dir string, args []string, checkpoints string) (events []event, whole bool) {
	t.Helper()
	steps, _ := filepath.Glob(filepath.Join(checkpoints, "step-*"))
	again := append(args, checkpoints)
	if len(steps) > 0 {
		if step, _ := tensors(t, checkpoints); step == 240 {
			return nil, true
		}
		again = append(again, "--resume")
	}
	return run(t, dir, len(j.ranks), again...), false
}
