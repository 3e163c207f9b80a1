package timeline

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/distributed/schedule"
	"github.com/gtc-compiler/gtc/distributed/topo"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Machine is what predictions are made for.
type Machine struct {
	Topology topo.Topology
	Flops    float64 // operations a second of one rank
}

// Plan lays out what the ranks of a compiled folder do, with times in ms that are predicted: operations at m.Flops and
// the collectives within a function at the topology's speeds. The error says that there is no pipeline.
func Plan(plan *abi.Manifest, m Machine) (*Drawing, error) {
	stages := 1
	for _, a := range plan.Mesh {
		if a.Name == mesh.PipelineAxis {
			stages = a.Size
		}
	}
	if stages == 1 {
		return nil, fmt.Errorf("the folder was compiled without --pp, so there is no schedule to draw: one stage does all micro-batches, one after the other")
	}
	name := "1f1b"
	for _, word := range strings.Fields(plan.Options["schedule"]) { // it may name the learning rate's, too
		if slices.Contains(schedule.Names(), word) {
			name = word
		}
	}
	chunks, _ := strconv.Atoi(plan.Options["chunks"])
	programs, err := ofStages(plan, stages)
	if err != nil {
		return nil, err
	}
	for i := range programs {
		for _, a := range programs[i].Actions {
			if _, chunk, ok := abi.ParseChunkFunc(a.Func); ok && chunk > 0 {
				chunks = max(chunks, chunk+1)
			}
		}
	}
	t, err := schedule.Make(name, stages, chunks, max(1, plan.Train.Microbatches))
	if err != nil {
		return nil, err
	}
	for i, p := range programs {
		if err := follows(p, t.Rank(i)); err != nil {
			return nil, fmt.Errorf("stage %d does not follow the schedule %s: %w", i, name, err)
		}
	}
	return New(t, predict(plan, t, programs, m), "ms")
}

// ofStages are the programs of the stages' first ranks: pp is the outermost axis. A plan that was edited is not believed.
func ofStages(plan *abi.Manifest, stages int) ([]*abi.Program, error) {
	n := plan.Ranks
	if stages < 1 || n < stages || n%stages != 0 || len(plan.RankProgram) != n {
		return nil, fmt.Errorf("the plan has %d stages, %d ranks, and programs for %d (gtc verify checks a folder)", stages, n, len(plan.RankProgram))
	}
	programs := make([]*abi.Program, stages)
	for i := range programs {
		k := plan.RankProgram[n/stages*i]
		if k < 0 || k >= len(plan.Programs) {
			return nil, fmt.Errorf("rank %d runs program %d, but there are %d (gtc verify checks a folder)", n/stages*i, k, len(plan.Programs))
		}
		programs[i] = &plan.Programs[k]
	}
	return programs, nil
}

// follows checks that a program's actions are those of its list. What has no function, such as the backward of a part without
// parameters, takes no time.
func follows(p *abi.Program, list []schedule.Action) error {
	has := map[string]bool{}
	for _, f := range p.Funcs {
		has[f.Name] = true
	}
	next := 0
	for _, a := range p.Actions {
		k, chunk, ok := abi.ParseChunkFunc(a.Func)
		if !ok {
			continue
		}
		for next < len(list) && !has[abi.ChunkFunc(list[next].Kind, list[next].Chunk)] {
			next++
		}
		if next == len(list) || list[next] != (schedule.Action{Kind: k, Chunk: chunk, Micro: a.Micro, Slot: a.Slot}) {
			return fmt.Errorf("@%s of micro-batch %d in slot %d is not what comes next", a.Func, a.Micro, a.Slot)
		}
		next++
	}
	for ; next < len(list); next++ {
		if has[abi.ChunkFunc(list[next].Kind, list[next].Chunk)] {
			return fmt.Errorf("%s is missing", list[next])
		}
	}
	return nil
}

// predict gives the costs of the parts in ms.
func predict(plan *abi.Manifest, t *schedule.Table, programs []*abi.Program, m Machine) schedule.Costs {
	c := schedule.Uniform(t.Parts(), 0, 0, 0, 0)
	at := map[schedule.Kind][]float64{schedule.F: c.Forward, schedule.B: c.Backward, schedule.W: c.Weight}
	for stage, p := range programs {
		for _, f := range p.Funcs {
			if k, chunk, ok := abi.ParseChunkFunc(f.Name); ok && chunk < t.Chunks {
				at[k][t.Part(stage, chunk)] += 1e3 * float64(f.Flops) / m.Flops
			}
		}
		sends := map[string]float64{} // by function
		for _, col := range p.Collectives {
			k, chunk, ok := abi.ParseChunkFunc(col.Func)
			if !ok || chunk >= t.Chunks {
				continue
			}
			ms := 1e3 * Predict(plan, col, m.Topology).Seconds
			if col.Kind == mesh.Send {
				sends[col.Func] += ms
				c.Send = max(c.Send, sends[col.Func])
				continue
			}
			at[k][t.Part(stage, chunk)] += ms
		}
	}
	return c
}

// Predict is what a collective of a folder costs.
func Predict(plan *abi.Manifest, c abi.Collective, t topo.Topology) topo.Cost {
	n := Members(plan, c.Axis)
	whole := c.Bytes
	if c.Kind == mesh.ReduceScatter {
		whole *= n // the manifest counts what a rank is left with
	}
	return t.Link(c.Axis).Cost(c.Kind, n, whole)
}

// Members is how many ranks take part in a collective over axis.
func Members(plan *abi.Manifest, axis string) int {
	for _, a := range plan.Mesh {
		if a.Name == axis {
			return a.Size
		}
	}
	return 1
}
