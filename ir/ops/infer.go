package ops

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
)

// types is the usual return of an Infer rule.
func types(t ...ir.Type) ([]ir.Type, error) { return t, nil }

// wrong is the usual failure of an Infer rule.
func wrong(format string, args ...any) ([]ir.Type, error) { return nil, fmt.Errorf(format, args...) }

// needFloat fails unless operand i, when present, is of a float type.
func needFloat(op *ir.Op, operands ...int) error {
	for _, i := range operands {
		if i < len(op.In) && op.In[i] != nil && !op.In[i].Type.DType.IsFloat() {
			return fmt.Errorf("operand %d is %s, but must be a float type", i, op.In[i].Type.DType)
		}
	}
	return nil
}

// needInt fails unless operand i is of an integer type.
func needInt(op *ir.Op, i int) error {
	if !op.In[i].Type.DType.IsInt() {
		return fmt.Errorf("operand %d is %s, but must be an integer type", i, op.In[i].Type.DType)
	}
	return nil
}

// needDim fails unless dim is one of the n dims.
func needDim(dim, n int) error {
	if dim < 0 || dim >= n {
		return fmt.Errorf("dim %d is outside the %d dims", dim, n)
	}
	return nil
}

// needDims fails unless dims are distinct, increasing and among the n dims.
func needDims(dims []int, n int) error {
	for k, d := range dims {
		if err := needDim(d, n); err != nil {
			return err
		}
		if k > 0 && dims[k-1] >= d {
			return fmt.Errorf("dims %v are not increasing", dims)
		}
	}
	return nil
}

// sameTypes fails unless the given operands have equal dims and element type.
func sameTypes(op *ir.Op, operands ...int) error {
	first := op.In[operands[0]].Type
	for _, i := range operands[1:] {
		if t := op.In[i].Type; !t.Equal(first) {
			return fmt.Errorf("operand %d is %s, but operand %d is %s", operands[0], first, i, t)
		}
	}
	return nil
}

// in gives the dims of operand i.
func in(op *ir.Op, i int) []int { return op.In[i].Type.Dims }

// inDims and outDims give the dims of all operands (nil for absent ones) and all results, as factor.Parse wants them.
func inDims(op *ir.Op) [][]int  { return dimsOf(op.In) }
func outDims(op *ir.Op) [][]int { return dimsOf(op.Out) }

func dimsOf(vs []*ir.Value) [][]int {
	out := make([][]int, len(vs))
	for i, v := range vs {
		if v != nil {
			out[i] = v.Type.Dims
		}
	}
	return out
}

// mustRule unwraps a rule whose spec is written in this package.
func mustRule(r factor.Rule, err error) factor.Rule {
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return r
}

// with is dims with one of them replaced.
func with(dims []int, dim, size int) []int {
	out := slices.Clone(dims)
	out[dim] = size
	return out
}

// filled is n times v.
func filled(n, v int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// numeric reports whether arithmetic is defined on d.
func numeric(d dtype.DType) bool { return d.IsFloat() || d.IsInt() }
