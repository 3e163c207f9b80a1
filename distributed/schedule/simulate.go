package schedule

import (
	"fmt"
	"math"
)

// Costs is how long the actions of each part take, in any one unit of time.
type Costs struct {
	Forward, Backward, Weight []float64 // of F, B and W, one for each part of the model in its order; in a table without W, B takes Backward + Weight
	Send                      float64   // until what one stage has sent is at the next; both compute meanwhile
}

// Uniform are costs that are the same for all parts.
func Uniform(parts int, forward, backward, weight, send float64) Costs {
	c := Costs{Send: send}
	for range parts {
		c.Forward, c.Backward, c.Weight = append(c.Forward, forward), append(c.Backward, backward), append(c.Weight, weight)
	}
	return c
}

// Span is an action in time.
type Span struct {
	Action
	Start, End float64 // in the unit of Costs, from the start of the step
}

// Timeline is a schedule in time.
type Timeline struct {
	Ranks  [][]Span // for each stage its actions, in order
	End    float64  // when the last action ends, in the unit of Costs
	Bubble float64  // share of the stages' time until End in which they wait, 0 to 1
}

// event is an action of a part, as others wait for it.
type event struct {
	kind        Kind
	part, micro int
}

// needs lists what must have ended before an action of part may start.
func (t *Table) needs(a Action, part int) []event {
	switch {
	case a.Kind == F && part == 0:
		return nil
	case a.Kind == F:
		return []event{{F, part - 1, a.Micro}}
	case a.Kind == W:
		return []event{{B, part, a.Micro}}
	case part == t.Parts()-1:
		return []event{{F, part, a.Micro}}
	}
	return []event{{F, part, a.Micro}, {B, part + 1, a.Micro}}
}

func (t *Table) cost(c Costs, k Kind, part int) float64 {
	switch {
	case k == F:
		return c.Forward[part]
	case k == W:
		return c.Weight[part]
	case t.Split:
		return c.Backward[part]
	}
	return c.Backward[part] + c.Weight[part]
}

// Simulate runs the schedule: each stage does its actions in order, each as soon as what it needs has ended. The error
// tells of costs that are not one for each part, or of actions that wait for one another, which no table of Make has.
func (t *Table) Simulate(c Costs) (*Timeline, error) {
	if n := t.Parts(); len(c.Forward) != n || len(c.Backward) != n || len(c.Weight) != n {
		return nil, fmt.Errorf("costs are given for the forward of %d parts, the backward of %d and the weight gradients of %d, but the pipeline has %d parts", len(c.Forward), len(c.Backward), len(c.Weight), n)
	}
	line := &Timeline{Ranks: make([][]Span, t.Stages)}
	done, free, busy := map[event]float64{}, make([]float64, t.Stages), 0.0
	for moved := true; moved; {
		moved = false
		for i, list := range t.ranks {
			for len(line.Ranks[i]) < len(list) {
				a := list[len(line.Ranks[i])]
				part := t.Part(i, a.Chunk)
				start, ok := t.start(a, part, done, c.Send)
				if !ok {
					break
				}
				start = math.Max(start, free[i])
				took := t.cost(c, a.Kind, part)
				free[i], busy = start+took, busy+took
				done[event{a.Kind, part, a.Micro}] = free[i]
				line.Ranks[i] = append(line.Ranks[i], Span{a, start, free[i]})
				line.End, moved = math.Max(line.End, free[i]), true
			}
		}
	}
	for i, list := range t.ranks {
		if n := len(line.Ranks[i]); n < len(list) {
			return nil, fmt.Errorf("stage %d waits forever before %s", i, list[n])
		}
	}
	if line.End > 0 {
		line.Bubble = 1 - busy/(line.End*float64(t.Stages))
	}
	return line, nil
}

// start is when everything that an action needs is there; false: not known yet.
func (t *Table) start(a Action, part int, done map[event]float64, send float64) (float64, bool) {
	at := 0.0
	for _, e := range t.needs(a, part) {
		end, ok := done[e]
		if !ok {
			return 0, false
		}
		if e.part%t.Stages != part%t.Stages {
			end += send
		}
		at = math.Max(at, end)
	}
	return at, true
}
