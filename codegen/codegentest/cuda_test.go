package codegentest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// sampleJobs makes a job of every sample of every op, in f32 and, by turns, in bf16 or f16, as far as the op takes it; with
// GTC_LONG=1 in all three.
func sampleJobs(t *testing.T) (jobs []*Job, want []*interp.Outcome, names []string) {
	for n, d := range ir.Defs() {
		if d.Rules.Beside() || d.Rules.Samples == nil {
			continue
		}
		types := []dtype.DType{dtype.BF16, dtype.F16}
		if os.Getenv("GTC_LONG") == "" {
			types = types[n%2:][:1]
		}
		for _, to := range append(types[:len(types):len(types)], dtype.F32) {
			r := rand.New(rand.NewPCG(7, uint64(len(d.Name))))
			for i, s := range d.Rules.Samples(r) {
				name := fmt.Sprintf("%s_%d of %s", d.Name, i, to)
				if j, out := typedSample(t, d, s, to, r); j != nil {
					jobs, want, names = append(jobs, j), append(want, out), append(names, name)
				}
			}
		}
	}
	return jobs, want, names
}

// TestCUDAKernelsMatchEval: every op, compiled for the CUDA target and run on this processor, agrees with its definition.
func TestCUDAKernelsMatchEval(t *testing.T) {
	jobs, want, names := sampleJobs(t)
	RunCUDA(t, jobs, pass.Options{})
	for i, j := range jobs {
		if j.Err != nil {
			t.Errorf("%s: %v", names[i], j.Err)
			continue
		}
		for k, got := range j.Out {
			tol := 1e-5
			if d := got.Type.DType; d == dtype.BF16 || d == dtype.F16 {
				tol = 2e-2
			}
			if err := interp.Differ(want[i].All[k], got.Array(), tol); err != nil {
				t.Errorf("%s result %d: %v", names[i], k, err)
			}
		}
	}
	t.Logf("%d samples", len(jobs))
	everyTemplate(t, jobs)
}

// byItself are templates that no sample of an op calls here; tests of ir/ops run them on larger samples.
var byItself = []string{"GemmAny"}

// everyTemplate holds the templates of the CUDA target to what jobs called: each has to run somewhere.
func everyTemplate(t *testing.T, jobs []*Job) {
	t.Helper()
	called := slices.Clone(byItself)
	for _, j := range jobs {
		for _, op := range j.Module.Funcs[0].Ops {
			if impl := group.Impl(op); impl.Kind == kir.Template {
				called = append(called, impl.Template)
			}
		}
	}
	for _, name := range cuda.Templates() {
		if !slices.Contains(called, name) {
			t.Errorf("no sample of an op calls template %s on the CUDA target", name)
		}
	}
}
