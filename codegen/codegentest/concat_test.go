package codegentest

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// joined is the backward pass of an attention whose q, k and v are parts of one product: the template writes their
// gradients into the concatenation. In @twice dq has a second reader, so it is copied.
const joined = `
func @once(%q: f32[2,5,3,4], %k: f32[2,5,3,4], %v: f32[2,5,3,4], %g: f32[2,5,3,4]) {
  %o, %l = attention %q, %k, %v {causal=true, scale=0.5, layout="bshd"} : f32[2,5,3,4], f32[2,3,5]
  %dq, %dk, %dv = attention_grad %q, %k, %v, _, %o, %l, %g {causal=true, scale=0.5, layout="bshd"} : f32[2,5,3,4], f32[2,5,3,4], f32[2,5,3,4]
  %rq = reshape %dq {dims=[2,5,12]} : f32[2,5,12]
  %rk = reshape %dk {dims=[2,5,12]} : f32[2,5,12]
  %rv = reshape %dv {dims=[2,5,12]} : f32[2,5,12]
  %all = concat %rq, %rk, %rv {dim=2} : f32[2,5,36]
  %sum = add %all, %all : f32[2,5,36]
  return out0=%sum
}
func @twice(%q: f32[2,5,3,4], %k: f32[2,5,3,4], %v: f32[2,5,3,4], %g: f32[2,5,3,4]) {
  %o, %l = attention %q, %k, %v {causal=true, scale=0.5, layout="bshd"} : f32[2,5,3,4], f32[2,3,5]
  %dq, %dk, %dv = attention_grad %q, %k, %v, _, %o, %l, %g {causal=true, scale=0.5, layout="bshd"} : f32[2,5,3,4], f32[2,5,3,4], f32[2,5,3,4]
  %all = concat %dk, %dq, %dv {dim=1} : f32[2,15,3,4]
  %more = add %dq, %dq : f32[2,5,3,4]
  return out0=%all, out1=%more
}
`

func TestTemplatesWriteIntoConcat(t *testing.T) {
	m, err := ir.Parse(joined)
	if err != nil {
		t.Fatal(err)
	}
	args, want := map[string]map[string]*ir.Array{}, map[string]*interp.Outcome{}
	for _, f := range m.Funcs {
		r := rand.New(rand.NewPCG(3, 3)) // parameters of one name are one buffer
		args[f.Name] = map[string]*ir.Array{}
		for _, p := range f.Params {
			a := ir.NewArray(p.Type)
			interp.Fill(r, a, 4)
			args[f.Name][p.Name] = a.Tensor().Array()
		}
		if want[f.Name], err = interp.Run(f, args[f.Name]); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Run(m, t.TempDir(), args)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Funcs {
		for i := range f.Results {
			if err := interp.Differ(want[f.Name].All[i], got[f.Name][i], 1e-5); err != nil {
				t.Errorf("@%s result %d: %v", f.Name, i, err)
			}
		}
	}
	c := &pass.Context{Module: m, Opt: &pass.Options{}}
	if err := planned(c); err != nil {
		t.Fatal(err)
	}
	within := 0
	for _, r := range c.Remarks {
		if strings.HasSuffix(r.String(), " no copy") {
			within++
		}
	}
	if within != 3+2 {
		t.Errorf("%d gradients are made within the concatenation, want all three and two of three", within)
	}
}
