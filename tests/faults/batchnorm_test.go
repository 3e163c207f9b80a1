package faults

import (
	"strings"
	"testing"
)

// Rows about batch normalisation.
var (
	normComparisons = []comparison{
		{file: "frozen_bn_torchscript", reference: "frozen_bn", processes: []string{"--dp 2"}},
		{file: "frozen_bn_dynamo", reference: "frozen_bn"},
		{file: "bn_computed_stats", processes: []string{"--dp 2 --microbatches 2"}},
	}
	normTrainings = []training{
		{name: "running_statistics", file: "train_all_bn", flags: allBN, run: inOrder, layouts: []string{""}, verify: statisticsMove},
		{file: "train_all_bn", flags: append([]string{"--train", "*"}, allBN...), run: inOrder, verify: statisticsStay,
			layouts: []string{"", "--dp 2 --sync-bn", "--microbatches 2 --sync-bn"}, long: []string{"--target cuda --arch host", "--dp 2 --zero 2 --sync-bn"}},
	}
)

var (
	allBN   = []string{"--batch", "8", "--loss", "cross_entropy", "--optimizer", "adamw", "--lr", "0.1", "--weight-decay", "0.5"}
	inOrder = []string{"--steps", "5", "--shuffle=false", "--log-every", "1"}
)

// statisticsMove: five moves of 0.1 towards the statistics of the one batch; the values are PyTorch's in float64, as its
// authors noted them, with three digits.
func statisticsMove(t *testing.T, o *outcome) {
	if n := len(o.events("step")); n != 5 {
		t.Errorf("%d steps\n%s", n, o.ran)
	}
	near(t, "running mean", o.weights["mu"], []float64{0.718, 0.844, 0.696}, 5.1e-4)
	near(t, "running variance", o.weights["va"], []float64{1.648, 1.532, 1.490}, 5.1e-4)
}

// statisticsStay: --train '*' says that statistics stay what they are, and they move as without it.
func statisticsStay(t *testing.T, o *outcome) {
	if !strings.Contains(o.compiled, `--train "*" matches running statistics of batch normalization (2 tensors)`) {
		t.Errorf("gtc compile says nothing of statistics:\n%s", o.compiled)
	}
	statisticsMove(t, o)
}
