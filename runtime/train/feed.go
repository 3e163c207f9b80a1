package train

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/data"
)

// feeder puts batches into the arena for the functions that train, or for another one.
type feeder struct {
	m       *machine
	inputs  []*abi.Tensor // from the data set, in its order
	weights []*abi.Tensor // of role weight: 1 for a sample that counts
	rows    int           // samples that one call of the function takes
	calls   int           // calls that a batch of one rank is split over
}

// newFeeder finds the inputs of f. A call takes one micro-batch, or, when the program splits its batch itself, all
// micro-batches of a step at once.
func (m *machine) newFeeder(f *function) (*feeder, error) {
	x := m.plan
	d := &feeder{m: m, rows: x.Train.RankBatch, calls: x.Train.Microbatches}
	all := d.rows * d.calls
	for _, name := range f.info.Inputs {
		t := x.tensor[name]
		if t == nil {
			return nil, fmt.Errorf("BUG: @%s reads %q, which the plan does not list", f.name, name)
		}
		switch t.Role {
		case "input", "target":
			d.inputs = append(d.inputs, t)
		case "weight":
			d.weights = append(d.weights, t)
		default:
			return nil, fmt.Errorf("BUG: @%s reads %q of role %q from the data", f.name, name, t.Role)
		}
	}
	// The sample weights say how many samples there are; without them the leading dim of the first input does.
	for _, t := range append(slices.Clone(d.weights), d.inputs...) {
		if len(t.Dims) > 0 {
			if t.Dims[0] == all {
				d.rows, d.calls = all, 1
			}
			break
		}
	}
	if d.rows < 1 {
		return nil, fmt.Errorf("BUG: the plan has batches of %d samples", d.rows)
	}
	for _, t := range d.weights {
		if len(t.Dims) != 1 || t.DType != "f32" || t.Dims[0] != d.rows {
			return nil, fmt.Errorf("BUG: sample weights %q are %s%v", t.Name, t.DType, t.Dims)
		}
	}
	return d, nil
}

// describe lists the inputs for the data set, one sample each.
func (d *feeder) describe() ([]data.Input, error) {
	var list []data.Input
	for _, t := range d.inputs {
		if len(t.Dims) == 0 || t.Dims[0] == 0 || t.Dims[0]%d.rows != 0 {
			return nil, usagef("input %q is %s%v, which has no dimension for the %d samples of a batch: it cannot be read from a data set",
				t.Name, t.DType, t.Dims, d.rows)
		}
		shape := slices.Clone(t.Dims)
		if shape[0] /= d.rows; shape[0] == 1 {
			shape = shape[1:]
		}
		list = append(list, data.Input{Name: t.Name, DType: t.DType, Shape: shape, Target: t.Role == "target"})
	}
	if len(list) == 0 {
		return nil, usagef("the model has no inputs to read from data")
	}
	return list, nil
}

// put copies micro-batch micro of b into the arena.
func (d *feeder) put(b *data.Batch, micro int) {
	for i, t := range d.inputs {
		copy(d.m.bytes(t), b.Micro(i, micro))
	}
	for _, t := range d.weights {
		w := b.MicroWeights(micro)
		copy(d.m.bytes(t), unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), 4*len(w)))
	}
}

// ones sets the sample weights to 1.
func (d *feeder) ones() {
	for _, t := range d.weights {
		w := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(d.m.bytes(t)))), t.Dims[0])
		for i := range w {
			w[i] = 1
		}
	}
}
