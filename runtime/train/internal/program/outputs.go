package program

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// A program reads and gives samples along the leading dim; arrays that come whole, of a reference or for --dump-forward, are as
// the model has them.

// OutputName is the name in the ONNX file of the output that a program calls out0, out1, …; of elements of a sequence, which
// have one name, NAME.0, NAME.1, ….
func (x *Plan) OutputName(name string) string {
	k, ok := x.output(name)
	if !ok {
		return name
	}
	same := 0
	for i, n := range x.Outputs {
		if i < k && n == x.Outputs[k] {
			same++
		}
	}
	if same > 0 || slices.Contains(x.Outputs[k+1:], x.Outputs[k]) {
		return fmt.Sprintf("%s.%d", x.Outputs[k], same)
	}
	return x.Outputs[k]
}

// output is the number of the output that a program calls out0, out1, ….
func (x *Plan) output(name string) (int, bool) {
	text, ok := strings.CutPrefix(name, abi.OutputPrefix)
	k, err := strconv.Atoi(text)
	return k, ok && err == nil && k >= 0 && k < len(x.Outputs)
}

// Named gives arrays the names and the order of the model's outputs; others come behind.
func (x *Plan) Named(arrays []npz.Array) []npz.Array {
	place := func(a npz.Array) int {
		if k, ok := x.output(a.Name); ok {
			return k
		}
		return len(x.Outputs)
	}
	slices.SortStableFunc(arrays, func(a, b npz.Array) int { return place(a) - place(b) })
	for i := range arrays {
		arrays[i].Name = x.OutputName(arrays[i].Name)
	}
	return arrays
}

// AsModel gives outputs the dims that they have in the model.
func (x *Plan) AsModel(arrays []npz.Array) []npz.Array {
	for i := range arrays {
		if dim := x.Train.BatchDims[arrays[i].Name]; dim > 0 && dim < len(arrays[i].Shape) {
			arrays[i] = *Moved(&arrays[i], 0, dim)
		}
	}
	return arrays
}

// Moved is a with its dim from moved to place to.
func Moved(a *npz.Array, from, to int) *npz.Array {
	b := &npz.Array{Name: a.Name, DType: a.DType}
	b.Data, b.Shape = npz.MoveDim(a.Data, a.Shape, from, to)
	return b
}

// Meets tells which node makes samples of a function depend on one another, so that what fills up a batch would count; "" where
// none does, and a batch that is not full is filled up.
func (x *Plan) Meets(function string) string {
	if m := x.Train.CrossSample[function]; m != "" {
		return m
	}
	if !x.Train.Weighted && function != abi.FuncForward {
		return "the model's loss has no weights of samples"
	}
	return ""
}
