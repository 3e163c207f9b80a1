package loop

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/ckpt"
	"github.com/gtc-compiler/gtc/runtime/train/internal/machine"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// encodeF32 is values as the arena holds them.
func encodeF32(values ...float32) []byte {
	var out []byte
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

// What two ranks had for themselves, on four ranks and on one: errors keep their sum, optimizer state its mean, and what
// starts anew is zeros. A tensor that was one for all begins so on every rank.
func TestOwnStateOnOtherRanks(t *testing.T) {
	dir := t.TempDir()
	w, err := ckpt.Begin(dir, 3, 0, 1, ckpt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	two := encodeF32(1, 2, 3, 5, 7, 10)
	for _, name := range []string{"optim/error/w", "optim/momentum/w", "optim/powersgd_q/w"} {
		if err := w.Add(name, "f32", []int{2, 3}, []int{0, 0}, []int{2, 3}, two); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Add("optim/m/w", "f32", []int{3}, []int{0}, []int{3}, encodeF32(4, 5, 6)); err != nil {
		t.Fatal(err)
	}
	info, err := w.CloseShard()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Commit([]ckpt.ShardInfo{info}, ckpt.Meta{}); err != nil {
		t.Fatal(err)
	}
	c, err := ckpt.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	where, end, err := machine.OpenMemory(&program.Program{}, &program.Plan{Prog: &abi.Program{ArenaBytes: 64}}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for _, v := range []struct {
		name, merge string
		ranks       int // 0: no contents of its own
		want        []float32
	}{
		{"optim/error/w", abi.MergeSum, 4, []float32{1.5, 2.25, 3.25}},
		{"optim/momentum/w", abi.MergeMean, 4, []float32{3, 4.5, 6.5}},
		{"optim/momentum/w", "", 0, []float32{3, 4.5, 6.5}},
		{"optim/powersgd_q/w", abi.MergeNone, 4, []float32{0, 0, 0}},
		{"optim/m/w", abi.MergeMean, 4, []float32{4, 5, 6}},
	} {
		x := &abi.Tensor{Name: v.name, DType: "f32", Dims: []int{3}, Bytes: 12, Merge: v.merge}
		s := &session{Job: ranks.Job{Plan: &program.Plan{Rank: max(v.ranks-1, 0)}}, m: &machine.Machine{Memory: where}}
		if v.ranks > 0 {
			x.PerRank = []string{"dp"}
			s.Plan.Grid = mesh.Mesh{Axes: []mesh.Axis{{Name: "dp", Size: v.ranks}}}
		}
		clear(where.Local.Bytes(x.Offset, x.Bytes))
		have, err := c.Tensor(v.name)
		if err != nil {
			t.Fatal(err)
		}
		done, note, err := s.readPerRank(c, x, have)
		if !done || note == "" || err != nil || !slices.Equal(where.Local.Bytes(x.Offset, x.Bytes), encodeF32(v.want...)) {
			t.Errorf("%s for %d ranks: %v, %q, %v; got %v, want %v", v.name, v.ranks, done, note, err, where.Local.Bytes(x.Offset, x.Bytes), encodeF32(v.want...))
		}
	}
	bad := &abi.Tensor{Name: "optim/momentum/w", DType: "f32", Dims: []int{4}, Bytes: 16, PerRank: []string{"dp"}, Merge: abi.MergeMean}
	s := &session{Job: ranks.Job{Plan: &program.Plan{Grid: mesh.Mesh{Axes: []mesh.Axis{{Name: "dp", Size: 4}}}}}, m: &machine.Machine{Memory: where}}
	have, err := c.Tensor(bad.Name)
	if err != nil {
		t.Fatal(err)
	}
	if done, _, err := s.readPerRank(c, bad, have); done || err != nil {
		t.Errorf("another shape is taken: %v, %v", done, err)
	}
}

// What a step reports is of the step, although @average, which ends some steps, writes where @step left its results; and so
// does what the evaluations and the checkpoints behind it report.
func TestAverageComesAfterTheReport(t *testing.T) {
	for _, micro := range []int{1, 2} {
		m := &toy{dp: 2, micro: micro, batch: 8, dim: 5}
		dir, data := m.folder(t, 50)
		flags := []string{"--data", data, "--steps", "6", "--json", "--log-every", "1", "--eval-data", data, "--eval-every", "3", "--save-every", "2"}
		want := m.ok(t, dir, flags...)
		o := runRanks(m.dp, func(r int) *program.Program {
			one := *m
			p := one.program(t)
			var man abi.Manifest
			if err := json.Unmarshal(p.Plan, &man); err != nil {
				t.Fatal(err)
			}
			man.Train.LocalPeriod = 4
			for i := range man.Programs {
				man.Programs[i].Funcs = append(man.Programs[i].Funcs, abi.Func{Name: abi.FuncAverage})
			}
			var err error
			if p.Plan, err = json.Marshal(man); err != nil {
				t.Fatal(err)
			}
			p.Funcs[abi.FuncAverage] = []program.Call{{Name: "w.next = Mean", Run: func(b unsafe.Pointer, _ []int) int64 { // gradients were shared: w is the same
				for _, name := range []string{"bucket", "lr", "sums"} {
					one.f32(b, name, 1)[0] = 1e6
				}
				clear(one.f32(b, "bucket", one.dim+2))
				return -1
			}}}
			return p
		}, dir, nil, nil, append(flags, "--checkpoint-dir", t.TempDir())...)
		if o.code[0] != 0 || o.code[1] != 0 {
			t.Fatal(o.err)
		}
		for _, kind := range []string{"step", "eval", "end"} {
			a, b := events(t, o.out, kind), events(t, want.out, kind)
			if len(a) != len(b) || len(a) == 0 {
				t.Fatalf("%d micro-batches: %d events %s, want %d", micro, len(a), kind, len(b))
			}
			for i := range a {
				if a[i]["loss_bits"] != b[i]["loss_bits"] || a[i]["lr"] != b[i]["lr"] {
					t.Errorf("%d micro-batches: %v, want %v", micro, a[i], b[i])
				}
			}
		}
	}
}
