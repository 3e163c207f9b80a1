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

// TestCompiled changes one rank of real programs in every way: nothing is left but what stops nobody, which the rule that
// ranks of a stage are alike finds where a stage has several.
func TestCompiled(t *testing.T) {
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
			caught, left := 0, map[string]int{}
			for rank := range m.Ranks {
				p := m.Programs[m.RankProgram[rank]]
				for _, mu := range proof.Mutants(p, m.Mesh) {
					bad := proof.With(m, rank, mu.P)
					if _, err := proof.Check(bad); err != nil {
						caught++
					} else if alone := m.Ranks == max(1, o.PP); !alone {
						t.Errorf("rank %d: not caught: %s", rank, mu.What())
					}
					if _, err := proof.Simulate(bad, true); err == nil {
						why := proof.Harmless(&p, &mu.P)
						if left[why]++; why == "" {
							t.Errorf("rank %d: not simulated: %s", rank, mu.What())
						}
					}
				}
			}
			t.Logf("%d ranks: %d caught; in the simulation, %v left", m.Ranks, caught, left)
		})
	}
}
