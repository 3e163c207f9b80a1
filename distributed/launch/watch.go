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

// watch waits for all ranks, and ends those that outlive a failure.
func (j *job) watch(ctx context.Context, signals <-chan os.Signal) error {
	n := len(j.procs)
	all := make([]Exit, n)
	running := make([]bool, n)
	for r := range running {
		running[r] = true
	}
	var order []Exit // in which ranks ended
	var cause error
	var grace <-chan time.Time
	stage := 0 // of ending the job: 1 grace runs, 2 SIGTERM sent, 3 SIGKILL sent
	begin := func(d time.Duration) {
		stage++
		grace = time.After(d)
	}
	cancelled := ctx.Done()
	for left := n; left > 0; {
		select {
		case e := <-j.exits:
			left--
			e.Killed = stage >= 2 && e.Signal != 0 && cause == nil
			running[e.Rank], all[e.Rank] = false, e
			order = append(order, e)
			if e.failed() && stage == 0 {
				begin(j.o.Grace)
			}
		case s := <-signals:
			sig := s.(syscall.Signal)
			if cause != nil {
				sig = syscall.SIGKILL // asked twice
			} else {
				cause = SignalError{sig}
				if stage == 0 {
					begin(j.o.Grace)
				}
			}
			j.signal(running, sig)
		case <-cancelled:
			cancelled = nil
			if cause == nil {
				cause = ctx.Err()
			}
			j.signal(running, syscall.SIGTERM)
			if stage == 0 {
				begin(j.o.Grace)
			}
		case <-grace:
			if stage == 1 {
				j.signal(running, syscall.SIGTERM)
				begin(killAfter)
				continue
			}
			// A stopped process acts on no other signal.
			j.signal(running, syscall.SIGKILL)
			begin(killAfter)
		}
	}
	for _, w := range j.outputs {
		w.flush()
	}
	return verdict(order, all, cause)
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
