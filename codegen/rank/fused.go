package rank

import (
	"github.com/gtc-compiler/gtc/codegen/kernel"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/target"
)

// fused makes the call of a generated kernel, or of several that are launched together. It is printed later.
func (g *generator) fused(c *ir.Call) (call, error) {
	var cl call
	for k := range c.Work {
		w := &c.Work[k]
		ops := g.groups[w.Group].Ops
		loc := ops[len(ops)-1].Loc
		built, err := kernel.Of(g.groups[w.Group], w)
		if err != nil {
			return call{}, ir.Errorf(loc, "%v", err)
		}
		if k == 0 {
			cl = call{describe: built.Name, loc: loc.String(), inOrder: c.InOrder}
			for _, at := range built.At() {
				cl.args = append(cl.args, arg{offset: at})
			}
		}
		cl.out = append(cl.out, w.Write...)
		cl.kernels = append(cl.kernels, target.Fused{Kernel: built.Kernel, At: built.At()})
	}
	return cl, nil
}
