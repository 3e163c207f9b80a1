package ops

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
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
			if impl.Kind != kir.Template {
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

// Targets out of range must be named by row.
func TestXentStatusNamesTheRow(t *testing.T) {
	_, op := build(XentDef, XentAttrs{-100}, ir.T(f32, 3, 4), ir.T(dtype.I64, 3))
	target := binary.LittleEndian.AppendUint64(make([]byte, 16), 4)
	if got := callTemplate(t, op.Def.Rules.Impl(op), [][]byte{make([]byte, 48), target, make([]byte, 12)}); got != 2 {
		t.Errorf("status %d, want 2", got)
	}
}
