package layout

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Signature is all that Of depends on besides the mesh and the shardings: ops of one signature have one plan.
func Signature(op *ir.Op) string {
	s := fmt.Sprintf("%s %v", op.Def.Name, op.Attrs)
	for _, v := range op.In {
		if v == nil {
			s += " _"
			continue
		}
		s += fmt.Sprintf(" %s%v", v.Type.DType, v.Type.Dims)
		if v.Data {
			s += "d"
		}
		if (op.Def == ops.AddDef || op.Def == ops.SubDef) && repeated(v) { // see meetsWhole
			s += "r"
		}
		if (op.Def == ops.MulDef || op.Def == ops.DivDef) && constant(v) { // see linear
			s += "c"
		}
	}
	for _, v := range op.Out {
		s += fmt.Sprintf(" >%s%v", v.Type.DType, v.Type.Dims)
	}
	return s
}
