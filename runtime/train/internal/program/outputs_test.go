package program

import (
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/npz"
)

// TestOutputNames: outputs have their names in the model, in its order; the elements of a sequence are numbered.
func TestOutputNames(t *testing.T) {
	x := &Plan{}
	x.Outputs = []string{"logits", "boxes", "boxes", "aux"}
	var names []string
	for _, a := range x.Named([]npz.Array{{Name: "out3"}, {Name: "loss_sum"}, {Name: "out1"}, {Name: "out0"}, {Name: "out2"}, {Name: "out4"}}) {
		names = append(names, a.Name)
	}
	if want := strings.Fields("logits boxes.0 boxes.1 aux loss_sum out4"); !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}
