package ir_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// programs are modules in canonical text: what Print gives.
var programs = []string{
	`func @forward(%x: f32[8,784], %w: f32[784,512] param, %b: f32[512] param) {
  %h = matmul %x, %w, %b : f32[8,512]
  %a = relu %h : f32[8,512]
  return out0=%a
}
`,
	`mesh @m = [dp=2, tp=4, mb=3]

func @step(%x: f32[4,8]{dp,_}, %w: f32[8,8]{_,tp} param &64, %"layers.0/k v": f32[2] state, %kept: f32[4,8]{; partial=dp} state) {
  %h = matmul %x, %w {transB=true} : f32[4,8]{dp,tp; partial=mb} &128 @3
  %s = reduce_sum %h {dims=[0,1]} : f32[1,1]{_,_; partial=dp+tp}
  %g = all_reduce %s {axis="dp", op="sum"} : f32[1,1] @4
  return loss_sum=%g, %w <- %w, %g
}
`,
	`func @consts() {
  %a = const {value=f32[2,2](1.0 -0.5 1e+300 3.0)} : f32[2,2]
  return
}
`,
	`func @f(%x: bool[2], %y: i64[2], %z: f16[]) {
  %c = const {value=i64[2](-9223372036854775808 5)} : i64[2]
  %d = const {value=bool[3](0 1 1)} : bool[3]
  %e = const {value=f32[100](all 0.5)} : f32[100]
  %k = clip %z {min=-Inf, max=6.0} : f16[]
  %p = pad %y {low=[1], high=[0], interior=[2], value=-1.0} : i64[5]
  %q = where %x, %c, %y : i64[2]
  %n, %n.1, %n.2 = layer_norm %e, _, _ {eps=1e-05, dims=1} : f32[100], f32[1], f32[1]
  return %k, %p, %q, %n
}

func @empty() {
  return
} calls {
}
`,
	scheduled,
}

// TestText reads and prints programs.
func TestText(t *testing.T) {
	for i, text := range programs {
		m, err := ir.Parse(text)
		if err != nil {
			t.Errorf("program %d: %v", i, err)
			continue
		}
		text = strings.Replace(text, "1e+300", "+Inf", 1) // what f32 makes of it
		if got := m.String(); got != text {
			t.Errorf("program %d prints as\n%s", i, got)
		}
		if err := m.Verify(); err != nil {
			t.Errorf("program %d: %v", i, err)
		}
	}
}

// TestTextErrors checks that faulty text is refused with its line and reason.
func TestTextErrors(t *testing.T) {
	tests := []struct{ text, want string }{
		{"func @f() {\n %a = frobnicate : f32[]\n return }", `line 2: unknown op "frobnicate"`},
		{"func @f() { return %a }", "%a is used before it is defined"},
		{"func @f(%a: f32[2], %a: f32[2]) { return }", "%a is defined twice"},
		{"func @f(%a: f32[2]) { %b = reshape %a {dms=[2]} : f32[2] return }", `reshape has no attribute "dms"`},
		{"func @f(%a: f33[2]) { return }", `unknown element type "f33"`},
		{"func @f(%a: f32[4611686018427387904,4]) { return }", "too large"},
		{"func @f(%a: f32[-1]) { return }", "too large"},
		{"func @f() { %a = const {value=i64[2](1)} : i64[2] return }", "has 8 bytes"},
		{"func @f() { return } func @f() { return }", "@f is defined twice"},
		{"func @f(%a: f32[]) { %b = exp %a : f32[] return %b <- %a }", "%b is not a parameter"},
		{"mesh @m = [dp=0]", "axis dp has size 0"},
		{"mesh @m = [dp=2, dp=2]", "is malformed or repeated"},
		{"func @f(", `"%" is expected`},
	}
	for _, test := range tests {
		if _, err := ir.Parse(test.text); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s\ngives %v, want %q", test.text, err, test.want)
		}
	}
}

// TestHashedConstant checks that a large constant keeps its hash through the text.
func TestHashedConstant(t *testing.T) {
	data := make([]float64, 1000)
	for i := range data {
		data[i] = float64(i)
	}
	f := &ir.Func{Name: "f"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "c"}
	ops.Const(b, ir.Floats(ir.T(dtype.F32, 1000), data...))
	text := f.String()
	if !strings.Contains(text, "f32[1000]<sha256:") {
		t.Fatalf("prints as %s", text)
	}
	m, err := ir.Parse(text)
	if err != nil || m.Funcs[0].String() != text {
		t.Errorf("comes back as %v, %v", m, err)
	}
}

// TestTensor converts every element type there and back.
func TestTensor(t *testing.T) {
	for d := dtype.F32; d <= dtype.Bool; d++ {
		x := ir.NewArray(ir.T(d, 3))
		if x.F != nil {
			copy(x.F, []float64{0, 1, -2.5})
		} else {
			copy(x.I, []int64{0, 1, 1})
		}
		y := x.Tensor().Array()
		if !slices.Equal(x.F, y.F) || !slices.Equal(x.I, y.I) {
			t.Errorf("%s: %v %v comes back as %v %v", d, x.F, x.I, y.F, y.I)
		}
	}
	if v, ok := ir.Floats(ir.T(dtype.F64, 2), math.NaN(), math.NaN()).Uniform(); !ok || !math.IsNaN(v) {
		t.Error("two equal NaNs are not uniform")
	}
	if _, ok := ir.Floats(ir.T(dtype.F32, 2), 0, math.Copysign(0, -1)).Uniform(); ok {
		t.Error("0 and -0 are uniform")
	}
}

// sampleText prints a function of one op.
func sampleText(d *ir.Def, s ir.Sample) string {
	f := &ir.Func{Name: "f"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: d.Name}
	var in []*ir.Value
	for _, t := range s.In {
		var v *ir.Value
		if t.DType != dtype.Invalid { // else an absent operand
			v = b.Param("x", t, ir.Input)
		}
		in = append(in, v)
	}
	b.EmitN(d, s.Attrs, in...)
	return f.String()
}

// FuzzText checks that what is printed reads back and prints the same, and that nothing panics.
func FuzzText(f *testing.F) {
	for _, text := range programs {
		f.Add(text)
	}
	for _, d := range ir.Defs() {
		for _, s := range d.Rules.Samples(rand.New(rand.NewPCG(1, 2))) {
			f.Add(sampleText(d, s))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ir.Parse(text)
		if err != nil {
			return
		}
		once := m.String()
		again, err := ir.Parse(once)
		if err != nil {
			t.Fatalf("printed text does not parse: %v\n%s", err, once)
		}
		if twice := again.String(); twice != once {
			t.Fatalf("text changes:\n%s%s", once, twice)
		}
		_ = m.Verify() // must not panic
	})
}
