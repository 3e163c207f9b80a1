package train

import (
	"strings"
	"testing"
	"time"
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
	args := []string{"--data", data, "--steps", "40", "--checkpoint-dir=none"}
	for name, change := range map[string]func(){"poison": func() { m.poison = 13 }, "refuse": func() { m.refuse = 3 }} {
		*m = *newToy()
		change()
		want := m.job(t, dir, nil, nil, args...)
		got := m.onFake(t, dir, nil, nil, args...)
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
		if o.code[0] != ExitFailed || !strings.Contains(o.err, want) || strings.Count(o.err, "is lost to this process") != 1 {
			t.Errorf("GTC_DEBUG=%s: exit code %d\n%s", env, o.code[0], o.err)
		}
	}
}
