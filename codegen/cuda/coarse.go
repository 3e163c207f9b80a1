package cuda

import (
	"strings"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// quick are the functions that have a faster form beside the one of codegen/scalar, by name there.
var quick = map[string]string{
	"exp": "gtc_expf", "tanh": "gtc_tanhf", "sigmoid": "gtc_sigmoidf", "ncdf": "gtc_ncdff", "softplus": "gtc_softplusf",
}

// coarse marks the instructions whose value ends in nothing but half precision: through arithmetic to casts or stores of it.
func coarse(k *kir.Kernel) []bool {
	out := make([]bool, len(k.Insts))
	for i := range out {
		out[i] = true
	}
	for n := len(k.Insts) - 1; n >= 0; n-- {
		in := k.Insts[n]
		half := in.DType == dtype.BF16 || in.DType == dtype.F16
		for i, a := range in.Args {
			switch in.Op {
			case "store", "cast":
				out[a] = out[a] && (half || in.Op == "cast" && in.DType == dtype.F32 && out[n])
			case "add", "sub", "mul", "div", "neg", "relu", "abs", "max", "min":
				out[a] = out[a] && out[n]
			case "select":
				out[a] = out[a] && out[n] && i > 0
			default:
				out[a] = false
			}
		}
	}
	return out
}

// expr prints the value of a scalar instruction, by faster functions where their error is lost in a rounding.
func (p *printer) expr(n int) string {
	s, err := scalar.Expr(p.k, n)
	if err != nil && p.err == nil {
		p.err = err
	}
	if p.coarse == nil {
		p.coarse = coarse(p.k)
	}
	if name := quick[p.k.Insts[n].Op]; name != "" && p.coarse[n] {
		s = strings.Replace(s, name+"(", strings.Replace(name, "gtc_", "gtc_fast_", 1)+"(", 1)
	}
	return s
}
