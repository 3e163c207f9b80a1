package abi

import "strings"

// Prefix begins the names of tensors and results of one kind; what follows says of which other tensor they are. Names are a protocol:
// passes give them, checkpoints and reference files hold them, and the run-time tells by them what to save, to reset or to show.
// Nobody spells one out but here (tests/protocols_test.go).
type Prefix string

// The kinds of names that say of what they are.
const (
	Gradient   Prefix = "grad/"  // result: the gradient of a parameter
	OptimState Prefix = "optim/" // state of the optimizer, KIND/PARAMETER: see Optim
	Accum      Prefix = "accum/" // state that sums over the micro-batches of a step: zeros between steps, and not saved
	WholeData  Prefix = "whole/" // an input, target or weight of all micro-batches of a step, which @eval may read at once
	Stashed    Prefix = "stash/" // what the forward of a micro-batch keeps for its backward, [CHUNK/]VALUE
	SentBack   Prefix = "back/"  // the same, where a message leaves from
	AtStep     Prefix = "step/"  // a message between stages at the step's end
	Constant   Prefix = "const/" // a stored constant, by its text
	Curve      Prefix = "curve/" // of a reference file: the loss before each step of an optimizer
)

// Of is the name of this kind for the tensor called name.
func (p Prefix) Of(name string) string { return string(p) + name }

// Cut gives what name is of; false when it is no name of this kind.
func (p Prefix) Cut(name string) (of string, ok bool) { return strings.CutPrefix(name, string(p)) }

// Has reports whether name is of this kind.
func (p Prefix) Has(name string) bool { return strings.HasPrefix(name, string(p)) }

// Trim is what name is of; name itself when it is no name of this kind.
func (p Prefix) Trim(name string) string { return strings.TrimPrefix(name, string(p)) }

// Kinds of optimizer state with a meaning of their own; others are those of an update rule (momentum, exp_avg, …).
const (
	KindError = "error"      // what gradient compression left out
	KindQuery = "powersgd_q" // PowerSGD's Q of the step before
)

// Optim is the name of the optimizer state of that kind for a parameter.
func Optim(kind, param string) string { return OptimState.Of(kind + "/" + param) }

// CutOptim takes the name of optimizer state apart; false when it is none.
func CutOptim(name string) (kind, param string, ok bool) {
	rest, ok := OptimState.Cut(name)
	if !ok {
		return "", "", false
	}
	kind, param, _ = strings.Cut(rest, "/")
	return kind, param, true
}

// Names of state that a run keeps beside that of the optimizer.
const (
	StepCount    = "step"               // i64[]: updates done, from which the learning rate and random numbers follow
	EmptySteps   = "empty_steps"        // i64[]: steps in which nothing counted for the loss, where that may happen
	NoiseSeed    = "noise_seed"         // i64[] of 0 to 2^31-1: tells apart the random numbers of runs of one program
	LossScale    = "loss_scale"         // f32[], of fp16; also a result of @step: the scale that the step used
	GoodSteps    = "loss_scale_good"    // i64[]: steps since the scale last changed
	SkippedSteps = "loss_scale_skipped" // i64[]: skipped steps in all
)

// OfRun reports whether a tensor of that name belongs to a run or its program, not to the model: another run, or another system, does
// not go on from it.
func OfRun(name string) bool {
	return name == StepCount || name == EmptySteps || name == NoiseSeed || strings.HasPrefix(name, LossScale) || OptimState.Has(name) || Constant.Has(name)
}

// SampleWeight is the parameter with the weights of samples, f32[batch]: 0 for those that fill up a batch that is not full.
const SampleWeight = "sample_weight"

// Names of results of functions, all f32[]. Outputs of the model are OutputPrefix and a number.
const (
	LossSum  = "loss_sum"  // over the samples, tokens, … that count
	Count    = "count"     // of these
	Correct  = "correct"   // of these, where the loss has classes
	Rate     = "lr"        // learning rate that the step used
	GradNorm = "grad_norm" // of all gradients, before clipping
	Skipped  = "skipped"   // SkippedSteps
	Empty    = "empty"     // EmptySteps
)

// Role says what a tensor is to a program.
type Role string

// The roles of tensors. Data are those that change from batch to batch.
const (
	RoleInput  Role = "input"  // data
	RoleTarget Role = "target" // data that the loss compares outputs with
	RoleWeight Role = "weight" // data: of each sample, 0 for what fills up a batch that is not full
	RoleParam  Role = "param"  // what is trained
	RoleBuffer Role = "buffer" // of the model, and not trained: running statistics, or frozen
	RoleState  Role = "state"  // the optimizer's, and what else a run keeps from step to step
	RoleStash  Role = "stash"  // what the forward of a micro-batch keeps for its backward
	RoleWhole  Role = "whole"  // data of all micro-batches of a step: see WholeData
	RoleConst  Role = "const"  // a stored constant
	RoleResult Role = "result" // of a function
)
