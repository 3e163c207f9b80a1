package loop

import (
	"fmt"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// tooFew is the error of data that do not fill one batch, where a batch that is not full is left out.
func tooFew(flag string, samples int64, batch int, why string) error {
	return ranks.Usagef("%s: %s cannot fill a batch of %d, so that none is left to look at: %s: compile with a --batch of at most %d, or give more samples",
		flag, printable.Count(samples, "sample"), batch, why, samples)
}

// alone says where the last batch of an epoch leaves one sample by itself to a node that normalises by several; "" when it leaves none. PyTorch
// refuses such a batch.
func (t *trainer) alone() string {
	l := t.Plan.Train.SingleValueStatistics
	if l == nil || l.Samples < 2 || t.sampler.DropLast || t.sampler.Valid(t.sampler.Steps()-1)%l.Samples != 1 {
		return ""
	}
	return printable.Line(fmt.Sprintf("the last batch of an epoch leaves one sample alone, of which there is no variance: it is normalised to the bias, and the running variance keeps its value "+
		"(PyTorch: Expected more than 1 value per channel when training; --drop-last leaves the batch out): %s", l.Node))
}

// leftOut says which samples no epoch sees and why; "" when all are seen, or when it was asked for.
func (t *trainer) leftOut() string {
	why := t.Plan.Meets(abi.FuncStep)
	n := t.sampler.Unseen()
	if n == 0 || why == "" || t.cfg.dropLast {
		return ""
	}
	which := fmt.Sprintf("the last %d of %d samples", n, t.set.Len())
	if t.sampler.Shuffle {
		which = fmt.Sprintf("%d of %d samples, others each time", n, t.set.Len())
	}
	return printable.Line(fmt.Sprintf("each epoch leaves out %s, because a batch has %d, and samples that fill one up would count: %s", which, t.sampler.Batch, why))
}
