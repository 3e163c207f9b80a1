package machine

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// Feeder puts batches into the arena for the functions that train, or for another one.
type Feeder struct {
	m      *Machine
	Inputs []*abi.Tensor       // the model's, in the data set's order, also those that only other stages of a pipeline read
	Rows   int                 // samples that one call of a function takes
	Calls  int                 // calls that one rank's batch is split over
	Unread []bool              // Inputs that no function of this rank reads
	held   map[*abi.Tensor]int // micro-batch of each input that is in the arena
}

// Read is what a function takes from the data.
type Read struct {
	Tensor *abi.Tensor
	input  int // index in Feeder.Inputs; -1 for sample weights
}

// NewFeeder finds the inputs of functions. A call takes one micro-batch, or, when the program splits its batch itself, all
// micro-batches of a step at once.
func (m *Machine) NewFeeder(functions ...*Function) (*Feeder, error) {
	x := m.Plan
	d := &Feeder{m: m, Rows: x.Train.RankBatch, Calls: x.Train.Microbatches, held: map[*abi.Tensor]int{}}
	all := d.Rows * d.Calls
	var weights []*abi.Tensor
	for _, t := range d.reads(functions) {
		if t.Role == abi.RoleWeight {
			weights = append(weights, t)
		} else {
			d.Inputs = append(d.Inputs, t)
		}
	}
	// The sample weights say how many samples there are; without them the leading dim of the first input does.
	for _, t := range append(slices.Clone(weights), d.Inputs...) {
		if len(t.Dims) > 0 {
			if t.Dims[0] == all {
				d.Rows, d.Calls = all, 1
			}
			break
		}
	}
	if d.Rows < 1 {
		return nil, fmt.Errorf("BUG: the plan has batches of %d samples", d.Rows)
	}
	for _, t := range weights {
		if len(t.Dims) != 1 || t.DType != "f32" || t.Dims[0] != d.Rows {
			return nil, fmt.Errorf("BUG: sample weights %q are %s%v", t.Name, t.DType, t.Dims)
		}
	}
	return d, d.bind(functions)
}

// reads lists what is read from the data, in the model's order.
func (d *Feeder) reads(functions []*Function) []*abi.Tensor {
	x := d.m.Plan
	var list []*abi.Tensor
	for i := range x.Train.Data {
		list = append(list, &x.Train.Data[i])
	}
	if list != nil {
		return list
	}
	for _, f := range functions {
		for _, name := range f.Info.Inputs {
			if t := x.Tensors[name]; t != nil && !program.IsWhole(t) && !slices.Contains(list, t) {
				list = append(list, t)
			}
		}
	}
	return list
}

// bind tells each function which of the inputs it reads.
func (d *Feeder) bind(functions []*Function) error {
	d.Unread = slices.Repeat([]bool{true}, len(d.Inputs))
	for _, f := range functions {
		f.Reads = nil
		for _, name := range f.Info.Inputs {
			t := d.m.Plan.Tensors[name]
			if t == nil {
				return fmt.Errorf("BUG: @%s reads %q, which the plan does not list", f.Name, name)
			}
			r := Read{t, -1}
			of := name
			if program.IsWhole(t) {
				of = abi.WholeData.Trim(name)
			}
			if t.Role != abi.RoleWeight {
				r.input = slices.IndexFunc(d.Inputs, func(in *abi.Tensor) bool { return in.Name == of && (program.IsWhole(t) || in.Role == t.Role) })
				if program.IsWhole(t) && r.input < 0 && t.DType == "f32" && len(t.Dims) == 1 { // of the sample weights
					f.Reads = append(f.Reads, r)
					continue
				}
				if r.input < 0 || t.Role != abi.RoleInput && t.Role != abi.RoleTarget && !program.IsWhole(t) {
					return fmt.Errorf("BUG: @%s reads %q, whose role is %q, from the data", f.Name, name, t.Role)
				}
				d.Unread[r.input] = false
			}
			f.Reads = append(f.Reads, r)
		}
	}
	return nil
}

// Describe lists the inputs for the data set, one sample each.
func (d *Feeder) Describe() ([]data.Input, error) {
	var list []data.Input
	for _, t := range d.Inputs {
		if len(t.Dims) == 0 || t.Dims[0] == 0 || t.Dims[0]%d.Rows != 0 {
			return nil, ranks.Usagef("input %q is %s%v, which has no dimension for the %s of a batch: it cannot be read from a data set",
				t.Name, t.DType, t.Dims, printable.Count(d.Rows, "sample"))
		}
		shape := slices.Clone(t.Dims)
		if shape[0] /= d.Rows; shape[0] == 1 {
			shape = shape[1:]
		}
		list = append(list, data.Input{Name: t.Name, DType: t.DType, Shape: shape, Target: t.Role == abi.RoleTarget, Ahead: t.Ahead,
			BatchDim: d.m.Plan.Train.BatchDims[t.Name]})
	}
	if len(list) == 0 {
		return nil, ranks.Usagef("the model has no inputs to read from data")
	}
	return list, nil
}

// Fresh forgets which micro-batches are in the arena: the next batch comes.
func (d *Feeder) Fresh() { clear(d.held) }

// Holds reports whether micro-batch micro of t is in the arena, as it is from now on.
func (d *Feeder) Holds(t *abi.Tensor, micro int) bool {
	micro = program.PartOf(t, micro)
	old, ok := d.held[t]
	d.held[t] = micro
	return ok && old == micro
}

// Put copies what f reads of micro-batch micro of b into the arena.
func (d *Feeder) Put(b *data.Batch, f *Function, micro int) error {
	for i := range f.Reads {
		r := &f.Reads[i]
		if d.Holds(r.Tensor, micro) {
			continue
		}
		if err := d.m.Write(r.Tensor.Offset, r.Rows(b, micro)); err != nil {
			return err
		}
	}
	return nil
}

// Rows are those of micro-batch micro of b that r reads.
func (r *Read) Rows(b *data.Batch, micro int) []byte {
	if program.IsWhole(r.Tensor) {
		return r.All(b)
	}
	if r.input >= 0 {
		return b.Micro(r.input, micro)
	}
	return floatBytes(b.MicroWeights(micro))
}

// All are the rows of all micro-batches of b.
func (r *Read) All(b *data.Batch) []byte {
	if r.input >= 0 {
		return b.Inputs[r.input]
	}
	return floatBytes(b.Weights)
}

// floatBytes are the bytes of w, in place.
func floatBytes(w []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), 4*len(w))
}
