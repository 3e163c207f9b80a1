package train

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

	"github.com/gtc-compiler/gtc/runtime/trace"
)

// watcher looks at every call. It exists only when one of the views is asked for, so that a plain run pays nothing:
//
//	GTC_NAN=1      stop at the first call that makes a NaN, and name it; 2: at the first infinity too
//	GTC_HASH=1     checksums of loss, parameters and state of each rank after each step; 2: of what every call makes
//	GTC_PROFILE=1  where the time went, at exit, of rank 0; 2: of every rank
//	GTC_DEBUG=1    what was loaded; 2: the memory map; 3: each function; 4: each call
//	--trace FILE   every call and collective in time
type watcher struct {
	nan, hash, profile, debug int
	trace                     *trace.Writer
	rank                      int
	out                       io.Writer
	firstInf                  string // the first call that made an infinity, for the report of a NaN
	began                     time.Time

	flops      float64 // of a step
	steps      int     // optimizer steps, the time they took, and the time they waited for data before
	time, data time.Duration

	drains  int // waits at the end of a function, and the time they took
	drained time.Duration
}

// newWatcher reads the views' environment variables.
func newWatcher(getenv func(string) string, rank int, out io.Writer) (*watcher, error) {
	w := &watcher{rank: rank, out: out, began: time.Now()}
	for _, x := range []struct {
		name string
		v    *int
	}{{"GTC_NAN", &w.nan}, {"GTC_HASH", &w.hash}, {"GTC_PROFILE", &w.profile}, {"GTC_DEBUG", &w.debug}} {
		name, v := x.name, x.v
		s := getenv(name)
		if s == "" {
			continue
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return nil, usagef("%s=%q is not a number: 0 is off, 1 and more is on", name, s)
		}
		*v = n
	}
	return w, nil
}

// calls reports whether every call must be looked at.
func (w *watcher) calls() bool {
	return w.nan > 0 || w.hash > 1 || w.profile > 0 || w.debug > 2 || w.trace != nil
}

// Begin implements observer.
func (w *watcher) Begin(f *function, micro int) {
	if w.debug > 2 {
		fmt.Fprintf(w.out, "rank %d @%s, micro-batch %d, slot %d\n", w.rank, f.name, micro, f.slot)
	}
}

// Drained implements observer.
func (w *watcher) Drained(d time.Duration) {
	w.drains++
	w.drained += d
}

// After implements observer.
func (w *watcher) After(m *machine, f *function, s *step, t0, t1 time.Time) error {
	t2 := time.Now()
	s.count++
	s.waited += t1.Sub(t0)
	s.took += t2.Sub(t1)
	if w.trace != nil {
		if wait := t1.Sub(t0); wait > 2*time.Microsecond {
			w.trace.Add(trace.LaneCalls, "wait for collectives", "", t0, wait)
		}
		w.trace.Add(trace.LaneCalls, s.call.Name, s.call.Loc, t1, t2.Sub(t1))
	}
	if w.debug > 3 {
		fmt.Fprintf(w.out, "rank %d @%s %s  %v  %s\n", w.rank, f.name, s.call.Name, t2.Sub(t1), s.call.Loc)
	}
	if w.nan == 0 && w.hash < 2 {
		return nil
	}
	if err := m.finish(s); err != nil {
		return err
	}
	if w.hash > 1 {
		if err := w.hashCall(m, f, s); err != nil {
			return err
		}
	}
	if w.nan > 0 {
		return w.scan(m, f, s)
	}
	return nil
}

func (w *watcher) hashCall(m *machine, f *function, s *step) error {
	for _, o := range s.call.Out {
		b, err := m.stretch(o.Offset, o.Bytes)
		if err != nil {
			return err
		}
		fmt.Fprintf(w.out, "hash rank %d @%s %s %08x\n", w.rank, f.name, o.Name, crc32.Checksum(b, castagnoli))
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// scan looks for numbers that are none in what a call made.
func (w *watcher) scan(m *machine, f *function, s *step) error {
	for _, o := range s.call.Out {
		b, err := m.stretch(o.Offset, o.Bytes)
		if err != nil {
			return err
		}
		at, nan, inf := firstBad(b, o.DType)
		what := fmt.Sprintf("@%s: %s, at %s", f.name, s.call.Name, place(s.call.Loc))
		switch {
		case nan >= 0:
			note := ""
			if w.firstInf != "" {
				note = "\n  note: the first infinite value came from " + w.firstInf
			}
			return fmt.Errorf("GTC_NAN: the first NaN of rank %d is element %d of %q, made by %s%s", w.rank, nan, o.Name, what, note)
		case inf >= 0 && w.nan > 1:
			return fmt.Errorf("GTC_NAN: the first infinite value of rank %d is element %d of %q, made by %s", w.rank, inf, o.Name, what)
		case inf >= 0 && w.firstInf == "":
			w.firstInf = fmt.Sprintf("element %d of %q, made by %s", at, o.Name, what)
		}
	}
	return nil
}

// hashStep prints the checksums of one step.
func (w *watcher) hashStep(m *machine, step int64, loss float64) error {
	if w == nil || w.hash == 0 {
		return nil
	}
	sums := map[string]uint32{}
	for i := range m.plan.prog.Tensors {
		t := &m.plan.prog.Tensors[i]
		if t.Role == "param" || t.Role == "buffer" || t.Role == "state" {
			b, err := m.contents(t)
			if err != nil {
				return err
			}
			sums[t.Role] = crc32.Update(sums[t.Role], castagnoli, b)
		}
	}
	fmt.Fprintf(w.out, "hash rank %d step %d loss %016x param %08x buffer %08x state %08x\n", w.rank, step,
		math.Float64bits(loss), sums["param"], sums["buffer"], sums["state"])
	return nil
}

// row is one line of the profile. A kernel is not charged with the time that it waited for collectives first: that
// has a row of its own.
type row struct {
	name, loc    string
	count        int
	waited, took time.Duration
}

// waiting is the row of the time spent waiting for collectives.
const waiting = "waiting for collectives"

// report prints where the time went, per kernel and per call.
func (w *watcher) report(m *machine) {
	if w == nil || w.profile == 0 || w.rank != 0 && w.profile < 2 {
		return
	}
	var calls []row
	kernels := map[string]*row{}
	total, waits := time.Duration(0), row{name: waiting, count: w.drains, took: w.drained}
	for _, name := range slices.Sorted(maps.Keys(m.funcs)) {
		for _, s := range m.counts(name) {
			if s.count == 0 {
				continue
			}
			total += s.took
			if len(s.waits) > 0 {
				waits.count += s.count
				waits.took += s.waited
			}
			calls = append(calls, row{"@" + name + " " + s.call.Name, s.call.Loc, s.count, s.waited, s.took})
			k := s.call.Name[strings.LastIndex(s.call.Name, "= ")+1:]
			if kernels[k] == nil {
				kernels[k] = &row{name: strings.TrimSpace(k)}
			}
			kernels[k].count += s.count
			kernels[k].took += s.took
		}
	}
	var merged []row
	for _, k := range kernels {
		merged = append(merged, *k)
	}
	if waits.count > 0 {
		merged, calls = append(merged, waits), append(calls, waits)
	}
	fmt.Fprintf(w.out, "profile of rank %d: %v in kernels and copies, %v waiting for collectives, %v since start\n",
		w.rank, total.Round(time.Microsecond), waits.took.Round(time.Microsecond), time.Since(w.began).Round(time.Microsecond))
	if w.steps > 0 {
		n := float64(w.steps)
		fmt.Fprintf(w.out, "%d steps of %.4g ms (%.3g GFLOP/s), %.3g ms before each for data\n", w.steps, float64(w.time)/1e6/n,
			w.flops*n/max(float64(w.time), 1), float64(w.data)/1e6/n)
	}
	w.table("by kernel", merged, 30, total+waits.took)
	w.table("by call", calls, 30, total+waits.took)
}

func (w *watcher) table(title string, rows []row, most int, total time.Duration) {
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.took, a.took), cmp.Compare(a.name, b.name))
	})
	fmt.Fprintf(w.out, "%-8s %10s %8s %10s %6s  %s (%d)\n", "", "total ms", "calls", "us a call", "%", title, len(rows))
	for i, r := range rows {
		if i == most {
			fmt.Fprintf(w.out, "%8s … %d more\n", "", len(rows)-most)
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
		fmt.Fprintln(w.out, line)
	}
}
