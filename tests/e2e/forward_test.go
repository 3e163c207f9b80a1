package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// predicted compiles the digits' MLP in a layout and gives what --dump-forward writes for the samples of a file.
func predicted(t *testing.T, name, samples string, s spec, change func(o *compiler.Options)) map[string]*npz.Array {
	t.Helper()
	o := s.options(filepath.Join(t.TempDir(), "out"))
	o.Build = true
	change(o)
	if _, err := compiler.Run(context.Background(), o); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	out := filepath.Join(t.TempDir(), "out.npz")
	run(t, o.Out, s.ranks(), "--inputs", samples, "--dump-forward", out)
	f, err := npz.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	arrays := map[string]*npz.Array{}
	for _, n := range f.Names() {
		if arrays[n], err = f.Read(n); err != nil {
			t.Fatal(err)
		}
	}
	return arrays
}

// TestForwardOfAnyNumber: outputs of 37 samples are those of a program that takes 37 at a time, under the model's name, however
// many at a time and on however many ranks they are made; a rank of the last run may have filling only.
func TestForwardOfAnyNumber(t *testing.T) {
	samples := pictures(t, "some.npz", 37, func(_, _ *npz.Array) {})
	infers := func(o *compiler.Options) { o.Pass.Loss = pass.NoLoss }
	trains := func(o *compiler.Options) { o.Pass.Forward = true }
	want := predicted(t, "37 at a time", samples, spec{model: mlp, batch: 37, lr: 1e-3}, infers)
	if len(want) != 1 || want["logits"] == nil || !slices.Equal(want["logits"].Shape, []int{37, 10}) {
		t.Fatalf("%v", want)
	}
	for _, v := range []struct {
		name   string
		spec   spec
		change func(o *compiler.Options)
	}{
		{"one at a time", spec{model: mlp, batch: 1, lr: 1e-3}, infers},
		{"8 at a time", spec{model: mlp, batch: 8, lr: 1e-3}, infers},
		{"64 at a time", spec{model: mlp, batch: 64, lr: 1e-3}, infers},
		{"8 on two ranks", spec{model: mlp, batch: 8, dp: 2, lr: 1e-3}, infers},
		{"32 on two ranks, trained", spec{model: mlp, batch: 32, dp: 2, lr: 1e-3}, trains},
		{"8 in two micro-batches, trained", spec{model: mlp, batch: 8, micro: 2, lr: 1e-3}, trains},
		{"8 in two stages, trained", spec{model: mlp, batch: 8, micro: 2, pp: 2, lr: 1e-3}, trains},
	} {
		got := predicted(t, v.name, samples, v.spec, v.change)["logits"]
		if got == nil || !slices.Equal(got.Shape, want["logits"].Shape) {
			t.Errorf("%s: %v", v.name, got)
			continue
		}
		if d := farthest(t, got, want["logits"]); !(d <= 1e-5) { // sums in another order: some 1e-7 of values below 1
			t.Errorf("%s: outputs differ by %g", v.name, d)
		}
	}
}

// farthest is the largest difference between elements of two arrays.
func farthest(t *testing.T, a, b *npz.Array) float64 {
	t.Helper()
	if a.DType != "f32" || b.DType != "f32" || len(a.Data) != len(b.Data) {
		t.Fatalf("%s%v and %s%v", a.DType, a.Shape, b.DType, b.Shape)
	}
	worst := 0.0
	for i := 0; i < len(a.Data); i += 4 {
		at := func(x []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(x[i:]))) }
		if d := math.Abs(at(a.Data) - at(b.Data)); !(d <= worst) {
			worst = d
		}
	}
	return worst
}

// TestForwardOfWholeBatches: an output for all samples together cannot be told for another number of them.
func TestForwardOfWholeBatches(t *testing.T) {
	o := spec{model: fixtures.Path(t, "models/gpt_loss_inside.onnx"), batch: 2, lr: 1e-3}.options(filepath.Join(t.TempDir(), "out"))
	o.Build, o.Pass.Loss = true, pass.NoLoss
	if _, err := compiler.Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	reference := fixtures.Path(t, "models/gpt_loss_inside.npz")
	f, err := npz.Open(reference)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, err := f.Header("in0")
	if err != nil {
		t.Fatal(err)
	}
	fails(t, o.Out, 2, []string{"--inputs", reference, "--dump-forward", filepath.Join(t.TempDir(), "x.npz")},
		"one for all samples of a run", fmt.Sprintf("%d samples in runs of 2", h.Shape[0]))
}
