// Package stage cuts the program of one rank into the programs of a pipeline's stages.
//
// # Design
//
// It works on what spmd left: @step on one rank's dims in one micro-batch, where an all_reduce over mesh.TimeAxis (a
// border) divides the work of a micro-batch from that of the whole step. Shardings and sizes are settled by then, so the
// cut weighs what a rank really computes and sends.
//
// The model is cut into Parts = stages * chunks parts, which follow one another; part q is chunk q/stages of stage
// q%stages. Each stage gets a module with, for every chunk V of it,
//
//	fwd.V    the forward of one micro-batch
//	bwd.V    its backward; under zb-h1 only what the stage before waits for
//	wgrad.V  under zb-h1 the rest of the backward: gradients of weights
//
// and step, the work behind the borders. The schedule (distributed/schedule) says when the stage runs which of them on
// which micro-batch.
//
// Phases. F is what the loss, its count, outputs and running statistics are made of; B is all else that depends on the
// data of a micro-batch; U is what lies behind borders. Some values belong to no phase and no part: those that depend on
// no data (constants, random numbers, views of weights) and those that depend on data but on no weight and are cheap
// (masks, one-hot targets). They are computed wherever they are read. The others are called core.
//
// The cut. The core ops of F, in program order, are cut into consecutive parts: the cost of the costliest part (flops and
// bytes) is as small as it can be, give or take a little that is spent on cutting where few bytes cross. A parameter lives
// in the parts that read it. An op of B runs in the last part that is not behind the gradients it reads and has the
// forward values and weights that it reads; then ops move towards the parts that want their results, as long as no more
// bytes travel for it (the gradient of a bias belongs beside the bias). What is added up for a weight is made beside the
// weight, whatever travels.
//
// Messages. A core value that another part reads is sent there right after it is made, once per reading part, and received
// at the start of the function that reads it, in the order in which it is sent, so that one queue for each pair of ranks
// is enough. With several chunks a value goes from part to part, because only neighbours' messages keep that order.
//
// The stash. What bwd reads of fwd (wgrad of both), and what is sent, is a parameter of role ir.Stash, which the earlier
// function updates and the later reads: it has a copy for each micro-batch in flight. Views are taken again, cheap
// elementwise ops are computed again when what they read is stashed anyway. Data that bwd reads is stashed, too: by then
// the inputs are those of another micro-batch. What bwd sends leaves from what bwd stashes: a value of fwd that goes back with
// the gradients (the forward of the loss makes its gradient at once) is stashed by both.
//
// Sums. The operand v of a border is added up in the function that makes it, accum/v <- accum/v + v; step reads the
// accumulator and clears it. The gradient of a weight that several parts read is a sum of one contribution of each: the
// border goes behind the sum, each stage adds up its own contributions, and in step the stages send each other theirs and
// add them in the order of stages, so that the copies of the weight stay equal. (With --reproducible the contributions of
// each micro-batch are added as on one rank instead, and the sum goes to all copies.) An op of U runs on every stage that
// needs it and can have its operands; a scalar that depends on other stages (the loss, its count, squares for the norm of
// all gradients) travels in one all_reduce over pp of a vector in which each stage fills in its own, and is then the same
// on all stages. The norm is computed by the same additions as on one rank, and a tied weight counts once, as there.
//
// @eval and @forward have no schedule: each stage runs its part of the program in order, once for each micro-batch. The
// sums of @eval are completed by an all_reduce over pp, outputs are results of the stage that makes them.
package stage

import (
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/distributed/schedule"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// axis is the mesh axis of the stages.
const axis = mesh.PipelineAxis

// Run makes Context.Stages when the mesh has stages. A model that cannot be cut, or a schedule that does not fit, is an
// error of the user's.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	stages := c.Module.Mesh.Size(axis)
	if stages == 1 {
		return nil
	}
	micros := c.Module.Mesh.Size(mesh.TimeAxis)
	table, err := schedule.Make(c.Opt.Pipeline, stages, c.Opt.Chunks, micros)
	if err != nil {
		e := ir.Errorf(ir.Loc{}, "--pp %d: %v", stages, err)
		if c.Opt.SyncBN && micros == 1 {
			e.Note("statistics of BatchNorm over the whole batch (--sync-bn) make all micro-batches one")
		}
		return e
	}
	if micros < stages {
		c.Remark(nil, "warning: with --microbatches %d no more than %d of the %d stages work at once", micros, micros, stages)
	}
	k := &cutter{c: c, table: table, stages: stages, parts: table.Parts(), homes: map[string][]int{}}
	for range stages {
		m := &ir.Module{Mesh: c.Module.Mesh}
		c.Stages = append(c.Stages, &pass.Context{Module: m, Opt: c.Opt, Pass: c.Pass})
	}
	f := c.Module.Func(abi.FuncStep)
	if f == nil {
		return ir.Errorf(ir.Loc{}, "--pp %d needs a program that trains: a pipeline is cut by the cost of training, and this program only infers", stages).Note("leave --pp out, or give a --loss")
	}
	if err := k.step(f); err != nil {
		return err
	}
	for _, f := range c.Module.Funcs {
		if f.Name != abi.FuncStep {
			k.once(f)
		}
	}
	return nil
}

// cutter cuts a module.
type cutter struct {
	c             *pass.Context
	table         *schedule.Table
	stages, parts int
	homes         map[string][]int // the parts that read a parameter or buffer, ascending, by its name

	f       *ir.Func // @step
	pos     map[*ir.Op]int
	uses    map[*ir.Value][]*ir.Op
	kind    map[*ir.Value]kind
	front   map[*ir.Op]bool // F
	part    map[*ir.Op]int  // of core ops
	borders []*border
	changes map[*ir.Value]bool // buffers that a micro-batch updates
}

// stageOf is the stage of a part, chunkOf which of its chunks the part is.
func (k *cutter) stageOf(part int) int { return part % k.stages }
func (k *cutter) chunkOf(part int) int { return part / k.stages }

// step cuts @step.
func (k *cutter) step(step *ir.Func) error {
	k.f, _ = step.Clone()
	if err := k.phases(); err != nil {
		return err
	}
	if err := k.cut(); err != nil {
		return err
	}
	k.place()
	fl := k.flow()
	for q := range k.parts {
		fl.forward(q)
	}
	for q := k.parts - 1; q >= 0; q-- {
		fl.backward(q)
	}
	k.update()
	for s, c := range k.c.Stages {
		k.actions(s, c)
		k.sort(c.Module)
	}
	return nil
}

// sort brings the functions of a stage into the order of their chunks, step last.
func (k *cutter) sort(m *ir.Module) {
	at := map[string]int{abi.FuncStep: 3 * k.table.Chunks}
	for v := range k.table.Chunks {
		for i, kind := range []schedule.Kind{schedule.F, schedule.B, schedule.W} {
			at[abi.ChunkFunc(kind, v)] = 3*v + i
		}
	}
	slices.SortStableFunc(m.Funcs, func(x, y *ir.Func) int { return at[x.Name] - at[y.Name] })
}

// actions lists what the stage does in a step. Functions that have nothing to do (the backward of frozen layers) are left
// out.
func (k *cutter) actions(stage int, c *pass.Context) {
	for _, a := range k.table.Rank(stage) {
		if n := abi.ChunkFunc(a.Kind, a.Chunk); c.Module.Func(n) != nil {
			c.Actions = append(c.Actions, abi.Action{Func: n, Micro: a.Micro, Slot: a.Slot})
		}
	}
	c.Actions = append(c.Actions, abi.Action{Func: abi.FuncStep, Micro: k.table.Micros - 1})
	c.Slots = k.table.Slots(stage)
}
