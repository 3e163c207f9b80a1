package loop

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// fake is a device whose kernels are Go functions. Its streams are goroutines, so that work which does not wait for what it
// needs meets the race detector; a graph is a list of work that streams join by events alone, as CUDA's are.
type fake struct {
	mem     []byte
	kernels []func(b unsafe.Pointer, at []int) int64
	main    *fakeStream
	slow    time.Duration // that each kernel takes

	mu       sync.Mutex
	streams  []*fakeStream
	events   []*fakeEvent
	graphs   [][]fakeOp
	capture  *fakeStream // which records a graph
	launches atomic.Int64
	graphed  atomic.Int64 // graphs launched
	breaks   int64        // the launch that breaks the device, 0 none
	tells    int64        // the call of a stream that finds it broken, 0 none in particular
	calls    int64        // of streams
	noGraphs bool
	library  string // that works on its memory, instead of nccl
	onGraph  func()
	lost     atomic.Bool
	closed   chan struct{}
}

type fakeOp struct {
	s                     *fakeStream
	run                   func()
	record, wait, publish *fakeEvent
}

type fakeEvent struct {
	over     chan struct{} // nil: never recorded
	captured bool          // within the graph that is being recorded
	by       *fakeStream
	covers   int
}

type fakeStream struct {
	d         *fake
	queue     chan func()
	joined    bool // to the graph that is being recorded
	handle    uintptr
	ops, seen int // of this stream in the graph: all, and those that the main stream waits for
}

type fakeFailure struct{ text string }

func (f *fakeFailure) Error() string { return f.text }
func (f *fakeFailure) Lost() bool    { return true }

var errFakeLost = &fakeFailure{"device 0 (fake) is lost to this process: a kernel failed"}

// fakeProgram makes p, whose calls are Go functions, a program for a fake device, which opened gets when it is opened.
func fakeProgram(p *program.Program, opened func(*fake)) *program.Program {
	var kernels []func(b unsafe.Pointer, at []int) int64
	for name, calls := range p.Funcs {
		calls = slices.Clone(calls)
		for i := range calls {
			if c := &calls[i]; c.Run != nil {
				run, sizes := c.Run, c.At[c.Ptrs:]
				c.Launches = []abi.Launch{{Kernel: len(kernels), Args: append(slices.Clone(c.At[:c.Ptrs]), abi.ArgStatus)}}
				kernels = append(kernels, func(b unsafe.Pointer, at []int) int64 { return run(b, append(slices.Clone(at), sizes...)) })
				c.Run = nil
			}
		}
		p.Funcs[name] = calls
	}
	p.Device = &program.Device{Open: func(code *device.Code, o device.Options) (device.Device, error) {
		n := o.ArenaBytes + o.RuntimeBytes
		d := &fake{mem: make([]byte, n+64), kernels: kernels, closed: make(chan struct{})}
		d.mem = d.mem[-uintptr(unsafe.Pointer(&d.mem[0]))&63:][:n]
		d.main = d.stream()
		if opened != nil {
			opened(d)
		}
		return d, nil
	}}
	return p
}

func (d *fake) stream() *fakeStream {
	s := &fakeStream{d: d, queue: make(chan func(), 1<<16)}
	fakeHandles.Lock()
	defer fakeHandles.Unlock()
	fakeHandles.list = append(fakeHandles.list, s)
	s.handle = uintptr(len(fakeHandles.list))
	d.streams = append(d.streams, s)
	go func() {
		for f := range s.queue {
			f()
		}
	}()
	return s
}

func (d *fake) Info() device.Info {
	return device.Info{Name: "fake", Arch: "host", Memory: 1 << 40, Driver: "CUDA 13.0", Kind: "GPU", Library: cmp.Or(d.library, "nccl")}
}
func (d *fake) Usage() device.Usage                         { return device.Usage{Used: len(d.mem), Total: 1 << 40, Busy: 7} }
func (d *fake) Bind() error                                 { return nil }
func (d *fake) Main() device.Stream                         { return d.main }
func (d *fake) NewStream(bool) (device.Stream, error)       { return d.stream(), nil }
func (d *fake) Address(offset int) uintptr                  { return uintptr(offset) }
func (d *fake) Pinned(n int) ([]byte, error)                { return make([]byte, n), nil }
func (d *fake) Drop(device.Graph)                           {}
func (d *fake) Put(offset int, b []byte) error              { d.main.Upload(offset, b); return d.main.Sync() }
func (d *fake) Get(b []byte, offset int) error              { d.main.Download(b, offset); return d.main.Sync() }
func (d *fake) Prepare(t *device.Task) (device.Work, error) { return &fakeWork{d, t}, nil }

func (d *fake) NewEvent() (device.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, &fakeEvent{})
	return device.Event(len(d.events)), nil
}

func (d *fake) event(e device.Event) *fakeEvent { return d.events[e-1] }

func (d *fake) Done(e device.Event) (bool, error) {
	d.mu.Lock()
	over := d.event(e).over
	d.mu.Unlock()
	if d.lost.Load() {
		return false, errFakeLost
	}
	if over == nil {
		return true, nil
	}
	select {
	case <-over:
		return true, nil
	default:
		return false, nil
	}
}

func (d *fake) Close() error {
	close(d.closed)
	for _, s := range d.streams {
		close(s.queue)
	}
	return nil
}

type fakeWork struct {
	d *fake
	t *device.Task
}

func (w *fakeWork) Run(on device.Stream) error {
	d := w.d
	return on.(*fakeStream).do(func() {
		if n := d.launches.Add(1); n == d.breaks {
			d.lost.Store(true)
		}
		if d.lost.Load() {
			return
		}
		time.Sleep(d.slow)
		for _, l := range w.t.Launches {
			row := d.kernels[l.Kernel](unsafe.Pointer(&d.mem[0]), l.Args[:len(l.Args)-1])
			if row >= 0 {
				word := d.mem[w.t.Status:][:8]
				binary.NativeEndian.PutUint64(word, min(uint64(row), binary.NativeEndian.Uint64(word)))
			}
		}
	})
}

// do queues f, or puts it into the graph.
func (s *fakeStream) do(f func()) error {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls++; d.calls == d.tells {
		d.lost.Store(true)
	}
	if d.lost.Load() {
		return errFakeLost
	}
	if s.joined {
		s.ops++
		d.graphs[len(d.graphs)-1] = append(d.graphs[len(d.graphs)-1], fakeOp{s: s, run: f})
		return nil
	}
	s.queue <- f
	return nil
}

func (s *fakeStream) Handle() uintptr         { return s.handle }
func (s *fakeStream) Run(w device.Work) error { return w.Run(s) }
func (s *fakeStream) Copy(to, from, n int) error {
	return s.do(func() { copy(s.d.mem[to:to+n], s.d.mem[from:from+n]) })
}
func (s *fakeStream) Upload(to int, b []byte) error {
	return s.do(func() { copy(s.d.mem[to:to+len(b)], b) })
}
func (s *fakeStream) Download(b []byte, from int) error {
	return s.do(func() { copy(b, s.d.mem[from:from+len(b)]) })
}

func (s *fakeStream) CopyRows(to, toStride, from, fromStride, n, rows int) error {
	return s.do(func() {
		for i := range rows {
			copy(s.d.mem[to+i*toStride:][:n], s.d.mem[from+i*fromStride:][:n])
		}
	})
}

func (s *fakeStream) Record(e device.Event) error {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	ev := d.event(e)
	if s.joined {
		ev.captured, ev.by, ev.covers = true, s, s.ops
		d.graphs[len(d.graphs)-1] = append(d.graphs[len(d.graphs)-1], fakeOp{s: s, record: ev})
		return nil
	}
	over := make(chan struct{})
	ev.over, ev.captured = over, false
	s.queue <- func() { close(over) }
	return nil
}

func (s *fakeStream) Publish(e device.Event) error {
	if !s.joined {
		return s.Record(e)
	}
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	s.ops++
	d.graphs[len(d.graphs)-1] = append(d.graphs[len(d.graphs)-1], fakeOp{s: s, publish: d.event(e)})
	return nil
}

func (s *fakeStream) Wait(e device.Event) error {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	ev := d.event(e)
	switch {
	case d.capture != nil && ev.captured:
		s.joined = true
		if s == d.capture {
			ev.by.seen = max(ev.by.seen, ev.covers)
		}
		d.graphs[len(d.graphs)-1] = append(d.graphs[len(d.graphs)-1], fakeOp{s: s, wait: ev})
		return nil
	case s.joined:
		return errors.New("a graph waits for what is outside of it")
	}
	if over := ev.over; over != nil {
		s.queue <- func() { <-over }
	}
	return nil
}

func (s *fakeStream) Query() (bool, error) {
	if s.d.lost.Load() {
		return false, errFakeLost
	}
	return len(s.queue) == 0, s.Sync()
}

func (s *fakeStream) Sync() error {
	if s.joined {
		return errors.New("a wait while a graph is recorded")
	}
	done := make(chan struct{})
	s.queue <- func() { close(done) }
	<-done
	if s.d.lost.Load() {
		return errFakeLost
	}
	return nil
}

func (s *fakeStream) Capture() error {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.graphs = append(d.graphs, nil)
	d.capture, s.joined = s, true
	return nil
}

func (s *fakeStream) End() (device.Graph, error) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capture = nil
	var err error
	for i, o := range d.streams {
		if o.joined && o != s && o.seen < o.ops {
			err = fmt.Errorf("stream %d has work in the graph that its end does not wait for", i)
		}
		o.joined, o.ops, o.seen = false, 0, 0
	}
	for _, e := range d.events {
		e.captured = false
	}
	if d.noGraphs {
		err = errors.New("this device records no graphs")
	}
	return device.Graph(len(d.graphs)), err
}

func (s *fakeStream) Launch(g device.Graph) error {
	d := s.d
	d.graphed.Add(1)
	if d.onGraph != nil {
		d.onGraph()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost.Load() {
		return errFakeLost
	}
	within := map[*fakeEvent]chan struct{}{}
	for _, op := range d.graphs[g-1] {
		over := make(chan struct{})
		switch {
		case op.run != nil:
			op.s.queue <- op.run
			continue
		case op.wait != nil:
			over = within[op.wait]
			op.s.queue <- func() { <-over }
			continue
		case op.publish != nil:
			op.publish.over = over
		default:
			within[op.record] = over
		}
		op.s.queue <- func() { close(over) }
	}
	return nil
}

// onFake runs all ranks of t on fake devices, which opened gets.
func (t *toy) onFake(tb testing.TB, dir string, env map[string]string, opened func(rank int, d *fake), args ...string) outcome {
	tb.Helper()
	return runRanks(t.dp, func(r int) *program.Program {
		one := *t
		one.rank = r
		return fakeProgram(one.program(tb), func(d *fake) {
			if opened != nil {
				opened(r, d)
			}
		})
	}, dir, env, nil, args...)
}

// fakeHandles finds a stream by its handle, as a library does.
var fakeHandles struct {
	sync.Mutex
	list []*fakeStream
}

// fakeLibrary stands for a library whose collectives work on devices' memory, and run on their streams. It is there for tests
// that set fakeVersion.
var fakeVersion atomic.Int32

func init() {
	comm.RegisterDevice(comm.DeviceBackend{Name: "nccl",
		Here: func() (int, error) {
			if v := fakeVersion.Load(); v > 0 {
				return int(v), nil
			}
			return 0, errors.New("no NCCL here")
		},
		Suits: func([]comm.DeviceState) error {
			if fakeVersion.Load() == 1 {
				return errors.New("the library is too old")
			}
			return nil
		},
		Open: func(base comm.Communicator, bind func() error) (comm.DeviceComm, error) {
			return &fakeDirect{base}, bind()
		}})
}

type fakeDirect struct{ base comm.Communicator }

func (f *fakeDirect) Failed() error { return nil }
func (f *fakeDirect) Abort()        {}
func (f *fakeDirect) Close() error  { return nil }

func (f *fakeDirect) Enqueue(c *comm.DeviceCall) error {
	fakeHandles.Lock()
	s := fakeHandles.list[c.Stream-1]
	fakeHandles.Unlock()
	call, n, site := *c, f.base.Size(), &comm.Site{Tensor: "fake"}
	mem := func(at uintptr, n int) []byte { return s.d.mem[at:][:n] }
	return s.do(func() {
		var err error
		switch call.Op {
		case comm.OpAllReduce:
			err = f.base.AllReduce(site, mem(call.Dst, call.Bytes), call.DType, call.Reduce)
		case comm.OpAllGather:
			err = f.base.AllGather(site, mem(call.Dst, n*call.Bytes), mem(call.Src, call.Bytes), call.DType)
		case comm.OpReduceScatter:
			err = f.base.ReduceScatter(site, mem(call.Dst, call.Bytes/n), mem(call.Src, call.Bytes), call.DType, call.Reduce)
		case comm.OpSend:
			err = f.base.Send(site, mem(call.Src, call.Bytes), call.DType, call.Root)
		case comm.OpRecv:
			err = f.base.Recv(site, mem(call.Dst, call.Bytes), call.DType, call.Root)
		}
		if err != nil { // NCCL waits for a rank that is gone until somebody ends it
			<-s.d.closed
		}
	})
}
