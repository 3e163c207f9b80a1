package train

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/mem"
)

// machine executes the functions of a program on its arena. Everything that a call needs is prepared once, so that
// running allocates nothing.
type machine struct {
	plan  *plan
	arena *mem.Arena
	base  unsafe.Pointer
	axes  map[string]*axisGroup
	queue []*axisGroup // those with a queue
	funcs map[string]*function
	watch *watcher // nil unless GTC_NAN, GTC_PROFILE, GTC_DEBUG or a trace ask to look at every call
}

// axisGroup is the ranks along one mesh axis, and the queue on which their collectives run beside the kernels.
type axisGroup struct {
	name        string
	size, coord int
	comm        comm.Communicator // nil when size is 1
	queue       *comm.Queue
	last        uint64 // number of the last call issued
}

// function is one entry point, prepared.
type function struct {
	name   string
	info   *abi.Func
	steps  []step
	copies []move
}

// What a step does.
const (
	doKernel = iota
	doSlice  // shard_slice: strided copies, at once
	doReduce
	doGather
	doScatter
	doNothing // a collective of one rank
)

// step is a prepared call.
type step struct {
	call   *Call
	do     int
	waits  []int // earlier steps whose collectives must be over
	before []move
	group  *axisGroup
	site   comm.Site
	dtype  comm.DType
	op     comm.ReduceOp
	dst    []byte
	src    []byte
	seq    uint64 // of the collective in its group's queue, once issued

	count        int // times run, waited and taken, under GTC_PROFILE
	waited, took time.Duration
}

// move is a copy within the arena.
type move struct{ to, from []byte }

// newMachine prepares p. groups gives the communicator of each axis that has more than one rank.
func newMachine(p *Program, x *plan, arena *mem.Arena, groups map[string]comm.Communicator) (*machine, error) {
	m := &machine{plan: x, arena: arena, base: arena.Base(), axes: map[string]*axisGroup{}, funcs: map[string]*function{}}
	for _, a := range x.mesh.Axes {
		if a.Name == mesh.TimeAxis {
			continue
		}
		g := &axisGroup{name: a.Name, size: a.Size, coord: x.mesh.Coord(x.rank, a.Name), comm: groups[a.Name]}
		if g.size > 1 {
			if g.comm == nil || g.comm.Size() != g.size {
				return nil, fmt.Errorf("BUG: axis %s of %d ranks has no communicator of that size", a.Name, a.Size)
			}
			g.queue = comm.NewQueue(g.comm)
			m.queue = append(m.queue, g)
		}
		m.axes[a.Name] = g
	}
	for name, calls := range p.Funcs {
		f, err := m.prepare(name, calls, p.Copies[name])
		if err != nil {
			m.close()
			return nil, fmt.Errorf("@%s: %w", name, err)
		}
		m.funcs[name] = f
	}
	return m, nil
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
			if d := f.steps[w].do; d == doReduce || d == doGather || d == doScatter {
				s.waits = append(s.waits, w)
			}
		}
		for _, o := range s.call.Out {
			if !m.arena.Holds(o.Offset, o.Bytes) {
				return nil, fmt.Errorf("BUG: %s writes %d bytes at %d of an arena of %d", s.call.Name, o.Bytes, o.Offset, m.arena.Size())
			}
		}
		if (s.call.Comm == nil) == (s.call.Run == nil) {
			return nil, fmt.Errorf("BUG: %s is not one of a kernel and a collective", s.call.Name)
		}
		if s.call.Comm != nil {
			if err := m.prepareComm(s, s.call.Comm); err != nil {
				return nil, fmt.Errorf("%s: %w", s.call.Name, err)
			}
		}
	}
	return f, nil
}

func (m *machine) moves(copies []Copy) ([]move, error) {
	var out []move
	for _, c := range copies {
		if !m.arena.Holds(c.From, c.Bytes) || !m.arena.Holds(c.To, c.Bytes) {
			return nil, fmt.Errorf("BUG: a copy of %d bytes from %d to %d leaves the arena of %d", c.Bytes, c.From, c.To, m.arena.Size())
		}
		out = append(out, move{m.arena.Bytes(c.To, c.Bytes), m.arena.Bytes(c.From, c.Bytes)})
	}
	return out, nil
}

var reduceOps = map[string]comm.ReduceOp{"": comm.Sum, "sum": comm.Sum, "max": comm.Max, "min": comm.Min, "prod": comm.Prod, "avg": comm.Avg}

func (m *machine) prepareComm(s *step, c *Comm) error {
	if c.Kind == "shard_slice" {
		s.do = doSlice
		return m.prepareSlice(c)
	}
	g := m.axes[c.Axis]
	if g == nil {
		return fmt.Errorf("BUG: %s over axis %q, which mesh %s does not have", c.Kind, c.Axis, m.plan.mesh)
	}
	dt, ok := commType(c.DType)
	op, ok2 := reduceOps[c.Op]
	if !ok || !ok2 {
		return fmt.Errorf("BUG: %s of %s by %q", c.Kind, c.DType, c.Op)
	}
	from := c.Bytes
	switch c.Kind {
	case "all_reduce":
		s.do = doReduce
	case "all_gather":
		s.do, from = doGather, c.Bytes/g.size
	case "reduce_scatter":
		s.do, from = doScatter, c.Bytes*g.size
	default:
		return fmt.Errorf("BUG: there is no collective %q", c.Kind)
	}
	if !m.arena.Holds(c.Offset, c.Bytes) || s.do != doReduce && !m.arena.Holds(c.Source, from) {
		return fmt.Errorf("BUG: %s of %d bytes from %d to %d leaves the arena of %d", c.Kind, c.Bytes, c.Source, c.Offset, m.arena.Size())
	}
	var err error
	if s.before, err = m.moves(c.Before); err != nil {
		return err
	}
	s.dst = m.arena.Bytes(c.Offset, c.Bytes)
	if s.do != doReduce {
		s.src = m.arena.Bytes(c.Source, from)
	}
	s.group, s.dtype, s.op = g, dt, op
	s.site = comm.Site{Collective: c.Kind, Tensor: c.Tensor, Loc: c.Loc}
	if g.size == 1 {
		if s.do != doReduce && c.Offset != c.Source {
			s.before = append(s.before, move{s.dst, s.src})
		}
		s.do = doNothing
	}
	return nil
}

// prepareSlice checks a shard_slice; it is executed from the Comm itself.
func (m *machine) prepareSlice(c *Comm) error {
	n := max(c.Outer, 1)
	if c.Axis != mesh.TimeAxis && m.axes[c.Axis] == nil {
		return fmt.Errorf("BUG: shard_slice over axis %q, which mesh %s does not have", c.Axis, m.plan.mesh)
	}
	each := c.Bytes / n
	last := c.Source + (n-1)*c.Stride + m.plan.size(c.Axis)*each
	if each*n != c.Bytes || !m.arena.Holds(c.Offset, c.Bytes) || c.Source < 0 || last > m.arena.Size() {
		return fmt.Errorf("BUG: shard_slice of %d x %d bytes from %d, stride %d, to %d leaves the arena of %d", n, each, c.Source, c.Stride, c.Offset, m.arena.Size())
	}
	return nil
}

// commType is the type by which a collective moves elements of an abi type. Those of 8 bits and fewer that hold no numbers
// to compute with are bytes.
func commType(name string) (comm.DType, bool) {
	if name != "i8" && elemSizes[name] == 1 {
		name = "u8"
	}
	for d := comm.F32; d.Size() > 0; d++ {
		if d.String() == name {
			return d, true
		}
	}
	return 0, false
}

// run executes a function; micro is the micro-batch that the batch in the arena is.
func (m *machine) run(f *function, micro int) error {
	if m.watch != nil && m.watch.debug > 2 {
		fmt.Fprintf(m.watch.out, "rank %d @%s, micro-batch %d\n", m.plan.rank, f.name, micro)
	}
	for i := range f.steps {
		s := &f.steps[i]
		var t0 time.Time
		if m.watch != nil {
			t0 = time.Now()
		}
		for _, w := range s.waits {
			if err := f.steps[w].group.queue.Wait(f.steps[w].seq); err != nil {
				return err
			}
		}
		t1 := t0
		if m.watch != nil && len(s.waits) > 0 {
			t1 = time.Now()
		}
		if s.do == doKernel {
			if row := s.call.Run(m.base, s.call.At); row >= 0 {
				return m.refused(f, s.call, row, micro)
			}
		} else {
			m.communicate(s, micro)
		}
		if m.watch != nil {
			if err := m.watch.after(m, f, s, t0, t1); err != nil {
				return err
			}
		}
	}
	var t0 time.Time
	if m.watch != nil {
		t0 = time.Now()
	}
	if err := m.drain(); err != nil {
		return err
	}
	if m.watch != nil && len(m.queue) > 0 {
		m.watch.drains++
		m.watch.drained += time.Since(t0)
	}
	for _, c := range f.copies {
		copy(c.to, c.from)
	}
	return nil
}

// drain waits for every collective issued.
func (m *machine) drain() error {
	for _, g := range m.queue {
		if err := g.queue.Wait(g.last); err != nil {
			return err
		}
	}
	return nil
}

// communicate starts a collective, or makes the copies that stand for it.
func (m *machine) communicate(s *step, micro int) {
	for _, b := range s.before {
		copy(b.to, b.from)
	}
	switch s.do {
	case doSlice:
		m.slice(s.call.Comm, micro)
		return
	case doReduce:
		s.seq = s.group.queue.AllReduce(&s.site, s.dst, s.dtype, s.op)
	case doGather:
		s.seq = s.group.queue.AllGather(&s.site, s.dst, s.src, s.dtype)
	case doScatter:
		s.seq = s.group.queue.ReduceScatter(&s.site, s.dst, s.src, s.dtype, s.op)
	default:
		return
	}
	s.group.last = s.seq
}

// slice takes this rank's, or this micro-batch's, part of each of the Outer slices.
func (m *machine) slice(c *Comm, micro int) {
	k, n := micro, max(c.Outer, 1)
	if c.Axis != mesh.TimeAxis {
		k = m.axes[c.Axis].coord
	}
	each := c.Bytes / n
	for i := range n {
		copy(m.arena.Bytes(c.Offset+i*each, each), m.arena.Bytes(c.Source+i*c.Stride+k*each, each))
	}
}

// close ends the queues; the communicators stay open.
func (m *machine) close() {
	for _, g := range m.queue {
		g.queue.Close()
	}
	m.queue = nil
}

// rowError is a kernel's refusal of an index.
type rowError struct {
	call   *Call
	row    int64
	input  string // that holds the index; "" when it was computed
	from   string // that a computed index comes from, if it is known
	value  int64
	sample int // of this call's batch
	micro  int
}

func (e *rowError) Error() string {
	what := fmt.Sprintf("row %d has an index (a token or a class) that is out of range", e.row)
	if e.input != "" {
		what = fmt.Sprintf("%q has a value out of range, %d", e.input, e.value)
	}
	if e.from != "" {
		what = fmt.Sprintf("row %d has an index (a token or a class) that is out of range; %q, which it is made from, has %d there", e.row, e.from, e.value)
	}
	return fmt.Sprintf("%s: %s, at %s", e.call.Name, what, or(e.call.Loc, "an op without a location"))
}

// refused finds the input element behind a kernel's refusal of a row, if the kernel reads it from an input.
func (m *machine) refused(f *function, c *Call, row int64, micro int) error {
	e := &rowError{call: c, row: row, micro: micro}
	first := len(c.At)
	var made []string // inputs with as many integers as the kernel reads indices: what computed ones come from
	for _, name := range f.info.Inputs {
		t := m.plan.tensor[name]
		i := slices.Index(c.At, t.Offset) // operands come before sizes, which may look like one
		n := elems(t.Dims)
		if row >= int64(n) || t.Role == "weight" {
			continue
		}
		v, ok := m.integer(t, row)
		if ok && slices.Contains(c.At[min(3, len(c.At)):], n) {
			made = append(made, name)
		}
		if !ok || i < 0 || i >= first {
			continue
		}
		first, e.input, e.value, e.sample = i, name, v, int(row)/max(n/max(t.Dims[0], 1), 1)
	}
	if e.input == "" && len(made) == 1 {
		t := m.plan.tensor[made[0]]
		e.from = made[0]
		e.value, _ = m.integer(t, row)
		e.sample = int(row) / max(elems(t.Dims)/max(t.Dims[0], 1), 1)
	}
	return e
}

// integer is element i of an input, when its elements are of a type that indices have.
func (m *machine) integer(t *abi.Tensor, i int64) (int64, bool) {
	p := unsafe.Add(m.base, t.Offset+int(i)*elemSizes[t.DType])
	switch t.DType {
	case "i64":
		return *(*int64)(p), true
	case "i32":
		return int64(*(*int32)(p)), true
	case "u8":
		return int64(*(*uint8)(p)), true
	}
	return 0, false
}

func or(s, otherwise string) string {
	if strings.TrimSpace(s) == "" {
		return otherwise
	}
	return s
}

// bytes is where a tensor lies.
func (m *machine) bytes(t *abi.Tensor) []byte { return m.arena.Bytes(t.Offset, t.Bytes) }

// scalar is a one-element result as a float64.
func (m *machine) scalar(t *abi.Tensor) float64 {
	p := unsafe.Add(m.base, t.Offset)
	switch t.DType {
	case "f32":
		return float64(*(*float32)(p))
	case "f64":
		return *(*float64)(p)
	case "i64":
		return float64(*(*int64)(p))
	case "i32":
		return float64(*(*int32)(p))
	}
	return math.NaN()
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
