package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// Run executes a function and waits for it; micro is the micro-batch that the batch in the arena is.
func (m *Machine) Run(f *Function, micro int) error {
	if m.Watch != nil {
		m.Watch.Begin(f, micro)
	}
	if err := m.Enqueue(f, micro); err != nil {
		return err
	}
	if err := m.Wait(m.Main); err != nil {
		return m.Broken(f, nil, err)
	}
	return m.LookAtWords(f, micro)
}

// Enqueue puts a function's work onto the device's streams. With a watcher it waits for every call.
func (m *Machine) Enqueue(f *Function, micro int) error {
	if err := m.awaitSends(f, f.kept); err != nil { // of the last micro-batch in this slot
		return err
	}
	for i := range f.Steps {
		s := &f.Steps[i]
		var t0 time.Time
		if m.Watch != nil {
			t0 = time.Now()
		}
		for _, w := range s.Waits {
			if err := m.await(&f.Steps[w]); err != nil {
				return m.Broken(f, s, err)
			}
		}
		t1 := t0
		if m.Watch != nil && m.Local != nil && len(s.Waits) > 0 { // elsewhere it is the device that waits
			t1 = time.Now()
		}
		if err := m.start(f, s, micro); err != nil {
			return err
		}
		if m.Watch != nil {
			if err := m.watched(f, s, micro, t0, t1); err != nil {
				return err
			}
		}
	}
	return m.end(f)
}

// start runs or queues a call.
func (m *Machine) start(f *Function, s *Step, micro int) error {
	var err error
	if s.do == doKernel {
		err = m.Main.Run(s.work)
	} else {
		err = m.communicate(s, micro)
	}
	if err == nil {
		return nil
	}
	if row, ok := err.(device.Refused); ok {
		return m.Refused(f, s.Call, int64(row), micro, m.integer)
	}
	return m.Broken(f, s, err)
}

// watched has the watcher look at a call, which waited from t0 to t1 and has run or is queued since. One that is queued is waited
// for, so that the time is its own.
func (m *Machine) watched(f *Function, s *Step, micro int, t0, t1 time.Time) error {
	if m.Local != nil {
		return m.Watch.After(m, f, s, t0, t1)
	}
	if s.do > doSlice && s.do != doSend { // what a collective makes is there only when it is over
		if err := m.await(s); err != nil {
			return m.Broken(f, s, err)
		}
	}
	if err := m.Wait(m.Main); err != nil {
		return m.Broken(f, s, err)
	}
	if s.do == doKernel && s.Word >= 0 {
		if err := m.LookAtWords(f, micro); err != nil {
			return err
		}
	}
	return m.Watch.After(m, f, s, t0, t1)
}

// end has later work wait for what f has started, sends out of the stash apart, and makes its copies.
func (m *Machine) end(f *Function) error {
	var t0 time.Time
	timed := m.Watch != nil && m.Local != nil && len(m.streams) > 0
	if timed {
		t0 = time.Now()
	}
	for _, l := range m.streams {
		if err := m.awaitStream(l); err != nil {
			return m.Broken(f, nil, err)
		}
	}
	if err := m.awaitSends(f, f.brief); err != nil {
		return err
	}
	if timed {
		m.Watch.Drained(time.Since(t0))
	}
	for _, c := range f.copies {
		if err := m.Main.Copy(c.To, c.From, c.Bytes); err != nil {
			return m.Broken(f, nil, err)
		}
	}
	return nil
}

// Finish waits for what a call makes, which of a collective is there only when it is over.
func (m *Machine) Finish(s *Step) error {
	if m.Local == nil || s.stream == nil || s.do == doSend { // elsewhere it was waited for before
		return nil
	}
	return m.await(s)
}

// await has later kernels wait for a collective of this step.
func (m *Machine) await(s *Step) error {
	if !s.issued || s.epoch != m.epoch {
		return nil // over since an earlier step, or never begun
	}
	if s.stream.direct == nil { // which records the event when it is through
		if err := s.stream.queue.Wait(s.seq); err != nil {
			return err
		}
	}
	return m.Main.Wait(s.done)
}

// awaitStream has later kernels wait for everything on a stream.
func (m *Machine) awaitStream(l *stream) error {
	s := l.last
	if s == nil {
		return nil
	}
	l.last = nil
	return m.await(s)
}

// awaitSends has later work wait for sends of f.
func (m *Machine) awaitSends(f *Function, steps []int) error {
	for _, i := range steps {
		if err := m.await(&f.Steps[i]); err != nil {
			return m.Broken(f, &f.Steps[i], err)
		}
	}
	return nil
}

// Settle ends a step: what follows waits for every message of it.
func (m *Machine) Settle() error {
	for _, l := range m.sends {
		if err := m.awaitStream(l); err != nil {
			return err
		}
	}
	m.epoch++
	return nil
}

// Wait waits for a stream. Ranks that wait for each other on their devices look meanwhile whether the others live.
func (m *Machine) Wait(s device.Stream) error {
	if m.alive == nil {
		return s.Sync()
	}
	return m.Until(s.Query)
}

// Until waits for a device to be done with something.
func (m *Machine) Until(done func() (bool, error)) error {
	const eager = 100 * time.Microsecond // most waits are short; then the processor is left to others
	for begin := time.Now(); ; {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Since(begin) < eager {
			continue
		}
		if m.alive != nil {
			if err := m.alive(); err != nil {
				m.failed.Store(true)
				return err
			}
			if p := m.patience; p > 0 && time.Since(begin) > p {
				m.failed.Store(true)
				return fmt.Errorf("the device has waited %v for other ranks, as long as --timeout (GTC_TIMEOUT) allows", p)
			}
		}
		time.Sleep(20 * time.Microsecond)
	}
}

// LookAtWords is the error of a call of f that refused an index; nil for none.
func (m *Machine) LookAtWords(f *Function, micro int) error {
	for _, s := range f.Status {
		b, err := m.Stretch(m.RuntimeArea.Words+8*s.Word, 8)
		if err != nil {
			return m.Broken(f, s, err)
		}
		if row := int64(binary.NativeEndian.Uint64(b)); row != NoRow {
			return m.Refused(f, s.Call, row, micro, m.integer)
		}
	}
	return nil
}

// brokenError is the failure of a device, in a function, or in a call of it where that is known.
type brokenError struct {
	function string
	call     *program.Call
	err      error
}

func (e *brokenError) Error() string {
	if e.call != nil {
		return fmt.Sprintf("@%s: %s, at %s: %v", e.function, e.call.Name, program.Place(e.call.Loc), e.err)
	}
	return fmt.Sprintf("@%s: %v\n  GTC_DEBUG=3 waits for each call and names the one that fails", e.function, e.err)
}

func (e *brokenError) Unwrap() error { return e.err }

// Broken says where a device failed. Kernels run later than they are queued, so the call is known only when each is waited for.
func (m *Machine) Broken(f *Function, s *Step, err error) error {
	var failure device.Failure
	var told *brokenError
	if err == nil || !errors.As(err, &failure) || errors.As(err, &told) {
		return err
	}
	e := &brokenError{function: f.Name, err: err}
	if s != nil && m.Watch != nil {
		e.call = s.Call
	}
	return e
}
