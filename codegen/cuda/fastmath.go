package cuda

import (
	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// fastMath marks the instructions whose value ends in nothing but half precision: through steady arithmetic to casts or stores
// of it.
func fastMath(k *kir.Kernel) []bool {
	out := make([]bool, len(k.Insts))
	for i := range out {
		out[i] = true
	}
	for n := len(k.Insts) - 1; n >= 0; n-- {
		in := k.Insts[n]
		half := in.DType == dtype.BF16 || in.DType == dtype.F16
		f := kir.Lookup(in.Op)
		for i, a := range in.Args {
			switch {
			case in.Op == "store" || in.Op == "cast":
				out[a] = out[a] && (half || in.Op == "cast" && in.DType == dtype.F32 && out[n])
			case f != nil && f.Steady:
				out[a] = out[a] && out[n] && (f.Rule != kir.Choose || i > 0)
			default:
				out[a] = false
			}
		}
	}
	return out
}

// expr prints the value of a scalar instruction, by faster functions where their error is lost in a rounding.
func (p *printer) expr(n int) string {
	if p.fastMath == nil {
		p.fastMath = fastMath(p.k)
	}
	s, err := scalar.Expr(p.k, n, p.fastMath[n])
	if err != nil && p.err == nil {
		p.err = err
	}
	return s
}
