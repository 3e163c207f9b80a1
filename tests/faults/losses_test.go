package faults

import (
	"math"
	"testing"
)

// Rows about losses inside graphs.
var (
	lossComparisons = []comparison{
		{file: "ce_plus_aux", layouts: lossLayouts, processes: []string{"--pp 2 --microbatches 2"}},
		{file: "ce_times_half", layouts: lossLayouts, processes: []string{"--microbatches 4"}},
	}
	lossTrainings = []training{
		{file: "ce_plus_aux", flags: lossFlags, run: evaluated("ce_plus_aux"), layouts: []string{"", "--dp 2", "--microbatches 2", "--pp 2 --microbatches 2"},
			long: longLosses, verify: lossesOf("ce_plus_aux")},
		{file: "ce_times_half", flags: lossFlags, run: evaluated("ce_times_half"), layouts: []string{"--dp 2 --microbatches 2"},
			long: append(longLosses, "--pp 2 --microbatches 2"), verify: lossesOf("ce_times_half")},
	}
)

var lossLayouts = []string{"", "--dp 2", "--tp 2", "--microbatches 2", "--microbatches 4", "--dp 2 --microbatches 2", "--pp 2 --microbatches 2",
	"--pp 2 --microbatches 4", "--pp 2 --dp 2 --microbatches 2"}

var (
	lossFlags  = []string{"--batch", "8", "--loss", "graph", "--optimizer", "sgd", "--lr", "0.05", "--momentum", "0.9"} // of curve/sgd
	longLosses = []string{"--tp 2", "--microbatches 4", "--pp 2 --dp 2 --microbatches 2", "--microbatches 2 --target cuda --arch host",
		"--dp 2 --target cuda --arch host", "--pp 2 --microbatches 2 --target cuda --arch host"}
)

// evaluated are flags of gtc run: five steps on one batch, which is evaluated after each.
func evaluated(file string) []string {
	return []string{"--steps", "5", "--shuffle=false", "--log-every", "1", "--eval-data", folder + "/" + file + ".npz", "--eval-every", "1"}
}

// lossesOf holds the losses of steps and evaluations, of the batch before and behind an update, to the file's curve/sgd, which
// is PyTorch's in float64; 1e-5 of the loss is what some thirty sums in f32 may be off.
func lossesOf(file string) func(*testing.T, *outcome) {
	return func(t *testing.T, o *outcome) {
		curve := array(t, file, "curve/sgd")
		for k, kind := range []string{"step", "eval"} {
			var got []float64
			for _, e := range o.events(kind) {
				loss, ok := e["loss"].(float64)
				if !ok {
					loss = math.NaN()
				}
				got = append(got, loss)
			}
			near(t, kind, got, curve[k:k+5], 1e-5*curve[0])
		}
	}
}
