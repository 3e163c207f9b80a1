package loop

import (
	"fmt"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/train/internal/machine"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
	"github.com/gtc-compiler/gtc/runtime/train/internal/report"
)

// remedies ends the message of a divergence.
const remedies = "\n  GTC_NAN=1 finds the first value that is not a number; a lower --lr of gtc compile often helps; --allow-nan goes on all the same"

// diverged stops a run whose loss, the same on every rank, is not finite: nothing that it would save is of use.
func (t *trainer) diverged() error {
	if t.pace != nil { // which has looked at every step that is over
		return nil
	}
	return t.divergedAt(t.step)
}

// divergedAt is diverged for the step that the loss is of. With a dynamic loss scale a step whose loss and gradients are not
// finite was skipped and halves the scale, as GradScaler of PyTorch does; the parameters are as they were, and the next step
// may do. Below 1 a smaller scale is no remedy: gradients are smaller than those of the loss itself.
func (t *trainer) divergedAt(step int64) error {
	if report.Finite(t.Loss) || t.cfg.allowNaN || t.Void {
		return nil
	}
	why := ""
	if t.lossScale != nil && t.Overflowed {
		if t.Scale >= 1 {
			return nil
		}
		why = fmt.Sprintf(" in a step that was skipped, and skipped steps have halved the loss scale to %g, below 1", t.Scale)
	}
	more := ""
	if t.skippedSteps != nil { // no learning rate mends an activation that f16 does not hold
		more = "\n  --precision fp16 has no numbers above 65504, --precision bf16 has; with --allow-nan, steps whose gradients are not finite are skipped"
	}
	return ranks.Diverged(fmt.Sprintf("step %d: the loss is %v%s: training stopped, %s%s%s", step, t.Loss, why, t.kept(), remedies, more))
}

// skippedBefore reads how many steps were skipped before the first of this run, to see whether that is skipped.
func (t *trainer) skippedBefore() error {
	for i := range t.Plan.Prog.Tensors {
		if x := &t.Plan.Prog.Tensors[i]; x.Name == abi.SkippedSteps && x.Role == abi.RoleState {
			b, err := t.m.Contents(x)
			if err != nil {
				return err
			}
			t.Skipped = program.FirstValue(b, x.DType)
		}
	}
	return nil
}

// kept says which checkpoints remain.
func (t *trainer) kept() string {
	dir := t.checkpointDir()
	switch {
	case dir == "":
		return "nothing is saved (no --checkpoint-dir)"
	case t.saved >= 0:
		return fmt.Sprintf("the last good checkpoint, step %d in %s, is untouched", t.saved, dir)
	}
	return fmt.Sprintf("nothing was saved, checkpoints that were in %s are untouched", dir)
}

// sound refuses to save parameters or state that hold a NaN, such as those of the step before the loss shows it.
func (t *trainer) sound() error {
	if t.cfg.allowNaN {
		return nil
	}
	x, at, err := t.firstNaN()
	if err != nil {
		return err
	}
	if x != nil {
		return ranks.Diverged(fmt.Sprintf("step %d: %s %q holds a NaN (element %d): training stopped, %s%s", t.step, x.Role, x.Name, at, t.kept(), remedies))
	}
	return nil
}

// firstNaN finds the first parameter, buffer or state that holds a NaN, and the element; nil for none.
func (s *session) firstNaN() (*abi.Tensor, int, error) {
	for i := range s.Plan.Prog.Tensors {
		x := &s.Plan.Prog.Tensors[i]
		if !program.Saved(x) {
			continue
		}
		b, err := s.m.Contents(x)
		if err != nil {
			return nil, -1, err
		}
		if _, nan, _ := program.FirstBad(b, x.DType); nan >= 0 {
			return x, nan, nil
		}
	}
	return nil, -1, nil
}

// lookAtParameters is GTC_NAN before the first call: an operation is not to blame for what was NaN before.
func (s *session) lookAtParameters() error {
	if s.watch.NaN == 0 {
		return nil
	}
	x, at, err := s.firstNaN()
	if err != nil {
		return err
	}
	if x != nil {
		return fmt.Errorf("GTC_NAN: %s %q holds a NaN (element %d) before the first step: it came with the weights or the checkpoint", x.Role, x.Name, at)
	}
	return nil
}

// lookAtInputs is GTC_NAN for the micro-batch that was just put into the arena for f.
func (t *trainer) lookAtInputs(f *machine.Function, micro int) error {
	x, at := t.badInput(f)
	if x == nil {
		return nil
	}
	row := t.feed.Row(x, at)
	each := max(program.Elems(x.Dims)/t.feed.Rows, 1)
	return fmt.Errorf("GTC_NAN: step %d: sample %d of --data: input %q holds a NaN (element %d of the sample): no operation made it",
		t.step+1, t.sample(micro, row), x.Name, at%each)
}

// badInput is that of the machine, under GTC_NAN.
func (s *session) badInput(f *machine.Function) (*abi.Tensor, int) {
	if s.watch.NaN == 0 {
		return nil, -1
	}
	return s.m.BadInput(f)
}
