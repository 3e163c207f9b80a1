package ops

import (
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// The expected numbers in this file were computed with PyTorch 2 in float64 and ONNX Runtime; operands are
// sin(0+phase), sin(1+phase), ….

type values struct {
	t  *testing.T
	b  *ir.Builder
	in []*ir.Array
}

func newValues(t *testing.T) *values {
	b := ir.NewBuilder(&ir.Func{})
	b.Loc = ir.Loc{Node: "test"}
	return &values{t: t, b: b}
}

// wave adds an operand sin(i+phase).
func (v *values) wave(phase float64, dims ...int) *ir.Value {
	a := ir.NewArray(ir.T(dtype.F64, dims...))
	for i := range a.F {
		a.F[i] = math.Sin(float64(i) + phase)
	}
	v.in = append(v.in, a)
	return v.b.Param("x", a.Type, ir.Input)
}

func (v *values) check(what string, got *ir.Value, want ...float64) {
	v.t.Helper()
	near2(v.t, what, evaluate(v.t, v.b.F, v.in, got)[0].F, want, 1e-7)
}

func TestConvValues(t *testing.T) {
	v := newValues(t)
	v.check("conv", Conv(v.b, v.wave(0, 1, 2, 3, 4), v.wave(1, 2, 2, 2, 2), ConvAttrs{Strides: []int{1, 2}, Pads: []int{1, 0, 1, 0}, Dilations: []int{1, 2}}),
		-0.0606142214, 0.237081884, 0.737386277, -0.535132908, -1.12203036, 1.19688925, -1.12600139, 1.07851312)
	v.check("transposed conv", ConvInputGrad(v.b, v.wave(0, 1, 2, 2, 2), v.wave(1, 2, 1, 2, 2),
		ConvAttrs{Strides: []int{2, 2}, Pads: []int{1, 1, 1, 1}}.InputGrad([]int{2, 2})),
		-0.74874879, -0.511252005, 0.904894831, -0.511252005)
}

func TestPoolValues(t *testing.T) {
	v := newValues(t)
	x := v.wave(0, 1, 1, 4, 5)
	k, s, p := []int{3, 3}, []int{2, 2}, []int{1, 1, 1, 1}
	y, _ := MaxPool(v.b, x, MaxPoolAttrs{Kernel: k, Strides: s, Pads: p, CeilMode: true})
	v.check("max", y, 0.841470985, 0.989358247, 0.989358247, 0.65028784, 0.989358247, 0.990607356, 0.65028784, -0.287903317, 0.14987721)
	v.check("mean with padding", AvgPool(v.b, x, AvgPoolAttrs{Kernel: k, Strides: s, Pads: p, CeilMode: true, IncludePad: true}),
		-0.044096532, 0.362090863, 0.0873104716, -0.268885174, -0.1944172, 0.245682343, 0.0603974206, -0.333381343, -0.100185006)
	v.check("mean", AvgPool(v.b, x, AvgPoolAttrs{Kernel: k, Strides: s, Pads: p, CeilMode: true}),
		-0.099217197, 0.543136294, 0.196448561, -0.403327761, -0.1944172, 0.368523515, 0.181192262, -0.666762685, -0.300555019)
}

func TestNormValues(t *testing.T) {
	v := newValues(t)
	y, _, _ := LayerNorm(v.b, v.wave(0, 2, 4), v.wave(1, 4), v.wave(2, 4), NormAttrs{1e-5, 1})
	v.check("layer norm", y, -0.0704624725, 0.965993071, -0.605221764, -0.340662909, 0.339295592, -0.769657206, -0.74432354, -2.16268435)
	y, _, _ = BatchNorm(v.b, v.wave(0, 3, 2, 2), v.wave(1, 2), v.wave(2, 2), BatchNormAttrs{Eps: 1e-5})
	v.check("batch norm", y, 0.809638219, 1.76400469, 1.41165712, 0.360653891, -0.0487002586, -0.277939593,
		-0.214713422, 1.06645107, 1.93173316, 1.27704835, -0.576740927, -1.20058769)
}

func TestAttentionValues(t *testing.T) {
	v := newValues(t)
	a := AttentionAttrs{Causal: true, Scale: 1 / math.Sqrt2}
	out, _ := Attention(v.b, a, v.wave(0, 1, 2, 3, 2), v.wave(1, 1, 1, 3, 2), v.wave(2, 1, 1, 3, 2), nil)
	v.check("causal, one key head for two", out, 0.909297427, 0.141120008, 0.325222354, -0.244516193, -0.363889352,
		-0.0282150968, 0.909297427, 0.141120008, 0.453134664, -0.160061951, -0.364531693, -0.0903550506)

	// A query that sees no key: 0 and minus infinity, and no NaN in any gradient.
	q, mask := v.wave(0, 1, 1, 2, 2), v.wave(0, 1, 1, 2, 2)
	v.in[len(v.in)-1].F = []float64{0, 0, math.Inf(-1), math.Inf(-1)}
	out, lse := Attention(v.b, AttentionAttrs{Scale: 1}, q, q, q, mask)
	grads := attentionVJP(v.b, out.Op, []*ir.Value{out, nil})
	parts := attentionGradParts(v.b, grads[0].Op)
	res := evaluate(t, v.b.F, v.in, out, lse, grads[0], grads[1], grads[2], parts[0], parts[1], parts[2])
	if o := res[0].F; o[2] != 0 || o[3] != 0 || !math.IsInf(res[1].F[1], -1) {
		t.Errorf("masked row gives %v, lse %v", o, res[1].F)
	}
	for i, a := range res[2:] {
		for _, g := range a.F {
			if math.IsNaN(g) {
				t.Errorf("gradient %d of a masked row is %v", i, a.F)
			}
		}
	}
}

func TestXentValues(t *testing.T) {
	v := newValues(t)
	x := v.wave(0, 3, 4)
	target := Const(v.b, ir.Ints(ir.T(dtype.I64, 3), 1, -100, 3))
	v.b.F.Ops[0].Def.Rules.Eval(v.b.F.Ops[0], nil)
	v.check("cross entropy", Xent(v.b, x, target, -100), 1.09783417, 0, 2.63856236)
}
