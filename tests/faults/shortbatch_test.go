package faults

import (
	"slices"
	"strings"
	"testing"
)

// Rows about a last batch that is not full.
var (
	shortComparisons []comparison
	shortTrainings   = []training{
		shortRow("short_batch_bn", "8", "0.1", "cross_entropy", leavesOut(6, 38, "BatchNormalization", "takes statistics of the batch")),
		shortRow("short_batch_negatives", "4", "0.05", "cross_entropy", leavesOut(2, 6, "node_mul", "takes a cross entropy over samples")),
		shortRow("short_batch_graph_loss", "4", "0.05", "graph", leavesOut(2, 10, "node_ReduceMean_16", "adds up samples")),
	}
)

// shortRow trains a model for an epoch, and evaluates it on the same samples.
func shortRow(file, batch, lr, loss string, verify func(*testing.T, *outcome)) training {
	return training{file: file, flags: []string{"--batch", batch, "--loss", loss, "--optimizer", "sgd", "--lr", lr},
		run:     []string{"--shuffle=false", "--log-every", "1", "--eval-data", folder + "/" + file + ".npz"},
		layouts: []string{"", "--dp 2"}, verify: verify}
}

// leavesOut is how a run tells that n of all samples are left out: once at the start of training, with the words, and at each evaluation that
// is concerned.
func leavesOut(n, all float64, words ...string) func(*testing.T, *outcome) {
	return func(t *testing.T, o *outcome) {
		if got := o.events("start")[0]["left_out"]; got != n {
			t.Errorf("%v samples are left out, want %v", got, n)
		}
		told := slices.Collect(func(yield func(string) bool) {
			for line := range strings.Lines(o.ran) {
				if strings.Contains(line, "left out of each epoch") && !yield(line) {
					return
				}
			}
		})
		if len(told) != 1 {
			t.Fatalf("it is told %d times that samples are left out\n%s", len(told), o.ran)
		}
		for _, w := range words {
			if !strings.Contains(told[0], w) {
				t.Errorf("not told: %q\n%s", w, told[0])
			}
		}
		e := o.events("eval")[0]
		if seen, unseen := e["samples"].(float64), e["unseen"].(float64); seen+unseen != all {
			t.Errorf("the evaluation saw %v samples and %v not, of %v", seen, unseen, all)
		}
	}
}
