package e2e

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/internal/fixtures"
)

// A run that changes its layout at every checkpoint (data parallel, each stage of ZeRO, tensor parallel, pipelines of every
// schedule, micro-batches, and all at once) takes the steps of one rank that never stops. Its last checkpoint has each
// parameter and each moment of the optimizer whole and near that rank's. GTC_LONG=1 goes through twice as many layouts.
func TestEveryLayoutResumesAnyOther(t *testing.T) {
	layouts := []spec{
		{dp: 2, zero: 3},
		{dp: 4, zero: 1},
		{pp: 2, micro: 4},
		{dp: 2, micro: 2, zero: 2},
		eight,
		{dp: 2, tp: 2, zero: 3},
		{},
		{dp: 2, zero: 3},
	}
	if os.Getenv("GTC_LONG") != "" {
		layouts = append(layouts,
			spec{pp: 3, micro: 4, schedule: "gpipe"},
			spec{dp: 2, pp: 2, micro: 2, zero: 1, schedule: "1f1b"},
			spec{tp: 4},
			spec{pp: 2, micro: 4, schedule: "interleaved"},
			spec{tp: 2, pp: 2, micro: 4, schedule: "zb-h1"},
			spec{dp: 4, micro: 2, zero: 2},
			spec{pp: 2, micro: 4, schedule: "varuna"},
			spec{dp: 2, tp: 2, zero: 1},
		)
	}
	throughLayouts(t, one, layouts, 4)
}

// The same with a model whose embedding is tied to its output layer, which stages and shards must keep one weight.
func TestTiedWeightsResumeInEveryLayout(t *testing.T) {
	if os.Getenv("GTC_LONG") == "" {
		t.Skip("NOT TESTED: GTC_LONG=1 takes minutes")
	}
	throughLayouts(t, spec{model: fixtures.Path(t, "models/gpt2_tiny.dynamo.onnx"), lr: 1e-3}, []spec{
		{pp: 2, micro: 2},
		{tp: 2},
		{dp: 2, zero: 3},
		{dp: 2, pp: 2, micro: 1, zero: 1},
		{},
	}, 3)
}

// throughLayouts trains base as one rank, and again with another layout after every so many steps, each from the checkpoint
// of the one before.
func throughLayouts(t *testing.T, base spec, layouts []spec, steps int) {
	t.Helper()
	data := sameSteps
	if base.model != mlp {
		data = []string{"--data", plays(t), "--seed", "11", "--checkpoint-dir"}
	}
	straight, dir := filepath.Join(t.TempDir(), "straight"), filepath.Join(t.TempDir(), "checkpoints")
	total := steps * len(layouts)
	want := losses(run(t, compiled(t, base).Dir, 1, append(slices.Clone(data), straight, "--steps", fmt.Sprint(total))...))
	var got []float64
	for i, l := range layouts {
		l.model, l.batch, l.lr = base.model, base.batch, base.lr
		l.dp, l.micro = max(l.dp, 1), max(l.micro, 1)
		args := append(slices.Clone(data), dir, "--steps", fmt.Sprint(steps*(i+1)))
		if i > 0 {
			args = append(args, "--resume")
		}
		got = append(got, losses(run(t, compiled(t, l).Dir, l.ranks(), args...))...)
	}
	alike(t, fmt.Sprint(len(layouts), " layouts"), got, want, 1e-4)
	nearTensors(t, dir, straight, 1e-4)
}

// nearTensors compares two checkpoints: the same tensors, each within tol of the other's norm. The biases of attention's keys are
// left out: softmax does not see them, their gradient is rounding alone, and Adam makes as much of it as of any other.
func nearTensors(t *testing.T, dirA, dirB string, tol float64) {
	t.Helper()
	stepA, a := tensors(t, dirA)
	stepB, b := tensors(t, dirB)
	if stepA != stepB || len(a) != len(b) || len(a) == 0 {
		t.Errorf("%s is step %d of %d tensors, %s step %d of %d", dirA, stepA, len(a), dirB, stepB, len(b))
	}
	moments := 0
	for n := range b {
		if len(a[n]) != len(b[n]) {
			t.Errorf("%q has %d bytes, want %d", n, len(a[n]), len(b[n]))
			continue
		}
		if strings.Contains(n, "optim/") {
			moments++
		}
		x, y := a[n], b[n]
		if strings.Contains(n, "attn.c_attn.bias") { // those of queries, keys and values
			third := len(y) / 3
			x, y = slices.Delete(slices.Clone(x), third, 2*third), slices.Delete(slices.Clone(y), third, 2*third)
		}
		if d := apart(x, y); !(d <= tol) {
			t.Errorf("%q differs by %g of its norm, at most %g is allowed", n, d, tol)
		}
	}
	if moments == 0 {
		t.Error("the checkpoint holds no moments of the optimizer")
	}
}

// apart is the norm of the difference of two f32 tensors over that of the second.
func apart(a, b []byte) float64 {
	var diff, norm float64
	at := func(x []byte, i int) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(x[i:]))) }
	for i := 0; i+4 <= len(b); i += 4 {
		d := at(a, i) - at(b, i)
		diff, norm = diff+d*d, norm+at(b, i)*at(b, i)
	}
	if diff == 0 {
		return 0
	}
	return math.Sqrt(diff / norm)
}
