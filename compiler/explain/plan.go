package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/compiler/timeline"
	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/distributed/topo"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// Plan is what the ranks of a compiled folder say to one another, with predicted times. Its JSON names are public.
type Plan struct {
	Ranks    int           `json:"ranks"`
	Links    []AxisLink    `json:"links"`
	Programs []ProgramPlan `json:"programs"`
}

// AxisLink is what the ranks along an axis talk over.
type AxisLink struct {
	Axis string    `json:"axis"`
	Size int       `json:"size"`
	Link topo.Link `json:"link"`
}

// ProgramPlan is the part of the ranks that run one program.
type ProgramPlan struct {
	Program     int          `json:"program"`
	Ranks       []int        `json:"ranks"`
	Collectives []Collective `json:"collectives"`
	Totals      []Total      `json:"totals"` // of a training step, of one rank
}

// Collective is one message among ranks. Bytes are those of abi.Collective.
type Collective struct {
	Func    string          `json:"func"`
	PerStep int             `json:"per_step"` // times in a training step; 0 in functions that are no part of it
	Kind    mesh.Collective `json:"kind"`
	Axis    string          `json:"axis"`
	Peer    int             `json:"peer"` // of send and recv
	Op      string          `json:"op"`
	DType   string          `json:"dtype"`
	Bytes   int             `json:"bytes"`
	Ranks   int             `json:"ranks"` // that take part
	Tensors []string        `json:"tensors"`
	Loc     string          `json:"loc"`
	Why     string          `json:"why"`
	topo.Cost
}

// Total sums up the collectives of one axis and kind over a training step.
type Total struct {
	Axis    string          `json:"axis"`
	Kind    mesh.Collective `json:"kind"`
	Count   int             `json:"count"`
	Bytes   int64           `json:"bytes"`
	Sent    int64           `json:"sent"` // by one rank
	Seconds float64         `json:"seconds"`
}

// PlanOf lists the collectives of every program of a folder, in program order.
func PlanOf(m *abi.Manifest, t topo.Topology) *Plan {
	out := &Plan{Ranks: m.Ranks, Links: []AxisLink{}}
	for _, a := range m.Mesh {
		out.Links = append(out.Links, AxisLink{a.Name, a.Size, t.Link(a.Name)})
	}
	each := 1
	for _, p := range m.RankProgram {
		each = max(each, p+1)
	}
	for i := range m.Programs {
		pp := ProgramPlan{Program: i, Ranks: []int{}, Collectives: []Collective{}, Totals: []Total{}}
		for r, p := range m.RankProgram {
			if p == i%each {
				pp.Ranks = append(pp.Ranks, r)
			}
		}
		times := perStep(m, &m.Programs[i])
		for _, c := range m.Programs[i].Collectives {
			one := Collective{Func: c.Func, PerStep: times[c.Func], Kind: c.Kind, Axis: c.Axis, Peer: c.Peer, Op: c.Op, DType: c.DType, Bytes: c.Bytes,
				Ranks: timeline.Members(m, c.Axis), Tensors: c.Tensors, Loc: c.Loc, Why: c.Why, Cost: timeline.Predict(m, c, t)}
			if c.Kind.Message() {
				one.Ranks = 2
			}
			pp.Collectives = append(pp.Collectives, one)
		}
		pp.total()
		out.Programs = append(out.Programs, pp)
	}
	return out
}

// perStep counts how often a step calls each function.
func perStep(m *abi.Manifest, p *abi.Program) map[string]int {
	times := map[string]int{}
	for _, a := range p.Actions {
		times[a.Func]++
	}
	if p.Actions == nil {
		times[abi.FuncMicro], times[abi.FuncStep] = max(1, m.Train.Microbatches)-1, 1
	}
	return times
}

// total sums up by axis and kind.
func (p *ProgramPlan) total() {
	for _, c := range p.Collectives {
		if c.PerStep == 0 {
			continue
		}
		i := slices.IndexFunc(p.Totals, func(t Total) bool { return t.Axis == c.Axis && t.Kind == c.Kind })
		if i < 0 {
			i = len(p.Totals)
			p.Totals = append(p.Totals, Total{Axis: c.Axis, Kind: c.Kind})
		}
		t := &p.Totals[i]
		t.Count += c.PerStep
		t.Bytes += int64(c.PerStep) * int64(c.Bytes)
		t.Sent += int64(c.PerStep) * c.Sent
		t.Seconds += float64(c.PerStep) * c.Seconds
	}
	slices.SortStableFunc(p.Totals, func(a, b Total) int { return strings.Compare(a.Axis+" "+string(a.Kind), b.Axis+" "+string(b.Kind)) })
}

// Print writes the plan for people.
func (p *Plan) Print(w io.Writer) {
	if p.Ranks < 2 {
		fmt.Fprintln(w, "one rank: it sends and receives nothing")
		return
	}
	for _, l := range p.Links {
		fmt.Fprintf(w, "axis %s of %d ranks over %s: %s a message, %s/s (%s)\n", l.Axis, l.Size, l.Link.Name, seconds(l.Link.Alpha), size(l.Link.Beta), l.Link.Source)
	}
	for i := range p.Programs {
		pp := &p.Programs[i]
		fmt.Fprintf(w, "\nprogram %d, of rank %s\n", pp.Program, span(pp.Ranks))
		fn := ""
		for _, c := range pp.Collectives {
			if c.Func != fn {
				fn = c.Func
				fmt.Fprintf(w, "@%s, %d times a step\n", fn, c.PerStep)
			}
			c.print(w)
		}
		if len(pp.Totals) > 0 {
			fmt.Fprintf(w, "a step, one rank%12s %12s %12s %12s\n", "messages", "bytes", "sends", "predicted")
		}
		for _, t := range pp.Totals {
			fmt.Fprintf(w, "  %-14s%12d %12s %12s %12s\n", t.Axis+" "+string(t.Kind), t.Count, size(float64(t.Bytes)), size(float64(t.Sent)), seconds(t.Seconds))
		}
	}
}

func (c *Collective) print(w io.Writer) {
	what := string(c.Kind)
	if c.Op != "" {
		what += " " + c.Op
	}
	what += " over " + c.Axis
	switch c.Kind {
	case mesh.Send:
		what += fmt.Sprintf(", to %d", c.Peer)
	case mesh.Recv:
		what += fmt.Sprintf(", from %d", c.Peer)
	default:
		what += fmt.Sprintf(", %d ranks", c.Ranks)
	}
	fmt.Fprintf(w, "  %s: %s of %s", what, size(float64(c.Bytes)), c.DType)
	if c.Algorithm != "" {
		fmt.Fprintf(w, ", sends %s in %s (%s)", size(float64(c.Sent)), seconds(c.Seconds), c.Algorithm)
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "      %s\n", printable.Line(strings.Join(c.Tensors, ", ")))
	if c.Loc != "" {
		fmt.Fprintf(w, "      at %s\n", printable.Line(c.Loc))
	}
	if c.Why != "" {
		fmt.Fprintf(w, "      why: %s\n", printable.Line(c.Why))
	}
}

// span is 0, 0-3 or 0, 2, 4.
func span(ranks []int) string {
	if n := len(ranks); n > 1 && ranks[n-1]-ranks[0] == n-1 {
		return fmt.Sprintf("%d-%d", ranks[0], ranks[n-1])
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ranks), " ", ", "), "[]")
}

// size prints bytes for people.
func size(b float64) string {
	for _, u := range []string{"B", "KiB", "MiB", "GiB"} {
		if b < 1024 {
			return fmt.Sprintf("%.4g %s", b, u)
		}
		b /= 1024
	}
	return fmt.Sprintf("%.4g TiB", b)
}

// seconds prints a time for people.
func seconds(s float64) string {
	switch {
	case s < 1e-3:
		return fmt.Sprintf("%.3g us", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.3g s", s)
}
