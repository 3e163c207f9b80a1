package trainstep

import (
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/passtest"
)

// noisyModel has a dropout, and adds numbers that no form leaves out.
const noisyModel = `func @forward(%x: f32[2,3], %p: f32[1] param, %step: i64[] state) {
  %d = dropout %x, %step {p=0.5, seed=1} : f32[2,3]
  %r = rand %step {seed=2, dims=[2,3]} : f32[2,3]
  %y = add %d, %r : f32[2,3]
  return out0=%y
}`

// TestNoise: dropout stays in @step unless it is for a comparison; what @eval and @forward still draw is noted.
func TestNoise(t *testing.T) {
	for _, without := range []bool{false, true} {
		c, err := passtest.Context("trainstep", noisyModel, map[string]string{"loss": "mse"})
		if err != nil {
			t.Fatal(err)
		}
		c.Opt.NoDropout, c.Opt.Forward = without, true
		for _, op := range c.Module.Funcs[0].Ops {
			op.Loc = ir.Loc{Node: op.Def.Name}
		}
		if err := Run(c); err != nil {
			t.Fatal(err)
		}
		for _, f := range c.Module.Funcs {
			text := f.String()
			if want := f.Name == "step" && !without; strings.Contains(text, "= dropout ") != want || !strings.Contains(text, "= rand ") {
				t.Errorf("without: %v\n%s", without, text)
			}
			if note, want := c.Noise[f.Name], f.Name != "step"; (note == `"rand"`) != want {
				t.Errorf("@%s: %q", f.Name, note)
			}
		}
	}
}
