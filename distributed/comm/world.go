package comm

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// world is one rank's part in a job: what is shared by all its groups.
type world struct {
	rank, size int
	opt        Options

	failed atomic.Pointer[failure] // first failure; set once
	failMu sync.Mutex              // held while others are told
	left   []atomic.Bool           // ranks that closed in good order
	recent ring

	waitMu sync.Mutex
	wait   waiting

	ctl *control // control connections; nil in process or alone
	mem *memHub  // in-process peers, or nil
	// driver says that a Driver moves the bytes of all groups.
	driver bool
	net    *network // data connections, or nil
	hub    []peerAddr
	root   *group

	mu     sync.Mutex
	groups []*group
	closed bool
}

// waiting is what a rank is waiting for, told to its peers so that a time-out
// can blame the rank that holds everybody up.
type waiting struct {
	on   int // rank in the job; -1 when not waiting
	op   Op
	site *Site
}

// peerState is what is known of another rank.
type peerState struct {
	waitOn int           // rank it waits for, or -1
	text   string        // in which call
	silent time.Duration // since its last sign of life
}

func newWorld(opt Options) *world {
	w := &world{rank: opt.Rank, size: opt.World, opt: opt, left: make([]atomic.Bool, opt.World)}
	w.wait.on = -1
	return w
}

// fail records the first failure of the job, tells the other ranks and gives
// back the failure that counts, which may be an earlier one.
func (w *world) fail(f *failure) *failure { return w.failFrom(f, -1) }

// failFrom is fail for a failure that rank from told, or -1. The others are
// told before any call of this rank can return, since the process may end
// right then and would look like the one at fault.
func (w *world) failFrom(f *failure, from int) *failure {
	if len(f.detail) > maxDetail {
		f.detail = f.detail[:maxDetail] + "..."
	}
	w.failMu.Lock()
	if w.failed.Load() == nil {
		if w.ctl != nil && (from < 0 || w.rank == 0) {
			w.ctl.tell(f, from)
		}
		w.failLocal(f)
	}
	w.failMu.Unlock()
	f = w.failed.Load()
	if w.mem != nil {
		w.mem.tell(w.rank, f)
	}
	return f
}

// failLocal records f, if it is the first, and wakes calls in progress.
func (w *world) failLocal(f *failure) {
	if !w.failed.CompareAndSwap(nil, f) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.groups {
		if g.be != nil {
			g.be.kill()
		}
	}
}

// markLeft records that rank r closed in good order: calls that still need it
// fail, as slices of their wait find out.
func (w *world) markLeft(r int) {
	w.left[r].Store(true)
}

func (w *world) leftFailure(r int) *failure {
	return &failure{kind: KindLeft, rank: r, detail: "it closed its communicator"}
}

// hungFailure is the failure of call c that waited too long for rank peer. It
// follows the chain of who waits for whom, as far as it is known, to the rank
// at its end.
func (w *world) hungFailure(peer int, waited time.Duration) *failure {
	detail := fmt.Sprintf("no progress for %v", waited.Round(10*time.Millisecond))
	if w.ctl != nil && peer != 0 && w.rank != 0 {
		if st, ok := w.ctl.state(0); ok && st.silent > w.silentLimit() {
			// The hub relays what ranks do, so nothing newer is known of peer.
			return &failure{kind: KindHung, rank: 0, detail: fmt.Sprintf(
				"%s; no sign of life for %v", detail, st.silent.Round(10*time.Millisecond))}
		}
	}
	cur := peer
	seen := make(map[int]bool)
	for !seen[cur] {
		seen[cur] = true
		st, ok := w.stateOf(cur)
		switch {
		case !ok:
			return &failure{kind: KindHung, rank: cur, detail: detail}
		case st.silent > w.silentLimit():
			detail += fmt.Sprintf("; no sign of life from rank %d for %v", cur, st.silent.Round(10*time.Millisecond))
			return &failure{kind: KindHung, rank: cur, detail: detail}
		case st.waitOn < 0 || st.waitOn >= w.size:
			detail += fmt.Sprintf("; rank %d is alive but waits for no one", cur)
			return &failure{kind: KindHung, rank: cur, detail: detail}
		}
		detail += fmt.Sprintf("; rank %d waits for rank %d in %s", cur, st.waitOn, st.text)
		if st.waitOn == w.rank {
			break
		}
		cur = st.waitOn
	}
	return &failure{kind: KindHung, rank: peer, detail: detail + "; this is a deadlock"}
}

// silentLimit is how long a live process may go without a heartbeat.
func (w *world) silentLimit() time.Duration { return 3*w.beat() + w.opt.Timeout/4 }

// beat is the time between heartbeats.
func (w *world) beat() time.Duration {
	return min(max(w.opt.Timeout/10, 20*time.Millisecond), time.Second)
}

func (w *world) stateOf(r int) (peerState, bool) {
	switch {
	case w.ctl != nil:
		return w.ctl.state(r)
	case w.mem != nil:
		return w.mem.worlds[r].ownState(), true
	}
	return peerState{}, false
}

func (w *world) ownState() peerState {
	w.waitMu.Lock()
	defer w.waitMu.Unlock()
	if w.wait.on < 0 {
		return peerState{waitOn: -1}
	}
	return peerState{waitOn: w.wait.on, text: siteString(w.wait.op, w.wait.site)}
}

func (w *world) setWait(on int, c *call) {
	w.waitMu.Lock()
	w.wait = waiting{on: on}
	if c != nil {
		w.wait.op, w.wait.site = c.op, c.site
	}
	w.waitMu.Unlock()
}

// word is a counter that one rank advances and others wait for, in shared
// memory. It takes a cache line of its own.
type word struct {
	v       atomic.Uint32
	waiters atomic.Uint32
	_       [56]byte
}

const wordSize = 64

// advance sets the counter and wakes those asleep on it. Both sides use
// sequentially consistent operations: either the waiter sees the new value
// before it sleeps, or this sees the waiter.
func (x *word) advance(v uint32) {
	x.v.Store(v)
	if x.waiters.Load() != 0 {
		futexWake(&x.v)
	}
}

func (x *word) reached(target uint32) bool { return int32(x.v.Load()-target) >= 0 }

// clock adds up waiting time in slices, so that a job that was stopped and
// continued as a whole (Ctrl-Z, a suspended laptop) has not timed out.
type clock struct {
	last    time.Time
	elapsed time.Duration
}

func (k *clock) tick(most time.Duration) time.Duration {
	now := time.Now()
	k.elapsed += min(now.Sub(k.last), most)
	k.last = now
	return k.elapsed
}
