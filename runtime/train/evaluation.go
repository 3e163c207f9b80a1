package train

import (
	"fmt"
	"time"

	"github.com/gtc-compiler/gtc/runtime/printable"
)

// evaluation is the outcome over a whole data set. Padding does not count.
type evaluation struct {
	loss       float64 // mean over what counts
	accuracy   float64 // share that is right; NaN when the program does not count it
	perplexity float64 // exp(loss); NaN unless the metric of the model
	samples    int64
	unseen     int64  // samples of a last batch that is not full, where these are left out
	batch      int    // which that is; 0 when unseen is
	why        string // what makes samples depend on one another; "" when unseen is 0
	noise      string // the nodes that draw random numbers in it; "" for none
	took       time.Duration
}

// notSeen says which samples an evaluation does not see and why.
func (e *evaluation) notSeen() string {
	return printable.Line(fmt.Sprintf("evaluations do not see the last %d of %d samples, because they do not fill a batch of %d, and samples that fill it up would count: %s",
		e.unseen, e.samples+e.unseen, e.batch, e.why))
}

// random says of results that they depend on what nodes draw.
func random(what, nodes string) string {
	return printable.Line(fmt.Sprintf("%s random: %s draws numbers in them, too", what, nodes))
}
