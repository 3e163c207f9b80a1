package e2e

import (
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
	told(t, code, 3, j.errs[0].String(), append([]string{"rank 1", `all_reduce of "`}, want...)...)
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
