package printable

import "testing"

// TestCount: one thing has no plural, and not every plural takes an s alone.
func TestCount(t *testing.T) {
	for want, n := range map[string]int{"0 ranks": 0, "1 rank": 1, "2 ranks": 2} {
		if got := Count(n, "rank"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if one, two := Count(int64(1), "batch"), Count(uint64(2), "batch"); one != "1 batch" || two != "2 batches" {
		t.Errorf("%q, %q", one, two)
	}
}
