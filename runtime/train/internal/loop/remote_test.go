package loop

import (
	"bytes"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/device/devicetest"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// A device gives what this processor gives, bit for bit, whether steps run as graphs or kernel by kernel.
func TestDeviceAgrees(t *testing.T) {
	for _, c := range []toy{{micro: 1}, {micro: 4}} {
		m := c
		m.dp, m.batch, m.dim = 1, 8, 5
		dir, data := m.folder(t, 50)
		args := []string{"--data", data, "--steps", "40", "--json", "--eval-data", data, "--eval-every", "15", "--checkpoint-dir", t.TempDir(), "--save-every", "7"}
		want := m.ok(t, dir, args...)
		for name, env := range map[string]map[string]string{"graphs": {}, "plain": {"GTC_GRAPH": "0"}, "watched": {"GTC_PROFILE": "1"}} {
			args[len(args)-3] = t.TempDir()
			var d *fake
			got := m.onFake(t, dir, env, func(_ int, f *fake) { d, f.slow = f, 100*time.Microsecond }, args...)
			if got.code[0] != 0 {
				t.Fatalf("%s: exit code %d\n%s", name, got.code[0], got.err)
			}
			if a, b := finalBits(t, got), finalBits(t, want); a != b {
				t.Errorf("%s: the loss is %s, on this processor %s", name, a, b)
			}
			for _, kind := range []string{"step", "eval"} {
				a, b := events(t, got.out, kind), events(t, want.out, kind)
				if len(a) != len(b) {
					t.Fatalf("%s: %d events %s, not %d", name, len(a), kind, len(b))
				}
				for i := range a {
					if a[i]["loss_bits"] != b[i]["loss_bits"] || a[i]["step"] != b[i]["step"] {
						t.Errorf("%s: %v, on this processor %v", name, a[i], b[i])
					}
				}
			}
			if n := d.graphed.Load(); (name == "graphs") != (n == 39) {
				t.Errorf("%s: %d graphs were launched in 40 steps", name, n)
			}
		}
	}
}

// TestFakeConforms: the fake is a device like any other.
func TestFakeConforms(t *testing.T) {
	d, err := fakeProgram(&program.Program{}, nil).Device.Open(nil, device.Options{ArenaBytes: devicetest.Arena})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	devicetest.Run(t, d)
}

// A device that records no graphs goes on without, and says so.
func TestNoGraphs(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	args := []string{"--data", data, "--steps", "20", "--json", "--checkpoint-dir=none"}
	want := m.ok(t, dir, args...)
	got := m.onFake(t, dir, nil, func(_ int, d *fake) { d.noGraphs = true }, args...)
	if got.code[0] != 0 || finalBits(t, got) != finalBits(t, want) || strings.Count(got.err, "cannot be recorded as a graph: this device records no graphs") != 1 {
		t.Errorf("exit code %d\n%s%s", got.code[0], got.out, got.err)
	}
}

// The step of a divergence, a refused row and its sample are named as on this processor, although they are seen later.
func TestDeviceErrors(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	args := []string{"--data", data, "--steps", "40", "--checkpoint-dir=none", "--threads", "2"}
	for name, change := range map[string]func(){"poison": func() { m.poison = 13 }, "refuse": func() { m.refuse = 3 }} {
		*m = *newToy()
		change()
		want := m.job(t, dir, nil, nil, args...)
		got := m.onFake(t, dir, nil, nil, args...)
		got.err = strings.Replace(got.err, "1 x fake", "1 x 2 threads", 1)
		if got.code[0] != want.code[0] || got.err != want.err || want.code[0] == 0 {
			t.Errorf("%s: exit code %d\n%swant %d\n%s", name, got.code[0], got.err, want.code[0], want.err)
		}
	}
}

// A device that fails ends the run with one message; the call is named where each is waited for.
func TestBrokenDevice(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	args := []string{"--data", data, "--steps", "40", "--checkpoint-dir=none"}
	for env, want := range map[string]string{"0": "GTC_DEBUG=3 waits for each call and names the one that fails", "3": "@step: w.next = k1_sgd, at toy.py:3: device 0 (fake) is lost to this process: a kernel failed"} {
		o := m.onFake(t, dir, map[string]string{"GTC_DEBUG": env}, func(_ int, d *fake) { d.breaks = 30 }, args...)
		if o.code[0] != ranks.ExitFailed || !strings.Contains(o.err, want) || strings.Count(o.err, "is lost to this process") != 1 {
			t.Errorf("GTC_DEBUG=%s: exit code %d\n%s", env, o.code[0], o.err)
		}
	}
	for call := int64(20); call < 60; call++ { // whichever call is told that it is lost
		o := m.onFake(t, dir, nil, func(_ int, d *fake) { d.tells = call }, args...)
		if o.code[0] != ranks.ExitFailed || !strings.Contains(o.err, "step ") || !strings.Contains(o.err, "names the one that fails") || strings.Count(o.err, "is lost to this process") != 1 {
			t.Errorf("call %d: exit code %d\n%s", call, o.code[0], o.err)
		}
	}
}

// ways are how ranks on devices talk: by way of the host, and on the devices.
var ways = map[string]int32{"host": 0, "too old": 1, "device": 2}

// Ranks on devices give what ranks on this processor give.
func TestDevicesAgree(t *testing.T) {
	defer fakeVersion.Store(0)
	for _, c := range []toy{{dp: 2, micro: 1}, {dp: 2, micro: 2}, {dp: 4, micro: 1, whose: true}} {
		m := c
		m.batch, m.dim = 8, 5
		dir, data := m.folder(t, 50)
		args := []string{"--data", data, "--steps", "30", "--json", "--eval-data", data, "--checkpoint-dir", t.TempDir(), "--save-every", "7"}
		want := m.ok(t, dir, args...)
		for way, version := range ways {
			args[len(args)-3] = t.TempDir()
			fakeVersion.Store(version)
			var graphs atomic.Int64
			got := m.onFake(t, dir, nil, func(_ int, d *fake) { d.onGraph = func() { graphs.Add(1) } }, args...)
			for r, code := range got.code {
				if code != 0 {
					t.Fatalf("%s: rank %d: exit code %d\n%s", way, r, code, got.err)
				}
			}
			if strings.Contains(got.err, "by way of the host's memory: the library is too old") != (way == "too old") || (graphs.Load() == int64(29*m.dp)) != (way == "device") {
				t.Errorf("%s: %d graphs\n%s", way, graphs.Load(), got.err)
			}
			a, b := events(t, got.out, "step"), events(t, want.out, "step")
			for i := range b {
				if a[i]["loss_bits"] != b[i]["loss_bits"] {
					t.Errorf("%s, %d ranks: %v, on this processor %v", way, m.dp, a[i], b[i])
				}
			}
		}
	}
}

// A batch that stays gives the same losses as a graph.
func TestFixedBatchOnDevice(t *testing.T) {
	defer fakeVersion.Store(0)
	for _, l := range layouts {
		p := newPipe(t, l.name, l.pp, l.dp, l.micro)
		dir, path := p.folder(t, pipeBatch)
		a, b := filepath.Join(dir, "a.npz"), filepath.Join(dir, "b.npz")
		p.ok(t, dir, "--fixed-batch", path, "--steps", "6", "--results", a)
		fakeVersion.Store(2)
		var graphs atomic.Int64
		o := runRanks(p.pp*p.dp, func(r int) *program.Program {
			return fakeProgram(p.rank(t, r), func(d *fake) { d.onGraph = func() { graphs.Add(1) } })
		}, dir, nil, nil, "--fixed-batch", path, "--steps", "6", "--results", b)
		if o.code[0] != 0 || graphs.Load() != int64(4*p.pp*p.dp) {
			t.Fatalf("%+v: exit code %d, %d graphs\n%s", l, o.code[0], graphs.Load(), o.err)
		}
		want, got := readArrays(t, a), readArrays(t, b)
		for name := range want {
			if !bytes.Equal(got[name].Data, want[name].Data) {
				t.Errorf("%+v: %s differs", l, name)
			}
		}
	}
}

// Pipelines run on devices: messages both ways, slots of the stash, several micro-batches in flight.
func TestPipelinesOnDevices(t *testing.T) {
	defer fakeVersion.Store(0)
	for _, l := range layouts {
		p := newPipe(t, l.name, l.pp, l.dp, l.micro)
		dir, path := p.folder(t, 48)
		flags := []string{"--data", path, "--json", "--log-every", "2", "--eval-data", path, "--steps", "6", "--checkpoint-dir=none"}
		want := p.ok(t, dir, flags...)
		for way, version := range ways {
			fakeVersion.Store(version)
			got := runRanks(p.pp*p.dp, func(r int) *program.Program { return fakeProgram(p.rank(t, r), nil) }, dir, nil, nil, flags...)
			for r, code := range got.code {
				if code != 0 {
					t.Fatalf("%s, %+v: rank %d: exit code %d\n%s", way, l, r, code, got.err)
				}
			}
			for _, kind := range []string{"step", "eval"} {
				a, b := events(t, got.out, kind), events(t, want.out, kind)
				for i := range b {
					if a[i]["loss_bits"] != b[i]["loss_bits"] {
						t.Errorf("%s, %+v: %v, on this processor %v", way, l, a[i], b[i])
					}
				}
			}
		}
	}
}

// Collectives on devices that were asked for, by the environment or when the program was compiled, are not replaced in silence.
func TestAskedForNCCL(t *testing.T) {
	m := toy{dp: 2, micro: 1, batch: 8, dim: 5}
	dir, data := m.folder(t, 50)
	for _, by := range []string{"GTC_COMM", "--comm"} {
		if by == "GTC_COMM" {
			t.Setenv("GTC_COMM", "nccl")
		} else {
			t.Setenv("GTC_COMM", "")
		}
		o := runRanks(2, func(r int) *program.Program {
			p := m.program(t)
			if by == "--comm" {
				p.Plan = bytes.Replace(p.Plan, []byte(`"options":{`), []byte(`"options":{"comm":"nccl",`), 1)
			}
			return fakeProgram(p, nil)
		}, dir, nil, nil, "--data", data, "--steps", "3", "--checkpoint-dir=none")
		if !o.exits(ranks.ExitUsage) || !strings.Contains(o.err, "collectives by NCCL were asked for (--comm, GTC_COMM): no NCCL here") {
			t.Errorf("%s: exit codes %v\n%s", by, o.code, o.err)
		}
	}
	t.Setenv("GTC_COMM", "nccl")
	o := m.onFake(t, dir, nil, func(_ int, d *fake) { d.library = "other" }, "--data", data, "--steps", "3", "--checkpoint-dir=none")
	if !o.exits(ranks.ExitUsage) || !strings.Contains(o.err, "collectives by NCCL were asked for (--comm, GTC_COMM), but fake has no memory that they work on") {
		t.Errorf("of another device: exit codes %v\n%s", o.code, o.err)
	}
}

// When the device of one rank fails, the others end as for a rank that died, whatever they wait for.
func TestBrokenDeviceOfAnotherRank(t *testing.T) {
	defer fakeVersion.Store(0)
	m := toy{dp: 2, micro: 1, batch: 8, dim: 5}
	dir, data := m.folder(t, 50)
	for way, version := range ways {
		fakeVersion.Store(version)
		o := m.onFake(t, dir, nil, func(r int, d *fake) {
			if r == 1 {
				d.breaks = 25
			}
		}, "--data", data, "--steps", "40", "--checkpoint-dir=none")
		if o.code[0] != ranks.ExitPeer || o.code[1] != ranks.ExitFailed || !strings.Contains(o.err, "rank 1: step") || !strings.Contains(o.err, "is lost to this process") {
			t.Errorf("%s: exit codes %v\n%s", way, o.code, o.err)
		}
	}
}
