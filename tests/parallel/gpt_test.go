package parallel

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/bench/compile/gpt"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// small is a GPT of which every dim divides by 8, so that the formulas hold without remainders.
var small = gpt.Config{Layers: 4, Width: 64, Heads: 8, Vocab: 512, Seq: 32, Data: func(name string, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(0.05 * math.Sin(float64(i+len(name))))
	}
	return x
}}

const smallBatch = 16

// write leaves the ONNX file of c in a folder that goes away.
func write(t *testing.T, c gpt.Config) string {
	t.Helper()
	data, err := gpt.Model(c)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "gpt.onnx")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// planned compiles a GPT trained by Adam up to the plan of its memory.
func planned(t *testing.T, c gpt.Config, batch int, set func(o *pass.Options)) *pass.Context {
	t.Helper()
	o := &compiler.Options{Model: write(t, c), Import: onnx.Options{Batch: batch}}
	o.Pass = pass.Options{Loss: "cross_entropy", IgnoreIndex: -100, Optimizer: pass.Optimizer{Name: "adam", LR: 1e-3}}
	set(&o.Pass)
	res, err := compiler.Lower(o)
	if err != nil {
		t.Fatal(err)
	}
	return res.Context
}

// keptBytes are the bytes that a rank of c's only program keeps between steps: parameters, sums of gradients over
// micro-batches, and the two moments of Adam. The step counter is left out.
func keptBytes(c *pass.Context) (params, grads, moments int) {
	seen := map[string]bool{}
	for _, f := range c.Module.Funcs {
		for _, p := range f.Params {
			if seen[p.Name] || len(p.Type.Dims) == 0 {
				continue
			}
			seen[p.Name] = true
			switch {
			case p.Role == ir.Param:
				params += p.Type.Bytes()
			case p.Role == ir.State && len(p.Name) > 6 && p.Name[:6] == "accum/":
				grads += p.Type.Bytes()
			case p.Role == ir.State:
				moments += p.Type.Bytes()
			}
		}
	}
	return params, grads, moments
}

// live is the most bytes of the arena that hold values of f at once: what was made and is read later. Parameters, state
// and inputs are not among them.
func live(f *ir.Func) int {
	last := lastReads(f)
	fixed := map[int]bool{}
	for _, p := range f.Params {
		fixed[p.Offset] = true
	}
	most := 0
	var held []*ir.Value
	for i, op := range f.Ops {
		for _, v := range op.Out {
			if v.Offset != ir.NoOffset && !fixed[v.Offset] && op.Def.Name != "const" {
				held = append(held, v)
			}
		}
		held = slices.DeleteFunc(held, func(v *ir.Value) bool { return last[v] <= i })
		most = max(most, covered(held))
	}
	return most
}

// lastReads is where each value is read last. Who reads a value that is stored nowhere (part of a kernel, a view with
// strides) reads what that is made of.
func lastReads(f *ir.Func) map[*ir.Value]int {
	last := map[*ir.Value]int{}
	for _, r := range f.Results {
		last[r.Value] = len(f.Ops)
	}
	for i, op := range slices.Backward(f.Ops) {
		at := i
		for _, v := range op.Out {
			if v.Offset == ir.NoOffset {
				at = max(at, last[v])
			}
		}
		for _, v := range op.In {
			if v != nil {
				last[v] = max(last[v], at)
			}
		}
	}
	return last
}

// covered is the number of bytes that values, some of them views of others, take in the arena.
func covered(vs []*ir.Value) int {
	sorted := slices.Clone(vs)
	slices.SortFunc(sorted, func(a, b *ir.Value) int { return a.Offset - b.Offset })
	sum, end := 0, 0
	for _, v := range sorted {
		from, to := max(v.Offset, end), v.Offset+v.Type.Bytes()
		if to > from {
			sum, end = sum+to-from, to
		}
	}
	return sum
}
