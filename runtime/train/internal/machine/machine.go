// Package machine runs the functions of a program on a device, with what ranks tell each other meanwhile: it prepares every call once,
// puts batches into the arena, and says which call, row or input was refused. It knows no device but what runtime/device says of all.
package machine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// Machine executes the functions of a program on its arena. Everything that a call needs is prepared once, so that
// running allocates nothing.
type Machine struct {
	Plan *program.Plan
	Memory
	Main    device.Stream             // the device's stream of kernels
	Axes    map[string]*AxisGroup     // ranks along each mesh axis but that of micro-batches
	peers   map[ranks.Peer]*neighbour // ranks that messages go to or come from
	streams []*stream                 // of collectives and of messages received: all are idle when a function has ended
	sends   []*stream                 // of messages sent: all are idle when a step has ended
	Funcs   map[string]*Function      // by name, for slot 0 of the stash
	Slots   map[string][]*Function    // by name, for each slot of the stash; nil for slots that no action of that function works on
	Watch   Observer                  // is told of every call; nil for nobody

	given int   // status words that calls have, or copies of them
	epoch int64 // steps that have ended: collectives that were issued in an earlier one are over

	direct   []comm.DeviceComm // all communicators that work on devices' memory
	alive    func() error      // the error by which the job has ended, or nil; nil where no device waits for another
	patience time.Duration     // longest wait of a device for other ranks; 0 for any
	failed   atomic.Bool       // the job ended while the device worked
}

// stream is a queue of communication that runs beside the kernels: on a thread of its own, and, where work is queued ahead, on a device
// stream of its own (on). Its collectives run one after the other: those of a library that works on devices' memory, or those of
// comm, on the arena itself, or by way of memory that the device copies to and from. Events order them with the kernels on both
// sides.
type stream struct {
	queue   *comm.Queue
	on      device.Stream
	direct  comm.DeviceComm // does the collectives on the device; nil: the queue does
	room    int             // bytes of host memory for the largest collective; 0 where none goes by way of it
	staging []byte          // that memory
	last    *Step           // issued last; nil once the kernels wait for it
}

// AxisGroup is the ranks along one mesh axis, and the queue on which their collectives run.
type AxisGroup struct {
	name   string
	Size   int               // ranks along the axis
	coord  int               // of this rank
	Comm   comm.Communicator // nil when Size is 1
	stream *stream           // nil when Size is 1
}

// neighbour is a rank that messages go to and come from, each way in order, neither waiting for the other.
type neighbour struct {
	rank     int // its number within the pair, 0 or 1
	to, from *stream
}

// Observer looks at every call of a machine.
type Observer interface {
	// Begin is told of a function that begins.
	Begin(f *Function, micro int)
	// After is told of each call: t0 is before it waited for collectives, t1 after that.
	After(m *Machine, f *Function, s *Step, t0, t1 time.Time) error
	// Drained is told how long the end of a function waited for collectives, where that is known.
	Drained(d time.Duration)
}

// Function is one entry point, prepared for one slot of the stash.
type Function struct {
	Name   string
	Slot   int // of the stash
	Info   *abi.Func
	Steps  []Step
	copies []program.Copy // made when the function ends
	Reads  []Read         // inputs that a Feeder puts into the arena first
	kept   []int          // sends, by step, that may go on when the function has ended, for nothing overwrites what they send
	brief  []int          // the other sends, by step
	Status []*Step        // calls that may refuse an index after they were queued
}

// What a step does.
const (
	doKernel = iota
	doSlice  // shard_slice: strided copies, at once
	doReduce
	doGather
	doScatter
	doExchange // all_to_all
	doSend
	doRecv
	doNothing // a collective of one rank
)

// Step is a prepared call.
type Step struct {
	Call   *program.Call
	do     int            // doKernel, doReduce, …
	Waits  []int          // earlier steps whose collectives must be over
	before []program.Copy // made first

	work device.Work // of a kernel
	Word int         // number of the kernel's status word; -1 for none

	stream      *stream // on which a collective or message goes; nil among one rank
	to          int     // the peer's number in the pair, of a send or recv
	site        comm.Site
	dtype       comm.DType
	op          comm.ReduceOp
	job         func(comm.Communicator) error // the collective, for the stream's queue
	direct      comm.DeviceCall               // the collective, for the stream's library
	seq         uint64                        // number that the queue gave the collective when it was issued last
	issued      bool                          // the collective was issued before
	epoch       int64                         // Machine.epoch when that was
	ready, done device.Event                  // what the collective works on is there; the collective is over

	Count  int           // times run; this and the next two under GTC_PROFILE alone
	Waited time.Duration // for collectives before it
	Took   time.Duration
}

// New prepares p.
func New(p *program.Program, x *program.Plan, where Memory, net ranks.Network) (*Machine, error) {
	m := &Machine{Plan: x, Memory: where, Main: where.Dev.Main(), Axes: map[string]*AxisGroup{}, peers: map[ranks.Peer]*neighbour{},
		Funcs: map[string]*Function{}, Slots: map[string][]*Function{}, alive: net.Alive, patience: net.Patience}
	for _, c := range net.Direct {
		m.direct = append(m.direct, c)
	}
	for _, pair := range net.DirectPairs {
		m.direct = append(m.direct, pair[:]...)
	}
	err := m.connect(net)
	if err == nil {
		err = m.prepareAll(p)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// connect makes the queues.
func (m *Machine) connect(net ranks.Network) error {
	for _, a := range m.Plan.Grid.Axes {
		if a.Name == mesh.TimeAxis {
			continue
		}
		g := &AxisGroup{name: a.Name, Size: a.Size, coord: m.Plan.Grid.Coord(m.Plan.Rank, a.Name), Comm: net.Axes[a.Name]}
		if g.Size > 1 {
			if g.Comm == nil || g.Comm.Size() != g.Size {
				return fmt.Errorf("BUG: axis %s of %d ranks has no communicator of that size", a.Name, a.Size)
			}
			g.stream = &stream{queue: comm.NewQueue(g.Comm)}
			m.streams = append(m.streams, g.stream)
			if err := m.openStream(g.stream, net.Direct[a.Name]); err != nil {
				return err
			}
		}
		m.Axes[a.Name] = g
	}
	for p, c := range net.Pairs {
		n := &neighbour{rank: 1 - c.Rank(), to: &stream{queue: comm.NewQueue(c)}, from: &stream{queue: comm.NewQueue(c)}}
		m.peers[p] = n
		m.sends, m.streams = append(m.sends, n.to), append(m.streams, n.from)
		direct := net.DirectPairs[p]
		if err := errors.Join(m.openStream(n.to, direct[0]), m.openStream(n.from, direct[1])); err != nil {
			return err
		}
	}
	return nil
}

// prepareAll prepares every function, once for each slot of the stash that an action runs it on.
func (m *Machine) prepareAll(p *program.Program) error {
	used := map[string]map[int]bool{}
	for name := range p.Funcs {
		used[name] = map[int]bool{0: true}
	}
	for _, a := range m.Plan.Prog.Actions {
		if used[a.Func] == nil {
			return fmt.Errorf("BUG: the schedule has @%s, which the program does not have", a.Func)
		}
		used[a.Func][a.Slot] = true
	}
	for _, name := range slices.Sorted(maps.Keys(p.Funcs)) {
		calls := p.Funcs[name]
		m.Slots[name] = make([]*Function, max(m.Plan.Prog.Slots, 1))
		scheduled := slices.ContainsFunc(m.Plan.Prog.Actions, func(a abi.Action) bool { return a.Func == name })
		for _, slot := range slices.Sorted(maps.Keys(used[name])) {
			s := m.Plan.Slot(slot)
			f, err := m.prepare(name, s.Calls(calls), s.Copies(p.Copies[name]))
			if err != nil {
				return fmt.Errorf("@%s: %w", name, err)
			}
			if f.Slot = slot; !scheduled { // nothing waits for what it left
				f.brief, f.kept = append(f.brief, f.kept...), nil
			}
			m.Slots[name][slot] = f
		}
		m.Funcs[name] = m.Slots[name][0]
	}
	return m.stage()
}

func (m *Machine) prepare(name string, calls []program.Call, copies []program.Copy) (*Function, error) {
	f := &Function{Name: name, Info: m.Plan.Funcs[name], Steps: make([]Step, len(calls))}
	if f.Info == nil {
		return nil, fmt.Errorf("BUG: the plan does not describe it")
	}
	var err error
	if f.copies, err = m.moves(copies); err != nil {
		return nil, err
	}
	for i := range calls {
		s := &f.Steps[i]
		s.Call = &calls[i]
		for _, w := range s.Call.Wait {
			if w < 0 || w >= i || f.Steps[w].Call.Comm == nil {
				return nil, fmt.Errorf("BUG: call %d, %s, waits for call %d, which is not an earlier collective", i, s.Call.Name, w)
			}
			if f.Steps[w].stream != nil {
				s.Waits = append(s.Waits, w)
			}
		}
		for _, o := range s.Call.Out {
			if !m.holds(o.Offset, o.Bytes) {
				return nil, fmt.Errorf("BUG: %s writes %d bytes at %d of an arena of %d", s.Call.Name, o.Bytes, o.Offset, m.size())
			}
		}
		if kernel := s.Call.Kernel(); kernel == (s.Call.Comm != nil) {
			return nil, fmt.Errorf("BUG: %s must be either a kernel or a collective", s.Call.Name)
		} else if kernel {
			err = m.prepareKernel(f, s)
		} else if err = m.prepareComm(s, s.Call.Comm); err != nil {
			err = fmt.Errorf("%s: %w", s.Call.Name, err)
		}
		if err != nil {
			return nil, err
		}
		if s.do == doSend {
			if s.Call.Comm.Stays {
				f.kept = append(f.kept, i)
			} else {
				f.brief = append(f.brief, i)
			}
		}
	}
	return f, nil
}

// prepareKernel has the device prepare a call, and gives it a status word where it may refuse an index later than it is queued.
func (m *Machine) prepareKernel(f *Function, s *Step) error {
	c := s.Call
	task := &device.Task{Run: c.Run, At: c.At, Launches: c.Launches, Product: c.Product, Convolution: c.Convolution, Status: -1}
	s.Word = -1
	if c.Refuses() {
		var err error
		if s.Word, err = m.GiveWords(1); err != nil {
			return err
		}
		task.Status = m.RuntimeArea.Words + 8*s.Word
		f.Status = append(f.Status, s)
	}
	var err error
	if s.work, err = m.Dev.Prepare(task); err != nil {
		return fmt.Errorf("%s, at %s: %w", c.Name, program.Place(c.Loc), err)
	}
	return nil
}

// GiveWords gives out n status words, one after the other; first is the number of the first of them.
func (m *Machine) GiveWords(n int) (first int, err error) {
	first = m.given
	if m.given += n; m.given > m.RuntimeArea.Limit {
		return 0, fmt.Errorf("BUG: more than %d status words", m.RuntimeArea.Limit)
	}
	return first, nil
}

// moves checks copies.
func (m *Machine) moves(copies []program.Copy) ([]program.Copy, error) {
	for _, c := range copies {
		if !m.holds(c.From, c.Bytes) || !m.holds(c.To, c.Bytes) {
			return nil, fmt.Errorf("BUG: a copy of %d bytes from %d to %d leaves the arena of %d", c.Bytes, c.From, c.To, m.size())
		}
	}
	return copies, nil
}

// Close ends the queues; the communicators stay open.
func (m *Machine) Close() {
	for _, l := range slices.Concat(m.streams, m.sends) {
		l.queue.Close()
	}
	m.streams, m.sends = nil, nil
	m.closeDirect()
}

// closeDirect ends the communicators that work on devices' memory: in good order, or whatever they wait for.
func (m *Machine) closeDirect() {
	for _, c := range m.direct {
		if m.failed.Load() {
			c.Abort()
		} else {
			c.Close()
		}
	}
	m.direct = nil
}

// Counts are the steps of a function with what was measured of them in all slots.
func (m *Machine) Counts(name string) []Step {
	sum := slices.Clone(m.Funcs[name].Steps)
	for _, f := range m.Slots[name][1:] {
		if f == nil {
			continue
		}
		for i := range sum {
			sum[i].Count += f.Steps[i].Count
			sum[i].Waited += f.Steps[i].Waited
			sum[i].Took += f.Steps[i].Took
		}
	}
	return sum
}

// Result is where a result of f lies.
func (m *Machine) Result(f *Function, t *abi.Tensor) ([]byte, error) {
	return m.Stretch(m.Plan.Slot(f.Slot).At(t.Offset), t.Bytes)
}

// Result finds a scalar result of a function; nil when it has none of that name.
func (f *Function) Result(name string) *abi.Tensor {
	for i := range f.Info.Results {
		if f.Info.Results[i].Name == name {
			return &f.Info.Results[i]
		}
	}
	return nil
}
