package ops_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// checkImpl interprets what the kernel IR says of the op and compares it with Eval. Templates are compared where
// they are compiled.
func checkImpl(t *testing.T, x *instance, out []*ir.Array) {
	t.Helper()
	if x.op.Def.Rules.Impl == nil {
		return
	}
	impl := x.op.Def.Rules.Impl(x.op)
	got := ir.NewArray(out[0].Type)
	dims := out[0].Type.Dims
	switch impl.Kind {
	case kir.Pointwise:
		if len(impl.Expr) != len(out) {
			t.Fatalf("%d expressions for %d results", len(impl.Expr), len(out))
		}
		for k, e := range impl.Expr {
			got := ir.NewArray(out[k].Type)
			walk(dims, func(index []int, flat int) { set(got, flat, scalar(e, x.in, index, flat)) })
			if err := interp.Differ(out[k], got, 1e-9); err != nil {
				t.Errorf("expression %d against Eval: %v", k, err)
			}
		}
		return
	case kir.View:
		walk(dims, func(index []int, flat int) {
			from := flat
			if impl.View.Strides != nil {
				from = impl.View.Offset
				for d, i := range index {
					from += i * impl.View.Strides[d]
				}
			}
			set(got, flat, get(x.in[0], from))
		})
	case kir.Reduce:
		reduce(got, x.in[0], impl)
	case kir.Assemble:
		for i := range got.Type.Elems() {
			set(got, i, number{f: impl.Fill, i: int64(impl.Fill)})
		}
		strides := ir.Strides(dims)
		for k, box := range impl.Boxes {
			walk(x.in[k].Type.Dims, func(index []int, flat int) {
				to := 0
				for d, i := range index {
					to += (box.Start[d] + i*box.Step[d]) * strides[d]
				}
				set(got, to, get(x.in[k], flat))
			})
		}
	case kir.Template:
		checkTemplate(t, x, impl)
		return
	default:
		return
	}
	if err := interp.Differ(out[0], got, 1e-9); err != nil {
		t.Errorf("Impl against Eval: %v", err)
	}
}

// checkTemplate checks that the operands and results named by Order exist.
func checkTemplate(t *testing.T, x *instance, impl kir.Impl) {
	t.Helper()
	for _, k := range impl.Order {
		if k < -1 || k >= len(x.op.In)+len(x.op.Out) || k >= 0 && k < len(x.op.In) && x.op.In[k] == nil {
			t.Errorf("template %s takes operand %d", impl.Template, k)
		}
	}
	if impl.Template == "" {
		t.Error("template without a name")
	}
}

func walk(dims []int, f func(index []int, flat int)) {
	strides := ir.Strides(dims)
	index := make([]int, len(dims))
	for flat := range ir.Product(dims) {
		for d, s := range strides {
			index[d] = flat / s % dims[d]
		}
		f(index, flat)
	}
}

// number is a scalar: f of a float type, i of the others.
type number struct {
	d dtype.DType
	f float64
	i int64
}

func get(a *ir.Array, i int) number {
	if a.F != nil {
		return number{d: a.Type.DType, f: a.F[i]}
	}
	return number{d: a.Type.DType, i: a.I[i]}
}

func set(a *ir.Array, i int, n number) {
	if a.F != nil {
		a.F[i] = n.f
	} else {
		a.I[i] = n.i
	}
}

func reduce(out, x *ir.Array, impl kir.Impl) {
	strides := ir.Strides(out.Type.Dims)
	for _, d := range impl.Dims {
		strides[d] = 0
	}
	seen := map[int]bool{}
	walk(x.Type.Dims, func(index []int, flat int) {
		to := 0
		for d, i := range index {
			to += i * strides[d]
		}
		n := get(x, flat)
		if seen[to] {
			n = apply2(map[string]string{"sum": "add", "prod": "mul", "max": "max", "min": "min"}[impl.ReduceOp], get(out, to), n)
		}
		seen[to] = true
		set(out, to, n)
	})
}

// scalar evaluates an expression at one point, as documented in package kir.
func scalar(e *kir.Expr, in []*ir.Array, index []int, flat int) number {
	switch e.Op {
	case "arg":
		return get(in[e.Index], flat)
	case "const":
		return number{e.DType, e.Value, int64(e.Value)}
	case "index":
		return number{dtype.I64, 0, int64(index[e.Index])}
	}
	var a []number
	for _, x := range e.Args {
		a = append(a, scalar(x, in, index, flat))
	}
	switch {
	case e.Op == "select" && a[0].i != 0:
		return a[1]
	case e.Op == "select":
		return a[2]
	case e.Op == "cast":
		return castTo(e.DType, a[0])
	case e.Op == "bitcast":
		one := ir.NewArray(ir.T(a[0].d))
		set(one, 0, a[0])
		return get((&ir.Tensor{Type: ir.T(e.DType), Data: one.Tensor().Data}).Array(), 0)
	case len(a) == 2:
		return apply2(e.Op, a[0], a[1])
	}
	return apply1(e.Op, a[0])
}

func castTo(d dtype.DType, x number) number {
	from := x.d.IsFloat()
	switch {
	case d.IsSmallFloat() && from:
		return number{d: d, f: d.Round(x.f)}
	case d.IsFloat() && from:
		return number{d: d, f: x.f}
	case d.IsFloat():
		return number{d: d, f: float64(x.i)}
	case d == dtype.Bool:
		return truth(x.f != 0 || x.i != 0)
	case from:
		x.i = int64(x.f)
	}
	return number{d: d, i: d.Wrap(x.i)}
}

func truth(v bool) number {
	if v {
		return number{d: dtype.Bool, i: 1}
	}
	return number{d: dtype.Bool}
}

func apply1(op string, x number) number {
	if !x.d.IsFloat() {
		switch op {
		case "neg":
			x.i = -x.i
		case "abs":
			x.i = max(x.i, -x.i)
		case "sign":
			x.i = min(max(x.i, -1), 1)
		case "relu":
			x.i = max(x.i, 0)
		case "not":
			x.i = 1 - x.i
		default:
			panic(fmt.Sprintf("BUG: %s of %s", op, x.d))
		}
		return x
	}
	fs := map[string]func(float64) float64{
		"neg": func(v float64) float64 { return -v }, "abs": math.Abs, "exp": math.Exp, "log": math.Log,
		"log1p": math.Log1p, "expm1": math.Expm1, "sqrt": math.Sqrt, "sin": math.Sin, "cos": math.Cos,
		"tanh": math.Tanh, "erf": math.Erf, "floor": math.Floor, "ceil": math.Ceil, "round": math.RoundToEven,
		"tan": math.Tan, "asin": math.Asin, "acos": math.Acos, "atan": math.Atan, "sinh": math.Sinh, "cosh": math.Cosh,
		"asinh": math.Asinh, "acosh": math.Acosh, "atanh": math.Atanh,
		"rsqrt":   func(v float64) float64 { return 1 / math.Sqrt(v) },
		"recip":   func(v float64) float64 { return 1 / v },
		"sigmoid": func(v float64) float64 { return 1 / (1 + math.Exp(-v)) },
		"ncdf":    func(v float64) float64 { return math.Erfc(-v/math.Sqrt2) / 2 },
		"relu":    func(v float64) float64 { return max(v, 0) },
		"sign": func(v float64) float64 {
			if v == 0 {
				return 0
			}
			return math.Copysign(1, v)
		},
	}
	switch op {
	case "isnan":
		return truth(math.IsNaN(x.f))
	case "isinf":
		return truth(math.IsInf(x.f, 0))
	}
	f := fs[op]
	if f == nil {
		panic("BUG: unknown function " + op)
	}
	x.f = f(x.f)
	return x
}

func apply2(op string, x, y number) number {
	if x.d.IsFloat() {
		return apply2F(op, x, y)
	}
	switch op {
	case "add":
		x.i += y.i
	case "sub":
		x.i -= y.i
	case "mul":
		x.i *= y.i
	case "div":
		x.i /= y.i
	case "mod":
		x.i %= y.i
	case "min":
		x.i = min(x.i, y.i)
	case "max":
		x.i = max(x.i, y.i)
	case "and":
		x.i &= y.i
	case "or":
		x.i |= y.i
	case "xor":
		x.i ^= y.i
	case "shift_left":
		if x.i = x.d.Wrap(x.i << uint(y.i)); int(y.i) >= x.d.Bits() {
			x.i = 0
		}
	case "shift_right":
		x.i >>= uint(y.i) // samples are not negative when the type has no sign
	case "shr":
		x.i = int64(uint64(x.i) >> uint(y.i))
	default:
		return order(op, float64(x.i), float64(y.i))
	}
	return x
}

func apply2F(op string, x, y number) number {
	switch op {
	case "add":
		x.f += y.f
	case "sub":
		x.f -= y.f
	case "mul":
		x.f *= y.f
	case "div":
		x.f /= y.f
	case "mod":
		x.f = math.Mod(x.f, y.f)
	case "pow":
		x.f = math.Pow(x.f, y.f)
	case "min":
		x.f = min(x.f, y.f)
	case "max":
		x.f = max(x.f, y.f)
	default:
		return order(op, x.f, y.f)
	}
	return x
}

func order(op string, x, y float64) number {
	switch op {
	case "eq":
		return truth(x == y)
	case "ne":
		return truth(x != y)
	case "lt":
		return truth(x < y)
	case "le":
		return truth(x <= y)
	case "gt":
		return truth(x > y)
	case "ge":
		return truth(x >= y)
	}
	panic("BUG: unknown function " + op)
}
