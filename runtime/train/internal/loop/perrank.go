package loop

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/ckpt"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/gtc-compiler/gtc/runtime/train/internal/machine"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// What each rank has for itself: the errors of gradient compression, and the optimizer state of local SGD. A checkpoint
// holds such a tensor with a dim in front, an entry for each rank along abi.Tensor.PerRank.

// readEntry reads this rank's part of x, or of entry k of it when the checkpoint has entries.
func (s *session) readEntry(c *ckpt.Checkpoint, x *abi.Tensor, k int, entries bool, into []byte) error {
	for _, p := range s.Plan.Pieces(x) {
		offset, shape := p.Offset, p.Shape
		if entries {
			offset, shape = append([]int{k}, offset...), append([]int{1}, shape...)
		}
		data := p.Buffer(x, into)
		if err := c.Read(x.Name, offset, shape, data); err != nil {
			return err
		}
		p.Give(x, into, data)
	}
	return nil
}

// readPerRank reads a tensor that this run or the one that saved it keeps for each rank, when their numbers differ. It reports
// false when the shapes do not fit at all; note says what became of the contents.
func (s *session) readPerRank(c *ckpt.Checkpoint, x *abi.Tensor, have ckpt.Tensor) (done bool, note string, err error) {
	whole := s.Plan.InFiles(x)
	single := slices.Equal(have.Shape, whole)
	each := len(have.Shape) == len(whole)+1 && slices.Equal(have.Shape[1:], whole)
	switch {
	case anew(x) && (x.Merge == abi.MergeNone || !each || have.DType != x.DType):
		return true, "start anew", nil // zeros: what was left out is lost
	case have.DType != x.DType:
		return false, "", nil
	case single && len(x.PerRank) > 0:
		return true, "begin as one for all ranks", s.m.Fill(x, func(b []byte) error { return s.readEntry(c, x, 0, false, b) })
	case !each || x.DType != "f32":
		return false, "", nil
	}
	entries := have.Shape[0]
	sum, part := make([]float64, program.Elems(x.Dims)), make([]byte, x.Bytes)
	for k := range entries {
		if err := s.readEntry(c, x, k, true, part); err != nil {
			return true, "", err
		}
		for i := range sum {
			sum[i] += float64(math.Float32frombits(binary.LittleEndian.Uint32(part[4*i:])))
		}
	}
	by, note := float64(entries), "are averaged"
	if x.Merge == abi.MergeSum { // the new ranks hold together what the old ones did
		n, _ := s.Plan.Entries(x)
		by, note = float64(n), "are added up and dealt out"
	}
	err = s.m.Fill(x, func(out []byte) error {
		for i, v := range sum {
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(float32(v/by)))
		}
		return nil
	})
	return true, fmt.Sprintf("of %s %s", printable.Count(entries, "rank"), note), err
}

// localSGD says which function a step ends with, and when parameters are averaged.
type localSGD struct {
	period  int64             // steps between averages; 0 without local SGD
	after   int64             // steps with all gradients reduced that come first
	average *machine.Function // makes parameters the mean over the ranks
	local   *machine.Function // ends the steps behind the first ones; nil when @step is local from the start
	apart   bool              // the ranks' parameters differ
}

// prepareLocal finds the functions of local SGD.
func (t *trainer) prepareLocal() error {
	l := &t.apart
	l.period, l.after = int64(t.Plan.Train.LocalPeriod), int64(t.Plan.Train.LocalAfter)
	if l.period == 0 {
		return nil
	}
	if l.average = t.m.Funcs[abi.FuncAverage]; l.average == nil {
		return fmt.Errorf("BUG: local SGD needs @%s, which the program does not have", abi.FuncAverage)
	}
	if l.after > 0 {
		if l.local = t.m.Funcs[abi.FuncLocal]; l.local == nil {
			return fmt.Errorf("BUG: local SGD after %d steps needs @%s, which the program does not have", l.after, abi.FuncLocal)
		}
	}
	return nil
}

// changes reports whether the next step is the first local one.
func (t *trainer) changes() bool {
	l := &t.apart
	return l.local != nil && t.step >= l.after && t.last != l.local
}

// choose makes the next step a local one when it is time.
func (t *trainer) choose() error {
	l := &t.apart
	if !t.changes() {
		return nil
	}
	t.last = l.local
	t.actions[len(t.actions)-1].f = l.local
	return t.findResults()
}

// stepped averages the parameters when a period is over.
func (t *trainer) stepped() error {
	l := &t.apart
	if l.period == 0 || t.step <= l.after {
		return nil
	}
	l.apart = true
	if (t.step-l.after)%l.period != 0 {
		return nil
	}
	return t.meet()
}

// meet averages parameters that differ between ranks; checkpoints and evaluations are of those.
func (t *trainer) meet() error {
	l := &t.apart
	if !l.apart {
		return nil
	}
	if err := t.m.Run(l.average, 0); err != nil {
		return t.failed(err)
	}
	l.apart = false
	return t.m.Settle()
}
