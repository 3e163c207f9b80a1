package passes_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// holds finds out, of facts that can be seen in a module, whether they hold; the text says what contradicts. Core, Cast, Staged,
// Sharded and Ordered cannot be seen: a value that no rank has a part of, or a program of a single stage, looks as before.
var holds = map[pass.Prop]func(p *pass.Context) string{
	pass.Typed: func(p *pass.Context) string {
		if len(p.Module.Funcs) != 1 || p.Module.Func("forward") == nil {
			return fmt.Sprintf("%d functions, @forward or not", len(p.Module.Funcs))
		}
		return ""
	},
	pass.HasLoss: func(p *pass.Context) string {
		if step := p.Module.Func("step"); step != nil && (step.Result("loss_sum") == nil || step.Result("count") == nil) && len(p.Actions) == 0 {
			return "@step gives no loss"
		}
		return ""
	},
	pass.HasGrad: func(p *pass.Context) string {
		return some(p, "no result grad/", func(r ir.Result) bool { return strings.HasPrefix(r.Name, "grad/") })
	},
	pass.HasUpdate: func(p *pass.Context) string {
		return some(p, "nothing updates a parameter", func(r ir.Result) bool { return r.Updates != nil && r.Updates.Role == ir.Param })
	},
	pass.Local: func(p *pass.Context) string {
		if p.Opt.DP*p.Opt.TP*p.Opt.PP > 1 && len(p.Module.Mesh.Axes) == 0 {
			return "there is no mesh"
		}
		return ""
	},
	pass.Grouped: func(p *pass.Context) string {
		return each(p, func(_ *ir.Func, op *ir.Op) string {
			if kind := group.Impl(op).Kind; op.Group == 0 && kind != kir.View && kind != kir.Literal && len(op.In) > 0 {
				return fmt.Sprintf("%s has no group", op)
			}
			return ""
		})
	},
	pass.Scheduled: func(p *pass.Context) string {
		for _, f := range p.Module.Funcs {
			if f.Calls == nil {
				return "@" + f.Name + " has no calls"
			}
		}
		return ""
	},
	pass.Planned: func(p *pass.Context) string {
		outs := map[*ir.Func]map[int][]*ir.Value{}
		for _, f := range p.Module.Funcs {
			outs[f] = group.Outputs(f)
		}
		return each(p, func(f *ir.Func, op *ir.Op) string {
			for _, v := range append(slices.Clone(outs[f][op.Group]), op.In...) {
				if v == nil || v.Op != nil && v.Op.Group != op.Group {
					continue // seen where it is made
				}
				if v.Offset == ir.NoOffset && (v.Op == nil || slices.Contains(outs[f][op.Group], v)) {
					return fmt.Sprintf("%%%s has no place in the arena", v.Name)
				}
			}
			return ""
		})
	},
}

// some reports what unless a result of a function that updates is as is says.
func some(p *pass.Context, what string, is func(r ir.Result) bool) string {
	for _, f := range p.Module.Funcs {
		if slices.ContainsFunc(f.Results, is) {
			return ""
		}
	}
	return what
}

// each is the first complaint of an op.
func each(p *pass.Context, complaint func(f *ir.Func, op *ir.Op) string) string {
	for _, f := range p.Module.Funcs {
		for _, op := range f.Ops {
			if text := complaint(f, op); text != "" {
				return "@" + f.Name + ": " + text
			}
		}
	}
	return ""
}

// lacking tells the facts of want that do not hold of one of the programs.
func lacking(c *pass.Context, want pass.Prop) []string {
	var list []string
	for fact, hold := range holds {
		for i, p := range c.Programs() {
			if text := hold(p); want&fact != 0 && text != "" {
				list = append(list, fmt.Sprintf("%s does not hold of program %d: %s", fact, i, text))
			}
		}
	}
	slices.Sort(list)
	return list
}

// TestFactsHold looks, behind every pass, for the facts that the table says hold there; and each pass of the table changes
// one of the samples, so that a row that stands wrong cannot go unseen.
func TestFactsHold(t *testing.T) {
	changes := map[string]bool{}
	for _, s := range orderSamples(t) {
		have := pass.Typed
		var table []pass.Pass
		for _, p := range passes.Table {
			now := have&^p.Clears | p.Makes
			run := p.Run
			p.Run = func(c *pass.Context) error {
				before, remarks := c.Module.String(), len(c.Remarks)
				if err := run(c); err != nil {
					return err
				}
				if c.Module.String() != before || len(c.Stages) > 0 && len(c.Remarks) > remarks {
					changes[p.Name] = true
				}
				for _, text := range lacking(c, now) {
					t.Errorf("%s: behind %s: %s", s.name, p.Name, text)
				}
				return nil
			}
			table, have = append(table, p), now
		}
		if _, err := s.through(t, table); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
	for _, p := range passes.Table {
		if !changes[p.Name] {
			t.Errorf("no sample has anything for %s to do", p.Name)
		}
	}
}
