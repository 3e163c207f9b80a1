package ops

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/factor"
)

// Normalisation over the trailing dims, and the gradients from saved statistics.
var (
	LayerNormDef     = ir.NewOp("layer_norm")
	LayerNormGradDef = ir.NewOp("layer_norm_grad")
	RMSNormDef       = ir.NewOp("rms_norm")
	RMSNormGradDef   = ir.NewOp("rms_norm_grad")
)

// NormAttrs: Dims is how many trailing dimensions are normalised together, Eps is added to the variance (or the
// mean square). The gradients do not read Eps.
type NormAttrs struct {
	Eps  float64
	Dims int
}

// LayerNorm gives y = (x-mean)/sqrt(var+eps)*g + bias and the saved mean and rstd = 1/sqrt(var+eps), whose
// normalised dims are 1. g and bias have x's trailing dims; each may be nil.
func LayerNorm(b *ir.Builder, x, g, bias *ir.Value, a NormAttrs) (y, mean, rstd *ir.Value) {
	out := b.EmitN(LayerNormDef, a, x, g, bias)
	return out[0], out[1], out[2]
}

// LayerNormGrad gives the gradients of LayerNorm's operands: dx, and with g also dg and dbias (nil without g). saved is
// LayerNorm's mean and rstd.
func LayerNormGrad(b *ir.Builder, a NormAttrs, dy, x, g *ir.Value, saved [2]*ir.Value) (dx, dg, dbias *ir.Value) {
	out := b.EmitN(LayerNormGradDef, a, dy, x, saved[0], saved[1], g)
	if g == nil {
		return out[0], nil, nil
	}
	return out[0], out[1], out[2]
}

// RMSNorm gives y = x/sqrt(mean(x^2)+eps)*g and the saved rstd, whose normalised dims are 1. g may be nil.
func RMSNorm(b *ir.Builder, x, g *ir.Value, a NormAttrs) (y, rstd *ir.Value) {
	out := b.EmitN(RMSNormDef, a, x, g)
	return out[0], out[1]
}

// RMSNormGrad gives the gradients of RMSNorm's operands; dg is nil without g.
func RMSNormGrad(b *ir.Builder, a NormAttrs, dy, x, g, rstd *ir.Value) (dx, dg *ir.Value) {
	out := b.EmitN(RMSNormGradDef, a, dy, x, rstd, g)
	if g == nil {
		return out[0], nil
	}
	return out[0], out[1]
}

// normX is the index of the operand that is normalised.
func normX(op *ir.Op) int {
	if op.Def == LayerNormGradDef || op.Def == RMSNormGradDef {
		return 1
	}
	return 0
}

// normShape gives x's type and the type of the saved statistics.
func normShape(op *ir.Op) (x, stat ir.Type, err error) {
	x, n := op.In[normX(op)].Type, op.Attrs.(NormAttrs).Dims
	if n < 1 || n > len(x.Dims) {
		return x, stat, fmt.Errorf("dims is %d, but must be from 1 to the number of dimensions of operand %d, %d", n, normX(op), len(x.Dims))
	}
	stat = ir.T(x.DType, slices.Clone(x.Dims)...)
	for i := len(x.Dims) - n; i < len(x.Dims); i++ {
		stat.Dims[i] = 1
	}
	return x, stat, nil
}

// inferNorm is the Infer of all four.
func inferNorm(op *ir.Op) ([]ir.Type, error) {
	x, stat, err := normShape(op)
	if err != nil {
		return nil, err
	}
	if err := sameFloat(op, 0, 1, 2, 3, 4); err != nil {
		return nil, err
	}
	param := ir.T(x.DType, x.Dims[len(x.Dims)-op.Attrs.(NormAttrs).Dims:]...)
	for i, want := range normOperands(op, x, stat, param) {
		if v := operand(op, i); v != nil && !v.Type.Equal(want) {
			return nil, fmt.Errorf("operand %d is %s, but must be %s", i, v.Type, want)
		}
	}
	switch op.Def {
	case LayerNormDef:
		return []ir.Type{x, stat, stat}, nil
	case RMSNormDef:
		return []ir.Type{x, stat}, nil
	case LayerNormGradDef:
		if operand(op, 4) != nil {
			return []ir.Type{x, param, param}, nil
		}
	case RMSNormGradDef:
		if operand(op, 3) != nil {
			return []ir.Type{x, param}, nil
		}
	}
	return []ir.Type{x}, nil
}

// normOperands lists x, stat or param (anything a norm op has: types, dimension lists) in operand order.
func normOperands[T any](op *ir.Op, x, stat, param T) []T {
	switch op.Def {
	case LayerNormDef:
		return []T{x, param, param}
	case LayerNormGradDef:
		return []T{x, x, stat, stat, param}
	case RMSNormDef:
		return []T{x, param}
	}
	return []T{x, x, stat, param}
}

// normRule: rows are independent, and are summed in the gradients of g and bias.
func normRule(op *ir.Op) factor.Rule {
	x, _, err := normShape(op)
	if err != nil {
		return factor.Rule{}
	}
	var r ruleMaker
	rows, kind := len(x.Dims)-op.Attrs.(NormAttrs).Dims, factor.Free
	if normX(op) == 1 {
		kind = factor.Sum
	}
	lead, row := r.addAll("r", x.Dims[:rows], kind), r.addAll("d", x.Dims[rows:], factor.Blocked)
	whole, stat := slices.Concat(lead, row), slices.Concat(lead, make([]factor.Dim, len(row)))
	in := normOperands(op, whole, stat, row)
	for i := range in {
		if operand(op, i) == nil {
			in[i] = nil
		}
	}
	in = in[:len(op.In)]
	switch {
	case op.Def == LayerNormDef:
		return r.rule(in, whole, stat, stat)
	case op.Def == RMSNormDef:
		return r.rule(in, whole, stat)
	case op.In[len(op.In)-1] == nil || len(op.Out) == 1:
		return r.rule(in, whole)
	case op.Def == LayerNormGradDef:
		return r.rule(in, whole, row, row)
	}
	return r.rule(in, whole, row)
}
