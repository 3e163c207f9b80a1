package report

import (
	"fmt"
	"time"

	"github.com/gtc-compiler/gtc/runtime/printable"
)

// Evaluation is the outcome over a whole data set. Padding does not count.
type Evaluation struct {
	Loss       float64 // mean over what counts
	Accuracy   float64 // share that is right; NaN when the program does not count it
	Perplexity float64 // exp(Loss); NaN unless it is the model's metric
	Samples    int64   // evaluated
	Unseen     int64   // samples of a last batch that is not full, where these are left out
	Batch      int     // samples of a batch; 0 when Unseen is
	Why        string  // what makes samples depend on one another; "" when Unseen is 0
	Noise      string  // nodes that draw random numbers in the evaluation; "" for none
	Took       time.Duration
}

// notSeen says which samples an evaluation does not see and why.
func (e *Evaluation) notSeen() string {
	return printable.Line(fmt.Sprintf("evaluations do not see the last %d of %d samples, because a batch has %d, and samples that fill one up would count: %s",
		e.Unseen, e.Samples+e.Unseen, e.Batch, e.Why))
}

// Random says of results that they depend on what nodes draw.
func Random(what, nodes string) string {
	return printable.Line(fmt.Sprintf("%s random: %s draws numbers in them, too", what, nodes))
}
