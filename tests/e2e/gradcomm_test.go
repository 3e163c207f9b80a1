package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// The ways of sending gradients, as real ranks: each trains about as well as plain data parallelism, a run with a break
// gives the same bits, since errors and local state are saved for each rank, and another number of ranks goes on.
func TestGradComm(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds programs")
	}
	plain := losses(run(t, compiled(t, two).Dir, 2, append(sameSteps, "none", "--steps", "60")...))
	for _, c := range []struct {
		comm  pass.GradComm
		state string // kept for each rank
		told  string // when four ranks go on
	}{
		{comm: pass.GradComm{DType: "bf16"}},
		{comm: pass.GradComm{Compress: "powersgd", Rank: 4}, state: "optim/error/", told: "of 2 ranks are added up and dealt out"},
		{comm: pass.GradComm{Compress: "topk", Fraction: 0.1}, state: "optim/error/", told: "of 2 ranks are added up and dealt out"},
		{comm: pass.GradComm{Compress: "int8"}, state: "optim/error/", told: "of 2 ranks are added up and dealt out"},
		{comm: pass.GradComm{Period: 5, After: 10}, state: "optim/", told: "of 2 ranks are averaged"},
	} {
		if os.Getenv("GTC_LONG") == "" && c.comm.Rank == 0 && c.comm.Period == 0 {
			continue // ir/interp runs them in passes
		}
		t.Run(fmt.Sprintf("%+v", c.comm), func(t *testing.T) {
			o := two.options(filepath.Join(t.TempDir(), "out"))
			o.Build, o.Pass.GradComm = true, c.comm
			if _, err := compiler.Run(context.Background(), o); err != nil {
				t.Fatal(err)
			}
			whole, broken := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "broken")
			got := losses(run(t, o.Out, 2, append(sameSteps, whole, "--steps", "60")...))
			if mean(got[50:]) > 1.3*mean(plain[50:])+0.05 {
				t.Errorf("the loss of the last steps is %g, plain %g", mean(got[50:]), mean(plain[50:]))
			}
			run(t, o.Out, 2, append(sameSteps, broken, "--steps", "30")...)
			run(t, o.Out, 2, append(sameSteps, broken, "--steps", "60", "--resume")...)
			sameTensors(t, whole, broken)
			_, data := tensors(t, whole)
			for name, b := range data {
				if of, ok := strings.CutPrefix(name, "optim/error/"); ok && len(b) != 2*len(data[of]) {
					t.Errorf("%q has %d bytes, %q %d: want an entry for each of 2 ranks", name, len(b), of, len(data[of]))
				}
			}
			if c.told == "" {
				return
			}
			four := spec{model: mlp, batch: 32, dp: 4, micro: 1, lr: 2e-3}.options(filepath.Join(t.TempDir(), "out"))
			four.Build, four.Pass.GradComm = true, c.comm
			if _, err := compiler.Run(context.Background(), four); err != nil {
				t.Fatal(err)
			}
			j := start(t, four.Out, 4, append(sameSteps, broken, "--steps", "62", "--resume")...)
			for r := range 4 {
				j.code(r, time.Minute)
			}
			if text := j.text(); len(losses(j.events)) != 2 || !strings.Contains(text+fmt.Sprint(j.events), c.told) {
				t.Errorf("four ranks go on with %d steps, and do not tell that values %s:\n%s", len(losses(j.events)), c.told, text)
			}
		})
	}
}

func mean(list []float64) float64 {
	sum := 0.0
	for _, v := range list {
		sum += v
	}
	return sum / float64(len(list))
}
