package ops

import (
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// MatMulEpilogueDef is a matrix product with what follows it, so that one kernel does both.
var MatMulEpilogueDef = ir.NewOp("matmul_epilogue")

// MatMulEpilogueAttrs: TransA, TransB and Out are those of MatMulAttrs. Act is what is done to the sum of product, bias and addend:
// "", relu, gelu, gelu_tanh, or drelu, dgelu, dgelu_tanh, which multiply it by the derivative of the activation at operand 4.
// Keep makes the value before Act a result, after the product. Sums makes the sums over k of operand 0's rows ("a", [m]) or of
// operand 1's columns ("b", [n]) the last result; there is no batch then.
type MatMulEpilogueAttrs struct {
	TransA, TransB bool
	Out            dtype.DType
	Act            string
	Keep           bool
	Sums           string
}

// acts are the activations of matmul_epilogue, by their number in kernels; the derivatives are numbered 4 higher.
var acts = []string{"", "relu", "gelu_tanh", "gelu", "", "drelu", "dgelu_tanh", "dgelu"}

// MatMulEpilogue is the product of operands 0 and 1, plus operand 2, a bias [n], plus operand 3, of the product's type as is operand 4,
// and what attributes say: the product, then what is kept, then sums. Operands from 2 on may be nil.
func MatMulEpilogue(b *ir.Builder, a MatMulEpilogueAttrs, in [5]*ir.Value) []*ir.Value {
	n := len(in)
	for in[n-1] == nil {
		n--
	}
	return b.EmitN(MatMulEpilogueDef, a, in[:n]...)
}

// AsMatMulEpilogue gives the attributes of op, a matrix product with an epilogue or without, as matmul_epilogue has them; false for any other op.
func AsMatMulEpilogue(op *ir.Op) (MatMulEpilogueAttrs, bool) {
	switch a := op.Attrs.(type) {
	case MatMulAttrs:
		return MatMulEpilogueAttrs{TransA: a.TransA, TransB: a.TransB, Out: a.Out}, true
	case MatMulEpilogueAttrs:
		return a, true
	}
	return MatMulEpilogueAttrs{}, false
}

func init() {
	MatMulEpilogueDef.Define(ir.Rules{
		Attrs: MatMulEpilogueAttrs{}, Operands: 2, Optional: 3, Precision: "low",
		Doc:       "matrix product of the last two dims with a bias, an addend, an activation or the derivative of one, and sums of an operand",
		NoGrad:    "made after differentiation",
		Infer:     inferMatMulEpilogue,
		Decompose: matMulEpilogueParts,
		Impl:      matMulEpilogueImpl,
		Samples: func(*rand.Rand) []ir.Sample {
			return []ir.Sample{
				sample(MatMulEpilogueAttrs{Act: "relu"}, []int{4, 6}, []int{6, 2}, []int{2}),
				sample(MatMulEpilogueAttrs{Act: "gelu", Keep: true, TransB: true}, []int{3, 4, 6}, []int{2, 6}, []int{2}),
				sample(MatMulEpilogueAttrs{Act: "gelu_tanh", TransA: true}, []int{6, 4}, []int{6, 2}, []int{2}, []int{4, 2}),
				sample(MatMulEpilogueAttrs{Act: "dgelu"}, []int{4, 6}, []int{6, 2}, []int{2}, []int{4, 2}, []int{4, 2}),
				sample(MatMulEpilogueAttrs{Act: "dgelu_tanh", TransB: true}, []int{4, 6}, []int{2, 6}, []int{2}, []int{4, 2}, []int{4, 2}),
				sample(MatMulEpilogueAttrs{Act: "drelu"}, []int{4, 6}, []int{6, 2}, []int{2}, []int{4, 2}, []int{4, 2}),
				sample(MatMulEpilogueAttrs{Sums: "a", TransA: true}, []int{6, 4}, []int{6, 2}),
				sample(MatMulEpilogueAttrs{Sums: "b"}, []int{4, 6}, []int{6, 2}, []int{2}, []int{4, 2}),
				{Attrs: MatMulEpilogueAttrs{Sums: "b", TransA: true, Out: dtype.F32}, In: []ir.Type{ir.T(dtype.BF16, 6, 4), ir.T(dtype.BF16, 6, 3)}},
			}
		},
	})
}

// product is the matmul in op, without its epilogue.
func product(op *ir.Op) *ir.Op {
	a := op.Attrs.(MatMulEpilogueAttrs)
	return &ir.Op{Def: MatMulDef, Attrs: MatMulAttrs{TransA: a.TransA, TransB: a.TransB, Out: a.Out}, In: op.In[:min(3, len(op.In))], Out: op.Out}
}

func inferMatMulEpilogue(op *ir.Op) ([]ir.Type, error) {
	a := op.Attrs.(MatMulEpilogueAttrs)
	out, err := inferMatMul(product(op))
	if err != nil {
		return nil, err
	}
	if !out[0].DType.IsFloat() {
		return wrong("the product is %s, but must be floats", out[0].DType)
	}
	act := slices.Index(acts, a.Act)
	if act < 0 {
		return wrong("there is no activation %q", a.Act)
	}
	for i := 3; i < 5; i++ {
		if v := operand(op, i); v != nil && !v.Type.Equal(out[0]) {
			return wrong("operand %d is %s, but must be %s", i, v.Type, out[0])
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
		return wrong("there are no sums of a batch of matrices")
	}
	switch a.Sums {
	case "":
	case "a":
		out = append(out, ir.T(out[0].DType, m))
	case "b":
		out = append(out, ir.T(out[0].DType, n))
	default:
		return wrong("there are no sums of %q, only of \"a\" and \"b\"", a.Sums)
	}
	return out, nil
}

// matMulEpilogueParts is what the op means.
func matMulEpilogueParts(b *ir.Builder, op *ir.Op) []*ir.Value {
	a, aux := op.Attrs.(MatMulEpilogueAttrs), operand(op, 4)
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

// matMulEpilogueImpl calls GemmEpilogue, which kernels/cuda documents and only that target has.
func matMulEpilogueImpl(op *ir.Op) kir.Impl {
	a := op.Attrs.(MatMulEpilogueAttrs)
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
	impl := kir.Impl{Kind: kir.Template, Template: "GemmEpilogue", Order: order, Ints: ints}
	if operand(op, 3) != nil {
		impl.InPlace = 1 + 3
	}
	return impl
}
