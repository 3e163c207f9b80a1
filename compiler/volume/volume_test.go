package volume_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/volume"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// compiled compiles the small GPT, all of whose parameters divide by 2 and 4, with each gradient in a message of its own.
func compiled(t *testing.T, o pass.Options) *compiler.Result {
	t.Helper()
	model := fixtures.Path(t, "models/gpt_loss_inside.onnx")
	o.Loss, o.BucketBytes, o.Optimizer = "graph", 1, pass.Optimizer{Name: "sgd", LR: 0.1}
	res, err := compiler.Run(context.Background(), &compiler.Options{Model: model, Out: t.TempDir(), Import: onnx.Options{Batch: 8}, Pass: o})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// params is the bytes of all parameters of the model, whole.
func params(m *abi.Manifest) (bytes int) {
	for _, p := range m.Programs[0].Tensors {
		if p.Role == abi.RoleParam {
			n := p.Bytes
			for range strings.Join(p.ShardAxes, "") {
				n = 4 * ir.Product(p.Global)
			}
			bytes += n
		}
	}
	return bytes
}

func scalar(c abi.Collective) bool { return c.Bytes <= 8 }

// TestZeROAsPublished checks the volumes of section 7 of the ZeRO paper (arXiv:1910.02054): 2 Psi (n-1)/n a step for data
// parallelism and for stages 1 and 2, 3 Psi (n-1)/n for stage 3, of which those parameters need less that the backward pass
// does not read (embeddings and what is added: their gradients do not depend on them). Over M micro-batches stage 2
// scatters M times what stage 1 scatters once.
func TestZeROAsPublished(t *testing.T) {
	for _, k := range []struct{ dp, mb int }{{2, 1}, {4, 2}} {
		for zero := range 4 {
			t.Run(fmt.Sprintf("zero%d dp%d mb%d", zero, k.dp, k.mb), func(t *testing.T) {
				m := compiled(t, pass.Options{DP: k.dp, Zero: zero, Microbatches: k.mb}).Manifest
				psi, ring, times := float64(params(m)), float64(k.dp-1)/float64(k.dp), float64(k.mb)
				got := volume.Step(m, 0, func(c abi.Collective) bool { return !scalar(c) })
				want := 2 * psi * ring
				switch zero {
				case 2:
					want = (times + 1) * psi * ring
				case 3:
					unread := 0.0
					for _, p := range m.Programs[0].Tensors {
						if p.Role == "param" && !gathered(m, p.Name+".backward") {
							unread += float64(4 * ir.Product(p.Global))
						}
					}
					want = times * (3*psi - unread) * ring
					if unread > psi/4 {
						t.Errorf("%v of %v bytes are not gathered for the backward pass", unread, psi)
					}
				}
				if math.Abs(got-want) > 1e-6 {
					t.Errorf("a rank sends %v bytes a step, the formula says %v (%v parameters)", got, want, psi)
				}
			})
		}
	}
}

func gathered(m *abi.Manifest, name string) bool {
	return slices.ContainsFunc(m.Programs[0].Collectives, func(c abi.Collective) bool {
		return c.Kind == "all_gather" && c.Func == "step" && strings.HasPrefix(strings.Join(c.Tensors, " "), name)
	})
}

// TestEachWeightThreeTimes checks that ZeRO-3 moves 1.5 times what data parallelism does, exactly, of each weight of a
// matrix product: gathered twice, its gradient scattered once.
func TestEachWeightThreeTimes(t *testing.T) {
	m := compiled(t, pass.Options{DP: 4, Zero: 3}).Manifest
	checked := 0
	for _, p := range m.Programs[0].Tensors {
		if p.Role != "param" || !gathered(m, p.Name+".backward") {
			continue
		}
		checked++
		gathers := volume.Step(m, 0, func(c abi.Collective) bool {
			return c.Kind == "all_gather" && strings.HasPrefix(strings.Join(c.Tensors, " "), p.Name+".")
		})
		scatters := volume.Step(m, 0, func(c abi.Collective) bool {
			return c.Kind == "reduce_scatter" && strings.HasPrefix(c.Tensors[0], "d_"+p.Name)
		})
		if all := 2 * 3.0 / 4 * float64(4*ir.Product(p.Global)); gathers+scatters != 1.5*all || scatters != all/2 {
			t.Errorf("%s: %v bytes in gathers and %v in scatters; an all_reduce takes %v", p.Name, gathers, scatters, all)
		}
	}
	if checked < 4 {
		t.Errorf("%d weights are gathered twice", checked)
	}
}
