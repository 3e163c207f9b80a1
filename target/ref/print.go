package ref

import (
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// printer prints one kernel: rows one after the other, and in each a loop for every stage that computes what the stage needs
// from the operands again. Nothing is kept but sums.
type printer struct {
	scalar.Text

	k   *kir.Kernel
	err error
}

// function is the C function NAME of the kernel, with pointers to its buffers in order, then the workspace when it needs one.
func function(k *kir.Kernel) (string, error) {
	p := &printer{k: k}
	var params []string
	for i, par := range k.Params {
		if scalar.MemType(par.DType) == "" {
			return "", fmt.Errorf("the reference target has no kernels of %s", par.DType)
		}
		params = append(params, fmt.Sprintf("void *a%d", i))
	}
	if k.Work > 0 {
		params = append(params, "void *work")
	}
	p.Open("void NAME(%s)", strings.Join(params, ", "))
	for i, par := range k.Params {
		p.Line("%s *p%d = a%d;", scalar.MemType(par.DType), i, i)
	}
	at := 0
	for n, in := range k.Insts {
		if in.Op == "acc" {
			elems := k.Params[in.Param].Elems
			p.Line("%s *s%d = (%s *)((char *)work + %d);", p.sumType(n), n, p.sumType(n), at)
			p.Line("for (long j = 0; j < %d; j++) s%d[j] = %s;", elems, n, scalar.Identity(in))
			at += sumBytes(elems)
		}
	}
	p.rows()
	for n, in := range k.Insts {
		if in.Op == "acc" {
			p.Line("for (long j = 0; j < %d; j++) p%d[j] = %s;", k.Params[in.Param].Elems, in.Param,
				scalar.Store(k.Params[in.Param].DType, fmt.Sprintf("s%d[j]", n)))
		}
	}
	p.Close()
	return p.String(), p.err
}

// sumType is the C type of a reduction's sum: floats in double.
func (p *printer) sumType(n int) string {
	if d := p.k.Insts[n].DType; !d.IsFloat() {
		return scalar.MemType(d)
	}
	return "double"
}

// rows prints the loop over rows. What does not vary along them is computed as soon as the reductions that it reads are there.
func (p *printer) rows() {
	p.loops(false)
	stages := 0
	for _, in := range p.k.Insts {
		stages = max(stages, in.Stage)
	}
	for t := range stages + 1 {
		for n, in := range p.k.Insts {
			if in.Stage == t && in.Level != kir.PerElem && in.Op != "reduce" && in.Op != "acc" {
				p.inst(n)
			}
		}
		p.stage(t)
	}
	p.ends(false)
}

// loops opens a loop for each dim that is of rows, or enumerates them, ends closes them.
func (p *printer) loops(row bool) {
	for d, n := range p.k.Dims {
		if p.k.Row[d] == row {
			p.Open("for (long i%d = 0; i%d < %d; i%d++)", d, d, n, d)
		}
	}
}

func (p *printer) ends(row bool) {
	for d := range p.k.Dims {
		if p.k.Row[d] == row {
			p.Close()
		}
	}
}

// stage prints the loop over the row's elements in stage t: sums, and stores of what varies along the row. A row reduction is
// used from the next stage on.
func (p *printer) stage(t int) {
	need := make([]bool, len(p.k.Insts))
	some := false
	for n := len(need) - 1; n >= 0; n-- {
		in := p.k.Insts[n]
		root := in.Op == "acc" && in.Stage == t || in.Op == "store" && in.Level == kir.PerElem && in.Stage == t || in.Op == "reduce" && in.Stage == t+1
		if need[n] = need[n] || root; !need[n] || in.Op == "reduce" && !root {
			continue
		}
		some = some || root
		for _, a := range in.Args {
			need[a] = need[a] || p.k.Insts[a].Level == kir.PerElem
		}
	}
	if !some {
		return
	}
	for n, in := range p.k.Insts {
		if in.Op == "reduce" && need[n] {
			p.Line("%s s%d = %s;", p.sumType(n), n, scalar.Identity(in))
		}
	}
	p.loops(true)
	for n, in := range p.k.Insts {
		switch {
		case !need[n]:
		case in.Op == "reduce":
			p.Line("s%d = %s;", n, scalar.Combine(in, fmt.Sprintf("s%d", n), fmt.Sprintf("v%d", in.Args[0])))
		case in.Op == "acc":
			to := fmt.Sprintf("s%d[%s]", n, offset(in.Access))
			p.Line("%s = %s;", to, scalar.Combine(in, to, fmt.Sprintf("v%d", in.Args[0])))
		default:
			p.inst(n)
		}
	}
	p.ends(true)
	for n, in := range p.k.Insts {
		if in.Op == "reduce" && need[n] {
			p.Line("const %s v%d = s%d;", scalar.RegType(in.DType), n, n)
		}
	}
}

// inst prints a load, a store or a scalar instruction.
func (p *printer) inst(n int) {
	in := p.k.Insts[n]
	switch in.Op {
	case "load":
		p.Line("const %s v%d = %s;", scalar.RegType(in.DType), n, scalar.Load(in.DType, fmt.Sprintf("p%d[%s]", in.Param, offset(in.Access))))
	case "store":
		p.Line("p%d[%s] = %s;", in.Param, offset(in.Access), scalar.Store(in.DType, scalar.Unrounded(p.k, in.Args[0], in.DType)))
	case "index":
		p.Line("const int64_t v%d = %s;", n, offset(in.Access))
	default:
		s, err := scalar.Expr(p.k, n, false)
		if p.err == nil {
			p.err = err
		}
		p.Line("const %s v%d = %s;", scalar.RegType(in.DType), n, s)
	}
}

// offset is the place of an access at the point i0, i1, …
func offset(a kir.Access) string {
	s := fmt.Sprint(a.Offset)
	for d, n := range a.Strides {
		switch n {
		case 0:
		case 1:
			s += fmt.Sprintf(" + i%d", d)
		default:
			s += fmt.Sprintf(" + i%d * %d", d, n)
		}
	}
	return strings.TrimPrefix(s, "0 + ")
}
