package ops

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cpu"
)

// TestTemplatesAreEval calls the kernel that each op's Impl names, the way generated programs do, and holds it
// against the definition.
func TestTemplatesAreEval(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	calls := 0
	for _, d := range ir.Defs() {
		if d.Rules.Impl == nil || d.Rules.Samples == nil || d.Rules.Eval == nil {
			continue
		}
		for _, s := range d.Rules.Samples(r) {
			_, op := build(d, s.Attrs, s.In...)
			impl := d.Rules.Impl(op)
			if impl.Kind != kir.Template || !native(op, impl) {
				continue
			}
			if cpu.Func(impl.Template) == nil {
				t.Errorf("%s: no template %q", op, impl.Template)
				continue
			}
			calls++
			checkTemplate(t, op, impl, randomArrays(r, s))
		}
	}
	if calls < 20 {
		t.Errorf("only %d template calls", calls)
	}
}

// native reports whether the kernel takes the types of op; where it does not, op runs in f32, as it does elsewhere here.
func native(op *ir.Op, impl kir.Impl) bool {
	var types []string
	for _, v := range slices.Concat(op.In, op.Out) {
		if v != nil {
			types = append(types, v.Type.DType.String())
		}
	}
	form, _, ok := cpu.Form(impl.Template, types)
	return ok && form == impl.Template
}

func checkTemplate(t *testing.T, op *ir.Op, impl kir.Impl, in []*ir.Array) {
	t.Helper()
	want := op.Def.Rules.Eval(op, in)
	var buffers [][]byte
	for _, a := range in {
		buffers = append(buffers, a.Tensor().Data)
	}
	for _, v := range op.Out {
		buffers = append(buffers, make([]byte, v.Type.Bytes()))
	}
	status := callTemplate(t, impl, buffers)
	if impl.Status && status != -1 {
		t.Errorf("%s: status %d", op, status)
	}
	for i, v := range op.Out {
		got := &ir.Tensor{Type: v.Type, Data: buffers[len(in)+i]}
		near2(t, op.String()+" "+impl.Template, numbersOf(got.Array()), numbersOf(want[i]), 2e-5)
	}
}

func numbersOf(a *ir.Array) []float64 {
	out := make([]float64, a.Type.Elems())
	for i := range out {
		out[i] = number(a, i)
	}
	return out
}

// callTemplate passes pointers in Order, the workspace, integers and floats, and gives the status, if any.
func callTemplate(t *testing.T, impl kir.Impl, buffers [][]byte) int64 {
	t.Helper()
	order := impl.Order
	if order == nil {
		for i := range buffers {
			order = append(order, i)
		}
	}
	f := reflect.ValueOf(cpu.Func(impl.Template))
	size, err := cpu.Workspace(impl.Template, impl.Ints)
	if err != nil {
		t.Fatal(err)
	}
	var ints, args []reflect.Value
	for _, n := range impl.Ints {
		ints = append(ints, reflect.ValueOf(n))
	}
	for _, k := range order {
		p := unsafe.Pointer(nil)
		if k >= 0 {
			p = unsafe.Pointer(unsafe.SliceData(buffers[k]))
		}
		args = append(args, reflect.ValueOf(p))
	}
	if f.Type().NumIn() != len(args)+1+len(ints)+len(impl.Floats) {
		t.Fatalf("%s takes %s, the rule gives %d pointers, %d integers and %d floats", impl.Template, f.Type(), len(args), len(ints), len(impl.Floats))
	}
	work := make([]byte, size+64)
	args = append(append(args, reflect.ValueOf(unsafe.Pointer(&work[0]))), ints...)
	for _, v := range impl.Floats {
		args = append(args, reflect.ValueOf(float32(v)))
	}
	if out := f.Call(args); len(out) > 0 {
		return out[0].Int()
	}
	return -1
}

// Indices out of range must be named by row, also where several make one position.
func TestIndexStatusNamesTheRow(t *testing.T) {
	i64s := func(v ...int64) []byte {
		return ir.Ints(ir.T(dtype.I64, len(v)), v...).Data
	}
	_, take := build(GatherDef, GatherAttrs{Dim: 1}, ir.T(f32, 2, 5), ir.T(dtype.I64, 3))
	if got := callTemplate(t, take.Def.Rules.Impl(take), [][]byte{make([]byte, 40), i64s(-5, 5, 9), make([]byte, 24)}); got != 1 {
		t.Errorf("gather: status %d, want 1", got)
	}
	_, put := build(ScatterDef, ScatterAttrs{"max"}, ir.T(f32, 5), ir.T(dtype.I64, 3), ir.T(f32, 3))
	if got := callTemplate(t, put.Def.Rules.Impl(put), [][]byte{make([]byte, 20), i64s(4, -6, 7), make([]byte, 12), make([]byte, 20)}); got != 1 {
		t.Errorf("scatter: status %d, want 1", got)
	}
	b := ir.NewBuilder(&ir.Func{})
	b.Loc = ir.Loc{Node: "n"}
	at := flatIndex(b, b.Param("i", ir.T(dtype.I64, 2, 2), ir.Input), []int{3, 2}, 0)
	if got := evaluated(b.F, i64s(2, -3, 3, -4)); !slices.Equal(got[at].I, []int64{4, 1, 6, 6}) {
		t.Errorf("positions %v: want those outside to be 6, behind the last", got[at].I)
	}
}

// evaluated runs a function of one i64 parameter by its ops' Eval.
func evaluated(f *ir.Func, data []byte) map[*ir.Value]*ir.Array {
	known := map[*ir.Value]*ir.Array{f.Params[0]: (&ir.Tensor{Type: f.Params[0].Type, Data: data}).Array()}
	for _, op := range f.Ops {
		var in []*ir.Array
		for _, v := range op.In {
			in = append(in, known[v])
		}
		for i, a := range op.Def.Rules.Eval(op, in) {
			known[op.Out[i]] = a
		}
	}
	return known
}

// Targets out of range must be named by row.
func TestXentStatusNamesTheRow(t *testing.T) {
	_, op := build(XentDef, XentAttrs{-100}, ir.T(f32, 3, 4), ir.T(dtype.I64, 3))
	target := binary.LittleEndian.AppendUint64(make([]byte, 16), 4)
	if got := callTemplate(t, op.Def.Rules.Impl(op), [][]byte{make([]byte, 48), target, make([]byte, 12)}); got != 2 {
		t.Errorf("status %d, want 2", got)
	}
}
