package stage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes/autodiff"
	"github.com/gtc-compiler/gtc/passes/microbatch"
	"github.com/gtc-compiler/gtc/passes/optimizer"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
	"github.com/gtc-compiler/gtc/passes/shard"
	"github.com/gtc-compiler/gtc/passes/simplify"
	"github.com/gtc-compiler/gtc/passes/spmd"
	"github.com/gtc-compiler/gtc/passes/stage"
	"github.com/gtc-compiler/gtc/passes/trainstep"
)

// cut trains @forward and cuts it; whole are its functions before they were split.
func cut(c *pass.Context) (whole []*ir.Func, err error) {
	for _, p := range []struct {
		name string
		run  func(*pass.Context) error
	}{{"trainstep", trainstep.Run}, {"autodiff", autodiff.Run}, {"optimizer", optimizer.Run}, {"simplify", simplify.Run},
		{"", nil}, {"shard", shard.Run}, {"spmd", spmd.Run}, {"microbatch", microbatch.Run}, {"stage", stage.Run}} {
		if p.run == nil {
			for _, f := range c.Module.Funcs {
				g, _ := f.Clone()
				whole = append(whole, g)
			}
			continue
		}
		c.Pass, c.Remarks = p.name, nil // only the last pass's are kept
		if err := p.run(c); err != nil {
			return nil, err
		}
	}
	return whole, nil
}

func programs(c *pass.Context) []interp.Program {
	var out []interp.Program
	for _, s := range c.Stages {
		out = append(out, interp.Program{Module: s.Module, Actions: s.Actions, Slots: s.Slots})
	}
	return out
}

// leaves fails when a scheduled function sends what it does not stash itself: any other place can be another micro-batch's
// while the message is on its way, which codegen/rank refuses.
func leaves(t *testing.T, c *pass.Context) {
	t.Helper()
	for i, s := range c.Stages {
		for _, f := range s.Module.Funcs {
			for _, op := range f.Ops {
				if op.Def.Rules.Collective != "send" || !strings.Contains(f.Name, ".") {
					continue
				}
				if !slices.ContainsFunc(f.Results, func(r ir.Result) bool { return r.Value == op.In[0] && r.Updates != nil && r.Updates.Role == ir.Stash }) {
					t.Errorf("@%s of stage %d sends %%%s, which it does not stash", f.Name, i, op.In[0].Name)
				}
			}
		}
	}
}

// TestGolden cuts small models. The text has the functions of all stages, named after their stage; remarks end with what
// each stage does in a step. The stages together must do what the whole program does, over three steps.
func TestGolden(t *testing.T) {
	var c *pass.Context
	var whole []*ir.Func
	check := func(t *testing.T, _ *irtest.Case, _, _ *ir.Module) {
		leaves(t, c)
		for _, f := range whole {
			steps := 1
			if f.Name == "step" {
				steps = 3
			}
			if err := interp.EquivalentPrograms(programs(c), f, interp.Random(f, 1), steps); err != nil {
				t.Error(err)
			}
		}
	}
	irtest.Run(t, "testdata/*.txtar", irtest.Options{Check: check}, func(k *irtest.Case) ([]string, error) {
		opt, err := passtest.Options(k.Opt)
		if err != nil {
			t.Fatal(err)
		}
		c = &pass.Context{Module: k.Module, Opt: opt}
		if whole, err = cut(c); err != nil {
			return nil, err
		}
		k.Module = &ir.Module{Mesh: c.Module.Mesh}
		var remarks []string
		for _, r := range c.Remarks {
			remarks = append(remarks, r.String())
		}
		for i, s := range c.Stages {
			for _, f := range s.Module.Funcs {
				g, _ := f.Clone()
				g.Name = fmt.Sprintf("%d/%s", i, f.Name)
				k.Module.Funcs = append(k.Module.Funcs, g)
			}
			var does []string
			for _, a := range s.Actions {
				does = append(does, fmt.Sprintf("%s:%d/%d", a.Func, a.Micro, a.Slot))
			}
			remarks = append(remarks, fmt.Sprintf("stage %d, %d slots, does (function:micro-batch/slot) %s", i, s.Slots, strings.Join(does, " ")))
		}
		return remarks, nil
	})
}
