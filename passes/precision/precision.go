// Package precision has the step compute in half precision and keep its memory in f32.
//
// # Design
//
// It runs when the gradients are there and before the optimizer: what is between parameters and gradients may be narrow, the
// update sees f32 parameters (the master weights), f32 gradients and f32 state, and needs no rule of its own. Micro-batches
// are added up behind this border, so their sums are f32, too.
//
// Each f32 value is given one type in which it is stored, the same for all its readers, forward and backward; what an op
// computes in follows from it. So a saved activation is saved once and takes half the bytes, whatever its readers compute in.
//
// The rules of ops are Rules.Precision, as in PyTorch's torch.amp autocast lists:
//
//	low   (matmul, conv, attention, and their gradients) operands and results are narrow; a product that is the gradient
//	      of a parameter is f32, as its sums are
//	keep  (losses, sums, exp, log, pow, …) computes in f32, between casts
//	narrow (softmax, norms, and their gradients) computes in f32, and is stored as narrow as its operands: results are no larger
//	own   (views, look-ups, pools, …) runs in its operands' type, for it moves elements or adds a few
//	""    follows its operands: see plan.follows
//
// Casts to f32 cost nothing: pass fuse gives each reader its own, in registers. Casts to half precision stand where values are
// stored. A parameter is cast once in a step (and micro-batch); views of it are views of its cast.
//
// It differs from autocast in three points. The residual stream is narrow, because embeddings are looked up in half
// precision and an f32 operand that is repeated (a bias, a scale, a position embedding) or made of parameters alone does not
// widen a result; autocast promotes them. Chains of elementwise ops that nothing else reads are not rounded in between. A norm or
// softmax of narrow values is stored narrow.
//
// tf32 is no type of the IR: products of f32 read it off the options (pass.Options.Compute).
package precision

import (
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// Names of the precisions, as --precision has them.
const (
	FP32 = "fp32"
	TF32 = "tf32"
	BF16 = "bf16"
	FP16 = "fp16"
)

// Type is the element type that a precision computes in; Invalid for an unknown name.
func Type(name string) dtype.DType {
	switch name {
	case "", FP32, TF32:
		return dtype.F32
	case BF16:
		return dtype.BF16
	case FP16:
		return dtype.F16
	}
	return dtype.Invalid
}

// Run narrows every function of the module.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	to := Type(c.Opt.Precision)
	switch {
	case to == dtype.Invalid:
		return ir.Errorf(ir.Loc{}, "unknown precision %q", c.Opt.Precision).Note("known are fp32, tf32, bf16, fp16")
	case c.Opt.Precision == TF32 && !c.Traits().TF32:
		c.Remark(nil, "warning: --precision tf32 is fp32 on the %s, which has no shorter multiplication of f32", c.Traits().Title)
	}
	if to == dtype.F32 {
		return nil
	}
	for _, f := range c.Module.Funcs {
		p := newPlan(f)
		p.settle()
		newEmitter(c, p, to).run()
	}
	return nil
}
