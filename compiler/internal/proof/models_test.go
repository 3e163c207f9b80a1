package proof_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/internal/proof"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/internal/mutations"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// compiled is the plan of the small MLP of the shared models.
func compiled(t *testing.T, o pass.Options) *abi.Manifest {
	t.Helper()
	model := fixtures.Path(t, "models/mlp.onnx")
	o.Loss, o.IgnoreIndex, o.ClipNorm, o.Optimizer = "cross_entropy", -100, 1, pass.Optimizer{Name: "adamw", LR: 0.1}
	res, err := compiler.Run(context.Background(), &compiler.Options{Model: model, Out: t.TempDir(), Import: onnx.Options{Batch: 16}, Pass: o})
	if err != nil {
		t.Fatal(err)
	}
	return res.Manifest
}

// TestMutationsOfCompiled changes one rank of real programs in every way: nothing is left but what stops nobody, which the rule that
// ranks of a stage are alike finds where a stage has several.
func TestMutationsOfCompiled(t *testing.T) {
	for _, o := range []pass.Options{
		{DP: 2, Microbatches: 4},
		{DP: 2, TP: 2},
		{PP: 2, Microbatches: 4},
		{PP: 2, Microbatches: 4, Pipeline: "zb-h1"},
		{PP: 2, Microbatches: 4, Pipeline: "interleaved"},
		{PP: 2, DP: 2, TP: 2, Microbatches: 4},
	} {
		name := strings.TrimSpace(fmt.Sprintf("pp%d dp%d tp%d %s", max(1, o.PP), max(1, o.DP), max(1, o.TP), o.Pipeline))
		t.Run(name, func(t *testing.T) {
			m := compiled(t, o)
			list := mutations.Of(t, 20)
			for rank := range m.Ranks {
				p := m.Programs[m.RankProgram[rank]]
				for _, mu := range proof.Mutants(p, m.Mesh) {
					bad := proof.With(m, rank, mu.P)
					what := fmt.Sprintf("%s, rank %d: %s", name, rank, mu.What())
					_, told := proof.Check(bad)
					if alone := m.Ranks == max(1, o.PP); told == nil && !alone {
						t.Errorf("%s: the rule that ranks of a stage are alike does not find it", what)
					}
					_, stopped := proof.Simulate(bad, true)
					why := proof.Harmless(&p, &mu.P)
					switch {
					case stopped == nil && why == "":
						list.Missed(what)
					case told == nil:
						list.Harmless(what, why)
					default:
						list.Caught(what, "proof", told)
					}
				}
			}
		})
	}
}
