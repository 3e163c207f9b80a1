package loop

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/ckpt"
	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/train/internal/machine"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
	"github.com/gtc-compiler/gtc/runtime/train/internal/report"
)

// layouts are pipelines of every schedule, with data parallelism.
var layouts = []struct {
	name          string
	pp, dp, micro int
}{
	{"gpipe", 2, 1, 4}, {"1f1b", 2, 1, 4}, {"1f1b", 4, 1, 2}, {"1f1b", 4, 2, 6}, {"1f1b", 2, 2, 1}, {"interleaved", 2, 1, 4},
	{"interleaved", 2, 2, 2}, {"zb-h1", 4, 1, 8}, {"zb-h1", 2, 2, 3}, {"varuna", 4, 1, 6}, {"1f1b", 1, 1, 3},
}

// Every schedule computes what the whole model does: losses, gradients of all stages, outputs in their order.
func TestPipelinesAgreeWithTheWhole(t *testing.T) {
	for _, l := range layouts {
		p := newPipe(t, l.name, l.pp, l.dp, l.micro)
		dir, path := p.folder(t, pipeBatch)
		res := filepath.Join(dir, "res.npz")
		p.ok(t, dir, "--fixed-batch", path, "--steps", "6", "--results", res)
		got := readArrays(t, res)
		losses, want, out := p.whole(t, dir, path, 6)
		same := func(name string, want []float64) {
			a := got[name]
			if a == nil || program.Elems(a.Shape) != len(want) {
				t.Errorf("%+v: %s is %v, want %d elements", l, name, a, len(want))
				return
			}
			for i := range want {
				if v, _ := element(a.Data[i*program.ElemSize(a.DType):], a.DType); math.Abs(v-want[i]) > 1e-5*max(1, math.Abs(want[i])) {
					t.Errorf("%+v: %s[%d] is %v, want %v", l, name, i, v, want[i])
				}
			}
		}
		same("loss", losses)
		same("out0", out["out0"])
		for v := range pipeParts {
			same(fmt.Sprint("grad/w", v), want[fmt.Sprint("w", v)])
		}
	}
}

// A checkpoint of one layout goes on in every other; a parameter that two stages have is in it once.
func TestPipelinesResumeInAnotherLayout(t *testing.T) {
	one := newPipe(t, "1f1b", 1, 1, 2)
	dir, path := one.folder(t, 60)
	flags := []string{"--data", path, "--json", "--log-every", "1", "--eval-data", path}
	straight := one.ok(t, dir, append(flags, "--steps", "22", "--checkpoint-dir=none")...)
	want := events(t, straight.out, "step")
	step := 0
	for _, l := range layouts {
		p := newPipe(t, l.name, l.pp, l.dp, l.micro)
		o := p.ok(t, dir, append(flags, "--steps", fmt.Sprint(step+2), "--resume")...)
		if strings.Contains(o.err, "was made with") {
			t.Errorf("the layout is noted as a difference: %s", o.err)
		}
		got := events(t, o.out, "step")
		if len(got) != 2 {
			t.Fatalf("%+v: %d steps\n%s", l, len(got), o.err)
		}
		for i, e := range got {
			if a, b := e["loss"].(float64), want[step+i]["loss"].(float64); math.Abs(a-b) > 1e-4*b {
				t.Errorf("%+v: step %v: loss %v, straight %v", l, e["step"], a, b)
			}
		}
		step += 2
		if last := events(t, o.out, "eval"); step == 22 {
			a, b := last[0]["loss"].(float64), events(t, straight.out, "eval")[0]["loss"].(float64)
			if math.Abs(a-b) > 1e-4*b || last[0]["samples"] != 60.0 {
				t.Errorf("evaluation %v, straight %v", a, b)
			}
		}
		if start := events(t, o.out, "start")[0]; start["parameters"] != 15.0 {
			t.Errorf("%+v: %v", l, start)
		}
		c, err := ckpt.Open(filepath.Join(dir, "checkpoints"))
		if err != nil {
			t.Fatal(err)
		}
		if names := c.Names(); !slices.Equal(names, []string{"optim/tied", "tied", "w0", "w1", "w2", "w3"}) {
			t.Errorf("%+v: the checkpoint holds %v", l, names)
		}
		c.Close()
	}
}

// The views work on stages: profile, trace lanes, NaN search, hashes.
func TestViewsOfAPipeline(t *testing.T) {
	p := newPipe(t, "zb-h1", 2, 1, 4)
	dir, path := p.folder(t, pipeBatch)
	trace := filepath.Join(dir, "t.json")
	o := p.job(t, dir, map[string]string{"GTC_PROFILE": "2", "GTC_NAN": "1", "GTC_HASH": "1"}, "--data", path, "--steps", "3", "--trace", trace, "--checkpoint-dir=none")
	for _, want := range []string{"profile of rank 1", "@wgrad.0 accum/w2", "hash rank 1 step 3"} {
		if !strings.Contains(o.err, want) {
			t.Errorf("no %q in\n%s", want, o.err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "t.rank1.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"tid":4`, `"F3"`, `"B3"`, `"W3"`, `"tid":5`, `"tid":6`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in the trace", want)
		}
	}
}

// A rank that stops in the middle of a step is named by its neighbours, with the tensor and the line.
func TestAStageThatFailsIsNamed(t *testing.T) {
	p := newPipe(t, "1f1b", 4, 1, 6)
	dir, path := p.folder(t, pipeBatch)
	o := runRanks(4, func(r int) *program.Program {
		one := *p
		prog := one.rank(t, r)
		if r == 1 {
			calls := prog.Funcs["fwd.0"]
			n := 0
			was := calls[1].Run
			calls[1].Run = func(b unsafe.Pointer, at []int) int64 {
				if n++; n == 9 {
					return 5
				}
				return was(b, at)
			}
		}
		return prog
	}, dir, nil, nil, "--data", path, "--steps", "30", "--checkpoint-dir=none")
	if !slices.Equal(o.code, []int{ranks.ExitPeer, ranks.ExitFailed, ranks.ExitPeer, ranks.ExitPeer}) {
		t.Errorf("exit codes %v", o.code)
	}
	for _, want := range []string{"rank 1: step 2: h2 = product: row 5", "rank 1 aborted",
		`\(rank 2 was in (recv of "(h2|d3)"|send of "(h3|d2)") \(pipe.py:2\)\)`} { // at either neighbour, as the others' speed has it
		if !regexp.MustCompile(want).MatchString(o.err) {
			t.Errorf("no %q in\n%s", want, o.err)
		}
	}
}

func TestDamagedSchedulesAreFound(t *testing.T) {
	p := newPipe(t, "1f1b", 2, 1, 4)
	good := p.rank(t, 0)
	for want, damage := range map[string]func(m *abi.Program){
		"BUG: action 1 is @none": func(m *abi.Program) { m.Actions[1].Func = "none" },
		"of micro-batch 9":       func(m *abi.Program) { m.Actions[0].Micro = 9 },
		"in slot 7":              func(m *abi.Program) { m.Actions[0].Slot = 7 },
		"slots of":               func(m *abi.Program) { m.Slots += 9 },
		"ends with":              func(m *abi.Program) { m.Actions = m.Actions[:3] },
	} {
		var man abi.Manifest
		if err := json.Unmarshal(good.Plan, &man); err != nil {
			t.Fatal(err)
		}
		damage(&man.Programs[0])
		text, err := json.Marshal(man)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = program.Read(&program.Program{Plan: text}, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A scheduled step in steady state allocates nothing.
func TestAScheduledStepAllocatesNothing(t *testing.T) {
	p := newPipe(t, "1f1b", 1, 1, 3)
	dir, path := p.folder(t, pipeBatch)
	prog := p.rank(t, 0)
	s := &session{env: &surroundings{}, watch: &report.Watcher{}}
	var err error
	if s.cfg, err = parseFlags([]string{"--data", path, "--dir", dir}, nil); err != nil {
		t.Fatal(err)
	}
	if s.Plan, err = program.Read(prog, 0); err != nil {
		t.Fatal(err)
	}
	for name := range prog.Funcs { // the kernels of the test allocate
		for i := range prog.Funcs[name] {
			if c := &prog.Funcs[name][i]; c.Run != nil {
				c.Run = func(b unsafe.Pointer, _ []int) int64 {
					unsafe.Slice((*float32)(b), 1)[0] = 1
					return -1
				}
			}
		}
	}
	where, end, err := machine.OpenMemory(prog, s.Plan, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if err := s.build(prog, where); err != nil {
		t.Fatal(err)
	}
	defer s.m.Close()
	tr := &trainer{session: s}
	if err := tr.prepare(); err != nil {
		t.Fatal(err)
	}
	defer tr.close()
	tr.loader.Close()
	if tr.loader, err = tr.set.Loader(data.Config{Sampler: tr.sampler, Micro: 3}); err != nil {
		t.Fatal(err)
	}
	for _, t := range []*abi.Tensor{s.Plan.Tensors["w0"], tr.count} {
		binary.NativeEndian.PutUint32(s.m.Local.Bytes(t.Offset, 4), math.Float32bits(1))
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := tr.one(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}
