package comm

import "testing"

// TestAbortedTellsTheCauseFirst: and not all tensors of a large message.
func TestAbortedTellsTheCauseFirst(t *testing.T) {
	e := &Error{Kind: KindAborted, Rank: 1, Self: 0, Call: `all_reduce of "d_a, d_b, d_c, d_d, d_e" ("h" (overlap))`, Detail: "step 3: a target is out of range"}
	want := `rank 1 aborted: step 3: a target is out of range (rank 0 was in all_reduce of "d_a, d_b, d_c and 2 more" ("h" (overlap)))`
	if e.Error() != want {
		t.Errorf("got  %s\nwant %s", e, want)
	}
	for _, call := range []string{`send of "x" (model.py:4)`, `all_reduce of "a, b, c, d"`, "a barrier", `odd "`} {
		if brief(call) != call {
			t.Errorf("%s became %s", call, brief(call))
		}
	}
}
