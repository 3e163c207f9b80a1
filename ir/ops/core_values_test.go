package ops_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/cost"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var (
	nan = math.NaN()
	inf = math.Inf(1)
)

// valued is a function built in a test, with known contents of its parameters.
type valued struct {
	t    *testing.T
	b    *ir.Builder
	args map[string]*ir.Array
}

func values(t *testing.T) *valued {
	b := ir.NewBuilder(&ir.Func{Name: "f"})
	b.Loc = ir.Loc{Node: "test"}
	return &valued{t, b, map[string]*ir.Array{}}
}

func (v *valued) floats(dims []int, x ...float64) *ir.Value {
	p := v.b.Param("x", ir.T(dtype.F32, dims...), ir.Input)
	v.args[p.Name] = &ir.Array{Type: p.Type, F: x}
	return p
}

func (v *valued) ints(dims []int, x ...int64) *ir.Value {
	p := v.b.Param("i", ir.T(dtype.I64, dims...), ir.Input)
	v.args[p.Name] = &ir.Array{Type: p.Type, I: x}
	return p
}

// list is a vector.
func (v *valued) list(x ...float64) *ir.Value { return v.floats([]int{len(x)}, x...) }

// is checks the contents of y.
func (v *valued) is(what string, y *ir.Value, want ...float64) {
	v.t.Helper()
	v.b.F.Results = nil
	v.b.Result("y", y)
	out, err := interp.Options{Exact: true}.Run(v.b.F, v.args)
	if err != nil {
		v.t.Fatalf("%s: %v", what, err)
	}
	got := out.All[0]
	all := slices.Clone(got.F)
	for _, i := range got.I {
		all = append(all, float64(i))
	}
	if !slices.EqualFunc(all, want, func(a, b float64) bool {
		return math.Abs(a-b) <= 1e-6*max(1, math.Abs(b)) || a == b || a != a && b != b
	}) {
		v.t.Errorf("%s: %v, want %v", what, all, want)
	}
}

// grad is the gradient of operand i of y for a gradient of ones.
func (v *valued) grad(y *ir.Value, i int) *ir.Value {
	dy := make([]*ir.Value, len(y.Op.Out))
	dy[y.Index] = ops.ScalarLike(v.b, y, 1)
	return y.Op.Def.Rules.VJP(v.b, y.Op, dy)[i]
}

// TestElementwiseValues states values that PyTorch gives, at the points where conventions differ.
func TestElementwiseValues(t *testing.T) {
	v := values(t)
	b := v.b
	x := v.list(-2.5, -1, 0, 0.5, 1.5, 2.5, nan, inf)
	v.is("relu", ops.Relu(b, x), 0, 0, 0, 0.5, 1.5, 2.5, nan, inf)
	v.is("round", ops.Round(b, x), -2, -1, 0, 0, 2, 2, nan, inf)
	v.is("sign", ops.Sign(b, x), -1, -1, 0, 1, 1, 1, nan, 1)
	v.is("clip", ops.Clip(b, x, -1, 1.5), -1, -1, 0, 0.5, 1.5, 1.5, nan, 1.5)
	v.is("isnan", ops.IsNaN(b, x), 0, 0, 0, 0, 0, 0, 1, 0)
	v.is("to i64", ops.Cast(b, v.list(-2.7, 2.7), dtype.I64), -2, 2)
	v.is("to bool", ops.Cast(b, v.list(-0.5, 0, nan), dtype.Bool), 1, 0, 1)
	v.is("to u8", ops.Cast(b, v.ints([]int{2}, -1, 257), dtype.U8), 255, 1)
	p, q := v.list(5, -5, 5, -5), v.list(3, 3, -3, -3)
	v.is("mod", ops.Mod(b, p, q), 2, 1, -1, -2)
	v.is("fmod", ops.FMod(b, p, q), 2, -2, 2, -2)
	i, j := v.ints([]int{4}, 5, -5, 5, -5), v.ints([]int{4}, 3, 3, -3, -3)
	v.is("integer mod", ops.Mod(b, i, j), 2, 1, -1, -2)
	v.is("integer div", ops.Div(b, i, j), 1, -1, -1, 1)
	c, d := v.list(1, nan, inf, inf), v.list(nan, 1, inf, 1)
	v.is("maximum", ops.Maximum(b, c, d), nan, nan, inf, inf)
	v.is("eq", ops.Eq(b, c, d), 0, 0, 1, 0)
	v.is("ne", ops.Ne(b, c, d), 1, 1, 0, 1)
	v.is("ge", ops.Ge(b, c, d), 0, 0, 1, 1)
	v.is("softplus", ops.Softplus(b, v.list(-100, 0, 100)), 0, math.Ln2, 100)
	v.is("gelu", ops.Gelu(b, v.list(-1, 0, 1), false), -0.15865525, 0, 0.84134475)
	v.is("gelu tanh", ops.Gelu(b, v.list(-1, 1), true), -0.15880801, 0.84119199)
}

// TestElementwiseGradients states gradients that PyTorch gives at kinks and ties.
func TestElementwiseGradients(t *testing.T) {
	v := values(t)
	b := v.b
	x := v.list(-1, 0, 1)
	v.is("relu", v.grad(ops.Relu(b, x), 0), 0, 0, 1)
	v.is("abs", v.grad(ops.Abs(b, x), 0), -1, 0, 1)
	v.is("clip", v.grad(ops.Clip(b, v.list(-2, -1, 0, 1, 2), -1, 1), 0), 0, 0, 1, 0, 0) // torch.clamp of 2.15
	v.is("leaky_relu", v.grad(ops.LeakyRelu(b, x, 0.1), 0), 0.1, 0.1, 1)
	v.is("elu", v.grad(ops.Elu(b, x, 1), 0), math.Exp(-1), 1, 1)
	m := ops.Maximum(b, x, v.list(0, 0, 0))
	v.is("maximum, first", v.grad(m, 0), 0, 0.5, 1)
	v.is("maximum, second", v.grad(m, 1), 1, 0.5, 0)
	p := ops.Pow(b, v.list(0, 2, -2), v.list(0, 0, 2))
	v.is("pow, base", v.grad(p, 0), 0, 0, -4)
	v.is("pow, exponent", v.grad(p, 1), 0, math.Ln2, nan)
	w := ops.Where(b, ops.Gt(b, x, ops.ScalarLike(b, x, 0)), x, x)
	v.is("where", v.grad(w, 1), 0, 0, 1)
	v.is("reduce_max with ties", v.grad(ops.ReduceMax(b, v.list(3, 1, 3), 0), 0), 0.5, 0, 0.5)
	v.is("reduce_prod with a zero", v.grad(ops.ReduceProd(b, v.list(2, 0, 3), 0), 0), 0, 6, 0)
	v.is("reduce_prod with two", v.grad(ops.ReduceProd(b, v.list(2, 0, 0), 0), 0), 0, 0, 0)
}

// TestShapeValues checks slices, pads and crops, and the helpers that make shapes agree.
func TestShapeValues(t *testing.T) {
	v := values(t)
	b := v.b
	x := v.floats([]int{2, 3}, 1, 2, 3, 4, 5, 6)
	v.is("transpose", ops.Transpose(b, x, []int{1, 0}), 1, 4, 2, 5, 3, 6)
	v.is("slice", ops.Slice(b, x, []int{0, 0}, []int{2, 2}, []int{1, 2}), 1, 3, 4, 6)
	v.is("slice of a dim", ops.SliceDim(b, x, 1, 1, 2), 2, 3, 5, 6)
	v.is("concat", ops.Concat(b, 1, ops.SliceDim(b, x, 1, 2, 1), x), 3, 1, 2, 3, 6, 4, 5, 6)
	y := v.list(1, 2, 3)
	v.is("pad", ops.Pad(b, y, []int{1}, []int{2}, []int{1}, 9), 9, 1, 9, 2, 9, 3, 9, 9)
	v.is("crop", ops.Pad(b, y, []int{-1}, []int{1}, nil, 0), 2, 3, 0)
	v.is("crop in a gap", ops.Pad(b, y, []int{-1}, []int{-2}, []int{1}, 9), 9, 2)
	v.is("crop to nothing of it", ops.Pad(b, y, []int{-3}, []int{2}, nil, 7), 7, 7)
	v.is("broadcast", ops.BroadcastTo(b, y, []int{2, 3}), 1, 2, 3, 1, 2, 3)
	p, q := ops.Broadcast2(b, v.floats([]int{2, 1}, 10, 20), y)
	v.is("broadcast both", ops.Add(b, p, q), 11, 12, 13, 21, 22, 23)
	v.is("mean", ops.ReduceMean(b, x, 1), 2, 5)
	v.is("iota", ops.Iota(b, dtype.I64, []int{2, 2}, 0), 0, 0, 1, 1)
	if ops.Reshape(b, y, []int{3}) != y || ops.Cast(b, y, dtype.F32) != y || ops.Transpose(b, y, []int{0}) != y {
		t.Error("an op that changes nothing is emitted")
	}
}

// TestIndexedValues checks argmax, gathers and scatters, with negative and repeated indices.
func TestIndexedValues(t *testing.T) {
	v := values(t)
	b := v.b
	x := v.floats([]int{2, 3}, 1, 7, 7, 4, nan, 6)
	v.is("argmax", ops.Argmax(b, x, 1), 1, 1)
	table := v.floats([]int{3, 2}, 1, 2, 3, 4, 5, 6)
	i := v.ints([]int{2}, -1, 0)
	v.is("gather", ops.Gather(b, table, i, 0), 5, 6, 1, 2)
	v.is("gather of columns", ops.Gather(b, table, i, 1), 2, 1, 4, 3, 6, 5)
	k := v.ints([]int{3}, 1, 1, -3)
	v.is("scatter_add", ops.ScatterAdd(b, k, table, 0, 3), 5, 6, 4, 6, 0, 0)
	e := v.ints([]int{3, 1}, 0, 1, -1)
	v.is("gather_elements", ops.GatherElements(b, table, e, 1), 1, 4, 6)
	v.is("scatter_elements_add", ops.ScatterElementsAdd(b, e, v.floats([]int{3, 1}, 1, 2, 3), 1, []int{3, 2}), 1, 0, 0, 2, 0, 3)
	v.is("cumsum", ops.Cumsum(b, v.list(1, 2, 3), ops.CumsumAttrs{Exclusive: true}), 0, 1, 3)
}

// TestInferErrors checks what faulty operands are told.
func TestInferErrors(t *testing.T) {
	x := func(v *valued, dims ...int) *ir.Value { return v.floats(dims, make([]float64, ir.Product(dims))...) }
	tests := []struct {
		want  string
		build func(v *valued)
	}{
		{"add: operand 1 is f32[3], but operand 0 is f32[2]", func(v *valued) { ops.Add(v.b, x(v, 2), x(v, 3)) }},
		{"exp: operands are i64, but must be a float type", func(v *valued) { ops.Exp(v.b, v.ints([]int{1}, 0)) }},
		{"where: operand 0 is f32[2], but must be bool[2]", func(v *valued) { ops.Where(v.b, x(v, 2), x(v, 2), x(v, 2)) }},
		{"matmul: operand 1 has inner dimension 4, operand 0 has 3", func(v *valued) { ops.MatMul(v.b, x(v, 2, 3), x(v, 4, 5)) }},
		{"matmul: batch dims are [2] and [3], but must be equal", func(v *valued) { ops.MatMul(v.b, x(v, 2, 1, 1), x(v, 3, 1, 1)) }},
		{"matmul: bias is f32[4], but must be f32[5]", func(v *valued) {
			ops.MatMulBias(v.b, x(v, 2, 3), x(v, 3, 5), x(v, 4), false, false)
		}},
		{"reshape: 6 elements do not fill dims [4]", func(v *valued) { ops.Reshape(v.b, x(v, 6), []int{4}) }},
		{"slice: dim 0: 3 elements from 1 on in steps of 2 do not lie within its size, 5", func(v *valued) {
			ops.Slice(v.b, x(v, 5), []int{1}, []int{3}, []int{2})
		}},
		{"transpose: [0 0] is not a permutation of 2 dims", func(v *valued) { ops.Transpose(v.b, x(v, 1, 1), []int{0, 0}) }},
		{"expand: dim 0 of size 2 cannot be repeated to size 4", func(v *valued) { ops.Expand(v.b, x(v, 2), []int{4}) }},
		{"concat: operand 1 is f32[2,3], but operand 0 is f32[2,2]: only dim 0 may differ", func(v *valued) {
			ops.Concat(v.b, 0, x(v, 2, 2), x(v, 2, 3))
		}},
		{"reduce_sum: dim 2 is outside the 2 dims", func(v *valued) { ops.ReduceSum(v.b, x(v, 2, 2), 2) }},
		{"gather: operand 1 is f32, but must be an integer type", func(v *valued) { ops.Gather(v.b, x(v, 2), x(v, 2), 0) }},
		{"shapes [2] and [3] do not broadcast", func(v *valued) { ops.Broadcast2(v.b, x(v, 2), x(v, 3)) }},
		{"all_reduce: op is \"mean\"", func(v *valued) { ops.AllReduce(v.b, "dp", "mean", x(v, 2)) }},
		{"shard_slice: dim 0 of size 3 cannot be divided into 2 equal parts", func(v *valued) { ops.ShardSlice(v.b, x(v, 3), "tp", 0, 2) }},
	}
	for _, test := range tests {
		err := func() (err error) {
			defer ir.Recover(&err)
			test.build(values(t))
			return nil
		}()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("gives %v, want %q", err, test.want)
		}
	}
}

// TestCost checks counts against formulas.
func TestCost(t *testing.T) {
	v := values(t)
	b := v.b
	p := func(dims ...int) *ir.Value { return b.Param("p", ir.T(dtype.F32, dims...), ir.Input) }
	conv := ops.Conv(b, p(2, 4, 8, 8), p(6, 2, 3, 3), ops.ConvAttrs{Pads: []int{1, 1, 1, 1}, Groups: 2})
	matmul := ops.MatMulT(b, p(5, 4, 3), p(7, 3), false, true)
	tests := []struct {
		what         string
		op           *ir.Op
		flops, bytes int64
	}{
		{"matmul", matmul.Op, 2 * 5 * 4 * 7 * 3, 4 * (60 + 21 + 140)},
		{"conv", conv.Op, 2 * (2 * 6 * 8 * 8) * (2 * 9), 4 * (512 + 108 + 768)},
		{"conv's dx", conv.Op.Def.Rules.VJP(b, conv.Op, []*ir.Value{conv})[0].Op, 2 * (2 * 6 * 8 * 8) * (2 * 9), 4 * (512 + 108 + 768)},
		{"add", ops.Add(b, matmul, matmul).Op, 140, 4 * 280},
		{"sum", ops.ReduceSum(b, matmul, 0).Op, 140, 4 * (140 + 28)},
		{"reshape", ops.Reshape(b, matmul, []int{140}).Op, 0, 0},
		{"gather", ops.Gather(b, p(9, 2), b.Param("i", ir.T(dtype.I64, 3), ir.Input), 0).Op, 0, 4*18 + 8*3 + 4*6},
	}
	for _, test := range tests {
		if f, n := cost.Flops(test.op), cost.Bytes(test.op); f != test.flops || n != test.bytes {
			t.Errorf("%s: %d operations, %d bytes, want %d and %d", test.what, f, n, test.flops, test.bytes)
		}
	}
}
