package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
)

// listed reads a table of tests/onnx: the case and why it is there.
func listed(t *testing.T, name string) map[string][]string {
	t.Helper()
	data, err := os.ReadFile("../../tests/onnx/testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string][]string{}
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		if name, why, ok := strings.Cut(line, "\t"); ok && i > 0 {
			by[why] = append(by[why], name)
		}
	}
	return by
}

// TestOpsDoc holds docs/ops.md to what the importer's table, the test data and the lists of tests/onnx say.
func TestOpsDoc(t *testing.T) {
	var b strings.Builder
	b.WriteString(opsIntro)
	b.WriteString("\n| operator | opset | forward | gradient | sharding | CPU | CUDA |\n|---|---|---|---|---|---|---|\n")
	for _, s := range onnx.Survey() {
		fmt.Fprintf(&b, "| %s | %d-%d | %s | %s | %s | %s | - |\n", s.Op, s.Since, s.Last, s.Forward, s.Gradient, s.Sharding, s.CPU())
	}
	b.WriteString("\n## Edges\n\nWhere a function has no derivative or an input is out of range, gtc does what PyTorch does:\n\n| where | what happens |\n|---|---|\n")
	for _, e := range onnx.Edges {
		fmt.Fprintf(&b, "| %s | %s |\n", e.Where, e.What)
	}
	b.WriteString(statisticsText)
	b.WriteString(unsupportedIntro)
	section(&b, listed(t, "unsupported.tsv"))
	if later := listed(t, "notyet.tsv"); len(later) > 0 {
		b.WriteString("\n## Not yet\n\nThese cases fail in the interpreter or in generated kernels; the importer refuses what it cannot do.\n\n")
		section(&b, later)
	}
	golden(t, "../../docs/ops.md", b.String())
}

func section(b *strings.Builder, by map[string][]string) {
	for _, why := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[why])
		names := make([]string, len(by[why]))
		for i, name := range by[why] {
			names[i] = strings.TrimPrefix(name, "test_")
		}
		fmt.Fprintf(b, "* %s (%d): %s\n", why, len(names), strings.Join(names, ", "))
	}
}

const statisticsText = `
## Running statistics of BatchNormalization

* **Which nodes train.** One in training form does: training_mode 1, before opset 14 further results, before opset 7 no is_test, or
  a call that PyTorch's exporter has recorded as training. In a file in which any does, one in inference form is meant so: it
  normalises by its statistics and keeps them, in training too, while its scale and bias are trained. In a file in which none
  does, all are trained in training form, because exporters write inference form also for models traced in train(); a warning says so.
* **Operands that are computed**, or inputs of the graph, are used as they are by a node in inference form, with gradients.
  A statistic of the file beside them stays as it is. In training form they change nothing: it normalises by the batch.
* **--train** leaves running statistics what they are: no gradient trains them. **--freeze** of a mean or variance, or of the scale,
  is eval() of that module: it normalises by its statistics, which stay.
* **A move** is PyTorch's, in every file: with ONNX's momentum m, mean = m mean + (1-m) batch mean, and
  var = m var + (1-m) n/(n-1) batch variance, where n is the number of values of a channel. ONNX's own text has
  no n/(n-1); PyTorch's exporters write the same node and mean PyTorch's. A graph that reads the new statistics gets ONNX's.
* **Momentum 1** (PyTorch's 0) never moves, **momentum 0** (PyTorch's 1) replaces. PyTorch's momentum=None, an average over all
  steps, reaches the file as 0, the factor of the first step (TorchScript), or not at all (dynamo fails): a warning names the node.
* **Who moves them.** With --sync-bn the statistics and n are those of the global batch. Without it, each rank moves its own by its
  samples, micro-batch by micro-batch, as PyTorch's DistributedDataParallel and gradient accumulation do; those of
  rank 0 along dp are evaluated, saved and exported. Samples that only fill a last batch up are in no statistics, and n is that of the
  real ones; a rank or micro-batch that has none of these moves nothing. A step without update (as fp16 skips) moves them too: it is the forward pass that does.
* **n = 1** of a full batch is refused when compiling, as in PyTorch. Where only a last batch leaves a rank or micro-batch one value for each channel, PyTorch
  raises an error; gtc goes on and says so at the start: the value, minus its own mean, becomes the bias, the running mean moves towards it,
  and the running variance stays, for one value has none (--drop-last leaves such batches out). gtc check normalises by the global batch (--sync-bn).
* **None at all** (track_running_stats=False, which exporters spell as means and squares of the operand): evaluation, too, goes by the samples of its
  batch that count, those of each rank, or of all with --sync-bn.
`

const opsIntro = `# ONNX operators

<!-- Made by go generate ./cmd/gtc from the importer's table and from what tests/onnx found; edit neither here. -->

The operators that a model may hold, as ` + "`gtc ops --onnx`" + ` prints them. A number in a column is of cases of the ONNX
project's backend test data (opset up to 28, IR version 13) that consist of this operator alone.

* opset: the versions of its operator set that are read.
* forward: yes, or "known operands" when the shape of the result depends on contents: these must be known when compiling.
* gradient: "yes": agrees with central differences in float64 on the test data (` + "`go test ./tests/onnx -run TestGradients`" + `).
  "by rule": it becomes core ops that have gradients, each tested by itself, but no case of the data compares it. "zero": as in
  PyTorch. "straight through": rounding passes the gradient on, as fake quantization in PyTorch does. "none": nothing float flows.
* sharding: yes when a dimension of it can be split over ranks; "-": every rank computes all of it.
* CPU: cases that pass in the interpreter and in generated C kernels, of all cases.
* CUDA: "-", as these cases are not run with --target cuda; "go test ./tests/cuda" runs models.
* An empty cell: the test data has no case of it; gtc's own tests do.
`

const unsupportedIntro = `
## Unsupported by design

Cases of the test data that gtc leaves out, by reason:

`
