package launch

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
)

// killAfter is what a rank that was asked to end by SIGTERM has left.
const killAfter = 2 * time.Second

// watcher is the state of watch.
type watcher struct {
	j       *job
	running []bool
	all     []Exit // by rank
	order   []Exit // in which ranks ended
	cause   error
	stage   int // of ending the job: 1 grace runs, 2 SIGTERM sent, 3 SIGKILL sent
	grace   <-chan time.Time
}

// watch waits for all ranks, and ends those that outlive a failure.
func (j *job) watch(ctx context.Context, signals <-chan os.Signal) error {
	n := len(j.procs)
	w := &watcher{j: j, running: make([]bool, n), all: make([]Exit, n)}
	for r := range w.running {
		w.running[r] = true
	}
	cancelled := ctx.Done()
	for left := n; left > 0; {
		select {
		case e := <-j.exits:
			left--
			w.ended(e)
		case s := <-signals:
			w.stop(SignalError{s.(syscall.Signal)}, s.(syscall.Signal))
		case <-cancelled:
			cancelled = nil
			w.stop(ctx.Err(), syscall.SIGTERM)
		case <-w.grace:
			w.escalate()
		}
	}
	for _, p := range j.outputs {
		p.flush()
	}
	return verdict(w.order, w.all, w.cause)
}

func (w *watcher) ended(e Exit) {
	e.Killed = w.stage >= 2 && e.Signal != 0 && w.cause == nil
	w.running[e.Rank], w.all[e.Rank] = false, e
	w.order = append(w.order, e)
	if e.failed() && w.stage == 0 {
		w.next(w.j.o.Grace)
	}
}

// stop passes on a wish from outside to end; the second one is not asked nicely.
func (w *watcher) stop(cause error, sig syscall.Signal) {
	if w.cause != nil {
		sig = syscall.SIGKILL
	} else {
		w.cause = cause
	}
	w.j.signal(w.running, sig)
	if w.stage == 0 {
		w.next(w.j.o.Grace)
	}
}

// escalate is what happens when the grace is over.
func (w *watcher) escalate() {
	sig := syscall.SIGTERM
	if w.stage > 1 {
		sig = syscall.SIGKILL // a stopped process acts on no other signal
	}
	w.j.signal(w.running, sig)
	w.next(killAfter)
}

func (w *watcher) next(d time.Duration) {
	w.stage++
	w.grace = time.After(d)
}

func (j *job) signal(running []bool, sig syscall.Signal) {
	for r, p := range j.procs {
		if running[r] {
			p.Process.Signal(sig)
		}
	}
}

// verdict finds the responsible rank. One that only lost a peer is a victim,
// and so is one that this launcher killed.
func verdict(order, all []Exit, cause error) error {
	var first, own *Exit
	for i := range order {
		e := &order[i]
		if !e.failed() {
			continue
		}
		if first == nil {
			first = e
		}
		if own == nil && e.Code != comm.ExitPeerLost && !e.Killed {
			own = e
		}
	}
	if own != nil {
		first = own
	}
	switch {
	case first != nil:
		return &Error{Rank: first.Rank, Exit: *first, All: all, Cause: cause}
	case cause != nil && len(all) > 0:
		// All ended well although asked to stop: they may have saved.
		return &Error{Exit: all[0], All: all, Cause: cause}
	}
	return nil
}

// lineLock keeps writes of several ranks apart.
type lineLock struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lineLock) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// maxLine is the longest line that is kept together.
const maxLine = 64 << 10

// prefixWriter passes on whole lines with a prefix.
type prefixWriter struct {
	to     io.Writer
	prefix string
	mu     sync.Mutex
	line   []byte // what has come of the present line, after the prefix
}

func (p *prefixWriter) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		if len(p.line) == 0 {
			p.line = append(p.line, p.prefix...)
		}
		i := bytes.IndexByte(b, '\n')
		if i < 0 && len(p.line)+len(b) < maxLine {
			p.line = append(p.line, b...)
			break
		}
		rest := b[len(b):]
		if i >= 0 {
			b, rest = b[:i], b[i+1:]
		}
		p.line = append(append(p.line, b...), '\n')
		if _, err := p.to.Write(p.line); err != nil {
			return 0, err
		}
		p.line, b = p.line[:0], rest
	}
	return n, nil
}

// flush passes on a last line without an end.
func (p *prefixWriter) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.line) > 0 {
		p.to.Write(append(p.line, '\n'))
		p.line = nil
	}
}
