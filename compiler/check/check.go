// Package check compiles a model, runs its ranks on the one batch of a reference and compares loss, outputs,
// gradients and training curves. References hold float64 results of another implementation.
package check

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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

// DefaultTol is the tolerance that single precision is held to, HalfTol that of half precision and of tf32: gradients of deep
// networks with batch normalisation may be further off.
const (
	DefaultTol = 1e-4
	HalfTol    = 5e-2
)

// Options says what to check.
type Options struct {
	Compile   compiler.Options // model, dims, parallelism; the optimizer and Check are set here, open dims that are not given come from the reference
	Reference string           // path of REF.npz
	Tol       float64          // largest relative error that passes; 0 is DefaultTol, or HalfTol
	Keep      string           // folder to leave the compiled programs in; "" uses one that goes away
	Threads   int              // of each rank; 0 is its share of the processors
	Steps     int              // updates of each curve to compare; 0 is all
	Curve     string           // compare only the curve of this optimizer; "" is all that the reference has
	NoRun     bool             // compile into Keep and compare nothing
	Built     string           // folder that a check of the same options has kept, here or on another machine: its programs run, nothing is compiled
	Simulate  bool             // interpret the ranks in this process in float64: nothing is built, no kernel runs
}

// curve is an optimizer whose loss curve a reference may have.
type curve struct {
	name string
	opt  pass.Optimizer
}

var curves = []curve{
	{"sgd", pass.Optimizer{Name: "sgd", LR: 0.05, Momentum: 0.9}},
	{"adamw", pass.Optimizer{Name: "adamw", LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01}},
}

// Optimizers are those of the curves that references have, in the order in which a check compiles their programs.
func Optimizers() []pass.Optimizer {
	var list []pass.Optimizer
	for _, c := range curves {
		list = append(list, c.opt)
	}
	return list
}

// Run compiles, runs and compares. An error means that there is nothing to compare. The report is nil with NoRun.
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
	rep := &Report{Tol: o.Tol, Curves: map[string]float64{}, Simulated: o.Simulate, Steps: o.Steps}
	if rep.Precision = o.Compile.Pass.Precision; rep.Precision == "fp32" {
		rep.Precision = ""
	}
	if rep.Tol == 0 && rep.Precision != "" {
		rep.Tol = HalfTol
	} else if rep.Tol == 0 {
		rep.Tol = DefaultTol
	}
	for _, c := range curves {
		if h, err := ref.Header(abi.Curve.Of(c.name)); err == nil && h.Count() == 0 {
			return nil, compiler.Input(fmt.Errorf("%s: array %q is empty", ref.Path(), abi.Curve.Of(c.name)))
		}
	}
	chosen := o.curves(ref)
	if rep.Infers = base.Pass.Loss == pass.NoLoss; rep.Infers {
		chosen = chosen[:1] // nothing is updated
	}
	run := runAll
	if o.Simulate {
		run = simulateAll
	} else if o.Built != "" {
		run, base.Out = runBuilt, o.Built
	} else if dir, err := folder(o); err != nil {
		return nil, err
	} else {
		base.Out = dir
		if o.Keep == "" {
			defer os.RemoveAll(dir)
		}
	}
	got, res, err := run(ctx, o, &base, ref, chosen)
	if err != nil || o.NoRun {
		return nil, err
	}
	rep.Compiled, rep.Warnings = res.Context, res.Warnings
	for _, r := range got {
		if f, ok := r.(io.Closer); ok {
			defer f.Close()
		}
	}
	if err := rep.compare(ref, got[0], res.Parameters); err != nil {
		return nil, err
	}
	for i, c := range chosen {
		if rep.Infers {
			break
		}
		if err := rep.curve(ref, got[i], c.name); err != nil {
			return nil, err
		}
	}
	rep.finish()
	rep.Seconds = time.Since(start).Seconds()
	return rep, nil
}

// Bind fills in what o leaves open and the reference tells: the dims of inputs, and the loss.
func Bind(o *compiler.Options, reference string) error {
	ref, err := npz.Open(reference)
	if err != nil {
		return compiler.Input(err)
	}
	defer ref.Close()
	was := o.Pass
	err = bind(o, ref)
	o.Pass.Check, o.Pass.SyncBN, o.Pass.NoDropout = was.Check, was.SyncBN, was.NoDropout
	return err
}

// bind chooses what the flags leave open and the reference tells: the dims of inputs, and the loss.
func bind(o *compiler.Options, ref *npz.File) error {
	o.Pass.Check, o.Pass.SyncBN, o.Pass.NoDropout = true, true, true
	m, err := onnx.Load(o.Model, o.Import)
	if err != nil {
		return compiler.Input(err)
	}
	defer m.Close()
	dims := map[string]int{}
	for name, n := range o.Import.Dims {
		dims[name] = n
	}
	shapes := maps.Clone(o.Import.Shapes)
	if shapes == nil {
		shapes = map[string][]int{}
	}
	for i, in := range m.Inputs() {
		key := in.Name
		if !has(ref, key) {
			key = "in" + strconv.Itoa(i)
		}
		h, err := ref.Header(key)
		if err != nil {
			return compiler.Input(fmt.Errorf("%s: there is no array for input %q: %w", ref.Path(), in.Name, err))
		}
		if t := in.Type.GetTensorType(); t != nil && t.Shape == nil {
			shapes[in.Name] = h.Shape
		}
		if err := fits(in, h.Shape); err != nil {
			return compiler.Input(fmt.Errorf("%s: array %q: %w", ref.Path(), key, err))
		}
		for d, open := range in.Open {
			if _, bound := dims[open]; open != "" && !bound && len(h.Shape) == len(in.Open) && !(d == in.BatchDim && o.Import.Batch > 0) {
				dims[open] = h.Shape[d]
			}
		}
	}
	o.Import.Dims, o.Import.Shapes = dims, shapes
	if o.Pass.Loss == "" {
		o.Pass.Loss = guessLoss(ref)
	}
	return nil
}

// fits refuses an array without a size that the model fixes for the input, before what is open is taken from the array. In which order
// its dims are is looked at later.
func fits(in onnx.Input, shape []int) error {
	for d, open := range in.Open {
		if size := in.Type.GetTensorType().Shape.Dim[d].GetDimValue(); open == "" && len(shape) == len(in.Open) && !slices.Contains(shape, int(size)) {
			return fmt.Errorf("its shape is %v, but dimension %d of input %q is %d", shape, d, in.Name, size)
		}
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

// curves lists the curves to compare, the last of all when ref has none.
func (o *Options) curves(ref *npz.File) []curve {
	list := slices.DeleteFunc(slices.Clone(curves), func(c curve) bool {
		return !has(ref, abi.Curve.Of(c.name)) || o.Curve != "" && o.Curve != c.name
	})
	if len(list) == 0 {
		list = curves[len(curves)-1:]
	}
	return list
}

// steps is the number of updates to compare of the named curve, 1 when ref has none.
func (o *Options) steps(ref *npz.File, name string) int {
	h, err := ref.Header(abi.Curve.Of(name))
	switch {
	case err != nil:
		return 1
	case o.Steps > 0:
		return min(o.Steps, h.Count())
	}
	return h.Count()
}

// folder is where the programs go.
func folder(o *Options) (string, error) {
	if o.Keep != "" {
		return o.Keep, nil
	}
	return os.MkdirTemp("", "gtc-check-")
}

// runAll compiles a program for each curve and runs them.
func runAll(ctx context.Context, o *Options, base *compiler.Options, ref *npz.File, chosen []curve) ([]results, *compiler.Result, error) {
	var optimizers []pass.Optimizer
	for _, c := range chosen {
		optimizers = append(optimizers, c.opt)
	}
	compiled, err := compiler.Several(ctx, base, optimizers)
	if err != nil {
		return nil, nil, err
	}
	if o.NoRun {
		return nil, compiled[0], nil
	}
	out, err := o.startAll(ctx, compiled[0].Manifest, base.Out, ref, chosen)
	return out, compiled[0], err
}

// startAll runs the programs in dir, one for each curve, on this kind of processor side by side.
func (o *Options) startAll(ctx context.Context, m *abi.Manifest, dir string, ref *npz.File, chosen []curve) ([]results, error) {
	bins := slices.Repeat([]string{filepath.Join(dir, "bin", build.Command)}, max(1, m.Ranks))
	out, errs := make([]results, len(chosen)), make([]error, len(chosen))
	var wg sync.WaitGroup
	for i, c := range chosen {
		run := func() { out[i], errs[i] = o.start(ctx, dir, bins, i, ref, c.name) }
		if m.GPU != nil { // a GPU need not have room for several
			run()
			continue
		}
		wg.Go(run)
	}
	wg.Wait()
	return out, cmp.Or(errs...)
}

// runBuilt runs the programs that a check has kept. The model is only asked for the names of its parameters.
func runBuilt(ctx context.Context, o *Options, base *compiler.Options, ref *npz.File, chosen []curve) ([]results, *compiler.Result, error) {
	text, err := os.ReadFile(filepath.Join(base.Out, build.Marker))
	if err != nil {
		return nil, nil, compiler.Input(fmt.Errorf("--built: %w", err))
	}
	var m abi.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, nil, compiler.Input(fmt.Errorf("--built: %s: %w", filepath.Join(base.Out, build.Marker), err))
	}
	if m.Model != filepath.Base(base.Model) || len(m.Programs)%len(chosen) != 0 {
		return nil, nil, compiler.Input(fmt.Errorf("--built %s: the folder was compiled from %s with %d programs, but this is a check of %s with %d curves", o.Built, m.Model,
			len(m.Programs), filepath.Base(base.Model), len(chosen)))
	}
	model, err := onnx.Load(base.Model, base.Import)
	if err != nil {
		return nil, nil, compiler.Input(err)
	}
	defer model.Close()
	params, _, err := compiler.Adapt(model, base)
	if err != nil {
		return nil, nil, err
	}
	out, err := o.startAll(ctx, &m, base.Out, ref, chosen)
	return out, &compiler.Result{Dir: base.Out, Parameters: params, Warnings: model.Warnings}, err
}

// start runs the ranks of one of the programs in dir, and reads what they wrote.
func (o *Options) start(ctx context.Context, dir string, bins []string, program int, ref *npz.File, curve string) (results, error) {
	path, err := filepath.Abs(filepath.Join(dir, "results-"+curve+".npz"))
	if err != nil {
		return nil, err
	}
	batch, err := filepath.Abs(o.Reference)
	if err != nil {
		return nil, err
	}
	infers := o.Compile.Pass.Loss == pass.NoLoss
	args := []string{"--fixed-batch", batch, "--results", path, "--steps", strconv.Itoa(o.steps(ref, curve)), "--checkpoint-dir", "none"}
	if infers {
		args = []string{"--inputs", batch, "--dump-forward", path}
	}
	if o.Threads > 0 {
		args = append(args, "--threads", strconv.Itoa(o.Threads))
	}
	env := []string{fmt.Sprintf("%s=%d", abi.ProgramVariable, program)}
	var out strings.Builder
	w := &lockedWriter{w: &out}
	if err := launch.Local(ctx, launch.Options{Bins: bins, Args: args, Env: env, Dir: dir, Stdout: w, Stderr: w}); err != nil {
		return nil, &RunError{Err: err, Output: strings.TrimSpace(out.String())}
	}
	f, err := npz.Open(path)
	if infers && err == nil {
		return inferred{f}, nil
	}
	return stored{f}, err
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
