package train

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device"
)

// A program for a device runs as a queue of work there. Behind the plan's arena lies what the run-time needs for itself: the
// status words of calls that may refuse an index, the results of a step, and the batch that comes next.

// remote is what a machine needs to run functions on a device.
type remote struct {
	main     device.Stream
	words    int           // status words that are given out
	epoch    int64         // grows when a step ends: events of an earlier one are over
	alive    func() error  // the error by which the job has ended, or nil; nil for a job of one rank
	patience time.Duration // with a device that waits for others; 0 for any
	failed   atomic.Bool   // the job has ended while the device worked
}

// remoteStep is what a step has on a device.
type remoteStep struct {
	work        device.Work
	word        int          // its status word; -1 for none
	ready, done device.Event // of a collective: what it works on is there, it is over
	issued      bool
	epoch       int64 // in which it was last issued
	direct      comm.DeviceCall
	job         func(comm.Communicator) error // it, by way of the host
}

// behind is the layout of what follows the plan's arena. Offsets are bytes from the arena's start.
type behind struct {
	words   int                 // offset of the status words
	limit   int                 // how many there are
	results int                 // offset of the loss sum and the count, eight bytes each; right behind the words
	inbox   map[*abi.Tensor]int // micro-batches one after the other
	image   Copy                // of the inbox to all inputs at once, where they lie side by side and a step takes one batch; else of no bytes
	end     int
}

// What a step gives: the loss sum, the count, the loss scale, the number of skipped steps, the norm of the gradients and the number of
// empty steps come back of every step, where there are such; the learning rate, the last, when it is shown.
const (
	inBlock    = 6
	numResults = 7
)

// noRow is a status word when nothing was refused.
const noRow = math.MaxInt64

// align is that of places on a device, which libraries and wide loads ask for.
const align = 256

func aligned(n int) int { return (n + align - 1) / align * align }

// layout makes room behind the arena for what p needs.
func (x *plan) layout(p *Program) behind {
	b := behind{inbox: map[*abi.Tensor]int{}, words: aligned(x.prog.ArenaBytes)}
	count := map[string]int{} // of a function
	for name, calls := range p.Funcs {
		for i := range calls {
			if calls[i].refuses() {
				count[name]++
			}
		}
		b.limit += count[name] * max(x.prog.Slots, 1)
	}
	for _, a := range x.prog.Actions { // a copy for each action, since the words say not which micro-batch it was
		b.limit += count[a.Func]
	}
	if x.prog.Actions == nil && x.Train.Microbatches > 1 {
		b.limit += x.Train.Microbatches*count[FuncMicro] + max(count[FuncStep], count[FuncLocal])
	}
	b.results = b.words + 8*b.limit
	b.end = aligned(b.results + 8*inBlock)
	x.layInbox(&b)
	return b
}

// layInbox makes room for a batch.
func (x *plan) layInbox(b *behind) {
	var list []*abi.Tensor
	start, most := b.end, 1
	for i := range x.prog.Tensors {
		t := &x.prog.Tensors[i]
		if t.Role != "input" && t.Role != "target" && t.Role != "weight" && !whole(t) {
			continue
		}
		n := partOf(t, x.Train.Microbatches-1) + 1
		if len(t.Dims) > 0 && t.Dims[0] == x.Train.RankBatch*n { // the program splits it itself
			n = 1
		}
		most = max(most, n)
		list = append(list, t)
		b.inbox[t] = b.end
		b.end += aligned(n * t.Bytes)
	}
	if most > 1 || len(list) < 2 {
		return
	}
	slices.SortFunc(list, func(s, t *abi.Tensor) int { return s.Offset - t.Offset })
	first, last := list[0], list[len(list)-1]
	for i, t := range list[1:] {
		if gap := t.Offset - list[i].Offset - list[i].Bytes; gap < 0 || gap >= abi.Align { // there may be something else
			return
		}
	}
	b.image = Copy{From: start, To: first.Offset, Bytes: last.Offset + last.Bytes - first.Offset}
	for _, t := range list {
		b.inbox[t] = start + t.Offset - first.Offset
	}
	b.end = start + aligned(b.image.Bytes)
}

// refuses reports whether a call has a status word.
func (c *Call) refuses() bool {
	has := func(l abi.Launch) bool { return slices.Contains(l.Args, abi.ArgStatus) }
	return slices.ContainsFunc(c.Launches, has) || c.Product != nil && slices.ContainsFunc(c.Product.Own, has) ||
		c.Convolution != nil && slices.ContainsFunc(c.Convolution.Own, has)
}

// openDevice opens the device of p for this rank, which the launcher calls by its number on the host.
func (s *session) openDevice(p *Program) (memory, error) {
	b := s.plan.layout(p)
	log := func(format string, args ...any) {
		if s.plan.rank == 0 {
			fmt.Fprintf(s.env.err, format+"\n", args...)
		}
	}
	dev, err := p.Device.Open(&p.Device.Code, device.Options{Number: s.number, ArenaBytes: b.end, Log: log})
	if err != nil {
		return memory{}, err
	}
	words := slices.Repeat(binary.NativeEndian.AppendUint64(nil, noRow), b.limit)
	if err := dev.Put(b.words, words); err != nil {
		dev.Close()
		return memory{}, err
	}
	return memory{dev: dev, large: s.plan.prog.ArenaBytes, behind: b}, nil
}

// prepareWork prepares the kernels of a call.
func (m *machine) prepareWork(f *function, s *step) error {
	c := s.call
	task := &device.Task{Launches: c.Launches, Product: c.Product, Convolution: c.Convolution, Status: -1}
	s.remote.word = -1
	if c.refuses() {
		if s.remote.word = m.remote.words; s.remote.word >= m.behind.limit {
			return fmt.Errorf("BUG: more than %d status words", m.behind.limit)
		}
		m.remote.words++
		task.Status = m.behind.words + 8*s.remote.word
		f.status = append(f.status, s)
	}
	var err error
	if s.remote.work, err = m.dev.Prepare(task); err != nil {
		return fmt.Errorf("%s, at %s: %w", c.Name, or(c.Loc, "an op without a location"), err)
	}
	return nil
}

// runRemote runs a function on the device and waits for it.
func (m *machine) runRemote(f *function, micro int) error {
	if err := m.enqueue(f, micro); err != nil {
		return err
	}
	if err := m.wait(m.remote.main); err != nil {
		return m.broken(f, nil, err)
	}
	return m.lookAtWords(f, micro)
}

// enqueue puts a function's work onto the device's streams. With a watcher it waits for every call.
func (m *machine) enqueue(f *function, micro int) error {
	if err := m.awaitSends(f, f.kept); err != nil { // of the last micro-batch in this slot
		return err
	}
	for i := range f.steps {
		s := &f.steps[i]
		var t0 time.Time
		if m.watch != nil {
			t0 = time.Now()
		}
		for _, w := range s.waits {
			if err := m.await(&f.steps[w]); err != nil {
				return m.broken(f, s, err)
			}
		}
		var err error
		if s.do == doKernel {
			err = m.remote.main.Run(s.remote.work)
		} else {
			err = m.communicateRemote(s, micro)
		}
		if err != nil {
			return m.broken(f, s, err)
		}
		if m.watch != nil {
			if err := m.watched(f, s, micro, t0); err != nil {
				return err
			}
		}
	}
	return m.endRemote(f)
}

// watched waits for a call and has the watcher look at it.
func (m *machine) watched(f *function, s *step, micro int, t0 time.Time) error {
	if s.do > doSlice && s.do != doSend { // what a collective makes is there only when it is over
		if err := m.await(s); err != nil {
			return m.broken(f, s, err)
		}
	}
	if err := m.wait(m.remote.main); err != nil {
		return m.broken(f, s, err)
	}
	if s.do == doKernel && s.remote.word >= 0 {
		if err := m.lookAtWords(f, micro); err != nil {
			return err
		}
	}
	return m.watch.after(m, f, s, t0, t0)
}

// endRemote has later work wait for what f has started, sends out of the stash apart, and makes its copies.
func (m *machine) endRemote(f *function) error {
	for _, l := range m.lines {
		if err := m.awaitLine(l); err != nil {
			return m.broken(f, nil, err)
		}
	}
	if err := m.awaitSends(f, f.brief); err != nil {
		return err
	}
	for _, c := range f.copies {
		if err := m.remote.main.Copy(c.To, c.From, c.Bytes); err != nil {
			return m.broken(f, nil, err)
		}
	}
	return nil
}

// awaitSends has later work wait for sends of f.
func (m *machine) awaitSends(f *function, steps []int) error {
	for _, i := range steps {
		if err := m.await(&f.steps[i]); err != nil {
			return m.broken(f, &f.steps[i], err)
		}
	}
	return nil
}

// settleRemote has what follows wait for every message of a step.
func (m *machine) settleRemote() error {
	for _, l := range m.sends {
		if err := m.awaitLine(l); err != nil {
			return err
		}
	}
	m.remote.epoch++
	return nil
}

// wait waits for a stream. Ranks that wait for each other on their devices look meanwhile whether the others live.
func (m *machine) wait(s device.Stream) error {
	if m.remote.alive == nil {
		return s.Sync()
	}
	return m.until(s.Query)
}

// until waits for a device to be done with something.
func (m *machine) until(done func() (bool, error)) error {
	const eager = 100 * time.Microsecond // most waits are short; then the processor is left to others
	for begin := time.Now(); ; {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Since(begin) < eager {
			continue
		}
		if m.remote.alive != nil {
			if err := m.remote.alive(); err != nil {
				m.remote.failed.Store(true)
				return err
			}
			if p := m.remote.patience; p > 0 && time.Since(begin) > p {
				m.remote.failed.Store(true)
				return fmt.Errorf("the device has waited %v for other ranks (--timeout, GTC_TIMEOUT)", p)
			}
		}
		time.Sleep(20 * time.Microsecond)
	}
}

// lookAtWords is the error of a call of f that refused an index; nil for none.
func (m *machine) lookAtWords(f *function, micro int) error {
	for _, s := range f.status {
		b, err := m.stretch(m.behind.words+8*s.remote.word, 8)
		if err != nil {
			return m.broken(f, s, err)
		}
		if row := int64(binary.NativeEndian.Uint64(b)); row != noRow {
			return m.refused(f, s.call, row, micro, m.integer)
		}
	}
	return nil
}

// brokenError is the failure of a device, in a function, or in a call of it where that is known.
type brokenError struct {
	function string
	call     *Call
	err      error
}

func (e *brokenError) Error() string {
	if e.call != nil {
		return fmt.Sprintf("@%s: %s, at %s: %v", e.function, e.call.Name, or(e.call.Loc, "an op without a location"), e.err)
	}
	return fmt.Sprintf("@%s: %v\n  GTC_DEBUG=3 waits for each call and names the one that fails", e.function, e.err)
}

func (e *brokenError) Unwrap() error { return e.err }

// broken says where a device failed. Kernels run later than they are queued, so the call is known only when each is waited for.
func (m *machine) broken(f *function, s *step, err error) error {
	var failure device.Failure
	var told *brokenError
	if err == nil || !errors.As(err, &failure) || errors.As(err, &told) {
		return err
	}
	e := &brokenError{function: f.name, err: err}
	if s != nil && m.watch != nil {
		e.call = s.call
	}
	return e
}
