// Package gtc is the Go interface of the compiler: it compiles ONNX models into folders of training programs, tells what it makes
// of a model, and compares programs with a reference. The command gtc is a thin user of it.
//
// Options begin with Defaults, whose fields are those of the command's flags (docs/cli.md). A compiled folder is a Go module by
// itself: its programs need neither this package nor the model.
package gtc

import (
	"context"

	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/check"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// Version is gtc's version, written into manifests and checked by nothing else.
const Version = build.Version

// What the packages below hold of the interface.
type (
	// Options is everything that a compilation depends on beside the model's file.
	Options = compiler.Options
	// Import says how a model's free choices are bound, and what of it is trained: Options.Import.
	Import = onnx.Options
	// Training is the loss, the update, and how the work is split: Options.Pass.
	Training = pass.Options
	// Optimizer is the rule of updates: Training.Optimizer.
	Optimizer = pass.Optimizer
	// Schedule is the learning rate over the steps: Training.Schedule.
	Schedule = pass.Schedule
	// GradComm is how gradients travel between data-parallel ranks: Training.GradComm.
	GradComm = pass.GradComm
	// RoleRule trains or freezes the parameters that match: Import.Roles.
	RoleRule = onnx.RoleRule
	// LoRA asks for low-rank adapters: Training.LoRA.
	LoRA = pass.LoRA
	// Result is a compiled folder and what was learnt on the way.
	Result = compiler.Result
	// Info is what gtc makes of a model.
	Info = onnx.Info
	// Parameter is a tensor of a model with its role in training.
	Parameter = onnx.Parameter
	// Comparison says what to compare with what.
	Comparison = check.Options
	// Report is how far off a comparison found a program.
	Report = check.Report
	// InputError is a fault in what was given: the model, an option, a folder. Nothing was done.
	InputError = compiler.InputError
)

// NoLoss as Training.Loss makes a program that only infers.
const NoLoss = pass.NoLoss

// Defaults are the options that hold where nobody says otherwise: one rank, fp32, plain SGD at 1e-3.
func Defaults() Options { return compiler.Defaults() }

// Compile compiles the ONNX file model into the folder o.Out, and builds the programs there with o.Build, which takes the Go
// toolchain and a C compiler. The result is as far as it came when there is an error; that is an *InputError for a fault of
// the model or of an option, and then names node, tensor or option.
func Compile(ctx context.Context, model string, o Options) (*Result, error) {
	o.Model = model
	if err := o.Limits(); err != nil {
		return nil, err
	}
	return compiler.Run(ctx, &o)
}

// Inspect tells what gtc makes of the ONNX file model: inputs, outputs, operators, and which tensors it trains and why. Open
// dimensions that o does not bind count as 1, with a warning. Of o.Pass only LoRA counts.
func Inspect(model string, o Options) (*Info, error) {
	o.Model = model
	if err := o.Limits(); err != nil {
		return nil, err
	}
	return compiler.Inspect(&o)
}

// Check compiles the ONNX file model, runs its ranks on the one batch of a reference, and compares outputs, loss, gradients and
// training curves, as far as the reference has them. An error means that there is nothing to compare. The report is nil
// with c.NoRun.
func Check(ctx context.Context, model string, c Comparison) (*Report, error) {
	c.Compile.Model = model
	if err := c.Compile.Limits(); err != nil {
		return nil, err
	}
	return check.Run(ctx, &c)
}
