package loop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// fails is job, which must end for an error of the user's input; want is in what the ranks say.
func (t *toy) fails(tb testing.TB, dir, want string, args ...string) {
	tb.Helper()
	o := t.job(tb, dir, nil, nil, args...)
	if !o.exits(ranks.ExitUsage) {
		tb.Errorf("%v: exit codes %v", args, o.code)
	}
	if !strings.Contains(o.err, want) {
		tb.Errorf("%v: no %q in\n%s", args, want, o.err)
	}
}

// TestLock: of two runs on one folder of checkpoints the second is refused, and told which is the first; what only reads goes.
// The lock of a run that is over, or was killed, holds nobody up.
func TestLock(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		m := newToy()
		m.dp = ranks
		dir, data := m.folder(t, 50)
		host, _ := os.Hostname()
		first := true
		m.hook = func(rank int, step int64) {
			if rank != 0 || step != 2 || !first {
				return
			}
			first = false // in the middle of a run, before it has saved
			other := *m
			other.hook = nil
			who := fmt.Sprintf("another run saves its checkpoints in %s/checkpoints, process %d on %s since 2", dir, os.Getpid(), host)
			other.fails(t, dir, who, "--data", data, "--steps", "3")
			other.fails(t, dir, who, "--data", data, "--steps", "3", "--resume")
			other.ok(t, dir, "--data", data, "--eval-only")
			other.ok(t, dir, "--data", data, "--steps", "1", "--checkpoint-dir=none")
			other.ok(t, dir, "--data", data, "--steps", "1", "--checkpoint-dir", t.TempDir())
		}
		m.ok(t, dir, "--data", data, "--steps", "4")
		if first {
			t.Error("the hook did not run")
		}
		m.hook = nil
		m.ok(t, dir, "--data", data, "--steps", "5", "--resume")
	}
}

// TestEvaluationWithoutCheckpoints: --checkpoint-dir none evaluates the initial weights, whatever is in the folder.
func TestEvaluationWithoutCheckpoints(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	loss := func(args ...string) float64 {
		return events(t, m.ok(t, dir, append(args, "--eval-only", "--eval-data", data, "--json")...).out, "eval")[0]["loss"].(float64)
	}
	initial := loss()
	m.ok(t, dir, "--data", data, "--steps", "30")
	trained := loss()
	if none := loss("--checkpoint-dir", "none"); none != initial || trained >= initial {
		t.Errorf("loss %g at first, %g with --checkpoint-dir none, %g trained", initial, none, trained)
	}
	if from := loss("--init-from", filepath.Join(dir, "checkpoints")); from != trained {
		t.Errorf("loss %g with --init-from, %g trained", from, trained)
	}
}

// TestInitFrom: weights of a checkpoint, in other batches on other ranks, with a new optimizer: what a run gives whose folder has
// them as its initial weights.
func TestInitFrom(t *testing.T) {
	old := newToy()
	dir, data := old.folder(t, 50)
	old.ok(t, dir, "--data", data, "--steps", "9")
	from := filepath.Join(dir, "checkpoints")
	m := newToy()
	m.batch, m.dp = 4, 2
	steps := func(args ...string) []map[string]any {
		return events(t, m.ok(t, dir, append(args, "--data", data, "--json", "--log-every", "1", "--checkpoint-dir", filepath.Join(t.TempDir(), "c"))...).out, "step")
	}
	got := steps("--init-from", from, "--steps", "5")
	if len(got) != 5 || got[0]["step"] != 1.0 {
		t.Fatalf("%v", got)
	}
	weights := weightsOf(t, from)
	compiled := t.TempDir()
	if err := safetensors.WriteFile(filepath.Join(compiled, weightsFile), weights[:1], nil); err != nil {
		t.Fatal(err)
	}
	if want := steps("--steps", "5", "--dir", compiled); got[4]["loss_bits"] != want[4]["loss_bits"] {
		t.Errorf("%v, compiled with the weights %v", got[4], want[4])
	}
	if again := steps("--init-from", filepath.Join(from, "step-000009"), "--steps", "5"); got[4]["loss_bits"] != again[4]["loss_bits"] {
		t.Errorf("%v, by the step's folder %v", got[4], again[4])
	}
	file := filepath.Join(dir, "w.safetensors")
	if err := safetensors.WriteFile(file, weights, nil); err != nil {
		t.Fatal(err)
	}
	if same := steps("--init-from", file, "--steps", "5"); same[4]["loss_bits"] != got[4]["loss_bits"] {
		t.Errorf("from a file %v, from the checkpoint %v", same[4], got[4])
	}

	// With --resume it is where the first run begins; later ones go on.
	args := []string{"--data", data, "--init-from", from, "--resume", "--checkpoint-dir", filepath.Join(dir, "new"), "--json", "--log-every", "1"}
	m.ok(t, dir, append(args, "--steps", "3")...)
	last := events(t, m.ok(t, dir, append(args, "--steps", "5")...).out, "step")
	if len(last) != 2 || last[1]["loss_bits"] != got[4]["loss_bits"] {
		t.Errorf("resumed %v, straight %v", last, got[4])
	}

	m.fails(t, dir, `"mean" is missing`, "--data", data, "--init-from", filepath.Join(dir, weightsFile))
	m.fails(t, dir, "nowhere", "--data", data, "--init-from", filepath.Join(dir, "nowhere"))
	m.fails(t, dir, "--init-from and --resume=PATH exclude each other", "--data", data, "--init-from", from, "--resume="+from)
	m.dim = 6
	dir, data = m.folder(t, 50)
	m.fails(t, dir, `"w" is f32[5] there, but f32[6] in this program; "mean" is f32[5] there`, "--data", data, "--init-from", from)
}

// weightsOf are the weights of the newest checkpoint in a folder.
func weightsOf(t *testing.T, dir string) []safetensors.Tensor {
	t.Helper()
	c, err := openWeights(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	var list []safetensors.Tensor
	for _, name := range []string{"w", "mean"} {
		dtype, shape, _ := c.look(name)
		data, err := c.(*weightCheckpoint).c.ReadAll(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, safetensors.Tensor{Name: name, DType: dtype, Shape: shape, Data: data})
	}
	return list
}

// TestResetData: a checkpoint goes on with other data in other batches, its momentum and its steps, and what was begun anew is
// resumed bit for bit.
func TestResetData(t *testing.T) {
	old := newToy()
	dir, data := old.folder(t, 50)
	old.ok(t, dir, "--data", data, "--steps", "9")
	m := newToy()
	m.batch, m.dp = 4, 2
	base := []string{"--data", data, "--json", "--log-every", "1"}
	for _, want := range []string{"in batches of 8, but this program takes 4", "--reset-data goes on with its weights, optimizer state and step"} {
		m.fails(t, dir, want, append(base, "--resume", "--steps", "12")...)
	}
	old.fails(t, dir, "in the order shuffle=true random=false drop-last=false, but now it is shuffle=false", append(base, "--resume", "--steps", "12", "--shuffle=false")...)
	old.fails(t, dir, "--reset-data needs --resume", append(base, "--reset-data")...)
	_, fewer := old.folder(t, 30)
	old.fails(t, dir, "on 50 samples, but --data has 30", "--data", fewer, "--resume")

	got := events(t, m.ok(t, dir, append(base, "--resume", "--reset-data", "--seed", "3", "--steps", "40", "--checkpoint-dir", filepath.Join(dir, "checkpoints"))...).out, "step")
	if len(got) != 31 || got[0]["step"] != 10.0 {
		t.Fatalf("%d steps, the first %v", len(got), got[0])
	}
	// The same again with a stop in between, which needs no --reset-data any more.
	if err := os.RemoveAll(filepath.Join(dir, "checkpoints")); err != nil {
		t.Fatal(err)
	}
	old.ok(t, dir, "--data", data, "--steps", "9")
	m.ok(t, dir, append(base, "--resume", "--reset-data", "--seed", "3", "--steps", "27")...)
	rest := events(t, m.ok(t, dir, append(base, "--resume", "--steps", "40")...).out, "step")
	if len(rest) != 13 || rest[12]["loss_bits"] != got[30]["loss_bits"] {
		t.Errorf("%d steps, the last %v, straight %v", len(rest), rest[len(rest)-1], got[30])
	}
	// Epochs count from where the data began: 13 steps of 4 for 50 samples.
	o := m.ok(t, dir, append(base, "--resume", "--reset-data", "--epochs", "1")...)
	if got := events(t, o.out, "end")[0]["step"]; got != 53.0 {
		t.Errorf("an epoch behind step 40 ends at %v, want 53", got)
	}
}

// TestSeedOfTheCheckpoint: a resumed run goes on with the seed that it began with, and says so when another is given.
func TestSeedOfTheCheckpoint(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	base := []string{"--data", data, "--json", "--log-every", "1"}
	straight := m.ok(t, dir, append(base, "--seed", "7", "--steps", "20", "--checkpoint-dir=none")...)
	m.ok(t, dir, append(base, "--seed", "7", "--steps", "12")...)
	o := m.ok(t, dir, append(base, "--seed", "8", "--resume", "--steps", "20")...)
	if finalBits(t, o) != finalBits(t, straight) {
		t.Error("another --seed changed what the checkpoint's goes on with")
	}
	if want := "--seed 8 is not used: the checkpoint was trained with --seed 7, which goes on"; !strings.Contains(o.err, want) {
		t.Errorf("no %q in %s", want, o.err)
	}
}

// TestTheCauseIsToldOnce: a rank that finds what others do not tells it, and under gtc run nobody repeats it.
func TestTheCauseIsToldOnce(t *testing.T) {
	err := func(e error, rank int, env map[string]string) string {
		m := newToy()
		m.dp = 2
		var out strings.Builder
		complain(m.program(t), rank, e, &surroundings{err: &out, getenv: func(k string) string { return env[k] }})
		return out.String()
	}
	aborted := func(self int, detail string) error {
		return &comm.Error{Kind: comm.KindAborted, Rank: 1, Self: self, Call: "all_reduce", Detail: detail}
	}
	gtcRun := map[string]string{"RANK": "0", prefixed: "1"}
	torchrun := map[string]string{"RANK": "0"}
	own, all := errors.New("a target is out of range"), ranks.Usagef("no data")
	for _, c := range []struct {
		what string
		err  error
		rank int
		env  map[string]string
		want bool
	}{
		{"the rank itself", own, 1, gtcRun, true},
		{"rank 0, told by rank 1", aborted(0, ranks.Cause(own)), 0, gtcRun, false},
		{"rank 2, told by rank 1", aborted(2, ranks.Cause(own)), 2, gtcRun, false},
		{"rank 0 under torchrun", aborted(0, ranks.Cause(own)), 0, torchrun, true},
		{"rank 2 under torchrun", aborted(2, ranks.Cause(own)), 2, torchrun, false},
		{"what all find, on rank 1", all, 1, gtcRun, false},
		{"what all find and rank 0 has not yet", aborted(0, ranks.Cause(all)), 0, gtcRun, true},
		{"what all find, on rank 0", all, 0, gtcRun, true},
	} {
		if got := err(c.err, c.rank, c.env); (got != "") != c.want {
			t.Errorf("%s: %q", c.what, got)
		}
	}
}
