package algebra

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
	"golang.org/x/tools/txtar"
)

func TestGolden(t *testing.T) {
	passtest.Golden(t, "algebra", func(c *pass.Context) error {
		for _, f := range c.Module.Funcs {
			Peephole(c, f)
		}
		return nil
	}, irtest.Options{})
}

// TestEveryRuleHasACase: each op that has a rule is rewritten by it in one of the golden files, and kept in one.
func TestEveryRuleHasACase(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	rewritten, kept := map[*ir.Def]bool{}, map[*ir.Def]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ir.Parse(string(txtar.Parse(data).Files[0].Data))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range m.Funcs {
			for _, op := range f.Ops {
				b := ir.NewBuilder(f)
				b.Loc = op.Loc
				if rule := rules[op.Def]; rule != nil && rule(b, op) != nil {
					rewritten[op.Def] = true
				} else {
					kept[op.Def] = true
				}
			}
		}
	}
	for d := range rules {
		if !rewritten[d] || !kept[d] {
			t.Errorf("%s: rewritten %v, kept %v", d.Name, rewritten[d], kept[d])
		}
	}
}
