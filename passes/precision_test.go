package passes_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// TestRandomPrecisions is TestRandomPrograms in half precision: ranks round where the whole program rounds, but sum in other
// orders, so that two steps agree within interp.HalfTolerance.
func TestRandomPrecisions(t *testing.T) {
	n, refused := 30, 0
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		m, loss := randomForward(r)
		o := randomLayout(r)
		o.Loss, o.Precision = loss, []string{"bf16", "fp16"}[seed%2]
		if o.Precision == "fp16" && seed%4 == 3 { // beyond f16: all ranks and stages skip the step, or none
			o.LossScale = 1e20
		}
		what := fmt.Sprintf("seed %d: %s dp%d tp%d pp%d mb%d zero%d sp=%v %s %s clip %v", seed, o.Precision, o.DP, o.TP, o.PP, o.Microbatches, o.Zero, o.SP, o.Pipeline,
			o.Optimizer.Name, o.ClipNorm)
		text := m.String()
		err := against(m, o)
		var told *ir.Error
		switch {
		case errors.As(err, &told) && !strings.Contains(err.Error(), "BUG"):
			t.Logf("%s: refused: %v", what, err)
			refused++
		case err != nil:
			t.Errorf("%s: %v\n%s", what, err, text)
		}
	}
	if refused > n/4 {
		t.Errorf("%d of %d were refused", refused, n)
	}
}

// TestSavedActivations: half precision halves what the forward pass keeps for the backward pass.
func TestSavedActivations(t *testing.T) {
	for _, name := range []string{"gpt2_tiny.opt.onnx", "llama_tiny.opt.onnx", "bert_tiny.onnx", "timm_test_vit.onnx", "unet_tiny.onnx"} {
		file := filepath.Join(fixtures.Path(t, "models"), name)
		wide, list := saved(t, file, "fp32")
		for _, precision := range []string{"bf16", "fp16"} {
			narrow, half := saved(t, file, precision)
			t.Logf("%s: %d bytes of activations are saved in fp32, %d in %s", name, wide, narrow, precision)
			if float64(narrow) > 0.53*float64(wide) {
				t.Errorf("%s: %d bytes of activations are saved in %s, %d in fp32\n%s\n%s", name, narrow, precision, wide, strings.Join(half, "\n"), strings.Join(list, "\n"))
			}
		}
	}
}

// saved counts the bytes of what kernels of the forward pass make of data and those of the backward pass read, and lists it.
func saved(t *testing.T, file, precision string) (bytes int, list []string) {
	t.Helper()
	base := name(filepath.Base(file))
	m, err := onnx.Load(file, onnx.Options{Batch: max(4, batches[base])})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	mod, err := m.Import()
	if err != nil {
		t.Fatal(err)
	}
	c := &pass.Context{Module: mod, Opt: &pass.Options{Loss: lossOf(base), IgnoreIndex: -100, Precision: precision, Target: pass.CUDA, Arch: []string{"sm_90"},
		Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1}, StopAfter: "fuse"}}
	if err := passes.Run(c, passes.Table); err != nil {
		t.Fatal(err)
	}
	f := mod.Func("step")
	forward, data := map[*ir.Op]bool{}, map[*ir.Value]bool{}
	var back func(v *ir.Value)
	back = func(v *ir.Value) {
		if v != nil && v.Op != nil && !forward[v.Op] {
			forward[v.Op] = true
			for _, x := range v.Op.In {
				back(x)
			}
		}
	}
	back(f.Result("loss_sum"))
	last := 0 // group of the forward pass
	for _, op := range f.Ops {
		for _, v := range op.In {
			if v != nil && (data[v] || v.Role == ir.Input && v.Op == nil) {
				for _, w := range op.Out {
					data[w] = true
				}
			}
		}
		if forward[op] {
			last = max(last, op.Group)
		}
	}
	seen := map[*ir.Value]bool{}
	for _, op := range f.Ops {
		for _, v := range op.In {
			if v == nil || op.Group <= last {
				continue
			}
			v, _, _ := group.Resolve(v)
			if v.Op != nil && v.Op.Def == ops.CastDef && v.Op.In[0].Op == nil { // of data, which is no activation
				continue
			}
			if v.Op != nil && v.Op.Group > 0 && v.Op.Group <= last && data[v] && !seen[v] {
				seen[v] = true
				bytes += v.Type.Bytes()
				list = append(list, fmt.Sprintf("%8d %s %s of %s", v.Type.Bytes(), v.Name, v.Type, v.Op.Def.Name))
			}
		}
	}
	return bytes, list
}
