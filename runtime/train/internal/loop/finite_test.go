package loop

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/npz"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
	"github.com/gtc-compiler/gtc/runtime/train/internal/report"
)

// A loss that is no number ends the run with the checkpoints as they were, on one rank and on two.
func TestANaNLossStops(t *testing.T) {
	for _, every := range []string{"2", "3"} { // the parameters are NaN after step 3, the loss from step 4 on
		m := newToy()
		m.poison = 3
		if every == "3" {
			m.dp = 2
		}
		dir, data := m.folder(t, 50)
		args := []string{"--data", data, "--steps", "9", "--save-every", every}
		o := m.job(t, dir, nil, nil, args...)
		want := []string{"step 4: the loss is NaN", "the last good checkpoint, step 2 in " + filepath.Join(dir, "checkpoints"), "GTC_NAN=1", "--allow-nan"}
		if every == "3" {
			want = []string{`step 3: param "w" holds a NaN (element 1)`, "nothing was saved", "GTC_NAN=1"}
		}
		for _, w := range want {
			if !strings.Contains(o.err, w) {
				t.Errorf("no %q in %s", w, o.err)
			}
		}
		if slices.Min(o.code) != ranks.ExitFailed || slices.Max(o.code) != ranks.ExitFailed {
			t.Errorf("exit codes %v", o.code)
		}
		list, err := filepath.Glob(filepath.Join(dir, "checkpoints", "step-*"))
		if every == "2" && !slices.Contains(list, filepath.Join(dir, "checkpoints", "step-000002")) || every == "3" && len(list) > 0 || err != nil {
			t.Errorf("checkpoints %v, %v", list, err)
		}
		o = m.ok(t, dir, append(args, "--allow-nan")...)
		if _, err := os.Stat(filepath.Join(dir, "checkpoints", "step-000009")); err != nil || !strings.Contains(o.err, "the loss is NaN at step 4") {
			t.Errorf("%v: %s", err, o.err)
		}
		o = m.job(t, dir, map[string]string{"GTC_NAN": "1"}, nil, append(args, "--resume", "--steps", "12")...)
		if !strings.Contains(o.err, `GTC_NAN: param "w" holds a NaN (element 0) before the first step`) {
			t.Errorf("%s", o.err)
		}
	}
}

// A loss that is no number goes by where a dynamic loss scale skips the step, until the scale is below 1; also after a resume,
// which knows how many were skipped before, on two ranks, and on a device, which is looked at later.
func TestASkippedStepGoesOn(t *testing.T) {
	m := newToy()
	m.wild = []int{3, 5}
	dir, data := m.folder(t, 50)
	args := []string{"--data", data, "--steps", "9", "--save-every", "4"}
	o := m.ok(t, dir, args...)
	if !strings.Contains(o.out, "scale 1, 2 skipped") || !strings.Contains(o.err, "the loss is +Inf at step 3, which is skipped") {
		t.Errorf("%s%s", o.out, o.err)
	}
	m.wild = []int{12, 15} // after 2 of the first run; 12 comes with a scale of 0.5
	o = m.job(t, dir, nil, nil, append(args, "--resume", "--steps", "20")...)
	want := "step 12: the loss is +Inf in a step that was skipped, and skipped steps have halved the loss scale to 0.5, below 1: training stopped"
	if !o.exits(ranks.ExitFailed) || !strings.Contains(o.err, want) {
		t.Errorf("%v: no %q in %s", o.code, want, o.err)
	}
	m.dp = 2
	m.wild = []int{1, 2}
	m.ok(t, dir, "--data", data, "--steps", "4", "--checkpoint-dir=none")
	if o := m.onFake(t, dir, nil, nil, "--data", data, "--steps", "4", "--checkpoint-dir=none"); o.code[0] != 0 {
		t.Errorf("on a device: %v %s", o.code, o.err)
	}
	m.wild = []int{1, 2, 3}
	for name, o := range map[string]outcome{"processor": m.job(t, dir, nil, nil, args...), "device": m.onFake(t, dir, nil, nil, args...)} {
		if !o.exits(ranks.ExitFailed) || !strings.Contains(o.err, "step 3: the loss is +Inf in a step that was skipped") {
			t.Errorf("%s: %v %s", name, o.code, o.err)
		}
	}
}

// Gradients that are finite are no reason to go on: the loss is wrong all the same.
func TestALossAloneStops(t *testing.T) {
	m := newToy()
	m.wild, m.poison = []int{}, 3
	dir, data := m.folder(t, 50)
	o := m.job(t, dir, nil, nil, "--data", data, "--steps", "9", "--checkpoint-dir=none")
	if !o.exits(ranks.ExitFailed) || !strings.Contains(o.err, "step 4: the loss is NaN: training stopped") {
		t.Errorf("%v %s", o.code, o.err)
	}
}

// GTC_NAN names the sample whose input is NaN, not the first operation that meets it.
func TestANaNInputIsNamed(t *testing.T) {
	for _, c := range []toy{{dp: 1, micro: 1}, {dp: 2, micro: 2}} {
		m := c
		m.batch, m.dim = 8, 5
		dir, data := m.folder(t, 50)
		arrays := readArrays(t, data)
		x := slices.Clone(arrays["x"].Data)
		binary.LittleEndian.PutUint32(x[4*(33*5+2):], math.Float32bits(float32(math.NaN())))
		bad := filepath.Join(dir, "bad.npz")
		if err := npz.WriteFile(bad, []npz.Array{{Name: "x", DType: "f32", Shape: []int{50, 5}, Data: x}, *arrays["target"]}); err != nil {
			t.Fatal(err)
		}
		env := map[string]string{"GTC_NAN": "1"}
		o := m.job(t, dir, env, nil, "--data", bad)
		if want := `sample 33 of --data: input "x" holds a NaN (element 2 of the sample)`; !strings.Contains(o.err, want) || !o.exits(ranks.ExitFailed) {
			t.Errorf("no %q: %v %s", want, o.code, o.err)
		}
		o = m.job(t, dir, env, nil, "--eval-only", "--eval-data", bad)
		if want := `evaluation, sample 33 of the data: input "x" holds a NaN`; !strings.Contains(o.err, want) && m.micro == 1 {
			t.Errorf("no %q: %s", want, o.err)
		}
	}
}

// A kernel that waits for a slow rank is not charged with it.
func TestTheProfileTellsWaitingApart(t *testing.T) {
	m := newToy()
	m.dp = 2
	m.hook = func(rank int, step int64) {
		if rank == 1 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	dir, data := m.folder(t, 50)
	o := m.job(t, dir, map[string]string{"GTC_PROFILE": "1"}, nil, "--data", data, "--steps", "10", "--checkpoint-dir=none")
	_, table, _ := strings.Cut(o.err, "by kernel")
	lines := strings.Split(table, "\n")
	if slices.Max(o.code) != 0 || len(lines) < 3 || !strings.Contains(lines[1], report.Waiting) {
		t.Fatalf("%v\n%s", o.code, o.err)
	}
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) < 5 || f[4] != "k1_sgd" {
			continue
		}
		if share, err := strconv.ParseFloat(f[3], 64); err != nil || share > 50 {
			t.Errorf("the kernel that waits is charged with %s %%: %s", f[3], o.err)
		}
	}
}

// A program that skips steps in fp16 says what else may have made the loss infinite.
func TestDivergenceInHalfPrecision(t *testing.T) {
	for want, skipped := range map[bool]*abi.Tensor{false: nil, true: {Name: "skipped"}} {
		r := &trainer{session: &session{cfg: &config{}}, Results: report.Results{Loss: math.Inf(1)}, skippedSteps: skipped}
		if err := r.divergedAt(3); err == nil || strings.Contains(err.Error(), "65504") != want {
			t.Errorf("skipping %v: %v", want, err)
		}
	}
}
