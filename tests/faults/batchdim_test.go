package faults

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// Rows about samples that do not lie along the leading dim. tests/torch/batchdim_reference.py makes those in testdata.
var (
	turnedComparisons = slices.Concat([]comparison{
		{file: "gemm_trans_a", layouts: []string{"", "--dp 2", "--dp 3", "--tp 2", "--microbatches 2", "--dp 3 --microbatches 2", "--pp 2 --microbatches 2"},
			processes: []string{"", "--dp 2", "--microbatches 2"}},
		{file: "time_attention", flags: []string{"--batch-dim", "x=0"}, layouts: []string{"--microbatches 5"}, refused: "needs all samples of the batch at once",
			says: []string{"if they lay along another dimension than the leading one", "--batch-dim x=1"}},
		{file: "time_lstm", flags: []string{"--batch-dim", "x=3"}, layouts: []string{""}, refused: `--batch-dim x=3: input "x" is f32[5,4,3], which has no such dimension`},
		{file: "time_lstm", flags: []string{"--batch-dim", "z=1"}, layouts: []string{""}, refused: "the model has no such input; there are: x"},
		{file: "columns", flags: []string{"--batch-dim", "x=-1"}, layouts: []string{"--dp 2"}},
	}, turned("time_lstm", "time_gru", "first_states", "time_tokens", "time_attention", "time_last", "batch_last", "columns", "time_loss"))

	turnedTrainings = slices.Concat(epochs("time_lstm", "--microbatches 2"), epochs("time_gru"), epochs("first_states", "--dp 2"), epochs("time_tokens", "--dp 2 --microbatches 2"),
		epochs("time_attention", "--pp 2 --microbatches 2"), epochs("batch_last"), epochs("columns", ""), epochs("time_last", ""), epochs("time_loss", "--dp 2"))
)

// turned are rows of models that are found to have their samples elsewhere.
func turned(files ...string) []comparison {
	var list []comparison
	for _, f := range files {
		c := comparison{file: f, layouts: append(slices.Clone(everyLayout), "--dp 4", "--tp 2 --microbatches 2", "--dp 2 --zero 3", "--sync-bn --pp 2 --dp 2 --microbatches 2")}
		if f == "time_loss" {
			c.flags = []string{"--loss", "graph"}
		}
		if f == "time_attention" || f == "columns" {
			c.processes = []string{"--dp 2 --microbatches 2"}
		}
		list = append(list, c)
	}
	return list
}

// epochs is a row that trains an epoch on six samples, which lie in the file as in the model, in a batch of four and one of two.
func epochs(file string, layouts ...string) []training {
	flags := []string{"--optimizer", "sgd", "--lr", "0.1", "--loss", "cross_entropy"}
	switch file {
	case "columns":
		flags[5] = "mse"
	case "time_loss":
		flags[5] = "graph"
	}
	if strings.HasPrefix(file, "time_") { // files in which the batch is open
		flags = append(flags, "--batch", "4")
	}
	return []training{{file: file, data: file + "_data", flags: flags, run: []string{"--shuffle=false", "--epochs", "1"}, layouts: layouts,
		long:   []string{"", "--dp 2", "--microbatches 2", "--pp 2 --microbatches 2", "--dp 2 --zero 2", "--dp 2 --target cuda --arch host"},
		verify: weightsOf(file)}}
}

// weightsOf holds the weights to data/w/PARAM of the file, in float64; 1e-5 is what f32 leaves of two updates.
func weightsOf(file string) func(*testing.T, *outcome) {
	return func(t *testing.T, o *outcome) {
		f, err := npz.Open(input(t, file+".npz"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		n := 0
		for _, name := range f.Names() {
			if p, ok := strings.CutPrefix(name, "data/w/"); ok {
				n++
				near(t, p, o.weights[p], array(t, file, name), 1e-5)
			}
		}
		if n < 2 {
			t.Errorf("%s.npz has weights of %d parameters", file, n)
		}
	}
}

// TestTurnedForward: --dump-forward takes any number of samples along the model's dim, or in front, and gives outputs as the model does.
func TestTurnedForward(t *testing.T) {
	if !chosen("time_lstm") {
		return
	}
	dir := filepath.Join(t.TempDir(), "out")
	if code, text := gtc(t, "compile", input(t, "time_lstm.onnx"), "-o", dir, "--batch", "3", "--loss", "none", "--threads", "1"); code != 0 {
		t.Fatalf("code %d\n%s", code, text)
	}
	f, err := npz.Open(input(t, "time_lstm.npz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, err := f.Read("in0")
	if err != nil {
		t.Fatal(err)
	}
	front := npz.Array{Name: "x", DType: x.DType}
	front.Data, front.Shape = npz.MoveDim(x.Data, append(slices.Clone(x.Shape), 4), 1, 0)
	front.Shape = front.Shape[:3]
	for _, a := range []npz.Array{*x, front} {
		in, out := filepath.Join(dir, "in.npz"), filepath.Join(dir, "y.npz")
		if err := npz.WriteFile(in, []npz.Array{a}); err != nil {
			t.Fatal(err)
		}
		if code, text := gtc(t, "run", dir, "--dump-forward", out, "--inputs", in); code != 0 {
			t.Fatalf("code %d\n%s", code, text)
		}
		y, err := npz.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		defer y.Close()
		got, err := y.Read(y.Names()[0])
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Shape, []int{5, 4, 3}) {
			t.Errorf("the output is %v", got.Shape)
		}
		b, err := data.Convert(got.Data, got.DType, "f64")
		if err != nil {
			t.Fatal(err)
		}
		near(t, "output", decode(b), array(t, "time_lstm", "out0"), 1e-6)
	}
}
