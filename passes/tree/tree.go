// Package tree makes the sums over micro-batches of a --reproducible program follow one tree, the same that ranks follow
// among one another.
//
// # Design
//
// All micro-batches of a step, of all data-parallel ranks, are leaves: micro-batch m of the rank at r on dp is leaf r*M + m
// of dp*M. Whatever is summed over them is summed as a complete binary tree, neighbours first: ((0+1)+(2+3)) + ((4+5)+(6+7)).
// The upper levels of the tree are sums over ranks; comm and interp add ranks up in just this way. The lower levels are sums
// over the micro-batches of a rank, which pass microbatch, or stage, makes one after the other. Here they become a binary
// counter: level t holds the sum of 2^t leaves. Behind micro-batch m as many levels are complete as m has ones at its end;
// their sums are merged, and the result goes to the next level:
//
//	@micro      accum/x <- x                                   instead of accum/x + x
//	@merge.F.T  levels 0 to T-1 and accum/x, added up, become level T; behind function F of a micro-batch with T ones
//	@step       all levels and the last x, added up, are the total
//
// In a pipeline the merge behind the last micro-batch leaves the total in accum/x, where @step of the stage expects it.
//
// For dp = 1 with 8 micro-batches and dp = 8 with one each the leaves are then the same work on the same samples, and the
// tree is the same: so are all bits. That the work on a leaf is the same in every layout is for pass fuse (each reduction
// has a kernel of its own) and codegen (no operation is contracted with another); norms are summed up in blocks (pass
// optimizer); that a weight which stages of a pipeline share gets one gradient a micro-batch, for pass stage. What cannot
// be the same is refused: numbers of leaves that are no powers of two, and statistics of BatchNorm, which follow each
// other in time.
package tree

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Run rewrites the sums of one program.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	if !c.Opt.Reproducible || c.Module.Func(abi.FuncStep) == nil {
		return nil
	}
	micros, dp := c.Module.Mesh.Size(mesh.TimeAxis), c.Module.Mesh.Size(mesh.DataAxis)
	if err := check(c, dp, micros); err != nil {
		return err
	}
	t := &maker{c: c, levels: bits.Len(uint(micros)) - 1, seen: map[string]string{}}
	if c.Actions != nil {
		return t.pipeline()
	}
	if t.levels > 0 {
		return t.accumulation(micros)
	}
	return nil
}

// check refuses what would not be the same in every layout.
func check(c *pass.Context, dp, micros int) error {
	if n := dp * micros; n&(n-1) != 0 {
		return ir.Errorf(ir.Loc{}, "--reproducible adds the %d x %d = %d micro-batches up in a binary tree: their number must be a power of two", dp, micros, n).
			Note("%d ranks along dp, %d micro-batches each", dp, micros)
	}
	if g := c.Opt.GradComm; g.DType != "" && g.DType != "f32" || g.Compress != "" || g.Period > 0 {
		return ir.Errorf(ir.Loc{}, "--reproducible: ranks must send whole gradients in full precision; results of rounded or compressed gradients and averaged parameters depend on how many ranks there are")
	}
	for _, f := range c.Module.Funcs {
		for _, r := range f.Results {
			if r.Updates != nil && r.Updates.Role == ir.Buffer && dp*micros > 1 {
				return ir.Errorf(loc(r.Value), "--reproducible: @%s updates %q from one micro-batch to the next, each rank for itself: that is not the same in every layout", f.Name, r.Updates.Name).
					Note("freeze the batch normalisation, or train without --reproducible")
			}
		}
	}
	return nil
}

func loc(v *ir.Value) ir.Loc {
	if v.Op != nil {
		return v.Op.Loc
	}
	return ir.Loc{Node: v.Name}
}

// sum is a value that a function adds up.
type sum struct {
	acc *ir.Value // parameter of the function
	loc ir.Loc
}

type maker struct {
	c      *pass.Context
	levels int               // so that 2^levels are the micro-batches
	seen   map[string]string // accumulator -> the function that adds to it
}

// level is the name of the accumulator of 2^t leaves.
func level(acc string, t int) string { return fmt.Sprintf("%s.level%d", acc, t) }

// param adds level t of s to f.
func param(b *ir.Builder, s sum, name string) *ir.Value {
	if p := b.F.Param(name); p != nil {
		return p
	}
	p := b.Param(name, s.acc.Type, ir.State)
	p.Sharding = s.acc.Sharding
	return p
}

// take makes f leave what it added to its accumulators in them.
func (t *maker) take(f *ir.Func) ([]sum, error) {
	var list []sum
	for i, r := range f.Results {
		if r.Updates == nil || !abi.Accum.Has(r.Updates.Name) {
			continue
		}
		acc, op := r.Updates, r.Value.Op
		if op == nil || !op.Def.Rules.Adds || op.In[0] != acc || t.seen[acc.Name] != "" {
			return nil, ir.Errorf(loc(r.Value), "--reproducible: %q is added up from several places of the pipeline, in another order than on one stage", abi.Accum.Trim(acc.Name)).
				Note("leave out --pp, its chunks or --reproducible")
		}
		t.seen[acc.Name] = f.Name
		f.Results[i].Value = op.In[1]
		list = append(list, sum{acc, op.Loc})
	}
	f.DCE()
	return list, nil
}

// merge is the function that runs behind f when n levels are complete.
func (t *maker) merge(f string, list []sum, n int) *ir.Func {
	g := &ir.Func{Name: abi.MergeFunc(f, n)}
	b := ir.NewBuilder(g)
	for _, s := range list {
		b.Loc = t.c.Loc(s.loc)
		x := t.chain(b, s, param(b, s, s.acc.Name), n)
		to := s.acc.Name
		if n < t.levels {
			to = level(s.acc.Name, n)
		}
		b.Update(param(b, s, to), x)
	}
	return g
}

// chain adds the first n levels to x: earlier leaves are on the left.
func (t *maker) chain(b *ir.Builder, s sum, x *ir.Value, n int) *ir.Value {
	for k := range n {
		x = ops.Add(b, param(b, s, level(s.acc.Name, k)), x)
		x.Sharding = s.acc.Sharding
	}
	return x
}

// merges adds the merging functions of f to the module, up to the one of most levels.
func (t *maker) merges(f string, list []sum, most int) {
	for n := range most + 1 {
		t.c.Module.Funcs = append(t.c.Module.Funcs, t.merge(f, list, n))
	}
	t.c.Remark(nil, "@%s adds %d values up in a tree of %d levels: --reproducible", f, len(list), t.levels)
}

// accumulation rewrites @micro and @step.
func (t *maker) accumulation(micros int) error {
	micro, step := t.c.Module.Func(abi.FuncMicro), t.c.Module.Func(abi.FuncStep)
	list, err := t.take(micro)
	if err != nil {
		return err
	}
	t.merges(abi.FuncMicro, list, t.levels-1)
	t.total(step, list)
	for m := range micros - 1 {
		t.c.Actions = append(t.c.Actions, abi.Action{Func: abi.FuncMicro, Micro: m}, abi.Action{Func: abi.MergeFunc(abi.FuncMicro, ones(m)), Micro: m})
	}
	t.c.Actions = append(t.c.Actions, abi.Action{Func: abi.FuncStep, Micro: micros - 1})
	return nil
}

// total makes step add all levels to what it adds to accumulators, which it need not clear.
func (t *maker) total(step *ir.Func, list []sum) {
	of := map[string]sum{}
	for _, s := range list {
		of[s.acc.Name] = s
	}
	t.c.Rewrite(step, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if !op.Def.Rules.Adds || op.In[0].Op != nil {
			return nil
		}
		s, ok := of[op.In[0].Name]
		if !ok {
			return nil
		}
		return []*ir.Value{t.chain(b, s, op.In[1], t.levels)}
	})
	step.Results = slices.DeleteFunc(step.Results, func(r ir.Result) bool { return r.Updates != nil && of[r.Updates.Name].acc != nil })
	step.Params = slices.DeleteFunc(step.Params, func(p *ir.Value) bool { return of[p.Name].acc != nil })
	for i, p := range step.Params {
		p.Index = i
	}
	step.DCE()
}

// pipeline rewrites the functions of a stage, and lets a merge follow each action that added something up.
func (t *maker) pipeline() error {
	merged := map[string]bool{}
	for _, f := range slices.Clone(t.c.Module.Funcs) {
		if !slices.ContainsFunc(t.c.Actions, func(a abi.Action) bool { return a.Func == f.Name }) || f.Name == abi.FuncStep {
			continue
		}
		list, err := t.take(f)
		if err != nil {
			return err
		}
		if len(list) > 0 && t.levels > 0 {
			merged[f.Name] = true
			t.merges(f.Name, list, t.levels)
		}
	}
	var actions []abi.Action
	for _, a := range t.c.Actions {
		actions = append(actions, a)
		if merged[a.Func] {
			actions = append(actions, abi.Action{Func: abi.MergeFunc(a.Func, ones(a.Micro)), Micro: a.Micro})
		}
	}
	t.c.Actions = actions
	return nil
}

// ones counts the ones at the end of n in binary: the levels that micro-batch n completes.
func ones(n int) int { return bits.TrailingZeros(^uint(n)) }
