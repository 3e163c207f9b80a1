package lora_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/lora"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
)

const layers = `func @forward(%i: i64[3], %emb.weight: f32[400,16] param, %fc.weight: f32[32,16] param, %half.weight: bf16[32,16] param) {
  %x = gather %emb.weight, %i : f32[3,16]
  %y = matmul %x, %fc.weight {transB=true} : f32[3,32]
  %h = cast %x {to=bf16} : bf16[3,16]
  %z = matmul %h, %half.weight {transB=true} : bf16[3,32]
  return out0=%y, out1=%z
}
`

// with is @forward of text with adapters for all weights.
func with(t *testing.T, text string, seed uint64) *pass.Context {
	t.Helper()
	c, err := passtest.Context("lora", text, map[string]string{"lora.rank": "8", "lora.targets": "*"})
	if err != nil {
		t.Fatal(err)
	}
	c.Opt.LoRA.Seed = seed
	if err := lora.Run(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// numbers are the first contents of a parameter.
func numbers(t *testing.T, c *pass.Context, name string) []float64 {
	t.Helper()
	p := c.Module.Func("forward").Param(name)
	if p == nil || p.Init == nil || len(p.Init.Data) != p.Type.Bytes() {
		t.Fatalf("%s has no contents", name)
	}
	return p.Init.Array().F
}

// TestFirstValues: B*A is zero before training, as in peft. Of a linear layer A is what kaiming_uniform_(a=sqrt(5)) gives, uniform in
// ±1/sqrt(in) and so with a deviation of that over sqrt(3); of an embedding B is standard normal. The deviations of 128 numbers are
// within a third of that: over five times the spread of their own, and a wrong bound is off by at least the square root of 2.
func TestFirstValues(t *testing.T) {
	c := with(t, layers, 0)
	for _, f := range []struct {
		name      string
		deviation float64
	}{
		{"emb.lora_embedding_A", 0}, {"emb.lora_embedding_B", 1}, {"fc.lora_A.weight", 0.25 / math.Sqrt(3)}, {"fc.lora_B.weight", 0},
		{"half.lora_A.weight", 0.25 / math.Sqrt(3)}, {"half.lora_B.weight", 0},
	} {
		sum, largest := 0.0, 0.0
		list := numbers(t, c, pass.AdapterPrefix+f.name)
		for _, x := range list {
			sum, largest = sum+x*x, max(largest, math.Abs(x))
		}
		got := math.Sqrt(sum / float64(len(list)))
		if math.Abs(got-f.deviation) > f.deviation/3 || f.deviation == 0.25/math.Sqrt(3) && largest > 0.25 {
			t.Errorf("%s deviates by %g, at most %g; it should by %g", f.name, got, largest, f.deviation)
		}
	}
}

// TestFirstValuesAreTheSame: they depend on the parameter's name and on the seed, on nothing else of the model, so that every rank and
// every compilation begins alike.
func TestFirstValuesAreTheSame(t *testing.T) {
	alone := `func @forward(%x: f32[3,16], %fc.weight: f32[32,16] param) {
  %y = matmul %x, %fc.weight {transB=true} : f32[3,32]
  return out0=%y
}
`
	name := pass.AdapterPrefix + "fc.lora_A.weight"
	of := func(c *pass.Context, name string) []byte { return c.Module.Func("forward").Param(name).Init.Data }
	first := of(with(t, layers, 5), name)
	if !bytes.Equal(first, of(with(t, alone, 5), name)) {
		t.Error("another model has other values")
	}
	if bytes.Equal(first, of(with(t, layers, 6), name)) {
		t.Error("another seed has the same values")
	}
	if half := of(with(t, layers, 5), pass.AdapterPrefix+"half.lora_A.weight"); bytes.Equal(half, first[:len(half)]) {
		t.Error("another name has the same values")
	}
}

// TestAdapters: what is noted for those who merge and write adapters is what stands in the module.
func TestAdapters(t *testing.T) {
	c := with(t, layers, 0)
	if len(c.Adapters) != 3 {
		t.Fatalf("%d adapters", len(c.Adapters))
	}
	f := c.Module.Func("forward")
	for i, want := range []struct {
		weight string
		lookup bool
	}{{"emb.weight", true}, {"fc.weight", false}, {"half.weight", false}} {
		a := c.Adapters[i]
		if a.Weight != want.weight || a.Lookup != want.lookup || a.InOut || a.Shared || a.Grouped || a.Scale != 1 || a.Rank() != 8 {
			t.Errorf("adapter %d is %+v", i, a)
		}
		for _, x := range []pass.Factor{a.A, a.B} {
			p := f.Param(x.Name)
			if p == nil || p.Role != ir.Param || !p.Type.Equal(x.Type) || p.Init != x.Init || p.Type.DType != f.Param(a.Weight).Type.DType {
				t.Errorf("%s is noted as %s", x.Name, x.Type)
			}
		}
		if f.Param(a.Weight).Role != ir.Buffer {
			t.Errorf("%s is trained", a.Weight)
		}
	}
}

// TestNoForward: a module that something else has been made of already is refused.
func TestNoForward(t *testing.T) {
	c, err := passtest.Context("lora", "func @step(%x: f32[3]) {\n  return out0=%x\n}\n", map[string]string{"lora.rank": "1", "lora.targets": "*"})
	if err != nil {
		t.Fatal(err)
	}
	if err := lora.Run(c); err == nil || err.Error() != "--lora: the module has no @forward, which is what adapters are put into" {
		t.Error(err)
	}
}
