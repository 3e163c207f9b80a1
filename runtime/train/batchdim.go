package train

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// A program reads and gives samples along the leading dim; arrays that come whole, of a reference or for --dump-forward, are as
// the model has them.

// front is an array of input t with its samples in front: they are along the dim that the model has, or else in front.
func (d *feeder) front(a *npz.Array, t *abi.Tensor) (*npz.Array, error) {
	x := d.m.plan
	dim, sample := x.Train.BatchDims[t.Name], x.whole(t)
	if dim == 0 {
		return a, nil
	}
	sample = sample[1:]
	switch n := len(a.Shape); {
	case n == len(sample)+1 && slices.Equal(slices.Delete(slices.Clone(a.Shape), dim, dim+1), sample):
		return moved(a, dim, 0), nil
	case n == len(sample)+1 && slices.Equal(a.Shape[1:], sample):
		return a, nil
	}
	return nil, fmt.Errorf("is %v, input %q wants samples of %v along dim %d", a.Shape, t.Name, sample, dim)
}

// asModel gives outputs the dims that they have in the model.
func (x *plan) asModel(arrays []npz.Array) []npz.Array {
	for i := range arrays {
		if dim := x.Train.BatchDims[arrays[i].Name]; dim > 0 && dim < len(arrays[i].Shape) {
			arrays[i] = *moved(&arrays[i], 0, dim)
		}
	}
	return arrays
}

func moved(a *npz.Array, from, to int) *npz.Array {
	b := &npz.Array{Name: a.Name, DType: a.DType}
	b.Data, b.Shape = npz.MoveDim(a.Data, a.Shape, from, to)
	return b
}
