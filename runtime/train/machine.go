package train

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
)

// machine executes the functions of a program on its arena. Everything that a call needs is prepared once, so that
// running allocates nothing.
type machine struct {
	plan *plan
	memory
	main  device.Stream // of the kernels
	axes  map[string]*axisGroup
	peers map[peer]*neighbour
	lines []*line // what a function leaves nothing on when it ends
	sends []*line // what an action may leave messages on, a step none
	funcs map[string]*function
	slots map[string][]*function // the same functions by slot of the stash; nil where no action works on that slot
	watch observer               // nil unless somebody looks at every call

	given int   // status words that are
	epoch int64 // grows when a step ends: collectives of an earlier one are over

	direct   []comm.DeviceComm // all that work on devices' memory
	alive    func() error      // the error by which the job has ended, or nil; nil where no device waits for another
	patience time.Duration     // with a device that waits for others; 0 for any
	failed   atomic.Bool       // the job has ended while the device worked
}

// line is a queue of communication that runs beside the kernels: on a thread of its own, and, where work is queued ahead, on a
// stream of its own, too. Its collectives run one after the other: those of a library that works on devices' memory, or those of
// comm, on the arena itself, or by way of memory that the device copies to and from. Events order them with the kernels on both
// sides.
type line struct {
	queue   *comm.Queue
	stream  device.Stream
	direct  comm.DeviceComm // nil: by way of the queue
	room    int             // bytes of host memory that the largest of its calls takes; 0 where it needs none
	staging []byte
	last    *step // the last call that was issued, unless the kernels wait for it already
}

// axisGroup is the ranks along one mesh axis, and the queue on which their collectives run.
type axisGroup struct {
	name        string
	size, coord int
	comm        comm.Communicator // nil when size is 1
	line        *line
}

// neighbour is a rank that messages go to and come from, each way in order, neither waiting for the other.
type neighbour struct {
	rank     int // within the pair
	to, from *line
}

// observer looks at every call of a machine.
type observer interface {
	// Begin is told of a function that begins.
	Begin(f *function, micro int)
	// After is told of each call: t0 is before it waited for collectives, t1 after that.
	After(m *machine, f *function, s *step, t0, t1 time.Time) error
	// Drained is told how long the end of a function waited for collectives, where that is known.
	Drained(d time.Duration)
}

// function is one entry point, prepared for one slot of the stash.
type function struct {
	name   string
	slot   int
	info   *abi.Func
	steps  []step
	copies []Copy
	reads  []read  // what it takes from the data, see feeder
	kept   []int   // sends of what stays, which may go on when the function has ended
	brief  []int   // other sends
	status []*step // calls with a status word, where work is queued ahead
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

// step is a prepared call.
type step struct {
	call   *Call
	do     int
	waits  []int // earlier steps whose collectives must be over
	before []Copy

	work device.Work // of a kernel
	word int         // its status word; -1 for none

	// Of a collective or a message.
	line        *line // nil among one rank
	to          int   // of a send or recv: the peer's rank in the pair
	site        comm.Site
	dtype       comm.DType
	op          comm.ReduceOp
	job         func(comm.Communicator) error // it, on the line's queue
	direct      comm.DeviceCall               // it, where a library does it on the devices' memory
	seq         uint64                        // its number on the queue, once issued
	issued      bool
	epoch       int64        // in which it was last issued
	ready, done device.Event // what it works on is there, it is over

	count        int // times run, waited and taken, under GTC_PROFILE
	waited, took time.Duration
}

// newMachine prepares p.
func newMachine(p *Program, x *plan, where memory, net network) (*machine, error) {
	m := &machine{plan: x, memory: where, main: where.dev.Main(), axes: map[string]*axisGroup{}, peers: map[peer]*neighbour{},
		funcs: map[string]*function{}, slots: map[string][]*function{}, alive: net.alive, patience: net.patience}
	for _, c := range net.direct {
		m.direct = append(m.direct, c)
	}
	for _, pair := range net.directPairs {
		m.direct = append(m.direct, pair[:]...)
	}
	err := m.connect(net)
	if err == nil {
		err = m.prepareAll(p)
	}
	if err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// connect makes the queues.
func (m *machine) connect(net network) error {
	for _, a := range m.plan.mesh.Axes {
		if a.Name == mesh.TimeAxis {
			continue
		}
		g := &axisGroup{name: a.Name, size: a.Size, coord: m.plan.mesh.Coord(m.plan.rank, a.Name), comm: net.axes[a.Name]}
		if g.size > 1 {
			if g.comm == nil || g.comm.Size() != g.size {
				return fmt.Errorf("BUG: axis %s of %d ranks has no communicator of that size", a.Name, a.Size)
			}
			g.line = &line{queue: comm.NewQueue(g.comm)}
			m.lines = append(m.lines, g.line)
			if err := m.openLine(g.line, net.direct[a.Name]); err != nil {
				return err
			}
		}
		m.axes[a.Name] = g
	}
	for p, c := range net.pairs {
		n := &neighbour{rank: 1 - c.Rank(), to: &line{queue: comm.NewQueue(c)}, from: &line{queue: comm.NewQueue(c)}}
		m.peers[p] = n
		m.sends, m.lines = append(m.sends, n.to), append(m.lines, n.from)
		direct := net.directPairs[p]
		if err := errors.Join(m.openLine(n.to, direct[0]), m.openLine(n.from, direct[1])); err != nil {
			return err
		}
	}
	return nil
}

// prepareAll prepares every function, once for each slot of the stash that an action runs it on.
func (m *machine) prepareAll(p *Program) error {
	used := map[string]map[int]bool{}
	for name := range p.Funcs {
		used[name] = map[int]bool{0: true}
	}
	for _, a := range m.plan.prog.Actions {
		if used[a.Func] == nil {
			return fmt.Errorf("BUG: the schedule has @%s, which the program has not", a.Func)
		}
		used[a.Func][a.Slot] = true
	}
	for _, name := range slices.Sorted(maps.Keys(p.Funcs)) {
		calls := p.Funcs[name]
		m.slots[name] = make([]*function, max(m.plan.prog.Slots, 1))
		scheduled := slices.ContainsFunc(m.plan.prog.Actions, func(a abi.Action) bool { return a.Func == name })
		for _, slot := range slices.Sorted(maps.Keys(used[name])) {
			s := m.plan.slot(slot)
			f, err := m.prepare(name, s.calls(calls), s.copies(p.Copies[name]))
			if err != nil {
				return fmt.Errorf("@%s: %w", name, err)
			}
			if f.slot = slot; !scheduled { // nothing waits for what it left
				f.brief, f.kept = append(f.brief, f.kept...), nil
			}
			m.slots[name][slot] = f
		}
		m.funcs[name] = m.slots[name][0]
	}
	return m.stage()
}

func (m *machine) prepare(name string, calls []Call, copies []Copy) (*function, error) {
	f := &function{name: name, info: m.plan.funcs[name], steps: make([]step, len(calls))}
	if f.info == nil {
		return nil, fmt.Errorf("BUG: the plan does not describe it")
	}
	var err error
	if f.copies, err = m.moves(copies); err != nil {
		return nil, err
	}
	for i := range calls {
		s := &f.steps[i]
		s.call = &calls[i]
		for _, w := range s.call.Wait {
			if w < 0 || w >= i || f.steps[w].call.Comm == nil {
				return nil, fmt.Errorf("BUG: call %d, %s, waits for call %d, which is no earlier collective", i, s.call.Name, w)
			}
			if f.steps[w].line != nil {
				s.waits = append(s.waits, w)
			}
		}
		for _, o := range s.call.Out {
			if !m.holds(o.Offset, o.Bytes) {
				return nil, fmt.Errorf("BUG: %s writes %d bytes at %d of an arena of %d", s.call.Name, o.Bytes, o.Offset, m.size())
			}
		}
		if kernel := s.call.kernel(); kernel == (s.call.Comm != nil) {
			return nil, fmt.Errorf("BUG: %s is not one of a kernel and a collective", s.call.Name)
		} else if kernel {
			err = m.prepareKernel(f, s)
		} else if err = m.prepareComm(s, s.call.Comm); err != nil {
			err = fmt.Errorf("%s: %w", s.call.Name, err)
		}
		if err != nil {
			return nil, err
		}
		if s.do == doSend {
			if s.call.Comm.Stays {
				f.kept = append(f.kept, i)
			} else {
				f.brief = append(f.brief, i)
			}
		}
	}
	return f, nil
}

// prepareKernel has the device prepare a call, and gives it a status word where it may refuse an index later than it is queued.
func (m *machine) prepareKernel(f *function, s *step) error {
	c := s.call
	task := &device.Task{Run: c.Run, At: c.At, Launches: c.Launches, Product: c.Product, Convolution: c.Convolution, Status: -1}
	s.word = -1
	if c.refuses() {
		var err error
		if s.word, err = m.giveWords(1); err != nil {
			return err
		}
		task.Status = m.behind.words + 8*s.word
		f.status = append(f.status, s)
	}
	var err error
	if s.work, err = m.dev.Prepare(task); err != nil {
		return fmt.Errorf("%s, at %s: %w", c.Name, place(c.Loc), err)
	}
	return nil
}

// giveWords gives out n status words, one after the other; first is the number of the first of them.
func (m *machine) giveWords(n int) (first int, err error) {
	first = m.given
	if m.given += n; m.given > m.behind.limit {
		return 0, fmt.Errorf("BUG: more than %d status words", m.behind.limit)
	}
	return first, nil
}

// moves checks copies.
func (m *machine) moves(copies []Copy) ([]Copy, error) {
	for _, c := range copies {
		if !m.holds(c.From, c.Bytes) || !m.holds(c.To, c.Bytes) {
			return nil, fmt.Errorf("BUG: a copy of %d bytes from %d to %d leaves the arena of %d", c.Bytes, c.From, c.To, m.size())
		}
	}
	return copies, nil
}

// close ends the queues; the communicators stay open.
func (m *machine) close() {
	for _, l := range slices.Concat(m.lines, m.sends) {
		l.queue.Close()
	}
	m.lines, m.sends = nil, nil
	m.closeDirect()
}

// closeDirect ends the communicators that work on devices' memory: in good order, or whatever they wait for.
func (m *machine) closeDirect() {
	for _, c := range m.direct {
		if m.failed.Load() {
			c.Abort()
		} else {
			c.Close()
		}
	}
	m.direct = nil
}

// counts are the steps of a function with what was measured of them in all slots.
func (m *machine) counts(name string) []step {
	sum := slices.Clone(m.funcs[name].steps)
	for _, f := range m.slots[name][1:] {
		if f == nil {
			continue
		}
		for i := range sum {
			sum[i].count += f.steps[i].count
			sum[i].waited += f.steps[i].waited
			sum[i].took += f.steps[i].took
		}
	}
	return sum
}

// result is where a result of f lies.
func (m *machine) result(f *function, t *abi.Tensor) ([]byte, error) {
	return m.stretch(m.plan.slot(f.slot).at(t.Offset), t.Bytes)
}

// result finds a scalar result of a function; nil when it has none of that name.
func (f *function) result(name string) *abi.Tensor {
	for i := range f.info.Results {
		if f.info.Results[i].Name == name {
			return &f.info.Results[i]
		}
	}
	return nil
}
