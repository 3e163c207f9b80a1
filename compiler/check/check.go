// Package check compiles a model, runs its ranks on the one batch of a reference and compares loss, outputs,
// gradients and training curves. References hold float64 results of another implementation.
package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/distributed/launch"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// DefaultTol is the tolerance that single precision is held to.
const DefaultTol = 1e-4

// Options says what to check.
type Options struct {
	Compile   compiler.Options // model, dims, parallelism; the optimizer and Check are set here, open dims that are not given come from the reference
	Reference string           // path of REF.npz
	Tol       float64          // largest relative error that passes; 0 is DefaultTol
	Keep      string           // folder to leave the compiled programs in; "" uses one that goes away
	Threads   int              // of each rank; 0 is its share of the processors
}

// curves are the optimizers whose loss curves a reference may have.
var curves = []struct {
	name string
	opt  pass.Optimizer
}{
	{"sgd", pass.Optimizer{Name: "sgd", LR: 0.05, Momentum: 0.9}},
	{"adamw", pass.Optimizer{Name: "adamw", LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01}},
}

// Run compiles, runs and compares. An error means that there is nothing to compare.
func Run(ctx context.Context, o *Options) (*Report, error) {
	start := time.Now()
	ref, err := npz.Open(o.Reference)
	if err != nil {
		return nil, compiler.Input(err)
	}
	defer ref.Close()
	base := o.Compile
	if err := bind(&base, ref); err != nil {
		return nil, err
	}
	dir := o.Keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "gtc-check-"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
	}
	rep := &Report{Tol: o.Tol, Curves: map[string]float64{}}
	if rep.Tol == 0 {
		rep.Tol = DefaultTol
	}
	base.Out = dir
	runs, params, err := runAll(ctx, o, &base, ref)
	if err != nil {
		return nil, err
	}
	for i, r := range runs {
		err := func() error {
			got, err := npz.Open(r.results)
			if err != nil {
				return err
			}
			defer got.Close()
			if i == 0 {
				if err := rep.compare(ref, got, params); err != nil {
					return err
				}
			}
			return rep.curve(ref, got, r.name)
		}()
		if err != nil {
			return nil, err
		}
	}
	rep.finish()
	rep.Seconds = time.Since(start).Seconds()
	return rep, nil
}

// bind chooses what the flags leave open and the reference tells: the dims of inputs, and the loss.
func bind(o *compiler.Options, ref *npz.File) error {
	o.Pass.Check, o.Pass.SyncBN = true, true
	m, err := onnx.Load(o.Model, o.Import)
	if err != nil {
		return compiler.Input(err)
	}
	defer m.Close()
	dims := map[string]int{}
	for name, n := range o.Import.Dims {
		dims[name] = n
	}
	for i, in := range m.Inputs() {
		key := in.Name
		if !has(ref, key) {
			key = "in" + strconv.Itoa(i)
		}
		h, err := ref.Header(key)
		if err != nil {
			return compiler.Input(fmt.Errorf("%s: no array for input %q: %w", ref.Path(), in.Name, err))
		}
		for d, open := range in.Open {
			if _, bound := dims[open]; open != "" && !bound && len(h.Shape) == len(in.Open) && !(d == 0 && o.Import.Batch > 0) {
				dims[open] = h.Shape[d]
			}
		}
	}
	o.Import.Dims = dims
	if o.Pass.Loss == "" {
		o.Pass.Loss = guessLoss(ref)
	}
	return nil
}

// guessLoss is graph for a model whose output is the loss, mse for a target like the output, else cross_entropy.
func guessLoss(ref *npz.File) string {
	out, err := ref.Header("out0")
	if err == nil && out.Count() == 1 && len(out.Shape) <= 1 {
		return "graph"
	}
	target, err2 := ref.Header("target")
	if err == nil && err2 == nil && strings.HasPrefix(target.DType, "f") && target.Count() == out.Count() {
		return "mse"
	}
	return "cross_entropy"
}

func has(f *npz.File, name string) bool {
	_, err := f.Header(name)
	return err == nil
}

// one is one executed configuration.
type one struct {
	name, dir, results string
	program            int
	bins               []string
}

// runAll compiles a program for each curve that the reference has, at least one, and runs them side by side.
func runAll(ctx context.Context, o *Options, base *compiler.Options, ref *npz.File) ([]*one, []*onnx.Parameter, error) {
	var runs []*one
	var optimizers []pass.Optimizer
	for i, c := range curves {
		if has(ref, "curve/"+c.name) || i == len(curves)-1 && len(runs) == 0 {
			runs = append(runs, &one{name: c.name, dir: base.Out, program: len(runs)})
			optimizers = append(optimizers, c.opt)
		}
	}
	results, err := compiler.Several(ctx, base, optimizers)
	if err != nil {
		return nil, nil, err
	}
	bin := filepath.Join(base.Out, "bin", build.Command)
	errs := make([]error, len(runs))
	var wg sync.WaitGroup
	for i, r := range runs {
		r.bins = slices.Repeat([]string{bin}, max(1, results[0].Manifest.Ranks))
		wg.Go(func() { errs[i] = r.run(ctx, o, ref) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, nil, err
		}
	}
	return runs, results[0].Parameters, nil
}

// run starts the ranks of one configuration.
func (r *one) run(ctx context.Context, o *Options, ref *npz.File) (err error) {
	steps := 1
	if h, err := ref.Header("curve/" + r.name); err == nil {
		steps = h.Count()
	}
	if r.results, err = filepath.Abs(filepath.Join(r.dir, "results-"+r.name+".npz")); err != nil {
		return err
	}
	path, err := filepath.Abs(o.Reference)
	if err != nil {
		return err
	}
	args := []string{"--fixed-batch", path, "--results", r.results, "--steps", strconv.Itoa(steps), "--checkpoint-dir", "none"}
	if o.Threads > 0 {
		args = append(args, "--threads", strconv.Itoa(o.Threads))
	}
	env := []string{fmt.Sprintf("%s=%d", abi.ProgramVariable, r.program)}
	var out strings.Builder
	w := &lockedWriter{w: &out}
	if err := launch.Local(ctx, launch.Options{Bins: r.bins, Args: args, Env: env, Dir: r.dir, Stdout: w, Stderr: w}); err != nil {
		return &RunError{Err: err, Output: strings.TrimSpace(out.String())}
	}
	return nil
}

// RunError is a run of the compiled program that failed; Output is what it said.
type RunError struct {
	Err    error
	Output string
}

// Error gives the outcome, then the program's own words.
func (e *RunError) Error() string {
	if e.Output == "" {
		return "running the compiled program: " + e.Err.Error()
	}
	return "running the compiled program: " + e.Err.Error() + "\n  " + strings.ReplaceAll(e.Output, "\n", "\n  ")
}

// Unwrap gives the launcher's error.
func (e *RunError) Unwrap() error { return e.Err }

// lockedWriter lets several ranks write to one buffer.
type lockedWriter struct {
	mu sync.Mutex
	w  *strings.Builder
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
