package check

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

func array(name string, shape []int, x ...float64) npz.Array {
	a := npz.Array{Name: name, DType: "f64", Shape: shape}
	for _, v := range x {
		a.Data = binary.LittleEndian.AppendUint64(a.Data, math.Float64bits(v))
	}
	return a
}

func file(t *testing.T, arrays ...npz.Array) *npz.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.npz")
	if err := npz.WriteFile(path, arrays); err != nil {
		t.Fatal(err)
	}
	f, err := npz.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s is %g, want %g", what, got, want)
	}
}

// TestReport compares numbers that are easy to work out by hand.
func TestReport(t *testing.T) {
	ref := file(t,
		array("out0", []int{2}, 3, 4), array("loss", nil, 2),
		array("grad/w", []int{2, 3}, 1, 2, 3, 4, 5, 6), // the file has it transposed, as w_T
		array("grad/b", []int{2}, 0, 1e-17),            // zero but for rounding
		array("grad/tied", []int{1}, 2),                // another name of head
		array("grad/gone", []int{1}, 1),
		array("curve/sgd", []int{3}, 2, 1, 1e-6))
	got := file(t,
		array("out0", []int{2}, 3, 4.5), array("loss", []int{3}, 2.02, 1, 1e-6+2e-7),
		array("grad/w_T", []int{3, 2}, 1, 4, 2, 5, 3, 6),
		array("grad/head", []int{1}, 2),
		array("grad/b", []int{2}, 1e-8, 0))
	r := &Report{Tol: 0.2, Curves: map[string]float64{}}
	params := []*onnx.Parameter{{Name: "w_T", Initializer: "w", Transposed: true}, {Name: "head", Initializer: "val_1", Transposed: true, Aliases: []string{"tied"}}}
	if err := r.compare(ref, stored{got}, params); err != nil {
		t.Fatal(err)
	}
	if err := r.curve(ref, stored{got}, "sgd"); err != nil {
		t.Fatal(err)
	}
	r.finish()
	near(t, "out", r.Out, 0.1)
	near(t, "loss", r.Loss, 0.01)
	near(t, "grad_max", r.GradMax, 1e-8/math.Sqrt(91))
	near(t, "curve", r.Curves["sgd"], 0.02/math.Sqrt(5))
	if !r.OK || !slices.Equal(r.Unmatched, []string{"gone"}) {
		t.Errorf("ok is %v, unmatched %v", r.OK, r.Unmatched)
	}
	var b strings.Builder
	r.Tol = 0.05
	r.finish()
	r.Print(&b, true)
	for _, want := range []string{"FAIL", "gone", "NOT within tolerance 5e-02"} {
		if r.OK || !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

// TestReportNaN: what is not a number fails, and JSON can say so.
func TestReportNaN(t *testing.T) {
	ref := file(t, array("out0", []int{1}, 0.5), array("curve/adamw", []int{2}, 1, 2))
	got := file(t, array("out0", []int{1}, math.NaN()), array("loss", []int{1}, 1))
	r := &Report{Tol: 1, Curves: map[string]float64{}}
	if err := r.compare(ref, stored{got}, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.curve(ref, stored{got}, "adamw"); err != nil {
		t.Fatal(err)
	}
	r.finish()
	if _, err := json.Marshal(r); err != nil || r.OK {
		t.Errorf("ok is %v, JSON says %v", r.OK, err)
	}
}

// TestNotFinite: a reference that is not a number fails the comparison, and the report is JSON all the same.
func TestNotFinite(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1)} {
		ref, got := file(t, array("out0", []int{2}, 3, x), array("loss", nil, x)), file(t, array("out0", []int{2}, 3, x), array("loss", []int{1}, x))
		r := &Report{Tol: 0.2, Curves: map[string]float64{}}
		if err := r.compare(ref, stored{got}, nil); err != nil {
			t.Fatal(err)
		}
		r.finish()
		r.Curves["sgd"], r.Curves["adamw"] = otherSize, 0.5
		text, err := json.Marshal(r)
		if err != nil || r.OK || r.Out != never || r.Loss != never {
			t.Errorf("%g: %v, out %g, loss %g, ok %t", x, err, r.Out, r.Loss, r.OK)
		}
		want := `{"ok":false,"out":"NaN","loss":"NaN","grad_max":0,"unmatched":[],"curves":{"adamw":0.5,"sgd":"other size"},"seconds":0}`
		if string(text) != want {
			t.Errorf("%g: the report is\n%s, want\n%s", x, text, want)
		}
	}
}

// TestFigures: what cannot be compared is not printed as a large number.
func TestFigures(t *testing.T) {
	for e, want := range map[float64]string{1e-7: "1.00e-07", never: "NaN", math.Inf(1): "NaN", otherSize: "other size"} {
		if got := figure(e); got != want {
			t.Errorf("%g is printed as %q, want %q", e, got, want)
		}
	}
	if d := ratio(distance([]float64{1}, []float64{1, 2}), 2); d != otherSize {
		t.Errorf("arrays of other sizes are %g apart", d)
	}
	if d := ratio(distance([]float64{math.NaN()}, []float64{1}), 1); d != never {
		t.Errorf("NaN is %g from 1", d)
	}
}
