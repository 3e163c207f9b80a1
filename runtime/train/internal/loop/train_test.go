package loop

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/npz"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

func newToy() *toy { return &toy{dp: 1, micro: 1, batch: 8, dim: 5} }

// finalBits is the loss_bits of the end event.
func finalBits(t *testing.T, o outcome) string {
	t.Helper()
	e := events(t, o.out, "end")
	if len(e) != 1 {
		t.Fatalf("%d end events:\n%s", len(e), o.out)
	}
	return e[0]["loss_bits"].(string)
}

func TestTrainingConverges(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	o := m.ok(t, dir, "--data", data, "--epochs", "60", "--json", "--eval-data", data, "--eval-every", "100", "--checkpoint-dir=none")
	steps := events(t, o.out, "step")
	evals := events(t, o.out, "eval")
	// 50 samples in batches of 8 are 7 steps an epoch, the last one padded.
	if last := steps[len(steps)-1]; last["step"] != 420.0 || last["loss"].(float64) > 0.01 || last["lr"] != 0.0500000007 {
		t.Errorf("last step %v", last)
	}
	if len(evals) != 5 || evals[4]["samples"] != 50.0 || evals[4]["accuracy"] != 1.0 || evals[4]["step"] != 420.0 {
		t.Errorf("evaluations %v", evals)
	}
	start := events(t, o.out, "start")[0]
	if start["arena_bytes"] != float64(m.programSize(t)) || start["parameters"] != 5.0 || start["samples"] != 50.0 {
		t.Errorf("start %v", start)
	}
	if _, err := os.Stat(filepath.Join(dir, "checkpoints")); err == nil {
		t.Error("there is a checkpoint")
	}
}

func (t *toy) programSize(tb testing.TB) int {
	t.program(tb)
	return t.size
}

// Ranks and micro-batches split the same batches: the losses are those of one rank but for rounding.
func TestRanksAndMicrobatchesAgreeWithOne(t *testing.T) {
	var want []map[string]any
	for _, c := range []toy{{dp: 1, micro: 1}, {dp: 1, micro: 4}, {dp: 2, micro: 1}, {dp: 2, micro: 2}, {dp: 4, micro: 1, whose: true}} {
		m := c
		m.batch, m.dim = 8, 5
		dir, data := m.folder(t, 50)
		o := m.ok(t, dir, "--data", data, "--steps", "40", "--json", "--log-every", "1", "--eval-data", data)
		got := append(events(t, o.out, "step"), events(t, o.out, "eval")...)
		if want == nil {
			want = got
		}
		if len(got) != 41 {
			t.Fatalf("%d ranks: %d events", m.dp, len(got))
		}
		for i := range got {
			a, b := got[i]["loss"].(float64), want[i]["loss"].(float64)
			if math.Abs(a-b) > 1e-5*b {
				t.Errorf("%d ranks, %d micro-batches, step %d: loss %v, on one rank %v", m.dp, m.micro, i, a, b)
			}
		}
		if got[40]["accuracy"] != want[40]["accuracy"] {
			t.Errorf("%d ranks: %v, on one rank %v", m.dp, got[40], want[40])
		}
	}
}

func TestResumeContinuesBitForBit(t *testing.T) {
	for _, c := range []toy{{dp: 1, micro: 1}, {dp: 2, micro: 2}} {
		m := c
		m.batch, m.dim = 8, 5
		dir, data := m.folder(t, 50)
		flags := []string{"--data", data, "--json", "--seed", "7", "--log-every", "1"}
		straight := m.ok(t, dir, append(flags, "--steps", "33", "--checkpoint-dir", filepath.Join(dir, "a"))...)
		m.ok(t, dir, append(flags, "--steps", "12", "--resume")...)
		second := m.ok(t, dir, append(flags, "--steps", "33", "--resume")...)
		if a, b := finalBits(t, straight), finalBits(t, second); a != b {
			t.Errorf("%d ranks: the loss is %s straight and %s resumed", m.dp, a, b)
		}
		a := readAll(t, filepath.Join(dir, "a", "step-000033"))
		b := readAll(t, filepath.Join(dir, "checkpoints", "step-000033"))
		if a != b {
			t.Errorf("%d ranks: the parameters differ: %q %q", m.dp, a, b)
		}
		if n := len(events(t, second.out, "step")); n != 21 {
			t.Errorf("%d steps after resuming", n)
		}
	}
}

// readAll is all shards of a checkpoint.
func readAll(t *testing.T, dir string) string {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "shard-*"))
	var all []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b))
	}
	if len(all) == 0 {
		t.Fatalf("no shards in %s", dir)
	}
	return strings.Join(all, "")
}

func TestResumeOnAnotherNumberOfRanks(t *testing.T) {
	one, two := newToy(), newToy()
	two.dp, two.micro = 2, 2
	dir, data := one.folder(t, 50)
	flags := []string{"--data", data, "--json", "--log-every", "1"}
	straight := events(t, one.ok(t, dir, append(flags, "--steps", "30", "--checkpoint-dir=none")...).out, "step")
	two.ok(t, dir, append(flags, "--steps", "10")...)
	o := one.ok(t, dir, append(flags, "--steps", "20", "--resume")...)
	if strings.Contains(o.err, "was made with") {
		t.Errorf("the layout is noted as a difference: %s", o.err)
	}
	again := events(t, two.ok(t, dir, append(flags, "--steps", "30", "--resume")...).out, "step")
	for i, e := range again {
		a, b := e["loss"].(float64), straight[20+i]["loss"].(float64)
		if math.Abs(a-b) > 1e-4*b {
			t.Errorf("step %v: loss %v, straight %v", e["step"], a, b)
		}
	}
	if len(again) != 10 {
		t.Errorf("%d steps", len(again))
	}
}

func TestSignalSavesAndStops(t *testing.T) {
	for _, c := range []struct{ dp, rank int }{{1, 0}, {2, 1}} {
		m := newToy()
		m.dp = c.dp
		dir, data := m.folder(t, 50)
		signals := make([]chan os.Signal, c.dp)
		for r := range signals {
			signals[r] = make(chan os.Signal, 1)
		}
		m.hook = func(rank int, step int64) { // only one of the ranks gets it
			if rank == c.rank && step == 20 {
				signals[rank] <- syscall.SIGTERM
			}
		}
		o := m.job(t, dir, nil, signals, "--data", data, "--steps", "100000000", "--json")
		for r, code := range o.code {
			if code != ranks.ExitSignal+int(syscall.SIGTERM) {
				t.Errorf("%d ranks: rank %d exits with %d\n%s", c.dp, r, code, o.err)
			}
		}
		end := events(t, o.out, "end")
		if len(end) != 1 || end[0]["why"] != "stopped by signal 15" {
			t.Errorf("end %v", end)
		}
		step := fmt.Sprintf("step-%06d", int(end[0]["step"].(float64)))
		if _, err := os.Stat(filepath.Join(dir, "checkpoints", step, "index.json")); err != nil {
			t.Error(err)
		}
	}
}

func TestFixedBatchAndForward(t *testing.T) {
	var want map[string]*npz.Array
	for _, c := range []toy{{dp: 1, micro: 1}, {dp: 1, micro: 2}, {dp: 2, micro: 1}, {dp: 2, micro: 2}} {
		m := c
		m.batch, m.dim = 8, 5
		dir, data := m.folder(t, 8)
		res, fwd := filepath.Join(dir, "res.npz"), filepath.Join(dir, "fwd.npz")
		m.ok(t, dir, "--fixed-batch", data, "--steps", "10", "--results", res)
		got := readArrays(t, res)
		if m.micro == 1 { // @forward of the toy covers a rank's whole share only then
			m.ok(t, dir, "--dump-forward", fwd, "--inputs", data)
			got["out0"] = readArrays(t, fwd)["out0"]
		}
		if want == nil {
			want = got
		}
		for name, a := range want {
			b := got[name]
			if name == "out0" && m.micro > 1 {
				continue
			}
			if b == nil || !slices.Equal(a.Shape, b.Shape) {
				t.Fatalf("%d ranks, %d micro-batches: %s is %v, want %v", m.dp, m.micro, name, b, a.Shape)
			}
			for i := range program.Elems(a.Shape) {
				v, _ := element(a.Data[i*program.ElemSize(a.DType):], a.DType)
				u, _ := element(b.Data[i*program.ElemSize(a.DType):], b.DType)
				if math.Abs(u-v) > 1e-5*max(1, math.Abs(v)) {
					t.Errorf("%d ranks, %d micro-batches: %s[%d] is %v, want %v", m.dp, m.micro, name, i, u, v)
				}
			}
		}
		if n := want["loss"].Shape[0]; n != 10 || want["grad/w"].Shape[0] != 5 || want["out0"].Shape[0] != 8 {
			t.Errorf("shapes %v", want)
		}
	}
}

func readArrays(t *testing.T, path string) map[string]*npz.Array {
	t.Helper()
	f, err := npz.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	out := map[string]*npz.Array{}
	for _, n := range f.Names() {
		if out[n], err = f.Read(n); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestErrorsAreClear(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	other := filepath.Join(dir, "other.npz")
	npz.WriteFile(other, []npz.Array{{Name: "x", DType: "f32", Shape: []int{9, 5}, Data: make([]byte, 180)}})
	m.ok(t, dir, "--data", data, "--steps", "3", "--checkpoint-dir", filepath.Join(dir, "c"))
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "give --data PATH"},
		{"--data", 2, "flag needs an argument"},
		{"--data nowhere.npz", 2, "nowhere.npz"},
		{"--data " + other, 2, "target"},
		{"--data " + data + " --steps 3 --epochs 4", 2, "exclude each other"},
		{"--data " + data + " --steps -3", 2, "must be at least 0"},
		{"--data " + data + " --lr 0.1", 2, "gtc compile"},
		{"--data " + data + " --resume here", 2, "--resume=PATH"},
		{"--data " + data + " --resume=" + dir + "/nothing", 2, "nothing"},
		{"--data " + data + " --window odd", 2, "--window must be random or sequential"},
		{"--data " + data + " --progress odd", 2, "--progress must be auto, line or plain"},
		{"--data " + data + " --tokens odd", 2, "--tokens must be u8, u16 or u32"},
		{"--data " + data + " --transform x=scale=q", 2, "scale"},
		{"--data " + data + " --dir " + t.TempDir(), 2, "is --dir the compiled folder?"},
		{"--data " + data + " --eval-data " + other, 2, "--eval-data"},
		{"--fixed-batch " + other + " --results r.npz", 2, "target"},
		{"--data " + data + " --checkpoint-dir " + data, 2, "checkpoints cannot be saved"},
		{"--inputs " + other, 2, "--inputs needs --dump-forward"},
		{"--dump-forward y.npz", 2, "--dump-forward needs --inputs"},
		{"--fixed-batch " + other, 2, "--fixed-batch needs --results"},
		{"--results r.npz", 2, "--results needs --fixed-batch"},
		{"--fixed-batch " + other + " --results r.npz --epochs 1", 2, "--epochs has no effect with --fixed-batch"},
		{"--fixed-batch " + other + " --results r.npz --steps 0", 2, "--fixed-batch needs --steps of at least 1"},
		{"--bogus", 2, "unknown flag --bogus (--help"},
		{"--precision bf16", 2, "--precision is compiled in: give it to gtc compile"},
		{"--epoch 3", 2, "unknown flag --epoch (did you mean --epochs?)"},
	} {
		o := m.job(t, dir, nil, nil, strings.Fields(c.args)...)
		if o.code[0] != c.code || !strings.Contains(o.err, c.want) {
			t.Errorf("%s: exit code %d, want %d, with %q in\n%s", c.args, o.code[0], c.code, c.want, o.err)
		}
	}
	if o := m.job(t, dir, nil, nil, "--help"); o.code[0] != 0 || !strings.Contains(o.out, "-checkpoint-dir") {
		t.Errorf("help: %+v", o)
	}
}

func TestAKernelsRefusalNamesTheRow(t *testing.T) {
	m := newToy()
	m.refuse = 4
	dir, data := m.folder(t, 50)
	o := m.job(t, dir, nil, nil, "--data", data)
	if !o.exits(ranks.ExitFailed) || !strings.Contains(o.err, "step 1: bucket = Grad: row 3") || !strings.Contains(o.err, "toy.py:2") {
		t.Errorf("%+v", o)
	}
	m.dp = 2
	o = m.job(t, dir, nil, nil, "--data", data)
	if !o.exits(ranks.ExitFailed) {
		t.Errorf("%+v", o)
	}
}

func TestViews(t *testing.T) {
	m := newToy()
	m.poison = 3
	dir, data := m.folder(t, 50)
	args := []string{"--data", data, "--steps", "9", "--checkpoint-dir=none"}
	o := m.job(t, dir, map[string]string{"GTC_NAN": "1"}, nil, args...)
	want := `step 3: GTC_NAN: the first NaN of rank 0 is element 1 of "w.next", made by @step: w.next = k1_sgd, at toy.py:3`
	if !o.exits(ranks.ExitFailed) || !strings.Contains(o.err, want) {
		t.Errorf("%+v", o)
	}

	m.poison, m.dp = 0, 2
	trace := filepath.Join(dir, "t.json")
	o = m.job(t, dir, map[string]string{"GTC_HASH": "1", "GTC_PROFILE": "2", "GTC_DEBUG": "2"}, nil, append(args, "--trace", trace)...)
	if slices.Max(o.code) != 0 {
		t.Fatalf("%+v", o)
	}
	for _, want := range []string{"hash rank 0 step 9 loss", "hash rank 1 step 9 loss", "profile of rank 1", "9 steps of", "k1_sgd", "@step bucket = all_reduce", "optim/momentum/w"} {
		if !strings.Contains(o.err, want) {
			t.Errorf("no %q in\n%s", want, o.err)
		}
	}
	var hashes []string
	for _, line := range strings.Split(o.err, "\n") {
		if _, h, ok := strings.Cut(line, " step 9 "); ok {
			hashes = append(hashes, h[:strings.Index(h, "buffer")])
		}
	}
	if len(hashes) != 2 || hashes[0] != hashes[1] {
		t.Errorf("the ranks' hashes differ: %v", hashes)
	}
	for _, r := range []string{"0", "1"} {
		text, err := os.ReadFile(filepath.Join(dir, "t.rank"+r+".json"))
		if err != nil || !json.Valid(text) || !strings.Contains(string(text), `"name":"d_w"`) {
			t.Errorf("trace of rank %s: %v\n%.300s", r, err, text)
		}
	}
}

func TestPlainAndLineProgress(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	o := m.ok(t, dir, "--data", data, "--steps", "25", "--log-every", "10")
	lines := strings.Split(strings.TrimSpace(o.out), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "step 10/25  loss ") || !strings.HasPrefix(lines[2], "step 25/25  loss ") || !strings.HasPrefix(lines[3], "done at step 25  loss ") {
		t.Errorf("%q", lines)
	}
	o = m.ok(t, dir, "--data", data, "--steps", "25", "--progress", "line", "--checkpoint-dir=none")
	if !strings.Contains(o.out, "\rstep 1/25  loss ") || strings.Count(o.out, "\n") != 1 {
		t.Errorf("%q", o.out)
	}
	o = m.ok(t, dir, "--data", data, "--steps", "3", "--bench")
	rows := strings.Split(strings.TrimSpace(o.out), "\n")
	if len(rows) != 3 || !strings.HasPrefix(rows[2], `{"step":3,"loss":`) || !strings.Contains(rows[2], `,"seconds":`) || o.err != "" {
		t.Errorf("%q %q", rows, o.err)
	}
}

func TestEvalOnlyTakesTheNewestCheckpoint(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	first := events(t, m.ok(t, dir, "--eval-only", "--eval-data", data, "--json").out, "eval")[0]
	o := m.ok(t, dir, "--data", data, "--epochs", "20", "--eval-data", data, "--json")
	trained := events(t, o.out, "eval")[0]
	second := events(t, m.ok(t, dir, "--eval-only", "--eval-data", data, "--json").out, "eval")[0]
	if second["loss_bits"] != trained["loss_bits"] || first["loss"].(float64) < 10*second["loss"].(float64) {
		t.Errorf("%v\n%v\n%v", first, trained, second)
	}
}

// --steps 0 and a checkpoint that is far enough train and save nothing, but evaluate.
func TestNothingToTrain(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	for _, flag := range []string{"--steps", "--epochs"} {
		o := m.ok(t, dir, "--data", data, flag, "0", "--eval-data", data, "--json")
		if len(events(t, o.out, "step")) != 0 || len(events(t, o.out, "save")) != 0 || len(events(t, o.out, "eval")) != 1 {
			t.Errorf("%s 0:\n%s", flag, o.out)
		}
		if o := m.job(t, dir, nil, nil, "--data", data, flag, "-1"); !o.exits(ranks.ExitUsage) || !strings.Contains(o.err, "at least 0") {
			t.Errorf("%s -1: %+v", flag, o)
		}
	}
	if o := m.ok(t, dir, "--data", data, "--steps", "0"); !strings.Contains(o.err, "nothing to train: --steps 0") {
		t.Errorf("%s", o.err)
	}
	m.ok(t, dir, "--data", data, "--steps", "20")
	before := readAll(t, filepath.Join(dir, "checkpoints", "step-000020"))
	o := m.ok(t, dir, "--data", data, "--steps", "10", "--resume")
	if !strings.Contains(o.err, "nothing to do: the checkpoint is at step 20, --steps 10") || strings.Contains(o.err, "saved") {
		t.Errorf("%s", o.err)
	}
	if readAll(t, filepath.Join(dir, "checkpoints", "step-000020")) != before {
		t.Error("the checkpoint changed")
	}
}

func TestNotesOnWhatDiffers(t *testing.T) {
	m := newToy()
	m.lr = "default"
	dir, data := m.folder(t, 50)
	o := m.ok(t, dir, "--data", data, "--steps", "3")
	if strings.Contains(o.err, "earlier run") || strings.Contains(o.out, "bits") {
		t.Errorf("%s%s", o.out, o.err)
	}
	m.lr, m.sum = "0.05", "food"
	o = m.ok(t, dir, "--data", data, "--steps", "5", "--resume")
	for _, want := range []string{"made with --lr 0.001, but this program with 0.05", "from another ONNX file (sha256 feed, now food)"} {
		if !strings.Contains(o.err, want) {
			t.Errorf("no %q in %s", want, o.err)
		}
	}
	o = m.job(t, dir, map[string]string{"GTC_HASH": "1"}, nil, "--data", data, "--steps", "3")
	if want := filepath.Join(dir, "checkpoints") + " has checkpoints of an earlier run (newest: step 5)"; !strings.Contains(o.err, want) || !strings.Contains(o.out, ", bits ") {
		t.Errorf("no %q in %s%s", want, o.err, o.out)
	}
	larger := newToy()
	larger.dim, larger.sum = 6, "wood"
	dir6, data6 := larger.folder(t, 50)
	o = larger.job(t, dir6, nil, nil, "--data", data6, "--resume="+filepath.Join(dir, "checkpoints"))
	if want := `"w" is f32[5] there, but f32[6] in this program (made from the ONNX file of sha256`; !o.exits(ranks.ExitUsage) || !strings.Contains(o.err, want) {
		t.Errorf("no %q in %s", want, o.err)
	}
}
