package ops

import (
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// list adds an operand with the given elements.
func (v *values) list(dims []int, elems ...float64) *ir.Value {
	v.in = append(v.in, &ir.Array{Type: ir.T(dtype.F64, dims...), F: elems})
	return v.b.Param("x", v.in[len(v.in)-1].Type, ir.Input)
}

// indices adds an operand of one dim of i64.
func (v *values) indices(at ...int64) *ir.Value {
	v.in = append(v.in, &ir.Array{Type: ir.T(dtype.I64, len(at)), I: at})
	return v.b.Param("i", v.in[len(v.in)-1].Type, ir.Input)
}

// back gives the gradients of y's operands from the gradient sin(1), sin(2), … of y.
func (v *values) back(y *ir.Value) []*ir.Value {
	dy := v.wave(1, y.Type.Dims...)
	return y.Op.Def.Rules.VJP(v.b, y.Op, []*ir.Value{dy})
}

// The results and gradients of torch.scatter_reduce and torch.scatter (PyTorch 2.15, float64) at ties, at zeros and
// where several updates meet one place:
//
//	w = torch.sin(torch.arange(6) + 1.); (x.scatter_reduce(0, idx, src, kind) * w).sum().backward()
func TestScatterAsPyTorch(t *testing.T) {
	x := []float64{1, 2, 2, 5, 0, 3}
	idx, src := []int64{1, 1, 2, 0, 4, 4, 3, 3}, []float64{2, 2, 1, 1, 0, 7, 0, 0.5}
	w := []float64{0.841470985, 0.909297427, 0.141120008, -0.756802495, -0.958924275, -0.279415498}
	for _, c := range []struct {
		kind      string
		y, dx, du []float64
	}{
		{"add", []float64{2, 6, 3, 5.5, 7, 3}, w, []float64{w[1], w[1], w[2], w[0], w[4], w[4], w[3], w[3]}},
		{"mul", []float64{1, 8, 2, 0, 0, 3}, []float64{w[0], 3.637189707, w[2], 0, 0, w[5]},
			[]float64{3.637189707, 3.637189707, 0.282240016, w[0], 0, 0, -1.892006238, 0}},
		{"max", []float64{1, 2, 2, 5, 7, 3}, []float64{0.420735492, 0.303099142, w[2], w[3], 0, w[5]},
			[]float64{0.303099142, 0.303099142, 0, 0.420735492, 0, w[4], 0, 0}},
		{"min", []float64{1, 2, 1, 0, 0, 3}, []float64{0.420735492, 0.303099142, 0, 0, -0.479462137, w[5]},
			[]float64{0.303099142, 0.303099142, w[2], 0.420735492, -0.479462137, 0, w[3], 0}},
	} {
		v := newValues(t)
		y := Scatter(v.b, v.list([]int{6}, x...), v.indices(idx...), v.list([]int{8}, src...), c.kind)
		v.check(c.kind, y, c.y...)
		g := v.back(y)
		v.check(c.kind+", gradient of data", g[0], c.dx...)
		v.check(c.kind+", gradient of updates", g[2], c.du...)
	}
	v := newValues(t) // an update that a later one replaces has the gradient of the place too
	y := ScatterElements(v.b, v.list([]int{6}, x...), v.indices(1, -5, 0, 4, 4), v.list([]int{5}, 2, 1, 1, 9, 7), 0, "")
	v.check("set", y, 1, 1, 2, 5, 7, 3)
	g := v.back(y)
	v.check("set, gradient of data", g[0], 0, 0, w[2], w[3], 0, w[5])
	v.check("set, gradient of updates", g[2], w[1], w[1], w[0], w[4], w[4])
}

// torch.cumprod with no zero, one, and two.
func TestCumprodAsPyTorch(t *testing.T) {
	for _, c := range []struct{ x, dx []float64 }{
		{[]float64{2, -1, 3, .5, 1, 4}, []float64{3.758896678, -5.834851386, 2.551148747, 17.000332577, 6.229758802, 0.838246495}},
		{[]float64{0, 1, 2, 3, 4, 5}, []float64{-59.05184892, 0, 0, 0, 0, 0}},
		{[]float64{2, 3, 0, 4, 0, 5}, []float64{3.569363265, 1.818594854, -17.316539839, 0, 0, 0}},
	} {
		v := newValues(t)
		v.check("running product", v.back(Cumprod(v.b, v.list([]int{6}, c.x...), CumsumAttrs{}))[0], c.dx...)
	}
}

// The first of equal maxima gets the gradient, as in torch.max_pool2d and max_pool3d.
func TestMaxPoolTiesAsPyTorch(t *testing.T) {
	v := newValues(t)
	x := v.list([]int{1, 1, 4, 4}, 1, 1, 2, 2, 1, 1, 2, 0, 3, 3, 0, 0, 0, 3, 0, -1)
	y, _ := MaxPool(v.b, x, MaxPoolAttrs{Kernel: []int{3, 3}})
	dy := v.wave(1, 1, 1, 2, 2)
	dx := MaxPoolDef.Rules.VJP(v.b, y.Op, []*ir.Value{dy, nil})[0]
	v.check("two dims", dx, 0, 0, 0, 0, 0, 0, 0, 0, 0.982590993, 0.152494932, 0, 0, 0, 0, 0, 0)
	v = newValues(t)
	x = v.list([]int{1, 1, 2, 2, 2}, 1, 1, 2, 2, 2, 0, 1, 2)
	y, _ = MaxPool(v.b, x, MaxPoolAttrs{Kernel: []int{2, 2, 2}})
	dx = MaxPoolDef.Rules.VJP(v.b, y.Op, []*ir.Value{v.list([]int{1, 1, 1, 1, 1}, 1), nil})[0]
	v.check("three dims", dx, 0, 0, 1, 0, 0, 0, 0, 0)
}

// A dim is chosen from as ONNX's TopK does: of equal elements the earlier comes first, whichever end is wanted.
func TestTopKTies(t *testing.T) {
	v := newValues(t)
	x := v.list([]int{5}, 3, 1, 3, 1, 3)
	for _, c := range []struct {
		largest bool
		want    []float64
		dx      []float64
	}{{true, []float64{0, 2}, []float64{1, 0, 2, 0, 0}}, {false, []float64{1, 3}, []float64{0, 1, 0, 2, 0}}} {
		y, at := TopK(v.b, x, TopKAttrs{0, 2, c.largest})
		near2(t, "positions", numbersOf(evaluate(t, v.b.F, v.in, at)[0]), c.want, 0)
		v.check("gradient", TopKDef.Rules.VJP(v.b, y.Op, []*ir.Value{v.list([]int{2}, 1, 2), nil})[0], c.dx...)
	}
}
