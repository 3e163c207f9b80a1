package ops_test

import (
	"testing"

	"github.com/gtc-compiler/gtc/ir"
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
			walk(dims, func(index []int, flat int) {
				v, err := e.Eval(func(i int) kir.Operand { return kir.Operand{DType: x.in[i].Type.DType, Number: get(x.in[i], flat)} }, index)
				if err != nil || v.DType != got.Type.DType {
					t.Fatalf("expression %d is %s, want %s: %v", k, v.DType, got.Type.DType, err)
				}
				set(got, flat, v.Number)
			})
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
			set(got, i, kir.Number{F: impl.Fill, I: int64(impl.Fill)})
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

func get(a *ir.Array, i int) kir.Number {
	if a.F != nil {
		return kir.Number{F: a.F[i]}
	}
	return kir.Number{I: a.I[i]}
}

func set(a *ir.Array, i int, n kir.Number) {
	if a.F != nil {
		a.F[i] = n.F
	} else {
		a.I[i] = n.I
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
			n = kir.Combine(impl.ReduceOp, out.Type.DType, get(out, to), n)
		}
		seen[to] = true
		set(out, to, n)
	})
}
