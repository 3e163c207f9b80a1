package factor

import "testing"

// TestReshapeOfNothing: a tensor without elements has a rule like any other.
func TestReshapeOfNothing(t *testing.T) {
	r := Reshape([]int{0, 6}, []int{0, 1, 6})
	if len(r.In[0]) != 2 || len(r.Out[0]) != 3 || r.Factors[0].Kind != Blocked {
		t.Errorf("%+v", r)
	}
}
