// Package proof shows, from the plan alone, that the ranks of a job never wait for one another forever, and that they mean
// the same by each message: before anything runs, and again on a compiled folder (gtc verify).
//
// # What is proven
//
// For the training step and for each other function that ranks call together (eval, forward):
//
//   - every collective meets the same collective of every member of its group, in the same order: kind, operator, element
//     type, bytes, tensors, function and micro-batch agree;
//   - every message is received, by the rank it is for, in the order of sending, as what it is: tag, element type, bytes and
//     micro-batch agree;
//   - no rank waits forever, and nothing is left in a queue when all have ended, so that steps may follow each other;
//   - a schedule does each function of each chunk once for each micro-batch, backwards in their order, each in the slot that
//     its forward filled, and the update once, at the end;
//   - all ranks of a stage run one program.
//
// That values are there when they are sent is not part of it: the program's IR says so (ir.Verify), before it became a plan.
//
// # Why one simulation decides
//
// A rank's program has no branches: which collectives it issues, and in which order, depends on nothing that happens at run
// time. A send does not wait (the queue of each ordered pair of ranks is as long as it must be), a recv waits for one
// certain queue and a collective for certain members. Such programs are a Kahn network: whatever the speed of the ranks, each
// does the same sequence, and all end or none of the runs does. So one run, in any order, is all runs.
//
// Here recvs and collectives wait where they are issued. The run-time lets a rank go on until it needs the result. That
// removes waits and adds none: what ends here ends there. One wait is added, and is modelled: before an action works on a
// slot of the stash, what the same function sent from that slot must be received, because it is sent from there.
//
// # Why few ranks decide for many
//
// When the program of a rank does not depend on its coordinate along an axis (dp and tp: stages alone have programs of their
// own) and nobody sends along it, all ranks that differ in it alone can be run in step: they are at the same place, so a
// collective over the axis finds all its members there, with the same op. That is one run, and one run is all. So it is enough to
// run one rank for each other coordinate, with collectives over the axis let through: 8 ranks for 1,024 of pp 8, dp 16, tp 8.
package proof

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// Report says what was proven. Its JSON names are public.
type Report struct {
	Ranks    int   `json:"ranks"`
	Run      int   `json:"run"` // ranks that were run for all of them
	Programs int   `json:"programs"`
	Entries  []Run `json:"entries"`
}

// Run is one thing that all ranks do together.
type Run struct {
	Name        string `json:"name"`        // step, eval, forward
	Actions     int    `json:"actions"`     // calls of functions, of all ranks that were run
	Collectives int    `json:"collectives"` // those they took part in
	Messages    int    `json:"messages"`    // received
	Variant     int    `json:"-"`           // optimizer, of a folder that was compiled with several
}

// String is the report in one sentence.
func (r *Report) String() string {
	return fmt.Sprintf("%s, %s, %s run for all: %s", printable.Count(r.Ranks, "rank"), printable.Count(r.Programs, "program"), printable.Count(r.Run, "rank"), r.Counts())
}

// Counts says what the ranks that were run say to one another in each thing that they do together.
func (r *Report) Counts() string {
	var parts []string
	for _, e := range r.Entries {
		parts = append(parts, fmt.Sprintf("%s: %s, %s", e.Name, printable.Count(e.Collectives, "collective"), printable.Count(e.Messages, "message")))
	}
	return strings.Join(parts, "; ")
}

// Check proves the plan, or says what is wrong: the error names the ops of both sides and their source lines, and a cycle of
// waits rank by rank.
func Check(plan *abi.Manifest) (*Report, error) {
	rep, err := check(plan, true)
	if err != nil {
		return nil, err
	}
	return rep, stages(plan)
}

// stages checks that the program of a rank depends on its stage alone. Then no rank of a stage does in another order what its
// peers do, even where the messages would fit.
func stages(plan *abi.Manifest) error {
	stage, each := "the same", plan.Ranks
	for _, a := range plan.Mesh {
		if a.Name == mesh.PipelineAxis { // the outermost axis
			stage, each = "the same stage", plan.Ranks/a.Size
		}
	}
	for r, p := range plan.RankProgram {
		if first := r / each * each; p != plan.RankProgram[first] {
			a, b := &plan.Programs[plan.RankProgram[first]], &plan.Programs[p]
			if !reflect.DeepEqual(a.Collectives, b.Collectives) || !reflect.DeepEqual(a.Actions, b.Actions) {
				return fmt.Errorf("ranks %d and %d are %s and run different programs: %s", first, r, stage, differ(a, b))
			}
		}
	}
	return nil
}

// differ tells the first difference between two programs.
func differ(a, b *abi.Program) string {
	for i := range min(len(a.Collectives), len(b.Collectives)) {
		if x, y := &a.Collectives[i], &b.Collectives[i]; !reflect.DeepEqual(x, y) {
			return fmt.Sprintf("collective %d is %s; %s", i, tell(x), tell(y))
		}
	}
	for i := range min(len(a.Actions), len(b.Actions)) {
		if x, y := a.Actions[i], b.Actions[i]; x != y {
			return fmt.Sprintf("action %d is @%s of micro-batch %d in slot %d; @%s of micro-batch %d in slot %d", i, x.Func, x.Micro, x.Slot, y.Func, y.Micro, y.Slot)
		}
	}
	return fmt.Sprintf("%d collectives and %d actions; %d and %d", len(a.Collectives), len(a.Actions), len(b.Collectives), len(b.Actions))
}

// check is Check; without symmetry it runs every rank.
func check(plan *abi.Manifest, symmetry bool) (*Report, error) {
	j, err := newJob(plan)
	if err != nil {
		return nil, err
	}
	rep := &Report{Ranks: plan.Ranks, Programs: len(plan.Programs)}
	each := slices.Max(plan.RankProgram) + 1
	if len(plan.Programs)%each != 0 {
		return nil, fmt.Errorf("there are %d programs, but the ranks use %d", len(plan.Programs), each)
	}
	for i := range j.programs {
		if err := j.static(j.programs[i]); err != nil {
			return nil, fmt.Errorf("program %d: %w", i, err)
		}
	}
	for variant := range len(plan.Programs) / each { // one optimizer after the other
		j.first = variant * each
		j.collapse(symmetry)
		rep.Run = len(j.run)
		for _, name := range j.entries() {
			s := newSimulation(j, name)
			if err := s.all(); err != nil {
				return nil, err
			}
			s.did.Variant = variant
			rep.Entries = append(rep.Entries, s.did)
		}
	}
	return rep, nil
}

// What a collective does for the rank that issues it.
const (
	doMeet = iota
	doSend
	doRecv
)

// op is a collective of a program, prepared.
type op struct {
	*abi.Collective
	do   int
	axis int // in the mesh
	is   int // what all sides must agree on, as a number
}

// program is a rank program, prepared.
type program struct {
	*abi.Program
	funcs map[string][]op
}

// job is all ranks.
type job struct {
	plan     *abi.Manifest
	mesh     mesh.Mesh
	programs []*program
	first    int // program of the ranks' program 0
	numbers  map[string]int
	through  []bool // axes whose collectives are let through
	run      []int  // ranks to run
}

// maxMicros bounds what a plan may claim.
const maxMicros = 1 << 20

func newJob(plan *abi.Manifest) (*job, error) {
	j := &job{plan: plan, numbers: map[string]int{}}
	for _, a := range plan.Mesh {
		if a.Size < 1 || j.axis(a.Name) >= 0 {
			return nil, fmt.Errorf("the mesh has axis %q twice, or with size %d", a.Name, a.Size)
		}
		j.mesh.Axes = append(j.mesh.Axes, a)
	}
	if n := j.mesh.Ranks(); n != plan.Ranks || len(plan.RankProgram) != n {
		return nil, fmt.Errorf("mesh %s has %d ranks, but the plan has %d, and programs for %d", j.mesh, n, plan.Ranks, len(plan.RankProgram))
	}
	if n := plan.Train.Microbatches; n < 0 || n > maxMicros {
		return nil, fmt.Errorf("a step has %d micro-batches, but must have at least 1", n)
	}
	for i := range plan.Programs {
		p := &program{&plan.Programs[i], map[string][]op{}}
		for _, f := range p.Funcs {
			p.funcs[f.Name] = nil
		}
		for k := range p.Collectives {
			c := &p.Collectives[k]
			if _, ok := p.funcs[c.Func]; !ok {
				return nil, fmt.Errorf("program %d: %s, but it has no such function", i, tell(c))
			}
			p.funcs[c.Func] = append(p.funcs[c.Func], op{c, kindOf(c), j.axis(c.Axis), j.number(c)})
		}
		j.programs = append(j.programs, p)
	}
	for r, p := range plan.RankProgram {
		if p < 0 || p >= len(plan.Programs) {
			return nil, fmt.Errorf("rank %d runs program %d, but there are %d", r, p, len(plan.Programs))
		}
	}
	return j, nil
}

func kindOf(c *abi.Collective) int {
	switch c.Kind {
	case mesh.Send:
		return doSend
	case mesh.Recv:
		return doRecv
	}
	return doMeet
}

func (j *job) axis(name string) int {
	return slices.IndexFunc(j.mesh.Axes, func(a mesh.Axis) bool { return a.Name == name })
}

// number stands for what both sides must agree on: all of a collective; of a message its contents, and whether forward or
// backward sends and receives it, of whatever chunk.
func (j *job) number(c *abi.Collective) int {
	key := fmt.Sprintf("%s %d %q %q", c.DType, c.Bytes, c.Tensors, c.Axis)
	if kindOf(c) == doMeet {
		key += fmt.Sprintf(" %q %q %q", c.Func, c.Kind, c.Op)
	} else {
		what := c.Func
		if k, _, ok := abi.ParseChunkFunc(c.Func); ok {
			what = k.String()
		}
		key += " @" + what
	}
	n, ok := j.numbers[key]
	if !ok {
		n = len(j.numbers)
		j.numbers[key] = n
	}
	return n
}

// of is the program of a rank.
func (j *job) of(rank int) *program { return j.programs[j.first+j.plan.RankProgram[rank]] }

// collapse finds the axes along which ranks are alike, and the ranks that stand for all.
func (j *job) collapse(symmetry bool) {
	j.through, j.run = make([]bool, len(j.mesh.Axes)), nil
	for i, a := range j.mesh.Axes {
		j.through[i] = symmetry && j.alike(a.Name)
	}
	for r := range j.plan.Ranks {
		stands := true
		for i, a := range j.mesh.Axes {
			stands = stands && !(j.through[i] && j.mesh.Coord(r, a.Name) > 0)
		}
		if stands {
			j.run = append(j.run, r)
		}
	}
}

// alike reports whether ranks that differ along axis alone have one program, which sends nothing along it.
func (j *job) alike(axis string) bool {
	for r, p := range j.plan.RankProgram {
		if j.plan.RankProgram[j.mesh.Group(r, axis)[0]] != p {
			return false
		}
	}
	for _, p := range j.programs {
		for i := range p.Collectives {
			if c := &p.Collectives[i]; c.Axis == axis && kindOf(c) != doMeet {
				return false
			}
		}
	}
	return true
}

// entries are what ranks do together: the step, and each function that is no part of it.
func (j *job) entries() []string {
	var names []string
	for _, r := range j.run {
		p := j.of(r)
		inStep := map[string]bool{abi.FuncMicro: true}
		for _, a := range p.Actions {
			inStep[a.Func] = a.Func != abi.FuncStep
		}
		for _, f := range p.Funcs {
			if !inStep[f.Name] && !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
	}
	return names
}

// actions are what a rank does at an entry.
func (j *job) actions(p *program, entry string) []abi.Action {
	if _, ok := p.funcs[entry]; !ok {
		return nil
	}
	if entry != abi.FuncStep {
		return []abi.Action{{Func: entry}}
	}
	if p.Actions != nil {
		return p.Actions
	}
	var list []abi.Action
	for k := range max(1, j.plan.Train.Microbatches) - 1 {
		list = append(list, abi.Action{Func: abi.FuncMicro, Micro: k})
	}
	return append(list, abi.Action{Func: abi.FuncStep, Micro: len(list)})
}
