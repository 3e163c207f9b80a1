package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
)

// A run that changes its layout at every checkpoint (data parallel, each stage of ZeRO, tensor parallel, micro-batches)
// takes the steps of one rank that never stops, and its last checkpoint has each parameter whole.
func TestEveryLayoutResumesAnyOther(t *testing.T) {
	want := losses(run(t, compiled(t, one).Dir, 1, append(sameSteps, "none", "--steps", "24")...))
	dir := filepath.Join(t.TempDir(), "checkpoints")
	var got []float64
	for i, l := range []spec{
		{dp: 2, zero: 3},
		{dp: 4, zero: 1},
		{dp: 2, micro: 2, zero: 2},
		{dp: 2, tp: 2, zero: 3},
		{},
		{dp: 2, zero: 3},
	} {
		l.model, l.batch, l.lr = one.model, one.batch, one.lr
		l.dp, l.micro = max(l.dp, 1), max(l.micro, 1)
		args := append(sameSteps, dir, "--steps", fmt.Sprint(4*(i+1)))
		if i > 0 {
			args = append(args, "--resume")
		}
		got = append(got, losses(run(t, compiled(t, l).Dir, l.dp*max(l.tp, 1), args...))...)
	}
	alike(t, "six layouts", got, want, 1e-4)
	step, whole := tensors(t, dir)
	if n := len(whole["fc2.weight"]); step != 24 || n != 128*128*4 {
		t.Errorf("step %d, a weight of %d bytes", step, n)
	}
}
