package train

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// fixed puts what f reads of this rank's part of a whole batch into the arena. Every sample counts.
func (d *feeder) fixed(batch []npz.Array, f *function, micro int) error {
	x := d.m.plan
	if err := d.ones(f); err != nil {
		return err
	}
	for _, r := range f.reads {
		t := r.t
		if r.input < 0 || d.holds(t, micro) {
			continue
		}
		a := &batch[r.input]
		dims, from := x.whole(t), x.start(t, x.rank, micro)
		if n := len(t.Dims); n > 0 && !split(t, mesh.TimeAxis) && len(a.Shape) == n && a.Shape[0] == t.Dims[0]*x.Train.DP*d.calls {
			// As the data loader deals them: first over ranks, then over micro-batches.
			dims, from[0] = slices.Concat(a.Shape[:1], dims[1:]), (x.dp()*d.calls+micro)*t.Dims[0]
		}
		if !slices.Equal(squeeze(a.Shape), squeeze(dims)) {
			return fmt.Errorf("array %q is %v, input %q of the whole batch is %v", a.Name, a.Shape, t.Name, dims)
		}
		err := d.m.fill(t, func(b []byte) error {
			copyBox(region{data: b, dims: t.Dims}, region{data: a.Data, dims: dims, at: from}, t.Dims, elemSizes[t.DType])
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

// ones sets the sample weights that f reads to 1.
func (d *feeder) ones(f *function) error {
	for _, r := range f.reads {
		if r.input >= 0 {
			continue
		}
		if err := d.m.write(r.t.Offset, floatBytes(slices.Repeat([]float32{1}, r.t.Dims[0]))); err != nil {
			return err
		}
	}
	return nil
}

// badInput finds a NaN in what a feeder put into the arena for f, and the element; nil for none.
func (m *machine) badInput(f *function) (*abi.Tensor, int) {
	for _, r := range f.reads {
		if r.input < 0 || isWhole(r.t) { // its parts are looked at
			continue
		}
		b, err := m.contents(r.t)
		if err != nil {
			return nil, -1 // the run that follows finds the same
		}
		if _, nan, _ := firstBad(b, r.t.DType); nan >= 0 {
			return r.t, nan
		}
	}
	return nil, -1
}

// row is the row of a call's batch that holds an element of input x.
func (d *feeder) row(x *abi.Tensor, element int) int {
	return element / max(elems(x.Dims)/d.rows, 1)
}
