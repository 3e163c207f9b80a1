package parallel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// layout is one way to split a model, and what must be seen in the programs so that the check is not of one rank's.
type layout struct {
	name string
	set  func(o *pass.Options)
	seen func(c *pass.Context) error
}

func options(dp, tp, pp, micro, zero int) func(o *pass.Options) {
	return func(o *pass.Options) { o.DP, o.TP, o.PP, o.Microbatches, o.Zero = dp, tp, pp, micro, zero }
}

// pipeline are options of two stages.
func pipeline(dp, tp, micro int, schedule string) func(o *pass.Options) {
	return func(o *pass.Options) {
		o.DP, o.TP, o.PP, o.Microbatches, o.Pipeline = dp, tp, 2, micro, schedule
	}
}

// zero adds a stage of ZeRO.
func zero(set func(o *pass.Options), stage int) func(o *pass.Options) {
	return func(o *pass.Options) {
		set(o)
		o.Zero = stage
	}
}

// sequence are options of sequence parallelism over two ranks.
func sequence(dp int) func(o *pass.Options) {
	return func(o *pass.Options) { o.DP, o.TP, o.SP = dp, 2, true }
}

// layouts are those of the grid.
var layouts = []layout{
	{"dp2", options(2, 1, 1, 1, 0), reduces("dp")},
	{"dp2 mb2", options(2, 1, 1, 2, 0), reduces("dp")},
	{"dp4", options(4, 1, 1, 1, 0), reduces("dp")},
	{"tp2", options(1, 2, 1, 1, 0), splits(ir.Param, "tp")},
	{"tp4", options(1, 4, 1, 1, 0), splits(ir.Param, "tp")},
	{"dp2 tp2", options(2, 2, 1, 1, 0), all(reduces("dp"), splits(ir.Param, "tp"))},
	{"dp2 tp4", options(2, 4, 1, 1, 0), all(reduces("dp"), splits(ir.Param, "tp"))},
	{"zero1 dp2", options(2, 1, 1, 1, 1), splits(ir.State, "dp")},
	{"zero1 dp4", options(4, 1, 1, 1, 1), splits(ir.State, "dp")},
	{"zero2 dp2", options(2, 1, 1, 2, 2), all(splits(ir.State, "dp"), has("reduce_scatter", "dp"))},
	{"zero2 dp4", options(4, 1, 1, 1, 2), all(splits(ir.State, "dp"), has("reduce_scatter", "dp"))},
	{"zero3 dp2", options(2, 1, 1, 2, 3), all(splits(ir.Param, "dp"), has("all_gather", "dp"))},
	{"zero3 dp4", options(4, 1, 1, 1, 3), all(splits(ir.Param, "dp"), has("all_gather", "dp"))},
	{"zero3 dp2 tp2", options(2, 2, 1, 1, 3), all(splits(ir.Param, "dp"), splits(ir.Param, "tp"))},
	{"sp tp2", sequence(1), splits(ir.Param, "tp")},
	{"sp dp2 tp2", sequence(2), splits(ir.Param, "tp")},
	{"pp2 gpipe", pipeline(1, 1, 4, "gpipe"), stages},
	{"pp2 1f1b", pipeline(1, 1, 4, "1f1b"), stages},
	{"pp2 interleaved", pipeline(1, 1, 4, "interleaved"), stages},
	{"pp2 zb-h1", pipeline(1, 1, 4, "zb-h1"), stages},
	{"pp2 varuna", pipeline(1, 1, 4, "varuna"), stages},
	{"dp2 pp2", pipeline(2, 1, 2, "1f1b"), all(reduces("dp"), stages)},
	{"zero2 dp2 pp2", zero(pipeline(2, 1, 2, "1f1b"), 2), all(splits(ir.State, "dp"), stages)},
	{"zero3 dp2 pp2", zero(pipeline(2, 1, 2, "1f1b"), 3), all(splits(ir.Param, "dp"), stages)},
	{"dp2 tp2 pp2", pipeline(2, 2, 2, "1f1b"), all(reduces("dp"), splits(ir.Param, "tp"), stages)},
}

// all is what every check sees.
func all(checks ...func(c *pass.Context) error) func(c *pass.Context) error {
	return func(c *pass.Context) error {
		var errs []error
		for _, check := range checks {
			errs = append(errs, check(c))
		}
		return errors.Join(errs...)
	}
}

// eachOp calls f for every op of the programs.
func eachOp(c *pass.Context, f func(fn *ir.Func, op *ir.Op)) {
	for _, p := range c.Programs() {
		for _, fn := range p.Module.Funcs {
			for _, op := range fn.Ops {
				f(fn, op)
			}
		}
	}
}

// axis is the mesh axis of a collective, "" for any other op.
func axis(op *ir.Op) string {
	if op.Def.Rules.Collective == "" {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.Fields(fmt.Sprintf("%+v", op.Attrs))[0], "{Axis:"), "}")
}

// uses reports whether the programs have a collective of that kind over an axis.
func uses(c *pass.Context, kind, over string) bool {
	found := false
	eachOp(c, func(_ *ir.Func, op *ir.Op) { found = found || op.Def.Name == kind && axis(op) == over })
	return found
}

// has: the programs have a collective of that kind over an axis.
func has(kind, over string) func(c *pass.Context) error {
	return func(c *pass.Context) error {
		if !uses(c, kind, over) {
			return fmt.Errorf("there is no %s over %s", kind, over)
		}
		return nil
	}
}

// reduces: gradients are summed over the axis.
func reduces(over string) func(c *pass.Context) error {
	return func(c *pass.Context) error {
		if !uses(c, "all_reduce", over) && !uses(c, "reduce_scatter", over) {
			return fmt.Errorf("nothing is reduced over %s", over)
		}
		return nil
	}
}

// splits: something of that role lies in parts over the axis, or a remark says why nothing does.
func splits(role ir.Role, over string) func(c *pass.Context) error {
	return func(c *pass.Context) error {
		for _, p := range c.Programs() {
			for _, fn := range p.Module.Funcs {
				for _, v := range fn.Params {
					for _, axes := range v.Sharding.Dims {
						if v.Role == role && slices.Contains(axes, over) {
							return nil
						}
					}
				}
			}
		}
		if slices.ContainsFunc(c.Remarks, func(r pass.Remark) bool { return r.Pass == "shard" && strings.Contains(r.Text, over) }) {
			return nil
		}
		return fmt.Errorf("no %s is split over %s, and no remark says why", role, over)
	}
}

// stages: there are two programs, each with forward and backward work, that send and receive. When batch statistics
// merge the micro-batches into one, backward work may be done in the step.
func stages(c *pass.Context) error {
	if len(c.Stages) != 2 {
		return fmt.Errorf("there are %d stages", len(c.Stages))
	}
	for i, s := range c.Stages {
		kinds := map[string]bool{}
		for _, a := range s.Actions {
			kind, _, _ := strings.Cut(a.Func, ".")
			kinds[kind] = true
		}
		if !kinds["fwd"] || !kinds["bwd"] && c.Opt.Microbatches > 1 || !kinds["step"] {
			return fmt.Errorf("stage %d does %v", i, s.Actions)
		}
	}
	if !uses(c, "send", "pp") || !uses(c, "recv", "pp") {
		return errors.New("the stages send nothing")
	}
	return nil
}
