package machine

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/npz"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// Fixed puts what f reads of this rank's part of a whole batch into the arena. Every sample counts.
func (d *Feeder) Fixed(batch []npz.Array, f *Function, micro int) error {
	x := d.m.Plan
	if err := d.ones(f); err != nil {
		return err
	}
	for _, r := range f.Reads {
		t := r.Tensor
		if r.input < 0 || d.Holds(t, micro) {
			continue
		}
		a := &batch[r.input]
		dims, from := x.Whole(t), x.Start(t, x.Rank, micro)
		if n := len(t.Dims); n > 0 && !program.Split(t, mesh.TimeAxis) && len(a.Shape) == n && a.Shape[0] == t.Dims[0]*x.Train.DP*d.Calls {
			// As the data loader deals them: first over ranks, then over micro-batches.
			dims, from[0] = slices.Concat(a.Shape[:1], dims[1:]), (x.DP()*d.Calls+micro)*t.Dims[0]
		}
		if !slices.Equal(squeeze(a.Shape), squeeze(dims)) {
			return fmt.Errorf("array %q has shape %v, but input %q of the whole batch has %v", a.Name, a.Shape, t.Name, dims)
		}
		err := d.m.Fill(t, func(b []byte) error {
			program.CopyBox(program.Region{Data: b, Dims: t.Dims}, program.Region{Data: a.Data, Dims: dims, At: from}, t.Dims, program.ElemSize(t.DType))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func squeeze(dims []int) []int {
	return slices.DeleteFunc(slices.Clone(dims), func(d int) bool { return d == 1 })
}

// Front is an array of input t with its samples in front: they are along the dim that the model has, or else in front.
func (d *Feeder) Front(a *npz.Array, t *abi.Tensor) (*npz.Array, error) {
	x := d.m.Plan
	dim, sample := x.Train.BatchDims[t.Name], x.Whole(t)
	if dim == 0 {
		return a, nil
	}
	sample = sample[1:]
	switch n := len(a.Shape); {
	case n == len(sample)+1 && slices.Equal(slices.Delete(slices.Clone(a.Shape), dim, dim+1), sample):
		return program.Moved(a, dim, 0), nil
	case n == len(sample)+1 && slices.Equal(a.Shape[1:], sample):
		return a, nil
	}
	return nil, fmt.Errorf("has shape %v, but input %q needs samples of %v along dim %d", a.Shape, t.Name, sample, dim)
}

// ones sets the sample weights that f reads to 1.
func (d *Feeder) ones(f *Function) error {
	for _, r := range f.Reads {
		if r.input >= 0 {
			continue
		}
		if err := d.m.Write(r.Tensor.Offset, floatBytes(slices.Repeat([]float32{1}, r.Tensor.Dims[0]))); err != nil {
			return err
		}
	}
	return nil
}

// BadInput finds a NaN in what a feeder put into the arena for f, and the element; nil for none.
func (m *Machine) BadInput(f *Function) (*abi.Tensor, int) {
	for _, r := range f.Reads {
		if r.input < 0 || program.IsWhole(r.Tensor) { // its parts are looked at
			continue
		}
		b, err := m.Contents(r.Tensor)
		if err != nil {
			return nil, -1 // the run that follows finds the same
		}
		if _, nan, _ := program.FirstBad(b, r.Tensor.DType); nan >= 0 {
			return r.Tensor, nan
		}
	}
	return nil, -1
}

// Row is the row of a call's batch that holds an element of input x.
func (d *Feeder) Row(x *abi.Tensor, element int) int {
	return element / max(program.Elems(x.Dims)/d.Rows, 1)
}
