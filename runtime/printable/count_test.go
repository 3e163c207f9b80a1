package printable

import "testing"

// TestCount: one thing has no plural.
func TestCount(t *testing.T) {
	for want, n := range map[string]int{"0 ranks": 0, "1 rank": 1, "2 ranks": 2} {
		if got := Count(n, "rank"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
