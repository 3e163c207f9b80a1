package data

import (
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/npz"
)

// TestBatchDim: samples of three steps of two numbers lie along dim 1, as the model has them, or in front; where sizes do not tell,
// the array is refused.
func TestBatchDim(t *testing.T) {
	in := []Input{{Name: "x", DType: "u8", Shape: []int{3, 2}, BatchDim: 1}, {Name: "target", DType: "u8", Target: true, Shape: []int{3}, BatchDim: 1}}
	whole := func(name string, shape ...int) npz.Array {
		a := npz.Array{Name: name, DType: "u8", Shape: shape}
		for i := range (&npz.Header{Shape: shape}).Count() {
			a.Data = append(a.Data, byte(i))
		}
		return a
	}
	for _, c := range []struct {
		name   string
		arrays []npz.Array
		x, y   []byte // sample 1
	}{
		{"as the model", []npz.Array{whole("x", 3, 4, 2), whole("target", 3, 4)}, []byte{2, 3, 10, 11, 18, 19}, []byte{1, 5, 9}},
		{"in front", []npz.Array{whole("x", 4, 3, 2), whole("target", 4, 3)}, []byte{6, 7, 8, 9, 10, 11}, []byte{3, 4, 5}},
		{"one of each", []npz.Array{whole("x", 3, 4, 2), whole("target", 4, 3)}, []byte{2, 3, 10, 11, 18, 19}, []byte{3, 4, 5}},
	} {
		d, err := Open([]string{write(t, "d.npz", c.arrays...)}, in, Options{})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if d.Len() != 4 {
			t.Errorf("%s: %d samples", c.name, d.Len())
		}
		if got := row(t, d, 0, 1); !slices.Equal(got, c.x) {
			t.Errorf("%s: sample 1 is %v, want %v", c.name, got, c.x)
		}
		if got := row(t, d, 1, 1); !slices.Equal(got, c.y) {
			t.Errorf("%s: target 1 is %v, want %v", c.name, got, c.y)
		}
		if said := strings.Contains(d.Bindings()[0], "samples along dim 1"); said != (c.arrays[0].Shape[0] == 3) {
			t.Errorf("%s: %s", c.name, d.Bindings()[0])
		}
		d.Close()
	}
	for _, c := range []struct {
		words  string
		arrays []npz.Array
	}{
		{"may lie along dim 1, as in the model, or along the first", []npz.Array{whole("x", 3, 3, 2), whole("target", 3, 3)}},
		{`its shape is [4 4 2], but input "x" needs samples of [3 2], along dim 1 or the first`, []npz.Array{whole("x", 4, 4, 2), whole("target", 4, 3)}},
		{`array "target" has 5 samples, but "x" has 4`, []npz.Array{whole("x", 3, 4, 2), whole("target", 3, 5)}},
	} {
		if _, err := Open([]string{write(t, "d.npz", c.arrays...)}, in, Options{}); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("want %q, got %v", c.words, err)
		}
	}
}
