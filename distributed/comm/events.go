package comm

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Event is one collective of this process, for diagnosis.
type Event struct {
	Rank   int    // rank in the whole job
	Group  string // "world", or the name given to Sub
	Seq    uint64 // number of the call in its group, from 0
	Op     string // all_reduce, send, ...
	Site   *Site
	DType  DType
	Bytes  int
	Start  time.Time
	Took   time.Duration // zero while the call is in progress
	Failed bool
}

// String is one line of a dump.
func (e Event) String() string {
	state := fmt.Sprintf("took %v", e.Took.Round(time.Microsecond))
	switch {
	case e.Failed:
		state = "FAILED"
	case e.Took == 0:
		state = "IN PROGRESS"
	}
	s := fmt.Sprintf("%s %s#%d %s", e.Start.Format("15:04:05.000000"), e.Group, e.Seq, e.Op)
	if e.Site != nil && e.Site.Tensor != "" {
		s += fmt.Sprintf(" of %q", e.Site.Tensor)
	}
	if e.Site != nil && e.Site.Loc != "" {
		s += " (" + e.Site.Loc + ")"
	}
	if e.Bytes > 0 {
		s += fmt.Sprintf(" %s %d bytes", e.DType, e.Bytes)
	}
	return s + " " + state
}

// recentSize is how many calls each rank remembers.
const recentSize = 64

// ring keeps the last calls of one rank.
type ring struct {
	mu   sync.Mutex
	buf  [recentSize]Event
	next uint64
}

func (r *ring) start(w *world, group string, c *call) uint64 {
	r.mu.Lock()
	id := r.next
	r.next++
	e := &r.buf[id%recentSize]
	e.Rank, e.Group, e.Seq, e.Op, e.Site = w.rank, group, c.seq, c.op.String(), c.site
	e.DType, e.Bytes, e.Start, e.Took, e.Failed = c.dt, c.bytes(), time.Now(), 0, false
	r.mu.Unlock()
	return id
}

func (r *ring) finish(id uint64, failed bool) {
	r.mu.Lock()
	if r.next-id <= recentSize {
		e := &r.buf[id%recentSize]
		e.Took, e.Failed = max(time.Since(e.Start), 1), failed
	}
	r.mu.Unlock()
}

// list is the calls from the oldest on.
func (r *ring) list() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Event
	for id := r.next - min(r.next, recentSize); id < r.next; id++ {
		out = append(out, r.buf[id%recentSize])
	}
	return out
}

// worlds are the jobs of this process that are not closed; there is one but
// in tests.
var worlds struct {
	sync.Mutex
	live []*world
}

func register(w *world) {
	worlds.Lock()
	worlds.live = append(worlds.live, w)
	worlds.Unlock()
}

func unregister(w *world) {
	worlds.Lock()
	worlds.live = slices.DeleteFunc(worlds.live, func(x *world) bool { return x == w })
	worlds.Unlock()
}

// Recent lists the last 64 calls of each rank in this process, oldest first,
// including those in progress. It may be called at any time from any
// goroutine.
func Recent() []Event {
	worlds.Lock()
	live := slices.Clone(worlds.live)
	worlds.Unlock()
	var out []Event
	for _, w := range live {
		out = append(out, w.recent.list()...)
	}
	slices.SortStableFunc(out, func(a, b Event) int { return a.Start.Compare(b.Start) })
	return out
}
