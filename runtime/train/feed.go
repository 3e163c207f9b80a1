package train

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/data"
)

// feeder puts batches into the arena for the functions that train, or for another one.
type feeder struct {
	m      *machine
	inputs []*abi.Tensor // of the model, in the data set's order; of a pipeline, a stage reads but some
	rows   int           // samples that one call of the function takes
	calls  int           // calls that a batch of one rank is split over
	unread []bool        // inputs that no function of this rank reads
	held   map[*abi.Tensor]int
}

// read is what a function takes from the data.
type read struct {
	t     *abi.Tensor
	input int // in feeder.inputs; -1 for sample weights
}

// newFeeder finds the inputs of functions. A call takes one micro-batch, or, when the program splits its batch itself, all
// micro-batches of a step at once.
func (m *machine) newFeeder(functions ...*function) (*feeder, error) {
	x := m.plan
	d := &feeder{m: m, rows: x.Train.RankBatch, calls: x.Train.Microbatches, held: map[*abi.Tensor]int{}}
	all := d.rows * d.calls
	var weights []*abi.Tensor
	for _, t := range d.reads(functions) {
		if t.Role == "weight" {
			weights = append(weights, t)
		} else {
			d.inputs = append(d.inputs, t)
		}
	}
	// The sample weights say how many samples there are; without them the leading dim of the first input does.
	for _, t := range append(slices.Clone(weights), d.inputs...) {
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
	for _, t := range weights {
		if len(t.Dims) != 1 || t.DType != "f32" || t.Dims[0] != d.rows {
			return nil, fmt.Errorf("BUG: sample weights %q are %s%v", t.Name, t.DType, t.Dims)
		}
	}
	return d, d.bind(functions)
}

// reads lists what is read from the data, in the model's order.
func (d *feeder) reads(functions []*function) []*abi.Tensor {
	x := d.m.plan
	var list []*abi.Tensor
	for i := range x.Train.Data {
		list = append(list, &x.Train.Data[i])
	}
	if list != nil {
		return list
	}
	for _, f := range functions {
		for _, name := range f.info.Inputs {
			if t := x.tensor[name]; t != nil && !isWhole(t) && !slices.Contains(list, t) {
				list = append(list, t)
			}
		}
	}
	return list
}

// bind tells each function which of the inputs it reads.
func (d *feeder) bind(functions []*function) error {
	d.unread = slices.Repeat([]bool{true}, len(d.inputs))
	for _, f := range functions {
		f.reads = nil
		for _, name := range f.info.Inputs {
			t := d.m.plan.tensor[name]
			if t == nil {
				return fmt.Errorf("BUG: @%s reads %q, which the plan does not list", f.name, name)
			}
			r := read{t, -1}
			of := name
			if isWhole(t) {
				of = strings.TrimPrefix(name, abi.WholePrefix)
			}
			if t.Role != "weight" {
				r.input = slices.IndexFunc(d.inputs, func(in *abi.Tensor) bool { return in.Name == of && (isWhole(t) || in.Role == t.Role) })
				if isWhole(t) && r.input < 0 && t.DType == "f32" && len(t.Dims) == 1 { // of the sample weights
					f.reads = append(f.reads, r)
					continue
				}
				if r.input < 0 || t.Role != "input" && t.Role != "target" && !isWhole(t) {
					return fmt.Errorf("BUG: @%s reads %q of role %q from the data", f.name, name, t.Role)
				}
				d.unread[r.input] = false
			}
			f.reads = append(f.reads, r)
		}
	}
	return nil
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
		list = append(list, data.Input{Name: t.Name, DType: t.DType, Shape: shape, Target: t.Role == "target", Ahead: t.Ahead,
			BatchDim: d.m.plan.Train.BatchDims[t.Name]})
	}
	if len(list) == 0 {
		return nil, usagef("the model has no inputs to read from data")
	}
	return list, nil
}

// fresh forgets which micro-batches are in the arena: the next batch comes.
func (d *feeder) fresh() { clear(d.held) }

// holds reports whether micro-batch micro of t is in the arena, as it is from now on.
func (d *feeder) holds(t *abi.Tensor, micro int) bool {
	micro = partOf(t, micro)
	old, ok := d.held[t]
	d.held[t] = micro
	return ok && old == micro
}

// put copies what f reads of micro-batch micro of b into the arena.
func (d *feeder) put(b *data.Batch, f *function, micro int) error {
	for i := range f.reads {
		r := &f.reads[i]
		if d.holds(r.t, micro) {
			continue
		}
		if err := d.m.write(r.t.Offset, r.rows(b, micro)); err != nil {
			return err
		}
	}
	return nil
}

// rows are those of micro-batch micro of b that r reads.
func (r *read) rows(b *data.Batch, micro int) []byte {
	if isWhole(r.t) {
		return r.all(b)
	}
	if r.input >= 0 {
		return b.Micro(r.input, micro)
	}
	return floatBytes(b.MicroWeights(micro))
}

// all are the rows of all micro-batches of b.
func (r *read) all(b *data.Batch) []byte {
	if r.input >= 0 {
		return b.Inputs[r.input]
	}
	return floatBytes(b.Weights)
}

// floatBytes are the bytes of w, in place.
func floatBytes(w []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), 4*len(w))
}
