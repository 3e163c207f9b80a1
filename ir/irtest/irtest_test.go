package irtest_test

import (
	"errors"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// TestRun runs a toy pass that drops double negations.
func TestRun(t *testing.T) {
	irtest.Run(t, "testdata/*.txtar", irtest.Options{}, func(c *irtest.Case) (remarks []string, err error) {
		if c.Opt["refuse"] == "yes" {
			return nil, errors.New("refused as asked")
		}
		for _, f := range c.Module.Funcs {
			subst := map[*ir.Value]*ir.Value{}
			for _, op := range f.Ops {
				if op.Def == ops.NegDef && op.In[0].Op != nil && op.In[0].Op.Def == ops.NegDef {
					subst[op.Out[0]] = op.In[0].Op.In[0]
					remarks = append(remarks, "neg: dropped "+op.Out[0].Name)
				}
			}
			f.ReplaceAll(subst)
			f.DCE()
		}
		return remarks, nil
	})
}
