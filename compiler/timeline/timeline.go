// Package timeline draws the schedule of a pipeline in time: as text, one line a stage, and as SVG. Stages that wait are
// what one looks for: the bubble.
package timeline

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/schedule"
)

// Drawing is a schedule laid out in time.
type Drawing struct {
	Table *schedule.Table
	Line  *schedule.Timeline
	Unit  string // of the times, such as "ms"; "" for times that only compare
}

// New lays t out with the costs c.
func New(t *schedule.Table, c schedule.Costs, unit string) (*Drawing, error) {
	line, err := t.Simulate(c)
	if err != nil {
		return nil, err
	}
	return &Drawing{Table: t, Line: line, Unit: unit}, nil
}

// Info is what there is to say of a drawing beside the picture. Its JSON names are public.
type Info struct {
	Schedule     string    `json:"schedule"`
	Stages       int       `json:"stages"`
	Chunks       int       `json:"chunks"`
	Microbatches int       `json:"microbatches"`
	Time         float64   `json:"time"`   // of a step's forwards and backwards
	Unit         string    `json:"unit"`   // of time; "" when costs only compare
	Bubble       float64   `json:"bubble"` // share of the stages' time that is waited, 0 to 1
	Slots        []int     `json:"slots"`  // by stage: the most (chunk, micro-batch) pairs held at once
	Busy         []float64 `json:"busy"`   // by stage: share of the time that it computes
}

// Info sums the drawing up.
func (d *Drawing) Info() Info {
	t := d.Table
	info := Info{Schedule: t.Name, Stages: t.Stages, Chunks: t.Chunks, Microbatches: t.Micros, Time: d.Line.End, Unit: d.Unit, Bubble: d.Line.Bubble}
	for i, list := range d.Line.Ranks {
		info.Slots = append(info.Slots, t.Slots(i))
		busy := 0.0
		for _, s := range list {
			busy += s.End - s.Start
		}
		if d.Line.End > 0 {
			busy /= d.Line.End
		}
		info.Busy = append(info.Busy, busy)
	}
	return info
}

// headline is the first line of every picture.
func (d *Drawing) headline() string {
	t := d.Table
	chunks := ""
	if t.Chunks > 1 {
		chunks = fmt.Sprintf(" of %d chunks", t.Chunks)
	}
	unit := ""
	if d.Unit != "" {
		unit = " " + d.Unit
	}
	return fmt.Sprintf("%s: %d stages%s, %d micro-batches; time %.4g%s, bubble %.1f %%", t.Name, t.Stages, chunks, t.Micros, d.Line.End, unit, 100*d.Line.Bubble)
}

// Terminal prints the drawing in at most width columns, with colours when asked. Each action is its letter and its
// micro-batch (F3: forward of micro-batch 3; with chunks, F1.3 is that of chunk 1), as wide as it is long; · is waiting.
func (d *Drawing) Terminal(w io.Writer, width int, colour bool) {
	fmt.Fprintln(w, d.headline())
	label := len(fmt.Sprint(d.Table.Stages - 1))
	columns := d.columns(width - len("stage  ") - label - len("  slots 999"))
	for i, list := range d.Line.Ranks {
		fmt.Fprintf(w, "stage %*d ", label, i)
		at := 0
		for _, s := range list {
			from, to := d.column(s.Start, columns), d.column(s.End, columns)
			from = max(from, at)
			if to <= from && to < columns {
				to = from + 1 // the least that shows
			}
			fmt.Fprint(w, strings.Repeat("·", from-at))
			fmt.Fprint(w, d.cell(s, to-from, colour))
			at = max(to, from)
		}
		fmt.Fprintf(w, "%s  slots %d\n", strings.Repeat("·", max(0, columns-at)), d.Table.Slots(i))
	}
}

// columns is how many columns the whole time takes: as many as make the shortest action readable, if they fit.
func (d *Drawing) columns(most int) int {
	shortest, name := math.Inf(1), 0
	for _, list := range d.Line.Ranks {
		for _, s := range list {
			if s.End > s.Start {
				shortest = min(shortest, s.End-s.Start)
			}
			name = max(name, len(d.name(s)))
		}
	}
	most = max(most, 20)
	if math.IsInf(shortest, 1) {
		return most
	}
	times := d.Line.End / shortest
	each := min(float64(name+1), math.Floor(float64(most)/times)) // whole columns, so that equal actions are equally wide
	if each < 1 {
		return most
	}
	return int(math.Round(times * each))
}

func (d *Drawing) column(at float64, columns int) int {
	if d.Line.End == 0 {
		return 0
	}
	return int(math.Round(at / d.Line.End * float64(columns)))
}

// name is what a cell says.
func (d *Drawing) name(s schedule.Span) string {
	if d.Table.Chunks > 1 {
		return s.Action.String()
	}
	return fmt.Sprintf("%s%d", s.Kind, s.Micro)
}

// cell is one action in n columns. Without colours a line joins what belongs together.
func (d *Drawing) cell(s schedule.Span, n int, colour bool) string {
	if n <= 0 {
		return ""
	}
	fill, name := "─", d.name(s)
	if colour {
		fill = " "
	}
	if len(name) > n {
		name = fmt.Sprintf("%s%d", s.Kind, s.Micro)
	}
	if len(name) > n {
		name = s.Kind.String()
	}
	text := name
	if n > len(name) {
		text += strings.Repeat(fill, n-len(name)-1) + " "
	}
	if !colour {
		return text
	}
	return fmt.Sprintf("\x1b[30;%dm%s\x1b[0m", terminalColour[s.Kind]+60*(s.Micro%2), text)
}

// Black on blue, green and yellow, readable on light and dark grounds; 60 more are the bright ones, for every other
// micro-batch.
var terminalColour = map[schedule.Kind]int{schedule.F: 44, schedule.B: 42, schedule.W: 43}
