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
		// Statistics of two views together: of both batches, whatever they are split into, but for stages, which never have all samples.
		{file: "two_views", layouts: []string{"", "--dp 2", "--dp 3", "--microbatches 2", "--dp 2 --zero 3"}},
		{file: "two_views", layouts: []string{"--pp 2 --microbatches 2"}, refused: `node "node_cat" (Concat) needs all samples at once`},
	}
	normTrainings = []training{
		{name: "running_statistics", file: "train_all_bn", flags: allBN, run: inOrder, layouts: []string{""}, verify: statisticsMove},
		{file: "train_all_bn", flags: append([]string{"--train", "*"}, allBN...), run: inOrder, verify: statisticsStay,
			layouts: []string{"", "--dp 2 --sync-bn", "--microbatches 2 --sync-bn"}, long: []string{"--target cuda --arch host", "--dp 2 --zero 2 --sync-bn"}},
		{name: "statistics_of_ranks", file: "train_all_bn", flags: allBN, run: inOrder, layouts: []string{"--dp 2"}, verify: statisticsOf(0, 4)},
		{name: "statistics_of_microbatches", file: "train_all_bn", flags: allBN, run: inOrder, layouts: []string{"--microbatches 2"}, verify: statisticsOf(0, 4, 4, 8)},
		{name: "statistics_of_both", file: "train_all_bn", flags: allBN, run: inOrder, layouts: []string{"--dp 2 --microbatches 2"}, verify: statisticsOf(0, 2, 2, 4)},
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

// statisticsOf gives the check that rank 0 has moved the statistics in each of five steps by those of the samples from
// spans[0] to spans[1], then from spans[2] to spans[3], and so on: the variance by the sample variance. The tolerance is f32's.
func statisticsOf(spans ...int) func(*testing.T, *outcome) {
	return func(t *testing.T, o *outcome) {
		x := array(t, "train_all_bn", "x") // [8,3,4]
		mean, variance := []float64{0.5, 0.5, 0.5}, []float64{2, 2, 2}
		for range 5 {
			for s := 0; s < len(spans); s += 2 {
				for c := range mean {
					var own []float64
					for i := spans[s]; i < spans[s+1]; i++ {
						own = append(own, x[(i*3+c)*4:(i*3+c+1)*4]...)
					}
					m, squares := 0.0, 0.0
					for _, v := range own {
						m += v / float64(len(own))
					}
					for _, v := range own {
						squares += (v - m) * (v - m)
					}
					mean[c] = 0.9*mean[c] + 0.1*m
					variance[c] = 0.9*variance[c] + 0.1*squares/float64(len(own)-1)
				}
			}
		}
		near(t, "running mean", o.weights["mu"], mean, 1e-6)
		near(t, "running variance", o.weights["va"], variance, 1e-6)
	}
}
