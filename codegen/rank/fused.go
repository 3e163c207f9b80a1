package rank

import (
	"fmt"

	gpuprint "github.com/gtc-compiler/gtc/codegen/cuda"
	"github.com/gtc-compiler/gtc/codegen/kernel"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/kernels/cuda"
)

// fused makes the call of a generated kernel, or of several that are launched together.
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
		cl.kernels = append(cl.kernels, gpuprint.Call{Kernel: built.Kernel, At: built.At()})
	}
	if g.gpu != nil {
		return cl, nil // printed when hand-made kernels have their numbers
	}
	if len(c.Work) > 1 {
		return call{}, fmt.Errorf("BUG: %d kernels are to be launched together, which a processor cannot", len(c.Work))
	}
	return cl, g.hostFused(&cl)
}

// hostFused prints the kernel unless an equal one exists.
func (g *generator) hostFused(cl *call) error {
	k := cl.kernels[0].Kernel
	body, err := g.host.Fused(k)
	if err != nil {
		return fmt.Errorf("%s: %w", cl.loc, err)
	}
	if k.Work > 0 {
		cl.args = append(cl.args, arg{offset: g.plan.Workspace})
	}
	cl.fn = g.define(body, cl.describe, len(cl.args), "void")
	cl.name = valueNames(cl.out) + " = " + cl.fn
	return nil
}

// gpuFused prints the launches of generated kernels.
func (g *generator) gpuFused(cl *call) error {
	var kernels []cuda.Kernel
	var work int
	var err error
	switch {
	case len(cl.kernels) == 1:
		kernels, work, err = gpuprint.Kernels(cl.describe, cl.kernels[0].Kernel)
	case cl.inOrder:
		kernels, err = gpuprint.InOrder("numbers", cl.kernels)
		cl.args = nil
	default:
		kernels, work, err = gpuprint.Many(cl.describe, cl.kernels)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", cl.loc, err)
	}
	if work > g.plan.WorkBytes {
		return fmt.Errorf("BUG: %s needs %d bytes of workspace for %s, the plan has %d", cl.describe, work, valueNames(cl.out), g.plan.WorkBytes)
	}
	if cl.launches, err = g.launches(kernels, cl.args, cl.loc); err != nil {
		return err
	}
	cl.fn = g.gpu.list[cl.launches[0].Kernel].Name
	cl.name = valueNames(cl.out) + " = " + cl.fn
	return nil
}
