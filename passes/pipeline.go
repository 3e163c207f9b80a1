// Package passes holds the pipeline: the table of passes in the order in which they run, and the driver
// that runs them. A pass is a package below this one; it knows the module, the options and the facts that
// earlier passes made (package pass), never another pass.
package passes

import (
	"github.com/gtc-compiler/gtc/passes/autodiff"
	"github.com/gtc-compiler/gtc/passes/compress"
	"github.com/gtc-compiler/gtc/passes/epilogue"
	"github.com/gtc-compiler/gtc/passes/fuse"
	"github.com/gtc-compiler/gtc/passes/lora"
	"github.com/gtc-compiler/gtc/passes/memplan"
	"github.com/gtc-compiler/gtc/passes/microbatch"
	"github.com/gtc-compiler/gtc/passes/multitensor"
	"github.com/gtc-compiler/gtc/passes/normalize"
	"github.com/gtc-compiler/gtc/passes/optimizer"
	"github.com/gtc-compiler/gtc/passes/overlap"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/precision"
	"github.com/gtc-compiler/gtc/passes/recognize"
	"github.com/gtc-compiler/gtc/passes/rows"
	"github.com/gtc-compiler/gtc/passes/schedule"
	"github.com/gtc-compiler/gtc/passes/shard"
	"github.com/gtc-compiler/gtc/passes/simplify"
	"github.com/gtc-compiler/gtc/passes/spmd"
	"github.com/gtc-compiler/gtc/passes/stage"
	"github.com/gtc-compiler/gtc/passes/trainstep"
	"github.com/gtc-compiler/gtc/passes/tree"
	"github.com/gtc-compiler/gtc/passes/unstack"
)

// unplanned are the facts that do not hold of a module whose ops change.
const unplanned = pass.Grouped | pass.Scheduled | pass.Planned

// remade are the facts that do not hold of values and ops that are new.
const remade = pass.Sharded | pass.Ordered | unplanned

// Finished are the facts of a program of which code is made.
const Finished = pass.HasUpdate | pass.Local | pass.Ordered | unplanned

// Table is the pipeline. Options choose parameters of passes, never their order.
var Table = []pass.Pass{
	{Name: "lora", Run: lora.Run, Needs: pass.Typed, Clears: pass.Core,
		Why: "adapters are ordinary ops for all that follows; here products are still those of the model, one for each weight"},
	{Name: "normalize", Run: normalize.Run, Needs: pass.Typed, Makes: pass.Core,
		Why: "shapes folded, one spelling of each thing; later passes see core ops only"},
	{Name: "recognize", Run: recognize.Run, Needs: pass.Typed | pass.Core,
		Why: "idioms are raised before differentiation, so their gradients are the fast ones"},
	{Name: "trainstep", Run: trainstep.Run, Needs: pass.Typed | pass.Core, Makes: pass.HasLoss, Clears: pass.Typed,
		Why: "the loss, its metrics, BatchNorm and Dropout in training form"},
	{Name: "unstack", Run: unstack.Run, Needs: pass.HasLoss, Before: []string{"autodiff"},
		Why: "fused projections taken apart before they are differentiated, so that tensor parallelism can split each part"},
	{Name: "autodiff", Run: autodiff.Run, Needs: pass.HasLoss, Makes: pass.HasGrad,
		Why: "VJP rules assume that nothing is overwritten"},
	{Name: "precision", Run: precision.Run, Needs: pass.HasGrad, Makes: pass.Cast,
		Why: "between parameters and gradients, forward and backward, values get their types; the update behind them stays f32"},
	{Name: "optimizer", Run: optimizer.Run, Needs: pass.HasGrad, Makes: pass.HasUpdate, Clears: pass.HasGrad,
		Why: "clip, schedule and update are ordinary ops: sharded, fused and planned like the rest"},
	{Name: "simplify", Run: simplify.Run, Needs: pass.HasUpdate, Clears: remade,
		Why: "fewer ops to shard: equal ones shared, dead ones dropped, algebra"},
	{Name: "rows", Run: rows.Run, Needs: pass.HasUpdate, Clears: remade,
		Why: "gradients, too, merge dims in which samples are not outermost; shard splits whole dims or their outermost part"},
	{Name: "shard", Run: shard.Run, Needs: pass.HasUpdate, Makes: pass.Sharded, Clears: remade,
		Why: "annotates only: the graph is still global and still runs in interp"},
	{Name: "spmd", Run: spmd.Run, Needs: pass.Sharded, Makes: pass.Local, Clears: remade,
		Why: "per-rank dims and explicit collectives, before anything looks at sizes or bytes"},
	{Name: "microbatch", Run: microbatch.Run, Needs: pass.Local, Clears: remade,
		Why: "what is summed over time is known only when all reductions are explicit"},
	{Name: "stage", Run: stage.Run, Needs: pass.Local, Makes: pass.Staged, Clears: remade, After: []string{"microbatch"},
		Why: "the cut weighs what a rank computes and sends; later passes see one module for each stage"},
	{Name: "tree", Run: tree.Run, Needs: pass.Local, Clears: remade, After: []string{"microbatch", "stage"},
		Why: "how sums over time are added up is told only to reproducible programs, when all of them are explicit"},
	{Name: "compress", Run: compress.Run, Needs: pass.Local, Clears: remade,
		Why: "what is sent instead of a gradient is ordinary ops and smaller reductions, which overlap buckets"},
	{Name: "overlap", Run: overlap.Run, Needs: pass.Local, Makes: pass.Ordered, Clears: unplanned,
		Why: "fuse keeps the order of collectives, which are barriers between kernels"},
	{Name: "epilogue", Run: epilogue.Run, Needs: pass.Ordered, Clears: unplanned,
		Why: "products of a GPU take over what follows them before fuse finds it a kernel"},
	{Name: "fuse", Run: fuse.Run, Needs: pass.Ordered, Makes: pass.Grouped, Clears: pass.Scheduled | pass.Planned,
		Why: "after collectives, which are fusion barriers"},
	{Name: "schedule", Run: schedule.Run, Needs: pass.Grouped, Makes: pass.Scheduled, Clears: pass.Planned,
		Why: "what runs, in which order, and waits for what: memory is planned for that and for nothing else"},
	{Name: "memplan", Run: memplan.Run, Needs: pass.Scheduled, Makes: pass.Planned,
		Why: "one arena, every buffer an offset; the peak is known before anything runs"},
	{Name: "multitensor", Run: multitensor.Run, Needs: pass.Planned,
		Why: "calls are put off as far as the memory that they touch allows: it is not made larger for that"},
}

func init() {
	if err := Check(Table, pass.Typed, Finished); err != nil {
		panic("BUG: " + err.Error())
	}
}
