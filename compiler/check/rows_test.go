package check

import (
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
)

// A table of which the file holds the rows that are read, in an order of its own, is compared by these.
func TestRows(t *testing.T) {
	params := []*onnx.Parameter{{Name: "pos.rows", Origin: "pos"}}
	want, dims := []float64{1, 2, 0, 0, 3, 4}, []int{3, 2}
	got := file(t, array("grad/pos.rows", []int{1, 2, 2}, 3, 4.5, 1, 2))
	if x := matchRows(stored{got}, "pos", params, want, dims); !slices.Equal(x, []float64{1, 2, 0, 0, 3, 4.5}) {
		t.Errorf("the rows make %v", x)
	}
	for what, x := range map[string][]float64{
		"more rows":     matchRows(stored{got}, "pos", params, []float64{1, 2, 5, 5, 3, 4}, dims),
		"other table":   matchRows(stored{got}, "tok", params, want, dims),
		"two parts":     matchRows(stored{got}, "pos", append(params, &onnx.Parameter{Name: "pos.rows.1", Origin: "pos"}), want, dims),
		"another width": matchRows(stored{got}, "pos", params, want, []int{2, 3}),
	} {
		if x != nil {
			t.Errorf("%s: compared with %v", what, x)
		}
	}
}
