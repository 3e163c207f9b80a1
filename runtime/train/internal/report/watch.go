package report

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/internal/trace"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/gtc-compiler/gtc/runtime/train/internal/machine"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// Watcher looks at every call. It exists only when one of the views is asked for, so that a plain run pays nothing:
//
//	GTC_NAN=1      stop at the first call that makes a NaN, and name it; 2: at the first infinity too
//	GTC_HASH=1     checksums of loss, parameters and state of each rank after each step; 2: of what every call makes
//	GTC_PROFILE=1  where the time went, at exit, of rank 0; 2: of every rank
//	GTC_DEBUG=1    what was loaded; 2: the memory map; 3: each function; 4: each call
//	--trace FILE   every call and collective in time
type Watcher struct {
	NaN, Hash, profile, Debug int           // levels of GTC_NAN, GTC_HASH, GTC_PROFILE and GTC_DEBUG; 0 is off
	Trace                     *trace.Writer // of --trace; nil without
	rank                      int
	Out                       io.Writer
	firstInf                  string // says which call made the first infinity, for the report of a NaN
	began                     time.Time

	Flops float64       // of one step
	Steps int           // optimizer steps done
	Time  time.Duration // that they took
	Data  time.Duration // waited for data before them

	drains  int           // ends of functions
	drained time.Duration // waited for collectives there
}

// NewWatcher reads the views' environment variables.
func NewWatcher(getenv func(string) string, rank int, out io.Writer) (*Watcher, error) {
	w := &Watcher{rank: rank, Out: out, began: time.Now()}
	for _, x := range []struct {
		name string
		v    *int
	}{{"GTC_NAN", &w.NaN}, {"GTC_HASH", &w.Hash}, {"GTC_PROFILE", &w.profile}, {"GTC_DEBUG", &w.Debug}} {
		name, v := x.name, x.v
		s := getenv(name)
		if s == "" {
			continue
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return nil, ranks.Usagef("%s must be a number, not %q: 0 turns it off, 1 and more on", name, s)
		}
		*v = n
	}
	return w, nil
}

// Calls reports whether every call must be looked at.
func (w *Watcher) Calls() bool {
	return w.NaN > 0 || w.Hash > 1 || w.profile > 0 || w.Debug > 2 || w.Trace != nil
}

// Begin implements machine.Observer.
func (w *Watcher) Begin(f *machine.Function, micro int) {
	if w.Debug > 2 {
		fmt.Fprintf(w.Out, "rank %d @%s, micro-batch %d, slot %d\n", w.rank, f.Name, micro, f.Slot)
	}
}

// Drained implements machine.Observer.
func (w *Watcher) Drained(d time.Duration) {
	w.drains++
	w.drained += d
}

// After implements machine.Observer.
func (w *Watcher) After(m *machine.Machine, f *machine.Function, s *machine.Step, t0, t1 time.Time) error {
	t2 := time.Now()
	s.Count++
	s.Waited += t1.Sub(t0)
	s.Took += t2.Sub(t1)
	if w.Trace != nil {
		if wait := t1.Sub(t0); wait > 2*time.Microsecond {
			w.Trace.Add(trace.LaneCalls, "wait for collectives", "", t0, wait)
		}
		w.Trace.Add(trace.LaneCalls, s.Call.Name, s.Call.Loc, t1, t2.Sub(t1))
	}
	if w.Debug > 3 {
		fmt.Fprintf(w.Out, "rank %d @%s %s  %v  %s\n", w.rank, f.Name, s.Call.Name, t2.Sub(t1), s.Call.Loc)
	}
	if w.NaN == 0 && w.Hash < 2 {
		return nil
	}
	if err := m.Finish(s); err != nil {
		return err
	}
	if w.Hash > 1 {
		if err := w.hashCall(m, f, s); err != nil {
			return err
		}
	}
	if w.NaN > 0 {
		return w.scan(m, f, s)
	}
	return nil
}

func (w *Watcher) hashCall(m *machine.Machine, f *machine.Function, s *machine.Step) error {
	for _, o := range s.Call.Out {
		b, err := m.Stretch(o.Offset, o.Bytes)
		if err != nil {
			return err
		}
		fmt.Fprintf(w.Out, "hash rank %d @%s %s %08x\n", w.rank, f.Name, o.Name, crc32.Checksum(b, castagnoli))
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// scan looks for numbers that are none in what a call made.
func (w *Watcher) scan(m *machine.Machine, f *machine.Function, s *machine.Step) error {
	for _, o := range s.Call.Out {
		b, err := m.Stretch(o.Offset, o.Bytes)
		if err != nil {
			return err
		}
		at, nan, inf := program.FirstBad(b, o.DType)
		what := fmt.Sprintf("@%s: %s, at %s", f.Name, s.Call.Name, program.Place(s.Call.Loc))
		switch {
		case nan >= 0:
			note := ""
			if w.firstInf != "" {
				note = "\n  note: the first infinite value came from " + w.firstInf
			}
			return fmt.Errorf("GTC_NAN: the first NaN of rank %d is element %d of %q, made by %s%s", w.rank, nan, o.Name, what, note)
		case inf >= 0 && w.NaN > 1:
			return fmt.Errorf("GTC_NAN: the first infinite value of rank %d is element %d of %q, made by %s", w.rank, inf, o.Name, what)
		case inf >= 0 && w.firstInf == "":
			w.firstInf = fmt.Sprintf("element %d of %q, made by %s", at, o.Name, what)
		}
	}
	return nil
}

// HashStep prints the checksums of one step.
func (w *Watcher) HashStep(m *machine.Machine, step int64, loss float64) error {
	if w == nil || w.Hash == 0 {
		return nil
	}
	sums := map[abi.Role]uint32{}
	for i := range m.Plan.Prog.Tensors {
		t := &m.Plan.Prog.Tensors[i]
		if t.Role == abi.RoleParam || t.Role == abi.RoleBuffer || t.Role == abi.RoleState {
			b, err := m.Contents(t)
			if err != nil {
				return err
			}
			sums[t.Role] = crc32.Update(sums[t.Role], castagnoli, b)
		}
	}
	fmt.Fprintf(w.Out, "hash rank %d step %d loss %016x param %08x buffer %08x state %08x\n", w.rank, step,
		math.Float64bits(loss), sums[abi.RoleParam], sums[abi.RoleBuffer], sums[abi.RoleState])
	return nil
}

// row is one line of the profile. A kernel is not charged with the time that it waited for collectives first: that
// has a row of its own.
type row struct {
	name, loc    string
	count        int
	waited, took time.Duration
}

// Waiting is the row of the time spent waiting for collectives.
const Waiting = "waiting for collectives"

// Report prints where the time went, per kernel and per call.
func (w *Watcher) Report(m *machine.Machine) {
	if w == nil || w.profile == 0 || w.rank != 0 && w.profile < 2 {
		return
	}
	var calls []row
	kernels := map[string]*row{}
	total, waits := time.Duration(0), row{name: Waiting, count: w.drains, took: w.drained}
	for _, name := range slices.Sorted(maps.Keys(m.Funcs)) {
		for _, s := range m.Counts(name) {
			if s.Count == 0 {
				continue
			}
			total += s.Took
			if len(s.Waits) > 0 {
				waits.count += s.Count
				waits.took += s.Waited
			}
			calls = append(calls, row{"@" + name + " " + s.Call.Name, s.Call.Loc, s.Count, s.Waited, s.Took})
			k := s.Call.Name[strings.LastIndex(s.Call.Name, "= ")+1:]
			if kernels[k] == nil {
				kernels[k] = &row{name: strings.TrimSpace(k)}
			}
			kernels[k].count += s.Count
			kernels[k].took += s.Took
		}
	}
	var merged []row
	for _, k := range kernels {
		merged = append(merged, *k)
	}
	if waits.count > 0 {
		merged, calls = append(merged, waits), append(calls, waits)
	}
	fmt.Fprintf(w.Out, "profile of rank %d: %v in kernels and copies, %v waiting for collectives, %v since start\n",
		w.rank, total.Round(time.Microsecond), waits.took.Round(time.Microsecond), time.Since(w.began).Round(time.Microsecond))
	if w.Steps > 0 {
		n := float64(w.Steps)
		fmt.Fprintf(w.Out, "%s of %.4g ms (%.3g GFLOP/s), %.3g ms before each for data\n", printable.Count(w.Steps, "step"), float64(w.Time)/1e6/n,
			w.Flops*n/max(float64(w.Time), 1), float64(w.Data)/1e6/n)
	}
	w.table("by kernel", merged, 30, total+waits.took)
	w.table("by call", calls, 30, total+waits.took)
}

func (w *Watcher) table(title string, rows []row, most int, total time.Duration) {
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.took, a.took), cmp.Compare(a.name, b.name))
	})
	fmt.Fprintf(w.Out, "%-8s %10s %8s %10s %6s  %s (%d)\n", "", "total ms", "calls", "us a call", "%", title, len(rows))
	for i, r := range rows {
		if i == most {
			fmt.Fprintf(w.Out, "%8s … %d more\n", "", len(rows)-most)
			break
		}
		line := fmt.Sprintf("%-8s %10.2f %8d %10.1f %6.1f  %s", "", float64(r.took)/1e6, r.count, float64(r.took)/1e3/float64(r.count),
			100*float64(r.took)/float64(max(total, 1)), r.name)
		if r.waited > r.took/10 {
			line += fmt.Sprintf(" (after waiting %.2f ms)", float64(r.waited)/1e6)
		}
		if r.loc != "" {
			line += "  " + r.loc
		}
		fmt.Fprintln(w.Out, line)
	}
}
