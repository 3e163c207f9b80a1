package passes_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
)

// TestRandomPrecisions is TestRandomPrograms in half precision: ranks round where the whole program rounds, but sum in other
// orders, so that two steps agree within interp.HalfTolerance.
func TestRandomPrecisions(t *testing.T) {
	n, refused := 30, 0
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		m, loss := randomForward(r)
		o := randomLayout(r)
		o.Loss, o.Precision = loss, []string{"bf16", "fp16"}[seed%2]
		what := fmt.Sprintf("seed %d: %s dp%d tp%d pp%d mb%d zero%d sp=%v %s %s clip %v", seed, o.Precision, o.DP, o.TP, o.PP, o.Microbatches, o.Zero, o.SP, o.Pipeline,
			o.Optimizer.Name, o.ClipNorm)
		text := m.String()
		err := against(m, o)
		var told *ir.Error
		switch {
		case errors.As(err, &told) && !strings.Contains(err.Error(), "BUG"):
			t.Logf("%s: refused: %v", what, err)
			refused++
		case err != nil:
			t.Errorf("%s: %v\n%s", what, err, text)
		}
	}
	if refused > n/4 {
		t.Errorf("%d of %d were refused", refused, n)
	}
}
