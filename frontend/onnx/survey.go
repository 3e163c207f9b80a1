package onnx

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// coverage says, for each operator that has cases of its own in the ONNX project's backend test data, what these cases
// showed. tests/onnx writes and checks it: operator, cases, cases that pass in the interpreter and in CPU kernels, cases
// whose gradient agrees with central differences, and the core ops that the operator became.
//
//go:embed coverage.tsv
var coverage string

// Support is what gtc makes of one ONNX operator.
type Support struct {
	Op          string // with its domain, when that is not the default one
	Since, Last int64  // versions of its operator set that are read
	Forward     string // "yes", or "known operands": only evaluated when compiling
	Gradient    string // "yes": compared with differences; "by rule": its core ops have one; "straight through"; "zero"; "none"; "": unknown
	Sharding    string // "yes": some dim can be split over ranks; "-": each rank computes all of it; "": no test data shows
	Cases       int    // of the backend test data, by the operator alone
	Passed      int    // of these
	Compared    int    // gradients compared with central differences
}

// straightThrough are the operators whose gradient is defined to pass rounding.
var straightThrough = []string{"QuantizeLinear", "DynamicQuantizeLinear"}

// Survey lists all operators that are imported, sorted, with what the project's tests showed of each.
func Survey() []Support {
	shown := map[string][]string{}
	for line := range strings.Lines(coverage) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		shown[cells[0]] = cells
	}
	var list []Support
	for _, op := range Operators() {
		rows := walk.FormsOf(op)
		s := Support{Op: op, Since: firstOpset(op, rows[0].Since), Last: model.MaxOpset, Forward: "known operands"}
		for _, r := range rows {
			if r.Removed {
				s.Last = r.Since - 1
			}
			if r.Rule != nil {
				s.Forward = "yes"
			}
		}
		if cells := shown[op]; len(cells) == 5 {
			fmt.Sscan(cells[1], &s.Cases)
			fmt.Sscan(cells[2], &s.Passed)
			fmt.Sscan(cells[3], &s.Compared)
			s.fromCore(strings.Fields(cells[4]))
		}
		list = append(list, s)
	}
	return list
}

// fromCore fills in what the rules of the core ops say.
func (s *Support) fromCore(names []string) {
	if len(names) == 0 {
		s.Gradient, s.Sharding = "none", "-"
		return
	}
	s.Sharding, s.Gradient = "-", "none"
	rules := true
	for _, name := range names {
		d := ir.LookupDef(name)
		if d == nil {
			continue
		}
		if ops.Splits(d) {
			s.Sharding = "yes"
		}
		rules = rules && d.Rules.NoGrad == ""
	}
	switch {
	case slices.Contains(straightThrough, s.Op):
		s.Gradient = "straight through"
	case s.Compared > 0 && slices.Contains(flatOps, s.Op):
		s.Gradient = "zero"
	case s.Compared > 0:
		s.Gradient = "yes"
	case rules || slices.Contains(names, "where"): // a selection passes the gradient of what it selects
		s.Gradient = "by rule"
	}
}

// flatOps are piecewise constant: their gradient is zero, as in PyTorch.
var flatOps = []string{"Floor", "Ceil", "Round", "Sign", "Hardmax", "Bernoulli"}

// SurveyText prints Survey as columns, an operator a line.
func SurveyText() string {
	var b strings.Builder
	row := func(cells ...any) { fmt.Fprintf(&b, "%-36s %-8s %-14s %-17s %-9s %-9s %s\n", cells...) }
	row("operator", "opset", "forward", "gradient", "sharding", "CPU", "CUDA")
	for _, s := range Survey() {
		row(s.Op, fmt.Sprintf("%d-%d", s.Since, s.Last), s.Forward, dash(s.Gradient), dash(s.Sharding), s.CPU(), "-")
	}
	return b.String()
}

// CPU says how many of the test data's cases pass in generated kernels.
func (s *Support) CPU() string {
	switch {
	case s.Cases > 0:
		return fmt.Sprintf("%d/%d", s.Passed, s.Cases)
	case s.Forward != "yes":
		return "-"
	}
	return "yes"
}

func dash(s string) string {
	if s == "" {
		return "?"
	}
	return s
}

// opset1 are the operators of the first opset that later ones define anew, so that their rows begin later than they do.
const opset1 = " Abs Add And AveragePool BatchNormalization Cast Ceil Clip Concat Div Dropout Elu Equal Exp Floor GRU Gemm Greater " +
	"HardSigmoid InstanceNormalization LSTM LeakyRelu Less Log Max Mean Min Mul Neg Not Or PRelu Pad Pow RNN Reciprocal Relu Reshape " +
	"Selu Sigmoid Slice Split Sqrt Squeeze Sub Sum Tanh Tile Unsqueeze Upsample Xor "

// firstOpset is the first opset in which op can be used, whose first row in the table begins with since.
func firstOpset(op string, since int64) int64 {
	if strings.Contains(opset1, " "+op+" ") {
		return 1
	}
	return max(1, since)
}
