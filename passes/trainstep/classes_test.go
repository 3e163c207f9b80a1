package trainstep

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// TestClassesUnclear: where two dims could hold the classes and targets would fit either, it is said which one is taken.
func TestClassesUnclear(t *testing.T) {
	for dims, want := range map[string]string{
		"4,3": "", "4,5,3": "", "4,3,5,5": "", "3,3": "",
		"4,3,3":   "classes are taken to lie along the last",
		"4,3,5,3": "classes are taken to lie along dimension 1",
	} {
		m, err := ir.Parse(fmt.Sprintf("func @forward(%%x: f32[%[1]s], %%p: f32[%[1]s] param) {\n  %%o = add %%x, %%p : f32[%[1]s]\n  return out0=%%o\n}", dims))
		if err != nil {
			t.Fatal(err)
		}
		c := &pass.Context{Module: m, Opt: &pass.Options{Loss: "cross_entropy"}, Pass: "trainstep"}
		if err := Run(c); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(c.Remarks, func(r pass.Remark) bool { return strings.HasPrefix(r.Text, "warning: dimensions") })
		if (i < 0) != (want == "") || i >= 0 && !strings.Contains(c.Remarks[i].Text, want) {
			t.Errorf("[%s]: %v, want %q", dims, c.Remarks, want)
		}
	}
}
