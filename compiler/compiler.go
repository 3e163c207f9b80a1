// Package compiler takes an ONNX file through the whole of gtc: import, passes, code generation, build. It is
// what cmd/gtc's commands call; it prints nothing.
package compiler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/codegen/rank"
	"github.com/gtc-compiler/gtc/compiler/internal/ahead"
	"github.com/gtc-compiler/gtc/compiler/internal/plan"
	"github.com/gtc-compiler/gtc/compiler/internal/proof"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// Options is everything that a compilation depends on.
type Options struct {
	Model  string            // path of the ONNX file
	Import onnx.Options      // dims, roles
	Pass   pass.Options      // loss, optimizer, parallelism
	Out    string            // output folder
	Build  bool              // also build bin/rank-N
	Comm   string            // what they talk by: local (or empty) or mpi
	CUDA   string            // folder of a CUDA toolkit, whose compiler makes the kernels of target cuda; "": the usual places
	Source bool              // also keep the model and the options in the folder, so that it explains and exports itself
	Flags  map[string]string // as given, for the record in gtc.json

	// Watch, unless nil, is called behind each pass; its error ends the compilation.
	Watch func(c *pass.Context, p pass.Pass) error
	// Building, unless nil, is called when the programs begin to be built, and what it returns when they are.
	Building func() (built func())
}

// Result is a compiled folder and what was learnt on the way.
type Result struct {
	Dir        string
	Module     *ir.Module
	Context    *pass.Context
	Manifest   *abi.Manifest
	Proof      *proof.Report // that the ranks fit together
	Warnings   []string
	Parameters []*onnx.Parameter // the model's, with their roles
	Outputs    []string          // names in the model of the results out0, out1, …
	ahead      map[string]int    // by how many tokens the model's own loss looks ahead in an input

	LowerTime, BuildTime time.Duration // import and passes; writing and building
}

// InputError is a fault in what the user gave: the model, a flag, a folder. Nothing was done.
type InputError struct{ Err error }

// Error is the text of the fault.
func (e *InputError) Error() string { return e.Err.Error() }

// Unwrap gives the fault itself.
func (e *InputError) Unwrap() error { return e.Err }

// Input marks err as a fault of the user's input, unless it is one of gtc's own. nil stays nil.
func Input(err error) error {
	if err == nil || strings.Contains(err.Error(), "BUG:") {
		return err
	}
	return &InputError{err}
}

// maxOps is how many ops a forward pass may have. A step has some three times as many; at this size it takes minutes to
// compile, and no model that people train comes near it (GPT-3's 96 layers are some 5,000 ops).
const maxOps = 250_000

// Lower imports the model and runs all passes; nothing is written.
func Lower(o *Options) (*Result, error) {
	model, res, err := lower(context.Background(), o)
	if model != nil {
		model.Close()
	}
	return res, err
}

// LowerTo is Lower up to and with the pass named last: the module is there, a plan need not be. The tensors of the module
// can be read until use returns.
func LowerTo(o *Options, last string, use func(*Result) error) error {
	o.Pass.StopAfter = last
	model, res, err := imported(context.Background(), o)
	if model != nil {
		defer model.Close()
	}
	if err != nil {
		return err
	}
	return use(res)
}

// Makers tells which C function, template or collective makes each stored value of a lowered module.
func (r *Result) Makers() (map[*ir.Value]string, error) {
	src, err := rank.Generate("prog0", rank.Target{Options: r.Context.Opt}, programs(r)...)
	if err != nil {
		return nil, err
	}
	return src.Makers, nil
}

// lower is Lower with the model's file left open, nil when it could not be opened. The result is as far as it came.
func lower(ctx context.Context, o *Options) (*onnx.Model, *Result, error) {
	model, res, err := imported(ctx, o)
	if last := o.Pass.StopAfter; err == nil && last != "" && res.Context.Programs()[0].Plan.ArenaBytes == 0 {
		err = Input(fmt.Errorf("--stop-after %s: no program can be written after that pass; gtc opt and --dump show the module", last))
	}
	return model, res, err
}

// imported imports the model and runs the passes that o asks for, until ctx ends.
func imported(ctx context.Context, o *Options) (*onnx.Model, *Result, error) {
	start := time.Now()
	res := &Result{Dir: o.Out}
	model, err := onnx.Load(o.Model, o.Import)
	if err != nil {
		return nil, res, Input(err)
	}
	m, err := model.Import()
	if err != nil {
		return model, res, Input(err)
	}
	if o.Pass.Loss == "" {
		o.Pass.Loss = model.DefaultLoss()
	}
	o.Pass.BatchDim = model.BatchDims()
	forAdapters(&o.Pass, model)
	res.ahead = ahead.Of(m.Funcs[0])
	if n := len(m.Funcs[0].Ops); n > maxOps {
		return model, res, Input(fmt.Errorf("%s becomes %d ops, more than the %d that gtc compiles: is a loop unrolled that should be shorter, or one sample of the batch exported at a time? (gtc inspect shows the operators)",
			filepath.Base(o.Model), n, maxOps))
	}
	res.Module, res.Context = m, &pass.Context{Module: m, Opt: &o.Pass}
	res.Context.Watch = func(p pass.Pass) error {
		if err := ctx.Err(); err != nil || o.Watch == nil {
			return err
		}
		return o.Watch(res.Context, p)
	}
	res.Warnings, res.Parameters, res.Outputs = model.Warnings, model.Parameters(), model.Outputs()
	if _, ok := model.Resized(func(batch int) int { return batch }); ok {
		res.Context.Larger = func(times int) (*ir.Func, error) {
			return resized(o, model, func(batch int) int { return batch * times }, res.Context)
		}
		res.Context.Sized = func(size int) (*ir.Func, error) { return resized(o, model, func(int) int { return size }, nil) }
	}
	if err := passes.Run(res.Context, passes.Table); err != nil {
		if ctx.Err() != nil {
			return model, res, ctx.Err()
		}
		var told *ir.Error
		if errors.As(err, &told) && told.File == "" {
			told.File = model.Name
		}
		return model, res, Input(err)
	}
	res.Parameters = parameters(res.Parameters, &o.Pass.LoRA, res.Context.Adapters)
	res.LowerTime = time.Since(start)
	return model, res, nil
}

// resized is @forward of the model for another batch, as it is before trainstep, with the ops that like has, or before any pass where like is nil.
func resized(o *Options, m *onnx.Model, size func(batch int) int, like *pass.Context) (*ir.Func, error) {
	how, _ := m.Resized(size)
	model, err := m.Again(how)
	if err != nil {
		return nil, err
	}
	other, err := model.Import()
	if err != nil {
		return nil, err
	}
	if like == nil {
		return other.Funcs[0], nil
	}
	options := o.Pass
	options.StopAfter, options.DumpDir = "recognize", ""
	c := &pass.Context{Module: other, Opt: &options, Like: like}
	if err := passes.Run(c, passes.Table); err != nil {
		return nil, err
	}
	return other.Func(abi.FuncForward), nil
}

// warn adds a warning, if there is one.
func (r *Result) warn(text string) {
	if text != "" {
		r.Warnings = append(r.Warnings, text)
	}
}

// Run compiles the model into o.Out. Tensor data is copied out of the model's file, which may go away afterwards. It ends
// behind the pass at hand, or while it builds, when ctx does, with its error.
func Run(ctx context.Context, o *Options) (*Result, error) {
	model, res, err := lower(ctx, o)
	if model != nil {
		defer model.Close()
	}
	if err != nil {
		return res, err
	}
	unlock, warning, err := lockOut(o.Out)
	if err != nil {
		return res, Input(err)
	}
	defer unlock()
	res.warn(warning)
	start := time.Now()
	if err := generate(ctx, o, res); err != nil {
		return res, err
	}
	if o.Source {
		if err := keepSource(o, model); err != nil {
			return res, err
		}
	}
	if o.Build {
		err = binaries(ctx, o, res.Manifest.Ranks)
	}
	res.BuildTime = time.Since(start)
	return res, err
}

// binaries builds the programs of o.Out.
func binaries(ctx context.Context, o *Options, ranks int) error {
	if o.Building != nil {
		defer o.Building()()
	}
	return build.Binaries(ctx, o.Out, build.How{Ranks: ranks, Comm: o.Comm, On: o.Pass.On()})
}

// write completes the folder and puts it on disk, weights included. The manifest is the first result's.
func write(o *Options, f *build.Folder, results ...*Result) error {
	text, err := json.MarshalIndent(results[0].Manifest, "", " ")
	if err != nil {
		return err
	}
	f.Dir, f.Manifest = o.Out, append(text, '\n')
	if err := build.Write(f); err != nil {
		return Input(err)
	}
	var modules []*ir.Module
	for _, r := range results {
		for _, c := range r.Context.Programs() {
			modules = append(modules, c.Module)
		}
	}
	return safetensors.WriteFile(filepath.Join(o.Out, abi.Weights), plan.Weights(results[0].Context.FileDims, modules...), nil)
}

// fileSum is the SHA-256 of a file, in hex.
func fileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
