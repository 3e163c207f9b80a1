package export

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

const reference = "../../passes/testdata/lora"

// loaded is the reference's model with adapters of an embedding, of weights of both orientations, of a convolution and of a weight that
// is read in parts.
func loaded(t *testing.T) *adapted {
	t.Helper()
	o := &compiler.Options{Model: reference + ".onnx", Pass: pass.Options{LoRA: pass.LoRA{Rank: 2, Alpha: 6,
		Targets: []string{"emb", "q_proj.weight", "c_attn", "*conv*.weight", "in_proj_weight"}}}}
	m, err := onnx.Load(o.Model, o.Import)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	params, adapters, err := compiler.Adapt(m, o)
	if err != nil || len(adapters) != 5 {
		t.Fatalf("%d adapters, %v", len(adapters), err)
	}
	return &adapted{m, params, adapters}
}

// TestMerge: with the adapters that PyTorch has trained merged into its weights, the model computes what PyTorch computes beside them, both as
// the file that is written and by the parameters of the state dict. Files hold float32, of which 1e-5 in norm is some 100 roundings.
func TestMerge(t *testing.T) {
	ref, err := npz.Open(reference + ".npz")
	if err != nil {
		t.Fatal(err)
	}
	defer ref.Close()
	for _, optimizer := range []string{"sgd", "adamw"} {
		m := loaded(t)
		trained := map[string][]byte{}
		for _, p := range m.params {
			if m.isAdapter(p.Name) {
				a := irtest.Array(t, ref, "after/"+optimizer+"/"+p.Name)
				a.Type = p.Type
				trained[p.Name] = a.Tensor().Data
			}
		}
		weights := maps.Clone(trained)
		if err := m.merge(weights); err != nil {
			t.Fatal(err)
		}
		file, err := m.Export(weights, false)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := onnx.Parse(file, "", onnx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		mod, err := plain.Import()
		if err != nil {
			t.Fatal(err)
		}
		f := mod.Funcs[0]
		args := map[string]*ir.Array{}
		n := 0
		for _, p := range f.Params {
			if p.Role == ir.Input {
				a := irtest.Array(t, ref, fmt.Sprintf("in%d", n))
				a.Type = p.Type
				args[p.Name] = a
				n++
			}
		}
		want := irtest.Array(t, ref, "out/"+optimizer).F
		same(t, optimizer+": the file that is written", f, args, want)

		dict, err := m.merged(trained)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range dict {
			if strings.Contains(x.Name, "lora_") {
				t.Errorf("the state dict has %s", x.Name)
			}
			if p := f.Param(x.Name); p != nil {
				args[x.Name] = (&ir.Tensor{Type: p.Type, Data: x.Data}).Array()
			}
		}
		for _, p := range f.Params {
			if p.Init = nil; args[p.Name] == nil {
				t.Errorf("the state dict lacks %s", p.Name)
			}
		}
		same(t, optimizer+": the state dict", f, args, want)
	}
}

// same holds the result of f to want, in norm.
func same(t *testing.T, what string, f *ir.Func, args map[string]*ir.Array, want []float64) {
	t.Helper()
	out, err := interp.Run(f, args)
	if err != nil {
		t.Fatal(err)
	}
	got, d, n := out.Named["out0"].F, 0.0, 0.0
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for i, x := range want {
		d, n = d+(got[i]-x)*(got[i]-x), n+x*x
	}
	if e := math.Sqrt(d / n); !(e < 1e-5) {
		t.Errorf("%s: the output differs by %.3g", what, e)
	}
}

// TestMergeRefuses contents that are no such tensor, by file and name.
func TestMergeRefuses(t *testing.T) {
	for _, name := range []string{"emb.weight", pass.AdapterPrefix + "emb.lora_embedding_A", pass.AdapterPrefix + "q_proj.lora_B.weight"} {
		err := loaded(t).merge(map[string][]byte{name: make([]byte, 4)})
		if want := fmt.Sprintf("lora.onnx: parameter %q is f32", name); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "4 bytes are given for it") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
