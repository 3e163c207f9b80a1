// Package schedule says in what order the stages of a pipeline compute: for each stage a list of actions (forward,
// backward, weight gradient) on micro-batches. It is pure data: it knows nothing of programs, devices or messages.
//
// # Schedules
//
// A model is cut into Parts = Stages * Chunks parts, which follow one another; part c*Stages + i is chunk c of stage i.
//
//	gpipe        all forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965)
//	1f1b         PipeDream-Flush: stage i does Stages-1-i forwards, then alternates (Narayanan et al. 2021, arXiv:2104.04473, 2.2)
//	interleaved  1f1b with several chunks a stage, micro-batches in groups of Stages (the same, 2.3)
//	zb-h1        backwards in two halves, for the input (B) and for the weights (W); W fills the bubbles and no stage holds
//	             more than the first stage of 1f1b (Qi et al. 2023, arXiv:2401.10241, 3.1)
//	varuna       a stage that is free takes a backward if its gradient is there, else a forward if its input is there, else it
//	             waits (Athlur et al. 2022, arXiv:2111.04007)
//
// Varuna computes its order ahead by such rules, and may deviate from it when a message is late. Here the order is fixed, so
// that all ranks' programs are known when compiling: it is what the rules give when a backward takes twice as long as a
// forward and messages take no time. Varuna's recomputation is left out: it is a choice about memory, not about order. More
// forwards are in flight than in 1f1b, so stages wait less for late messages and hold more.
//
// Every backward is in the order of micro-batches on each part, so gradients are added up in the order in which one rank
// would do it.
package schedule

import "fmt"

// Kind is what an action does.
type Kind byte

// The kinds of actions. In a table without W, B makes the gradients of weights, too.
const (
	F Kind = 'F' // forward
	B Kind = 'B' // backward: the gradient of the part's input
	W Kind = 'W' // the gradients of the part's weights
)

// String is one letter.
func (k Kind) String() string { return string(rune(k)) }

// Action is one entry of a stage's list.
type Action struct {
	Kind  Kind
	Chunk int // which of the stage's chunks it computes: 0 to Table.Chunks-1
	Micro int // the micro-batch of the step that it computes, from 0
	// Slot numbers, from 0, the copy of the stage's activations that keeps what this chunk's F leaves for its B (and W) of
	// this micro-batch; it is free again after the last of them.
	Slot int
}

// String is such as F0.3: forward of chunk 0, micro-batch 3.
func (a Action) String() string { return fmt.Sprintf("%s%d.%d", a.Kind, a.Chunk, a.Micro) }

// Table is the schedule of a whole pipeline.
type Table struct {
	Name   string // one of Names
	Stages int    // ranks along the pipeline
	Chunks int    // parts of the model that each stage has
	Micros int    // micro-batches of a step
	Split  bool   // the gradients of weights are actions W of their own; if not, B makes them, too

	ranks [][]Action // by stage: its list
	slots []int      // by stage: how many slots it uses
}

// Names lists the schedules in the order of the package text.
func Names() []string { return []string{"gpipe", "1f1b", "interleaved", "zb-h1", "varuna"} }

// maxParts bounds the forward actions of a step on all stages: a table of more would take the memory of the machine that
// compiles before anything said that the model cannot be cut so.
const maxParts = 1 << 20

// Make lays out the schedule name ("" is 1f1b) for stages >= 1, micros >= 1 micro-batches and chunks a stage: 0 is the
// default, which is 2 for interleaved and 1 for the others. The error says what does not go together: chunks with
// schedules other than interleaved, or micro-batches that are no multiple of the stages with it.
func Make(name string, stages, chunks, micros int) (*Table, error) {
	if name == "" {
		name = "1f1b"
	}
	if chunks == 0 {
		chunks = 1
		if name == "interleaved" {
			chunks = 2
		}
	}
	switch {
	case stages < 1 || chunks < 1 || micros < 1:
		return nil, fmt.Errorf("a pipeline of %d stages, %d chunks and %d micro-batches: each must be at least 1", stages, chunks, micros)
	case stages > maxParts || chunks > maxParts/stages || micros > maxParts/(stages*chunks):
		return nil, fmt.Errorf("a pipeline of %d stages, %d chunks and %d micro-batches: their product must be at most %d",
			stages, chunks, micros, maxParts)
	case chunks > 1 && name != "interleaved":
		return nil, fmt.Errorf("schedule %s has one chunk per stage, not %d: --schedule interleaved has several", name, chunks)
	case name == "interleaved" && micros%stages != 0:
		return nil, fmt.Errorf("schedule interleaved needs a multiple of %d micro-batches, the number of stages, not %d", stages, micros)
	}
	t := &Table{Name: name, Stages: stages, Chunks: chunks, Micros: micros, Split: name == "zb-h1"}
	switch name {
	case "gpipe":
		t.each(t.gpipe)
	case "1f1b":
		t.each(t.oneForward)
	case "interleaved":
		t.each(t.interleaved)
	case "zb-h1":
		t.each(t.zeroBubble)
	case "varuna":
		t.varuna()
	default:
		return nil, fmt.Errorf("there is no schedule %q of a pipeline: it must be gpipe, 1f1b, interleaved, zb-h1 or varuna", name)
	}
	t.allot()
	return t, nil
}

// Rank is what stage i does, in order. The slice is the table's own.
func (t *Table) Rank(i int) []Action { return t.ranks[i] }

// Slots is how many slots stage i uses: the most (chunk, micro-batch) pairs that it holds at once.
func (t *Table) Slots(i int) int { return t.slots[i] }

// Parts is how many parts the model is cut into.
func (t *Table) Parts() int { return t.Stages * t.Chunks }

// Part is the part of the model that is a chunk of a stage.
func (t *Table) Part(stage, chunk int) int { return chunk*t.Stages + stage }

// Place is the stage that has a part, and which of its chunks it is.
func (t *Table) Place(part int) (stage, chunk int) { return part % t.Stages, part / t.Stages }

// each makes the lists of all stages.
func (t *Table) each(list func(stage int) []Action) {
	for i := range t.Stages {
		t.ranks = append(t.ranks, list(i))
	}
}

// allot gives each pair of chunk and micro-batch the lowest slot that is free when its forward runs.
func (t *Table) allot() {
	type pair struct{ chunk, micro int }
	last := B
	if t.Split {
		last = W
	}
	t.slots = make([]int, t.Stages)
	for i, list := range t.ranks {
		held := map[pair]int{}
		var used []bool
		for n, a := range list {
			p := pair{a.Chunk, a.Micro}
			if a.Kind == F {
				k := 0
				for k < len(used) && used[k] {
					k++
				}
				if k == len(used) {
					used = append(used, false)
				}
				used[k], held[p] = true, k
			}
			list[n].Slot = held[p]
			if a.Kind == last {
				used[held[p]] = false
			}
		}
		t.slots[i] = len(used)
	}
}
