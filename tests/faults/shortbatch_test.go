package faults

import (
	"strings"
	"testing"
)

// Rows about a last batch that is not full.
var (
	shortComparisons []comparison
	shortTrainings   = []training{
		shortNorm("8", "global_statistics", statisticsOfSome{loss: 1.196768, eval: 1.431338,
			mean:     []float64{0.065336, 0.081981, -0.011964, 0.008368, -0.057635, -0.002238},
			variance: []float64{0.622143, 0.635270, 0.616214, 0.621929, 0.620424, 0.630538}},
			[]string{"", "--dp 4 --sync-bn", "--dp 2 --pp 2 --microbatches 2 --sync-bn"},
			"--target cuda --arch host", "--dp 2 --zero 3 --sync-bn", "--tp 2", "--microbatches 4 --sync-bn"),
		shortNorm("8", "statistics_of_two", statisticsOfSome{loss: 1.201039, eval: 1.431886,
			mean:     []float64{0.017735, -0.003239, 0.009666, 0.082884, -0.049790, 0.024444},
			variance: []float64{0.623011, 0.634666, 0.617907, 0.622960, 0.624785, 0.637371}},
			[]string{"--dp 2"}, "--dp 2 --target cuda --arch host", "--dp 2 --zero 2"),
		shortNorm("8", "statistics_of_four", statisticsOfSome{loss: 1.220171, eval: 1.424814, // the last of four ranks has no sample in the last step
			mean:     []float64{0.032150, 0.017946, 0.011542, 0.078358, -0.060883, 0.002395},
			variance: []float64{0.624566, 0.639393, 0.616701, 0.623191, 0.619218, 0.636727}},
			[]string{"--dp 4"}),
		shortNorm("8", "statistics_of_microbatches", statisticsOfSome{loss: 1.220171, eval: 1.397960,
			mean:     []float64{0.135905, 0.164303, -0.025222, 0.006721, -0.130095, -0.021261},
			variance: []float64{0.201039, 0.224454, 0.186638, 0.197186, 0.198684, 0.231552}},
			[]string{"--microbatches 4", "--pp 2 --microbatches 4"}, "--microbatches 4 --target cuda --arch host"),
		shortNorm("12", "global_statistics_of_12", statisticsOfSome{loss: 1.126813, eval: 1.453991,
			mean:     []float64{0.092667, 0.124254, -0.020036, -0.035338, -0.057371, -0.032891},
			variance: []float64{0.682030, 0.691201, 0.676903, 0.678032, 0.680901, 0.693378}},
			[]string{"--dp 3 --sync-bn"}, "--dp 3 --sync-bn --target cuda --arch host"),
		shortNorm("12", "statistics_of_three", statisticsOfSome{loss: 1.135832, eval: 1.452485, // two of three ranks have no sample in the last step
			mean:     []float64{0.061486, 0.084950, -0.011452, -0.020468, -0.048019, -0.031072},
			variance: []float64{0.684443, 0.688333, 0.679461, 0.679258, 0.685985, 0.695150}},
			[]string{"--dp 3"}, "--dp 3 --zero 1", "--dp 3 --target cuda --arch host"),
		shortLoss("short_batch_negatives", "4", "cross_entropy", 6, []float64{0.2590349, 0.1586942, 0.1662819}, []string{"", "--dp 2"},
			"--dp 4 --zero 3", "--target cuda --arch host", "--dp 2 --target cuda --arch host"),
		shortLoss("short_batch_graph_loss", "4", "graph", 10, []float64{1.5453866, 1.5759731, 2.0816946, 1.5105768}, []string{"", "--dp 2", "--microbatches 2", "--pp 2 --microbatches 2"},
			"--dp 4 --zero 3", "--dp 2 --microbatches 2", "--tp 2", "--target cuda --arch host", "--dp 2 --target cuda --arch host"),
		shortLoss("short_batch_graph_loss_uneven", "6", "graph", 10, []float64{1.5673600, 1.8336010, 1.5676227}, []string{"--dp 3"}, "--dp 3 --zero 1"), // the last rank has no sample
	}
)

// statisticsOfSome is what batch normalisation over the samples that there are makes of short_batch_bn, whose last batch has six of eight, or two of twelve: the
// loss of the last step and over all samples in the end, the running mean of the first normalisation and the variance of the second. All are
// PyTorch's in float64, as tests/torch/short_batch_bn.py prints them.
type statisticsOfSome struct {
	loss, eval     float64
	mean, variance []float64
}

// shortLoss is a row of which all samples count: the loss of each step and that of the evaluation are those of PyTorch in float64.
func shortLoss(name, batch, loss string, samples float64, want []float64, layouts []string, long ...string) training {
	r := shortRow(strings.TrimSuffix(name, "_uneven"), batch, "0.05", loss, func(t *testing.T, o *outcome) {
		var got []float64
		for _, e := range append(o.events("step"), o.events("eval")...) {
			got = append(got, e["loss"].(float64))
		}
		near(t, "losses", got, want, 1e-6)
		if e := o.events("eval")[0]; e["samples"] != samples || strings.Contains(o.ran, "left out") {
			t.Errorf("not all samples count\n%s", o.ran)
		}
	})
	r.name, r.layouts, r.long = name, layouts, long
	return r
}

// shortNorm is a row of short_batch_bn. In f32, five steps leave some 1e-6.
func shortNorm(batch, name string, want statisticsOfSome, layouts []string, long ...string) training {
	r := shortRow("short_batch_bn", batch, "0.1", "cross_entropy", func(t *testing.T, o *outcome) {
		steps, evals := o.events("step"), o.events("eval")
		if len(evals) != 1 || evals[0]["samples"] != 38.0 {
			t.Fatalf("evaluations %v\n%s", evals, o.ran)
		}
		if strings.Contains(o.ran, "left out") {
			t.Errorf("samples are left out\n%s", o.ran)
		}
		near(t, "loss", []float64{steps[len(steps)-1]["loss"].(float64), evals[0]["loss"].(float64)}, []float64{want.loss, want.eval}, 1e-5)
		near(t, "running mean", o.weights["bb.1.running_mean"], want.mean, 1e-5)
		near(t, "running variance", o.weights["bb.4.running_var"], want.variance, 1e-5)
	})
	r.name, r.layouts, r.long = "short_batch_bn_"+name, layouts, long
	return r
}

// shortRow trains a model for an epoch, and evaluates it on the same samples.
func shortRow(file, batch, lr, loss string, verify func(*testing.T, *outcome)) training {
	return training{file: file, flags: []string{"--batch", batch, "--loss", loss, "--optimizer", "sgd", "--lr", lr},
		run:     []string{"--shuffle=false", "--log-every", "1", "--eval-data", folder + "/" + file + ".npz"},
		layouts: []string{"", "--dp 2"}, verify: verify}
}
