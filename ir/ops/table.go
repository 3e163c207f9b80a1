package ops

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/kir"
)

var kernelNames = [...]string{"none", "pointwise", "view", "reduce", "template", "assemble", "literal"}

// Table lists every op with its rules, a line each, for "gtc ops": whether it has a gradient (vjp; parts when the
// decomposition is differentiated; - for none), an evaluator, a decomposition, how kernels compute it, which kinds
// of factor its dimension rule has over the samples, the autocast rule, its facts (see ir.Facts), and what it computes.
func Table() string {
	var b strings.Builder
	row := func(cells ...string) {
		fmt.Fprintf(&b, "%-21s %-6s %-5s %-6s %-24s %-22s %-6s %-40s %s\n", cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6], cells[7], cells[8])
	}
	row("op", "grad", "eval", "parts", "kernel", "factors", "cast", "facts", "meaning")
	for _, d := range ir.Defs() {
		r := &d.Rules
		doc := r.Doc
		if r.NoGrad != "" {
			doc += " (no gradient: " + r.NoGrad + ")"
		}
		kernel, factors := surveyed(d)
		row(d.Name, gradCell(r), yes(r.Eval != nil), yes(r.Decompose != nil), kernel, factors, dash(r.Precision), dash(facts(d)), doc)
	}
	return b.String()
}

func gradCell(r *ir.Rules) string {
	switch {
	case r.VJP != nil:
		return "vjp"
	case r.NoGrad == "" && r.Decompose != nil:
		return "parts"
	}
	return "-"
}

func yes(v bool) string {
	if v {
		return "yes"
	}
	return "-"
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// surveyed tells which kernels and which kinds of factor the samples of d show.
func surveyed(d *ir.Def) (kernel, factors string) {
	var kernels []string
	found := map[factor.Kind]bool{}
	note := func(s string) {
		if !slices.Contains(kernels, s) {
			kernels = append(kernels, s)
		}
	}
	for _, s := range d.Rules.Samples(rand.New(rand.NewPCG(1, 1))) {
		op := sampleOp(d, s)
		if d.Rules.Factors != nil {
			for _, f := range d.Rules.Factors(op).Factors {
				found[f.Kind] = true
			}
		}
		switch {
		case d.Rules.Collective != "":
			note("mesh")
		case d.Rules.Transfer != ir.NoTransfer:
			note("copy")
		case d.Rules.Impl == nil:
			note("parts")
		default:
			note(kernelCell(d.Rules.Impl(op)))
		}
	}
	var kinds []string
	for k := factor.Free; k <= factor.Blocked; k++ {
		if found[k] {
			kinds = append(kinds, k.String())
		}
	}
	return strings.Join(kernels, ","), dash(strings.Join(kinds, ","))
}

// Splits reports whether some dim of d's samples can be divided among ranks without communication, or into partial sums.
func Splits(d *ir.Def) bool {
	if d.Rules.Factors == nil {
		return false
	}
	for _, s := range d.Rules.Samples(rand.New(rand.NewPCG(1, 1))) {
		for _, f := range d.Rules.Factors(sampleOp(d, s)).Factors {
			if f.Kind == factor.Free || f.Kind == factor.Sum {
				return true
			}
		}
	}
	return false
}

func kernelCell(i kir.Impl) string {
	switch i.Kind {
	case kir.None:
		return "parts"
	case kir.Template:
		return i.Template
	}
	return kernelNames[i.Kind]
}

// sampleOp builds a sample alone in a function.
func sampleOp(d *ir.Def, s ir.Sample) *ir.Op {
	b := ir.NewBuilder(&ir.Func{})
	b.Loc = ir.Loc{Node: d.Name}
	var in []*ir.Value
	for i, t := range s.In {
		var v *ir.Value
		if t.DType != 0 { // else an absent operand
			v = b.Param(fmt.Sprintf("a%d", i), t, ir.Input)
		}
		in = append(in, v)
	}
	return b.EmitN(d, s.Attrs, in...)[0].Op
}

// facts tells those of d, as its samples show them: in which operands together it is linear, or zero where they are, and so on.
func facts(d *ir.Def) string {
	var list []string
	note := func(s string) {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	for _, s := range d.Rules.Samples(rand.New(rand.NewPCG(1, 1))) {
		op := sampleOp(d, s)
		for _, set := range op.Linear() {
			note("linear:" + together(set))
		}
		if f := d.Rules.Unseen; f != nil {
			note(map[int]string{-1: "unseen:less", 1: "unseen:more"}[f(op)])
		}
	}
	for _, set := range d.Rules.Zero {
		note("zero:" + together(set))
	}
	for _, i := range d.Rules.AsStored {
		note(fmt.Sprintf("as_stored:%d", i))
	}
	for _, i := range d.Rules.Wide {
		note(fmt.Sprintf("wide:%d", i))
	}
	if m := d.Rules.Move; m != ir.Computes {
		note(m.String())
	}
	for _, f := range []struct {
		name string
		is   bool
	}{{"adds", d.Rules.Adds}, {"multiplies", d.Rules.Multiplies}, {"divides", d.Rules.Divides}, {"chooses", d.Rules.Chooses}, {"bias", d.Rules.Bias != nil}, {"apart", d.Rules.Facts.Apart != nil},
		{"draws", d.Rules.Facts.Draws != nil}, {"inference", d.Rules.Inference != nil}, {"per_part", d.Rules.PerPart}, {"counts", d.Rules.Counts != 0},
		{"activation", d.Rules.Facts.Activation != nil}, {"combines", d.Rules.Combines}, {"each", d.Rules.Each}, {"over", d.Rules.Over != ""}, {"out", d.Rules.Out != nil}} {
		if f.is {
			note(f.name)
		}
	}
	return strings.Join(list, ",")
}

// together is a set of operands in one word.
func together(set []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(set), "[]"), " ", "+")
}
