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

func TestRecurrentValues(t *testing.T) {
	for _, c := range []struct {
		name    string
		gates   int
		reverse bool
		want    []float64
	}{
		{"lstm", 4, false, []float64{0.228784872, -0.0162331014, -0.0176580921, -0.00916983022, 0.288696056, -0.0389740501, -0.0465488101, -0.0374605104, 0.24788998, -0.0776004516, -0.0967360289, -0.0721689706}},
		{"lstm", 4, true, []float64{0.39313985, -0.0366874717, -0.0388559186, -0.0572995728, 0.235906998, -0.0500385872, -0.0540443389, -0.0684331204, 0.0863963133, -0.0510992943, -0.0549724853, -0.0453850385}},
		{"gru", 3, false, []float64{0.425965525, -0.347744641, -0.404411921, 0.690309596, 0.670082095, -0.287265585, -0.284207272, 0.941539803, 0.801953407, -0.0664788342, -0.0480522669, 0.982456235}},
		{"gru", 3, true, []float64{0.810932837, -0.476384024, -0.48313732, 0.992569984, 0.742278339, -0.206584812, -0.17497292, 0.972253007, 0.599751678, 0.150796241, 0.122143425, 0.815212113}},
		{"rnn", 1, false, []float64{0.270853787, -0.992281464, -0.866887359, -0.679869943, -0.00753202849, -0.930776276, -0.945643726, 0.0812952467, -0.593817058, -0.797280093, -0.865370781, -0.772076992}},
		{"rnn", 1, true, []float64{-0.368111407, -0.913321264, -0.972268512, -0.147965712, -0.605422944, -0.804366198, -0.891972458, -0.00496932382, -0.497020781, -0.963267118, -0.434918194, -0.930641492}},
	} {
		v, size := newValues(t), 2*c.gates
		x, w := v.wave(0, 3, 2, 3), RNNWeights{W: v.wave(1, size, 3), R: v.wave(2, size, 2)}
		w.Bias = Concat(v.b, 0, v.wave(3, size), v.wave(4, size))
		var y, hn, cn *ir.Value
		switch c.name {
		case "lstm":
			y, hn, cn = LSTM(v.b, x, w, nil, nil, c.reverse)
		case "gru":
			y, hn = GRU(v.b, x, w, nil, true, c.reverse)
		case "rnn":
			y, hn = RNN(v.b, x, w, nil, Tanh, c.reverse)
		}
		v.check(c.name, y, c.want...)
		if last := c.want[8:]; !c.reverse {
			v.check(c.name+" hn", hn, last...)
		} else {
			v.check(c.name+" hn", hn, c.want[:4]...)
		}
		if c.name == "lstm" && !c.reverse {
			v.check("cn", cn, 1.22619234, -0.15747826, -0.592806952, -0.106112225)
		}
	}
}

// Without linear_before_reset the reset gate acts on the state; where it is 1 both forms agree but for where the
// recurrent bias stands.
func TestGRUForms(t *testing.T) {
	v := newValues(t)
	x := v.wave(0, 3, 2, 3)
	w := RNNWeights{W: v.wave(1, 6, 3), R: v.wave(2, 6, 2)}
	open := Const(v.b, ir.Floats(ir.T(dtype.F64, 12), 0, 0, 50, 50, 0, 0, 0, 0, 50, 50, 0, 0))
	w.Bias = open
	one, _ := GRU(v.b, x, w, nil, true, false)
	two, _ := GRU(v.b, x, w, nil, false, false)
	res := evaluate(t, v.b.F, v.in, one, two)
	near2(t, "gru", res[0].F, res[1].F, 1e-12)
}
