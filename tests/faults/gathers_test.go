package faults

import (
	"slices"
	"strings"
	"testing"
)

// Rows about gathers, and where the batch is. Those whose files are in testdata are made by tests/torch/gathers_reference.py.
var (
	gatherComparisons = slices.Concat([]comparison{
		{file: "arange_pooling", processes: []string{"--microbatches 2"}},
		{file: "gathernd_batch_dims", processes: []string{"--dp 2 --microbatches 2"}},
		{file: "gather_neighbour", flags: ofFour, layouts: []string{"", "--dp 2"}},
		{file: "gather_neighbour", flags: ofFour, layouts: []string{"--microbatches 2", "--pp 2 --microbatches 2"},
			refused: `node "/Gather_3" (Gather)`},
		{file: "gather_row_before", flags: ofFour, layouts: []string{"", "--dp 2"}, processes: []string{"--dp 2"}},
	}, ofEachSample("gather_clip", "gather_llama", "gather_gpt2", "gather_last_token", "gather_masked", "gather_rows", "gather_take_along", "gather_bag",
		"gather_pairs", "gather_triples", "scatter_put", "scatter_add", "scatter_one", "tensor_scatter"))
	gatherTrainings []training
)

var ofFour = []string{"--batch", "4", "--loss", "cross_entropy"}

// ofEachSample are rows of models whose indices stay in each sample.
func ofEachSample(files ...string) []comparison {
	var list []comparison
	for _, f := range files {
		c := comparison{file: f, flags: ofFour, layouts: append(slices.Clone(everyLayout), "--dp 4", "--tp 2 --microbatches 2", "--dp 2 --zero 3")}
		if f == "gather_masked" || f == "scatter_add" {
			c.processes = []string{"--dp 2 --microbatches 2"}
		}
		list = append(list, c)
	}
	return list
}

// TestRowOfAnotherSample: where nothing proves that rows stay in their samples, micro-batches say so, and a program that
// meets another sample's row ends; the interpreter, which has no errors of kernels, gives no number.
func TestRowOfAnotherSample(t *testing.T) {
	if !chosen("gather_row_before") {
		return
	}
	args := []string{"check", input(t, "gather_row_before.onnx"), "--reference", input(t, "gather_row_before.npz"), "--microbatches", "2"}
	args = append(args, ofFour...)
	code, text := gtc(t, append(args, "--threads", "1")...)
	if code != 2 || !strings.Contains(text, "has an index (a token or a class) that is out of range") || !strings.Contains(text, "/Gather_2") {
		t.Errorf("want an error of the program that names the node\ncode %d\n%s", code, text)
	}
	code, text = gtc(t, append(args, "--simulate")...)
	if code != 1 || !strings.Contains(text, "NaN") {
		t.Errorf("want NaN\ncode %d\n%s", code, text)
	}
	code, text = gtc(t, "compile", args[1], "-o", t.TempDir(), "--batch", "4", "--loss", "cross_entropy", "--microbatches", "2")
	if code != 0 || !strings.Contains(text, `nothing proves that the indices of "/Gather_2" are those of the 6 rows of each sample`) {
		t.Errorf("want a warning\ncode %d\n%s", code, text)
	}
}
