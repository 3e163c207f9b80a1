// Package volume counts how much the ranks of a compiled folder say to each other in a step.
package volume

import (
	"github.com/gtc-compiler/gtc/compiler/timeline"
	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/distributed/topo"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Step is how many bytes a rank of a program sends in a step, in the collectives that keep accepts (nil: all), as the
// manifest lists them and topo.Volume counts them: a bucket with the gaps between its tensors, which are there so that
// each begins at a multiple of abi.Align.
func Step(plan *abi.Manifest, program int, keep func(abi.Collective) bool) float64 {
	p := &plan.Programs[program]
	total := 0.0
	for _, c := range p.Collectives {
		if keep != nil && !keep(c) {
			continue
		}
		n, whole := timeline.Members(plan, c.Axis), c.Bytes
		if c.Kind == mesh.ReduceScatter {
			whole *= n // the manifest counts what a rank is left with
		}
		total += float64(calls(plan, p, c.Func)) * topo.Volume(c.Kind, n, whole)
	}
	return total
}

// calls is how often a step calls a function of p.
func calls(plan *abi.Manifest, p *abi.Program, name string) int {
	if len(p.Actions) == 0 {
		switch name {
		case abi.FuncMicro:
			return max(plan.Train.Microbatches, 1) - 1
		case abi.FuncStep:
			return 1
		}
		return 0
	}
	n := 0
	for _, a := range p.Actions {
		if a.Func == name {
			n++
		}
	}
	return n
}
