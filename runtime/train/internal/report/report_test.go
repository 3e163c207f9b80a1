package report

import (
	"math"
	"testing"
	"time"
)

// TestEach: of ten seconds since the start, six were the first step and what came before it, and two an evaluation; the other
// four steps took the rest.
func TestEach(t *testing.T) {
	now := time.Now()
	r := &Reporter{began: now.Add(-10 * time.Second), ready: now.Add(-4 * time.Second)}
	r.pause(2 * time.Second)
	if each := r.each(5); math.Abs(each-0.5) > 0.05 {
		t.Errorf("a step took %g s, want 0.5", each)
	}
	r = &Reporter{began: now.Add(-3 * time.Second), ready: now}
	r.pause(time.Second)
	if each := r.each(1); math.Abs(each-2) > 0.05 {
		t.Errorf("the only step took %g s, want 2", each)
	}
}
