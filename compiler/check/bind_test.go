package check

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// TestReferenceShapes: arrays that do not fit the model are told before anything is compiled for them, however large they claim to be.
func TestReferenceShapes(t *testing.T) {
	const rows = 4
	x, target := make([]float64, rows*6), make([]float64, rows)
	for name, c := range map[string]struct {
		arrays []npz.Array
		want   string
	}{
		"another width": {[]npz.Array{array("in0", []int{rows * 6, 1}, x...), array("target", []int{rows}, target...)}, `array "in0": its shape is [24 1], but dimension 1 of input "x" is 6`},
		"half a class":  {[]npz.Array{array("in0", []int{rows, 6}, x...), array("target", []int{rows}, 0, 1, 0.5, 2)}, `array "target": element 2 is 0.5, which input "target", of type i64, cannot hold`},
		"no losses":     {[]npz.Array{array("in0", []int{rows, 6}, x...), array("target", []int{rows}, target...), array("curve/sgd", []int{0})}, `array "curve/sgd" is empty`},
	} {
		ref := file(t, c.arrays...)
		o := &Options{Compile: compiler.Options{Model: filepath.Join("..", "..", "docs", "tour.onnx")}, Reference: ref.Path(), Simulate: true}
		if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got  %v\nwant %s", name, err, c.want)
		}
	}
}
