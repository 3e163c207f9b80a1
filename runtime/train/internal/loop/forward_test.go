package loop

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/npz"
)

// outputs runs the toy's forward pass on the samples of a file.
func (t *toy) outputs(tb testing.TB, dir, inputs string, args ...string) []float64 {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "out.npz")
	t.ok(tb, dir, append(args, "--dump-forward", path, "--inputs", inputs)...)
	f, err := npz.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	a, err := f.Read("out0")
	if err != nil {
		tb.Fatal(err)
	}
	var list []float64
	for i := 0; i < len(a.Data); i += 4 {
		list = append(list, float64(math.Float32frombits(binary.LittleEndian.Uint32(a.Data[i:]))))
	}
	if len(list) != a.Shape[0] {
		tb.Fatalf("%v", a.Shape)
	}
	return list
}

// TestForwardOfSamples: 13 samples in runs of 8, on one rank and two, under other names and scaled: y = x·w doubles with x.
func TestForwardOfSamples(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 13)
	arrays := readArrays(t, data)
	x := arrays["x"]
	two := newToy()
	two.dp = 2
	m13 := newToy()
	m13.batch = 13
	want := m13.outputs(t, dir, data)
	other := filepath.Join(dir, "other.npz")
	if err := npz.WriteFile(other, []npz.Array{{Name: "z", DType: "f32", Shape: x.Shape, Data: x.Data}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		m     *toy
		file  string
		args  []string
		scale float64
	}{{m, data, nil, 1}, {two, data, nil, 1}, {two, other, []string{"--map", "x=z"}, 1},
		{m, data, []string{"--transform", "x=scale=2"}, 2}, {two, other, []string{"--map", "x=z", "--transform", "x=scale=2,mean=0"}, 2}} {
		got := c.m.outputs(t, dir, c.file, c.args...)
		if len(got) != 13 {
			t.Fatalf("%d ranks %v: %d outputs", c.m.dp, c.args, len(got))
		}
		for i := range got {
			if math.Abs(got[i]-c.scale*want[i]) > 1e-6 {
				t.Errorf("%d ranks %v: output %d is %g, want %g", c.m.dp, c.args, i, got[i], c.scale*want[i])
			}
		}
	}
	m.fails(t, dir, `no array for input "x"`, "--inputs", other, "--dump-forward", "y.npz")
	m.fails(t, dir, "--map q: the model has no such input", "--inputs", other, "--dump-forward", "y.npz", "--map", "q=z")
	m.fails(t, dir, "--map and --transform have no effect with --fixed-batch", "--fixed-batch", data, "--results", "y.npz", "--transform", "x=scale=2")
	empty := filepath.Join(dir, "empty.npz")
	if err := npz.WriteFile(empty, []npz.Array{{Name: "x", DType: "f32", Shape: []int{0, 5}}}); err != nil {
		t.Fatal(err)
	}
	m.fails(t, dir, "there are no samples", "--inputs", empty, "--dump-forward", "y.npz")
}

// TestForwardUntrained: whoever has trained and does not ask for what was trained is told that outputs are of the initial weights.
func TestForwardUntrained(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 13)
	untold := "outputs are those of the initial weights: --resume takes the checkpoint of step 2"
	for _, c := range []struct {
		args []string
		told bool
	}{{nil, true}, {[]string{"--resume"}, false}, {[]string{"--checkpoint-dir", "none"}, false}} {
		m.ok(t, dir, "--data", data, "--steps", "2")
		o := m.ok(t, dir, append(c.args, "--dump-forward", filepath.Join(dir, "out.npz"), "--inputs", data)...)
		if strings.Contains(o.err, untold) != c.told {
			t.Errorf("%v: %s", c.args, o.err)
		}
	}
}
