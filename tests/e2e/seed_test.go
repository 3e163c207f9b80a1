package e2e

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/npz"
)

// TestSeedOfDropout: --seed decides what dropout draws too: other seeds give other losses on the same samples, one seed the same
// losses in every layout, and a resumed run draws on to the bit, whatever seed it is given. The model is
// dropout(dropout(relu(x·w))·v) with x[·,16], w[16,32], v[32,4] and a half of each left out.
func TestSeedOfDropout(t *testing.T) {
	const n = 48
	x := npz.Array{Name: "x", DType: "f32", Shape: []int{n, 16}}
	label := npz.Array{Name: "target", DType: "i64", Shape: []int{n}}
	for i := range n * 16 {
		x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(float32(i*37%101)/50-1))
	}
	for i := range n {
		label.Data = binary.LittleEndian.AppendUint64(label.Data, uint64(i%4))
	}
	samples := filepath.Join(t.TempDir(), "samples.npz")
	if err := npz.WriteFile(samples, []npz.Array{x, label}); err != nil {
		t.Fatal(err)
	}
	args := func(more ...string) []string {
		return append([]string{"--data", samples, "--shuffle=false"}, more...)
	}
	one := spec{model: "testdata/dropout.onnx", batch: 16, lr: 1e-2}
	dir := compiled(t, one).Dir
	want := losses(run(t, dir, 1, args("--steps", "8", "--seed", "5", "--checkpoint-dir", "none")...))
	other := losses(run(t, dir, 1, args("--steps", "8", "--seed", "6", "--checkpoint-dir", "none")...))
	plain := losses(run(t, dir, 1, args("--steps", "8", "--checkpoint-dir", "none")...))
	for i := range want {
		if want[i] == other[i] || want[i] == plain[i] || other[i] == plain[i] {
			t.Errorf("step %d: losses %g, %g and %g with three seeds", i+1, want[i], other[i], plain[i])
		}
	}
	for _, s := range []spec{{dp: 2}, {micro: 2}, {pp: 2, micro: 2}, {tp: 2}, {dp: 2, zero: 3}} {
		s.model, s.batch, s.lr = one.model, one.batch, one.lr
		got := losses(run(t, compiled(t, s).Dir, s.ranks(), args("--steps", "8", "--seed", "5", "--checkpoint-dir", "none")...))
		alike(t, "dropout with a seed", got, want, 1e-5)
	}
	checkpoints := filepath.Join(t.TempDir(), "c")
	run(t, dir, 1, args("--steps", "3", "--seed", "5", "--checkpoint-dir", checkpoints)...)
	rest := losses(run(t, dir, 1, args("--steps", "8", "--resume", "--seed", "6", "--checkpoint-dir", checkpoints)...))
	for i, l := range rest {
		if l != want[3+i] {
			t.Errorf("step %d: loss %g resumed, %g straight", 4+i, l, want[3+i])
		}
	}
	if len(rest) != 5 {
		t.Errorf("%d steps behind the third", len(rest))
	}
}
