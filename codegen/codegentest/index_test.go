package codegentest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// TestIndicesOutOfRange: a kernel that meets an index outside its dim says so, and in which row; one that would land
// inside the tensor, but in another row, is outside too.
func TestIndicesOutOfRange(t *testing.T) {
	m, args, rows := indicesOutOfRange()
	_, err := Run(m, t.TempDir(), args)
	if err == nil {
		t.Fatal("nothing was refused")
	}
	lines := strings.Split(err.Error(), "\n")[1:]
	for i, f := range m.Funcs {
		if want := fmt.Sprintf(" refused row %d", rows[i]); i >= len(lines) || !strings.HasSuffix(lines[i], want) {
			t.Errorf("%s: want%s, the kernels say\n%s", f.Name, want, strings.Join(lines, "\n"))
		}
	}
}

// TestCUDAIndicesOutOfRange: so do kernels of the CUDA target.
func TestCUDAIndicesOutOfRange(t *testing.T) {
	m, args, rows := indicesOutOfRange()
	var jobs []*Job
	for _, f := range m.Funcs {
		j := &Job{Module: &ir.Module{Funcs: []*ir.Func{f}}, Args: map[string]*ir.Tensor{}}
		for name, a := range args[f.Name] {
			j.Args[name] = a.Tensor()
		}
		jobs = append(jobs, j)
	}
	names := []string{}
	for _, f := range m.Funcs {
		names = append(names, f.Name)
	}
	RunCUDA(t, jobs, pass.Options{})
	for i, j := range jobs {
		if want := fmt.Sprintf("refuses row %d ", rows[i]); j.Err == nil || !strings.Contains(j.Err.Error(), want) {
			t.Errorf("%s: %v, want it to say %q", names[i], j.Err, want)
		}
	}
}

// indicesOutOfRange are functions of one op each that meets a bad index, and the row where.
func indicesOutOfRange() (m *ir.Module, args map[string]map[string]*ir.Array, rows []int) {
	f32 := func(dims ...int) ir.Type { return ir.T(dtype.F32, dims...) }
	cases := []struct {
		name  string
		index []int64
		dims  []int // of the indices
		row   int
		make  func(b *ir.Builder, idx *ir.Value, in func(t ir.Type) *ir.Value) *ir.Value
	}{
		{"gather_elements", []int64{0, -2, 2, 1}, []int{2, 2}, 2, func(b *ir.Builder, idx *ir.Value, in func(t ir.Type) *ir.Value) *ir.Value {
			return ops.GatherElements(b, in(f32(3, 2)), idx, 1)
		}},
		{"scatter_elements", []int64{0, 3}, []int{1, 2}, 1, func(b *ir.Builder, idx *ir.Value, in func(t ir.Type) *ir.Value) *ir.Value {
			return ops.ScatterElements(b, in(f32(4, 3)), idx, in(f32(1, 2)), 1, "max")
		}},
		{"gather_nd", []int64{1, 1, 0, -4}, []int{2, 2}, 1, func(b *ir.Builder, idx *ir.Value, in func(t ir.Type) *ir.Value) *ir.Value {
			return ops.GatherND(b, in(f32(2, 3)), idx, 0)
		}},
		{"scatter_nd", []int64{1, 0, 2, 0}, []int{2, 2}, 1, func(b *ir.Builder, idx *ir.Value, in func(t ir.Type) *ir.Value) *ir.Value {
			return ops.ScatterND(b, in(f32(2, 3, 2)), idx, in(f32(2, 2)), 0, "add")
		}},
		{"gather", []int64{4, -5, 9}, []int{3}, 2, func(b *ir.Builder, idx *ir.Value, in func(t ir.Type) *ir.Value) *ir.Value {
			return ops.Gather(b, in(ir.T(dtype.U8, 2, 5)), idx, 1)
		}},
		{"xent", []int64{2, 0, -1}, []int{3}, 2, func(b *ir.Builder, idx *ir.Value, in func(t ir.Type) *ir.Value) *ir.Value {
			return ops.Xent(b, in(ir.T(dtype.F64, 3, 3)), idx, -100)
		}},
	}
	m, args = &ir.Module{}, map[string]map[string]*ir.Array{}
	for _, c := range cases {
		f := &ir.Func{Name: c.name}
		b := ir.NewBuilder(f)
		b.Loc = ir.Loc{Node: c.name}
		args[c.name] = map[string]*ir.Array{}
		param := func(a *ir.Array) *ir.Value {
			v := b.Param(c.name+".x", a.Type, ir.Input)
			args[c.name][v.Name] = a
			return v
		}
		idx := param(&ir.Array{Type: ir.T(dtype.I64, c.dims...), I: c.index})
		b.Result("y", c.make(b, idx, func(t ir.Type) *ir.Value { return param(ir.NewArray(t)) }))
		m.Funcs, rows = append(m.Funcs, f), append(rows, c.row)
	}
	return m, args, rows
}
