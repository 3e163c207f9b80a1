package faults

import (
	"math"
	"slices"
	"testing"
)

// unevenTrainings train on all samples of a reference at once, in batches of more than there are: ranks of three have three, three and
// two samples, or two, two and none. Each step's loss is then that of the reference's curve. Only some are tried by default.
var unevenTrainings = []training{
	uneven("tied_named_transpose", "cross_entropy", "6", "--tie", "wT=w"),
	uneven("gathernd_batch_dims", "cross_entropy", "6"),
	uneven("ce_plus_aux", "graph", "9"),
	ofLong(uneven("ce_times_half", "graph", "9")),
	unevenIgnored(),
	ofLong(uneven("arange_pooling", "cross_entropy", "9")),
	ofLong(uneven("frozen_bn_dynamo", "cross_entropy", "9", "--sync-bn")),
	ofLong(uneven("frozen_bn_torchscript", "cross_entropy", "9", "--sync-bn")),
	ofLong(uneven("unsorted", "cross_entropy", "6")),
	ofLong(uneven("layernorm_opset14", "cross_entropy", "6")),
	ofLong(uneven("sparse_weight", "cross_entropy", "6", "--train", "w")),
}

// uneven is a row of a file with the optimizer of curve/sgd. Where there is no curve the first loss alone is compared, and where
// there is no loss that of the reference's outputs.
func uneven(file, loss, batch string, flags ...string) training {
	data := file
	if file == "frozen_bn_dynamo" || file == "frozen_bn_torchscript" {
		data = "frozen_bn"
	}
	return training{name: "uneven_" + file, file: file, data: data,
		flags:   slices.Concat([]string{"--batch", batch, "--loss", loss, "--optimizer", "sgd", "--lr", "0.05", "--momentum", "0.9"}, flags),
		run:     []string{"--epochs", "2", "--shuffle=false", "--log-every", "1"},
		layouts: []string{"--dp 3"}, long: []string{"", "--dp 3 --zero 2", "--dp 3 --target cuda --arch host"},
		verify: func(t *testing.T, o *outcome) {
			var losses []float64
			for _, e := range o.events("step") {
				losses = append(losses, e["loss"].(float64))
			}
			if len(losses) != 2 {
				t.Fatalf("%d steps\n%s", len(losses), o.ran)
			}
			want := rightLosses(t, data)
			near(t, "losses", losses[:len(want)], want, 1e-5) // f32 leaves some 1e-7 of losses of 1 to 3
		}}
}

// unevenIgnored is a row in which neither samples nor what fills them up count.
func unevenIgnored() training {
	r := uneven("all_ignored", "cross_entropy", "9")
	r.verify = func(t *testing.T, o *outcome) {
		steps := o.events("step")
		if last := steps[len(steps)-1]; len(steps) != 2 || last["loss"] != nil || last["empty"] != 2.0 {
			t.Errorf("steps %v", steps)
		}
	}
	return r
}

// ofLong is r with GTC_LONG=1 only.
func ofLong(r training) training {
	r.long, r.layouts = slices.Concat(r.layouts, r.long), nil
	return r
}

// rightLosses are those of the first two steps, as far as a reference tells them.
func rightLosses(t *testing.T, file string) []float64 {
	names := arrays(t, file)
	switch {
	case slices.Contains(names, "curve/sgd"):
		return array(t, file, "curve/sgd")[:2]
	case slices.Contains(names, "loss"):
		return array(t, file, "loss")
	}
	out, target := array(t, file, "out0"), array(t, file, "target")
	loss, width := 0.0, len(out)/len(target)
	for i, c := range target { // the mean cross entropy
		sum := 0.0
		for _, x := range out[i*width : (i+1)*width] {
			sum += math.Exp(x)
		}
		loss += (math.Log(sum) - out[i*width+int(c)]) / float64(len(target))
	}
	return []float64{loss}
}
