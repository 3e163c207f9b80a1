package onnx

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxtest"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/autodiff"
	"github.com/gtc-compiler/gtc/passes/normalize"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/recognize"
	"github.com/gtc-compiler/gtc/passes/trainstep"
)

// straight are the operators whose gradient is meant to be another than that of what they compute: rounding passes it
// straight through, as fake quantization in PyTorch does.
var straight = []string{"QuantizeLinear", "DynamicQuantizeLinear", "dynamicquantizelinear", "quantizelinear", "qlinear", "dynamic_matmul"}

// detached are operators that pass no gradient to an operand on which they depend smoothly: the regions of RoiAlign, as
// in torchvision.
var detached = []string{"test_roialign_aligned"}

// Outcomes of a case that is no comparison.
var (
	errNoFloats = errors.New("no float32 or float64 input reaches a float output")
	errKink     = errors.New("every point tried lies at a kink, a jump or a value that is not finite")
)

// TestGradients differentiates the cases that import, and compares with differences: at a random point near the case's
// own inputs, along a random direction u through all float inputs x at once,
//
//	sum_i dL/dx_i u_i  against  (L(x + h u) - L(x - h u)) / 2h,  L = sum of all float outputs, each element times a random weight,
//
// in float64 with h = 1e-6, to 1e-5 of sum_i |dL/dx_i u_i|, plus what rounding makes of the difference: the error of such
// a difference is of order h^2, eps*|L|/h and eps*sum_i |dL/dx_i x_i|/h. Where the two one-sided differences disagree the point lies at
// a kink, and another one is tried.
func TestGradients(t *testing.T) {
	cases, err := onnxtest.Read(fixtures.Path(t, backendData), wanted(t))
	if err != nil {
		t.Fatal(err)
	}
	compared, noFloats, kinks, refused := 0, 0, []string{}, 0
	for i, c := range cases {
		if len(c.Sets) == 0 {
			continue
		}
		err := gradient(c, uint64(i))
		var no *refusal
		switch {
		case err == nil:
			compared++
		case errors.Is(err, errNoFloats):
			noFloats++
		case errors.Is(err, errKink):
			kinks = append(kinks, c.Name)
		case errors.As(err, &no):
			refused++
		default:
			t.Run(c.Name, func(t *testing.T) { t.Error(err) })
		}
	}
	t.Logf("%d gradients agree with central differences; %d cases have no float to differentiate, %d do not import with floats at run time (TestBackend judges that)",
		compared, noFloats, refused)
	t.Logf("%d lie at a kink wherever one looks: %s", len(kinks), strings.Join(kinks, " "))
	if len(cases) > 1000 && compared < 500 {
		t.Errorf("only %d cases were compared", compared)
	}
}

// outcomes remembers what gradient found, for TestCoverage.
var outcomes = map[string]error{}

// gradient compares one case.
func gradient(c *onnxtest.Case, seed uint64) (err error) {
	if err, done := outcomes[c.Name]; done {
		return err
	}
	defer func() { outcomes[c.Name] = err }()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	for _, s := range slices.Concat(straight, detached) {
		if strings.Contains(c.Name, s) {
			return errNoFloats
		}
	}
	f, args, err := differentiated(c, rand.New(rand.NewPCG(seed, 1)))
	if err != nil {
		return err
	}
	for try := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 2+try))
		if err = along(f, args, r); !errors.Is(err, errKink) {
			return err
		}
	}
	return err
}

// differentiated imports the case with its float inputs as parameters and makes @step: the loss L and its gradients.
func differentiated(c *onnxtest.Case, r *rand.Rand) (*ir.Func, map[string]*ir.Array, error) {
	tr := &trial{c: c}
	var mod *ir.Module
	var args map[string]*ir.Tensor
	small := func(t ir.Type) bool { return !t.DType.IsFloat() || t.Elems() <= 6 } // scales, bounds, fill values
	for _, fix := range []func(ir.Type) bool{modes[0].fix, modes[1].fix, small} {
		m, a, err := tr.load(fix, c.Sets[0])
		if err == nil {
			mod, err = m.Import()
		}
		if args = a; err == nil {
			break
		}
		mod = nil
		if strings.Contains(err.Error(), "BUG") {
			return nil, nil, err
		}
	}
	if mod == nil {
		return nil, nil, &refusal{errors.New("does not import")}
	}
	ctx := &pass.Context{Module: mod, Opt: &pass.Options{}}
	f := mod.Funcs[0]
	if err := trainstep.Inference(ctx, f); err != nil {
		return nil, nil, err
	}
	arrays, floats := map[string]*ir.Array{}, false
	for name, t := range args {
		arrays[name] = t.Array()
	}
	for _, p := range f.Params {
		if a := arrays[p.Name]; a != nil && (p.Type.DType == dtype.F32 || p.Type.DType == dtype.F64) && p.Type.Elems() > 0 {
			if p.Name == "rois" { // RoiAlign's regions: neither torchvision nor gtc has a gradient for them
				continue
			}
			p.Role, floats = ir.Param, true
		} else if p.Role == ir.Param {
			p.Role = ir.Buffer // a weight of the case: it has no gradient to compare
		}
	}
	if !floats || !loss(f, r) {
		return nil, nil, errNoFloats
	}
	for _, run := range []func(*pass.Context) error{normalize.Run, recognize.Run} {
		if err := run(ctx); err != nil {
			return nil, nil, err
		}
	}
	f.Name = "step"
	if err := autodiff.Run(ctx); err != nil && strings.Contains(err.Error(), "does not depend on any trained parameter") {
		return f, arrays, nil // draws, choices, comparisons: the differences must be zero
	} else if err != nil {
		return nil, nil, err
	}
	return f, arrays, mod.Verify()
}

// loss gives f one result, loss_sum, the sum of its float outputs times random weights. It reports whether there are any.
func loss(f *ir.Func, r *rand.Rand) bool {
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "loss"}
	var sum *ir.Value
	for _, out := range f.Results {
		d := out.Value.Type.DType
		if d != dtype.F32 && d != dtype.F64 || out.Value.Type.Elems() == 0 || out.Updates != nil {
			continue
		}
		w := ir.NewArray(out.Value.Type)
		for i := range w.F {
			w.F[i] = float64(float32(r.Float64() + 0.5))
		}
		x := ops.Mul(b, out.Value, ops.Const(b, w.Tensor()))
		dims := make([]int, len(x.Type.Dims))
		for i := range dims {
			dims[i] = i
		}
		x = ops.Cast(b, ops.Reshape(b, ops.ReduceSum(b, x, dims...), nil), dtype.F64)
		if sum == nil {
			sum = x
		} else {
			sum = ops.Add(b, sum, x)
		}
	}
	if sum == nil {
		return false
	}
	f.Results = nil
	b.Result("loss_sum", sum)
	f.DCE()
	return true
}

// along compares along one direction at one point.
func along(f *ir.Func, args map[string]*ir.Array, r *rand.Rand) error {
	const h = 1e-6
	at, dir := map[string]*ir.Array{}, map[string]*ir.Array{}
	for _, p := range f.Params {
		a := args[p.Name]
		if a == nil {
			continue
		}
		at[p.Name] = a
		if p.Role != ir.Param {
			continue
		}
		x, u := ir.NewArray(a.Type), ir.NewArray(a.Type)
		for i, v := range a.F {
			u.F[i] = r.NormFloat64()
			x.F[i] = v*(1+1e-3*r.NormFloat64()) + 1e-4*r.NormFloat64()
		}
		at[p.Name], dir[p.Name] = x, u
	}
	value := func(step float64) (*interp.Outcome, float64, error) {
		here := map[string]*ir.Array{}
		for name, a := range at {
			if u := dir[name]; u != nil {
				moved := ir.NewArray(a.Type)
				for i := range a.F {
					moved.F[i] = a.F[i] + step*u.F[i]
				}
				a = moved
			}
			here[name] = a
		}
		out, err := interp.Run(f, here)
		if err != nil {
			return nil, 0, err
		}
		return out, out.Named["loss_sum"].F[0], nil
	}
	out, mid, err := value(0)
	if err != nil {
		return errKink // moved out of the operator's domain: an index, a label
	}
	_, up, err := value(h)
	if err != nil {
		return errKink
	}
	_, down, err := value(-h)
	if err != nil {
		return errKink
	}
	got, size, moved := 0.0, 0.0, 0.0
	for name, u := range dir {
		g := out.Named["grad/"+name]
		if g == nil {
			continue // nothing differentiable depends on it: its part of the difference must be zero
		}
		for i := range u.F {
			got += g.F[i] * u.F[i]
			size += math.Abs(g.F[i] * u.F[i])
			moved += math.Abs(g.F[i] * at[name].F[i])
		}
	}
	want, left, right := (up-down)/(2*h), (mid-down)/h, (up-mid)/h
	noise := 1e-14 / h * (math.Abs(mid) + moved) // of the loss, and of x + h u
	if !(math.Abs(left-right) <= 1e-3*(math.Abs(left)+math.Abs(right))+1e-3*size+10*noise) {
		return errKink
	}
	if !(math.Abs(got-want) <= 1e-5*math.Max(size, math.Abs(want))+noise+1e-9) {
		if math.Abs(left-right) > math.Abs(got-want) {
			return errKink // a small one: the sides differ by more than the error
		}
		return fmt.Errorf("along a random direction the gradient is %.9g, differences say %.9g (%.9g from the left, %.9g from the right; size %g noise %g)", got, want, left, right, size, noise)
	}
	return nil
}
