package pass

import (
	"regexp"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
)

// LoRA asks for low-rank adapters (Hu et al., arXiv 2106.09685): each weight W that matches stays as it is and what it
// computes becomes that of W + Alpha/Rank * B*A, of which only A and B are trained. Names, shapes and initial values are
// those of the peft package, so that a state dict of the adapters loads there.
type LoRA struct {
	Rank    int      // 0 for no adapters
	Alpha   float64  // 0 is 8, as in peft
	Targets []string // globs of names of weights, with or without ".weight", whole or from a dot or slash on
	Seed    uint64   // of the initial values of A

	// The compiler fills these in from the model.
	Trained []string `json:",omitempty"` // parameters that are asked for by name: they are trained as they are
	Taken   []string `json:",omitempty"` // names of tensors of the file that look like those of adapters
}

// AdapterPrefix begins the names of adapters, as in peft.
const AdapterPrefix = "base_model.model."

// Adapter is the low-rank pair of one weight W, which then means W + Scale * B*A.
type Adapter struct {
	Weight string // its name
	A, B   Factor // [rank, in...] and [out, rank, 1...]; of an embedding [rank, rows] and [width, rank]
	Scale  float64
	InOut  bool // the weight is stored [in, out], unlike torch.nn.Linear's
	Lookup bool // of an embedding, whose rows B*A holds in its columns

	Shared, Grouped bool // of a table that is a product's weight too; of a convolution in groups
}

// Factor is one of the two matrices: a parameter of the program.
type Factor struct {
	Name string
	Type ir.Type
	Init *ir.Tensor `json:"-"`
}

// Rank is that of B*A.
func (a *Adapter) Rank() int { return a.A.Type.Dims[0] }

// Transposed reports whether B*A holds in its columns what the weight holds in its rows.
func (a *Adapter) Transposed() bool { return a.InOut || a.Lookup }

// Glob is the regular expression, not anchored, of a pattern in which * stands for any text and ? for one character. Bytes that are
// no UTF-8 are U+FFFD, as regexp takes them in names.
func Glob(pattern string) string {
	return strings.ReplaceAll(strings.ReplaceAll(regexp.QuoteMeta(string([]rune(pattern))), `\*`, ".*"), `\?`, ".")
}
