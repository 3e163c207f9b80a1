package codegentest

import (
	"math/rand/v2"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// programs are small functions that once made wrong kernels, or none.
const programs = `
func @result_within_views(%x: f32[3,5], %i: i64[2]) {
  %a = neg %x : f32[3,5]
  %t = transpose %a {perm=[1,0]} : f32[5,3]
  %u = transpose %t {perm=[1,0]} : f32[3,5]
  %g = gather %u, %i : f32[2,5]
  return t=%t, g=%g
}
func @half(%x: f16[4,6], %w: f16[6,2], %b: bf16[4,2]) {
  %y = matmul %x, %w : f16[4,2]
  %z = exp %y : f16[4,2]
  %c = cast %b {to=f16} : f16[4,2]
  %s = add %z, %c : f16[4,2]
  %r = reduce_sum %s {dims=[0]} : f16[1,2]
  %m = reduce_max %s {dims=[1]} : f16[4,1]
  %q = cast %r {to=bf16} : bf16[1,2]
  return s=%s, r=%r, m=%m, q=%q
}
func @double(%x: f64[2,3,4], %w: f64[4,5], %b: f64[5]) {
  %y = matmul %x, %w, %b : f64[2,3,5]
  %r = reduce_sum %y {dims=[0,1]} : f64[1,1,5]
  return y=%y, r=%r
}
func @ints(%a: i8[40], %b: i8[40], %c: u8[40], %d: u8[40], %e: u16[4,10]) {
  %q = div %a, %b : i8[40]
  %m = mod %a, %b : i8[40]
  %p = mul %c, %d : u8[40]
  %s = sub %c, %d : u8[40]
  %h = div %c, %d : u8[40]
  %x = reduce_max %e {dims=[1]} : u16[4,1]
  %n = reduce_min %e {dims=[0]} : u16[1,10]
  %l = lt %c, %d : bool[40]
  return q=%q, m=%m, p=%p, s=%s, h=%h, x=%x, n=%n, l=%l
}
func @nothing(%x: f32[0,3], %y: f32[2,3], %k: f32[2,0]) {
  %s = reduce_sum %x {dims=[0]} : f32[1,3]
  %m = reduce_max %x {dims=[0]} : f32[1,3]
  %c = concat %x, %y : f32[2,3]
  %e = exp %x : f32[0,3]
  %p = matmul %k, %x : f32[2,3]
  %z = pad %x {low=[1,0], high=[0,0], value=2} : f32[1,3]
  return s=%s, m=%m, c=%c, e=%e, p=%p, z=%z, x=%x
}
`

// TestPrograms compares kernels with the evaluator on the functions above. Integers are of both signs and include 0.
func TestPrograms(t *testing.T) {
	testPrograms(t, func(jobs []*Job) {
		if err := RunMany(t.TempDir(), jobs, 1, "-O3"); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCUDAPrograms does so on the CUDA target.
func TestCUDAPrograms(t *testing.T) {
	testPrograms(t, func(jobs []*Job) { RunCUDA(t, jobs, pass.Options{}) })
}

func testPrograms(t *testing.T, run func(jobs []*Job)) {
	m, err := ir.Parse(programs)
	if err != nil {
		t.Fatal(err)
	}
	var jobs []*Job
	var names []string
	want := map[string]*interp.Outcome{}
	for _, f := range m.Funcs {
		r := rand.New(rand.NewPCG(3, 3))
		args, tensors := map[string]*ir.Array{}, map[string]*ir.Tensor{}
		for i, p := range f.Params {
			a := ir.NewArray(p.Type)
			interp.Fill(r, a, 3)
			for k := range a.I {
				if p.Type.Elems() > 2 {
					a.I[k] = p.Type.DType.Wrap(int64(k*(i+3)%50 - 25))
				}
			}
			tensors[p.Name] = a.Tensor()
			args[p.Name] = tensors[p.Name].Array()
		}
		if want[f.Name], err = interp.Run(f, args); err != nil {
			t.Fatal(err)
		}
		jobs, names = append(jobs, &Job{Module: &ir.Module{Funcs: []*ir.Func{f}}, Args: tensors}), append(names, f.Name)
	}
	run(jobs)
	for n, j := range jobs {
		if j.Err != nil {
			t.Errorf("@%s: %v", names[n], j.Err)
			continue
		}
		tol := 1e-5
		if names[n] == "half" {
			tol = 1.0 / 128 // of bf16
		}
		for i, r := range j.Module.Funcs[0].Results {
			w := want[names[n]].All[i]
			for k := range w.I { // the evaluator may leave more bits than the type has
				w.I[k] = w.Type.DType.Wrap(w.I[k])
			}
			if err := interp.Differ(w, j.Out[i].Array(), tol); err != nil {
				t.Errorf("@%s, %s: %v", names[n], r.Name, err)
			}
		}
	}
}
