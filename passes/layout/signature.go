package layout

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
)

// Signature is all that Of depends on besides the mesh and the shardings: ops of one signature have one plan.
func Signature(op *ir.Op) string {
	s := fmt.Sprintf("%s %v", op.Def.Name, op.Attrs)
	for i, v := range op.In {
		if v == nil {
			s += " _"
			continue
		}
		s += fmt.Sprintf(" %s%v", v.Type.DType, v.Type.Dims)
		if v.Data {
			s += "d"
		}
		if ofTerms(op) && repeated(v) { // see meetsWhole
			s += "r"
		}
		if scales(op, i) && constant(v) { // see linear
			s += "c"
		}
	}
	for _, v := range op.Out {
		s += fmt.Sprintf(" >%s%v", v.Type.DType, v.Type.Dims)
	}
	return s
}
