package ops

import (
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// MatMulEndDef is a matrix product with what follows it, so that one kernel does both.
var MatMulEndDef = ir.NewOp("matmul_end")

// MatMulEndAttrs: TransA, TransB and Out are those of MatMulAttrs. Act is what is done to the sum of product, bias and addend:
// "", relu, gelu, gelu_tanh, or drelu, dgelu, dgelu_tanh, which multiply it by the derivative of the activation at operand 4.
// Keep makes the value before Act a result, after the product. Sums makes the sums over k of operand 0's rows ("a", [m]) or of
// operand 1's columns ("b", [n]) the last result; there is no batch then.
type MatMulEndAttrs struct {
	TransA, TransB bool
	Out            dtype.DType
	Act            string
	Keep           bool
	Sums           string
}

// acts are the activations of matmul_end, by their number in kernels; the derivatives are numbered 4 higher.
var acts = []string{"", "relu", "gelu_tanh", "gelu", "", "drelu", "dgelu_tanh", "dgelu"}

// MatMulEnd is the product of operands 0 and 1, plus operand 2, a bias [n], plus operand 3, of the product's type as is operand 4,
// and what attributes say: the product, then what is kept, then sums. Operands from 2 on may be nil.
func MatMulEnd(b *ir.Builder, a MatMulEndAttrs, in [5]*ir.Value) []*ir.Value {
	n := len(in)
	for in[n-1] == nil {
		n--
	}
	return b.EmitN(MatMulEndDef, a, in[:n]...)
}

// AsMatMulEnd gives the attributes of op, a matrix product with an end or without, as matmul_end has them; false for any other op.
func AsMatMulEnd(op *ir.Op) (MatMulEndAttrs, bool) {
	switch a := op.Attrs.(type) {
	case MatMulAttrs:
		return MatMulEndAttrs{TransA: a.TransA, TransB: a.TransB, Out: a.Out}, true
	case MatMulEndAttrs:
		return a, true
	}
	return MatMulEndAttrs{}, false
}

func init() {
	MatMulEndDef.Define(ir.Rules{
		Attrs: MatMulEndAttrs{}, Operands: 2, Optional: 3, Precision: "low",
		Doc:       "matrix product of the last two dims with a bias, an addend, an activation or the derivative of one, and sums of an operand",
		NoGrad:    "made after differentiation",
		Infer:     inferMatMulEnd,
		Decompose: matMulEndParts,
		Impl:      matMulEndImpl,
		Samples: func(*rand.Rand) []ir.Sample {
			return []ir.Sample{
				sample(MatMulEndAttrs{Act: "relu"}, []int{4, 6}, []int{6, 2}, []int{2}),
				sample(MatMulEndAttrs{Act: "gelu", Keep: true, TransB: true}, []int{3, 4, 6}, []int{2, 6}, []int{2}),
				sample(MatMulEndAttrs{Act: "gelu_tanh", TransA: true}, []int{6, 4}, []int{6, 2}, []int{2}, []int{4, 2}),
				sample(MatMulEndAttrs{Act: "dgelu"}, []int{4, 6}, []int{6, 2}, []int{2}, []int{4, 2}, []int{4, 2}),
				sample(MatMulEndAttrs{Act: "dgelu_tanh", TransB: true}, []int{4, 6}, []int{2, 6}, []int{2}, []int{4, 2}, []int{4, 2}),
				sample(MatMulEndAttrs{Act: "drelu"}, []int{4, 6}, []int{6, 2}, []int{2}, []int{4, 2}, []int{4, 2}),
				sample(MatMulEndAttrs{Sums: "a", TransA: true}, []int{6, 4}, []int{6, 2}),
				sample(MatMulEndAttrs{Sums: "b"}, []int{4, 6}, []int{6, 2}, []int{2}, []int{4, 2}),
				{Attrs: MatMulEndAttrs{Sums: "b", TransA: true, Out: dtype.F32}, In: []ir.Type{ir.T(dtype.BF16, 6, 4), ir.T(dtype.BF16, 6, 3)}},
			}
		},
	})
}

// product is the matmul in op, without its end.
func product(op *ir.Op) *ir.Op {
	a := op.Attrs.(MatMulEndAttrs)
	return &ir.Op{Def: MatMulDef, Attrs: MatMulAttrs{TransA: a.TransA, TransB: a.TransB, Out: a.Out}, In: op.In[:min(3, len(op.In))], Out: op.Out}
}

func inferMatMulEnd(op *ir.Op) ([]ir.Type, error) {
	a := op.Attrs.(MatMulEndAttrs)
	out, err := inferMatMul(product(op))
	if err != nil {
		return nil, err
	}
	if !out[0].DType.IsFloat() {
		return wrong("the product is %s, want floats", out[0].DType)
	}
	act := slices.Index(acts, a.Act)
	if act < 0 {
		return wrong("no activation %q", a.Act)
	}
	for i := 3; i < 5; i++ {
		if v := operand(op, i); v != nil && !v.Type.Equal(out[0]) {
			return wrong("operand %d is %s, want %s", i, v.Type, out[0])
		}
	}
	if act > 4 && operand(op, 4) == nil {
		return wrong("%s needs the value before the activation", a.Act)
	}
	if a.Keep {
		out = append(out, out[0])
	}
	m, _, n := mkn(product(op))
	if a.Sums != "" && len(out[0].Dims) != 2 {
		return wrong("sums of a batch")
	}
	switch a.Sums {
	case "":
	case "a":
		out = append(out, ir.T(out[0].DType, m))
	case "b":
		out = append(out, ir.T(out[0].DType, n))
	default:
		return wrong("no sums %q", a.Sums)
	}
	return out, nil
}

// matMulEndParts is what the op means.
func matMulEndParts(b *ir.Builder, op *ir.Op) []*ir.Value {
	a, aux := op.Attrs.(MatMulEndAttrs), operand(op, 4)
	y := MatMulOf(b, MatMulAttrs{TransA: a.TransA, TransB: a.TransB, Out: a.Out}, op.In[0], op.In[1], bias(op))
	if v := operand(op, 3); v != nil {
		y = Add(b, y, v)
	}
	before := y
	switch a.Act {
	case "relu":
		y = Relu(b, y)
	case "gelu", "gelu_tanh":
		y = Gelu(b, y, a.Act == "gelu_tanh")
	case "drelu":
		zero := ScalarLike(b, y, 0)
		y = Where(b, Gt(b, aux, zero), y, zero)
	case "dgelu", "dgelu_tanh":
		y = GeluGrad(b, aux, y, a.Act == "dgelu_tanh")
	}
	out := []*ir.Value{y}
	if a.Keep {
		out = append(out, before)
	}
	sum := func(x *ir.Value, dim int) *ir.Value {
		x = Cast(b, x, y.Type.DType)
		return Reshape(b, ReduceSum(b, x, dim), []int{x.Type.Dims[1-dim]})
	}
	switch {
	case a.Sums == "a" && a.TransA:
		out = append(out, sum(op.In[0], 0))
	case a.Sums == "a":
		out = append(out, sum(op.In[0], 1))
	case a.Sums == "b" && a.TransB:
		out = append(out, sum(op.In[1], 1))
	case a.Sums == "b":
		out = append(out, sum(op.In[1], 0))
	}
	return out
}

// matMulEndImpl calls GemmEnd, which kernels/cuda documents and only that target has.
func matMulEndImpl(op *ir.Op) kir.Impl {
	a := op.Attrs.(MatMulEndAttrs)
	plain := matMulImpl(product(op))
	if plain.Template != "Gemm" {
		return kir.Impl{}
	}
	sums := map[string]int{"": 0, "a": 1, "b": 2}[a.Sums]
	ints := append(slices.Clone(plain.Ints[:9]), slices.Index(acts, a.Act), int(b2i(a.Keep)), sums)
	order := []int{0, 1, -1, -1, -1, len(op.In), -1}
	for i := 2; i < 5; i++ {
		if operand(op, i) != nil {
			order[i] = i
		}
	}
	next := len(op.In) + 1
	if a.Keep {
		order[4] = next
		next++
	}
	if sums != 0 {
		order[6] = next
	}
	impl := kir.Impl{Kind: kir.Template, Template: "GemmEnd", Order: order, Ints: ints}
	if operand(op, 3) != nil {
		impl.InPlace = 1 + 3
	}
	return impl
}
