package ops

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/factor"
)

// ruleMaker collects the factors of a rule that factor.Parse's letters do not reach.
type ruleMaker struct{ factors []factor.Factor }

// add makes a factor and returns it as the only one of a dimension. A dimension of size 1 belongs to no loop.
func (m *ruleMaker) add(name string, size int, kind factor.Kind) factor.Dim {
	if size == 1 {
		return nil
	}
	m.factors = append(m.factors, factor.Factor{Name: name, Size: size, Kind: kind})
	return factor.Dim{len(m.factors) - 1}
}

// addAll makes one factor for each of dims.
func (m *ruleMaker) addAll(prefix string, dims []int, kind factor.Kind) []factor.Dim {
	out := make([]factor.Dim, len(dims))
	for i, n := range dims {
		out[i] = m.add(fmt.Sprintf("%s%d", prefix, i), n, kind)
	}
	return out
}

// rule finishes, from the dimensions of operands and results.
func (m *ruleMaker) rule(in [][]factor.Dim, out ...[]factor.Dim) factor.Rule {
	return factor.Rule{Factors: m.factors, In: in, Out: out}
}

// sameFloat checks that the listed operands that are present have one float type.
func sameFloat(op *ir.Op, operands ...int) error {
	want := op.In[operands[0]].Type.DType
	for _, i := range operands {
		if i >= len(op.In) || op.In[i] == nil {
			continue
		}
		switch d := op.In[i].Type.DType; {
		case !d.IsFloat():
			return fmt.Errorf("operand %d is %s, but must be a float type", i, d)
		case d != want:
			return fmt.Errorf("operand %d is %s, but operand %d is %s", i, d, operands[0], want)
		}
	}
	return nil
}

// operand is operand i, nil when it is absent.
func operand(op *ir.Op, i int) *ir.Value {
	if i < len(op.In) {
		return op.In[i]
	}
	return nil
}
