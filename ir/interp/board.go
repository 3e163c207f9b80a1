package interp

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// board is where simulated ranks meet. Members of a group meet in the order in which each of them issues the
// collectives of that group; messages between two ranks arrive in the order in which they were sent. A rank waits only
// here, so that the board knows when nobody can go on: that is an error which names what each rank waits for.
type board struct {
	m       mesh.Mesh
	mu      sync.Mutex
	met     []map[string]int // per rank: rendezvous so far, by axis
	open    map[rendezvousKey]*rendezvous
	boxes   map[[2]int][]letter // sent and not received, by sender and receiver
	waits   []*wait             // per rank, what it waits for
	byTag   bool                // messages are told apart by tag and micro-batch, not by their order
	running int                 // ranks that neither wait nor are done
	err     error               // the first failure: it ends all ranks
}

// rendezvousKey is the number-th collective of the group of first along axis.
type rendezvousKey struct {
	axis          string
	first, number int
}

// rendezvous is one collective that members have begun to come to.
type rendezvous struct {
	group   []int
	calls   []call // by position in the group
	in      [][]*ir.Array
	arrived int
	out     [][]*ir.Array
}

// call is an op as one rank issues it.
type call struct {
	rank int
	op   *ir.Op
	at   string // function and micro-batch
}

// String tells it in an error.
func (c call) String() string {
	return fmt.Sprintf("rank %d: %s in %s at %s", c.rank, signature(c.op), c.at, c.op.Loc)
}

// letter is a value on its way.
type letter struct {
	call  call
	tag   string
	micro int
	x     *ir.Array
}

// wait is a blocked rank.
type wait struct {
	call call
	wake chan struct{}
	done bool
}

func newBoard(m mesh.Mesh) *board {
	n := m.Ranks()
	b := &board{m: m, open: map[rendezvousKey]*rendezvous{}, boxes: map[[2]int][]letter{}, waits: make([]*wait, n), running: n}
	for range n {
		b.met = append(b.met, map[string]int{})
	}
	return b
}

// signature is what all members of a collective must agree on.
func signature(op *ir.Op) string {
	var types []string
	for _, v := range op.In {
		types = append(types, v.Type.String())
	}
	return fmt.Sprintf("%s%+v(%s)", op.Def.Name, op.Attrs, strings.Join(types, ", "))
}

// fail records the first failure and wakes everybody. The board is locked.
func (b *board) fail(err error) error {
	if b.err == nil {
		b.err = err
		for _, w := range b.waits {
			b.wake(w)
		}
	}
	return b.err
}

// wake lets a waiting rank go on. The board is locked.
func (b *board) wake(w *wait) {
	if w != nil && !w.done {
		w.done = true
		b.running++
		close(w.wake)
	}
}

// block waits until wake. It is called with the board locked and returns so.
func (b *board) block(c call) error {
	w := &wait{call: c, wake: make(chan struct{})}
	b.waits[c.rank] = w
	b.running--
	b.stuck()
	b.mu.Unlock()
	<-w.wake
	b.mu.Lock()
	b.waits[c.rank] = nil
	return b.err
}

// stuck fails when ranks wait and none runs. The board is locked.
func (b *board) stuck() {
	if b.running > 0 {
		return
	}
	var list []string
	for r, w := range b.waits {
		if w != nil && !w.done {
			list = append(list, w.call.String())
		} else if w == nil {
			list = append(list, fmt.Sprintf("rank %d: is done", r))
		}
	}
	if len(list) > 0 {
		b.fail(fmt.Errorf("no rank can go on:\n  %s", strings.Join(list, "\n  ")))
	}
}

// leave says that a rank is done; err ends the others, too.
func (b *board) leave(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.fail(err)
	}
	b.running--
	for _, w := range b.waits {
		if w != nil && !w.done {
			b.stuck()
			return
		}
	}
}

// close reports the failure, or what was sent and never received.
func (b *board) close() error {
	if b.err != nil {
		return b.err
	}
	var lost []string
	for _, box := range b.boxes {
		for _, m := range box {
			lost = append(lost, fmt.Sprint(m.call))
		}
	}
	if len(lost) > 0 {
		return fmt.Errorf("a message is never received: %s", slices.Min(lost))
	}
	return nil
}

// do performs the mesh op of c on operands in.
func (b *board) do(c call, micro int, in []*ir.Array) ([]*ir.Array, error) {
	switch a := c.op.Attrs.(type) {
	case ops.ShardSliceAttrs:
		k := b.m.Coord(c.rank, a.Axis)
		if a.Axis == mesh.TimeAxis {
			k = micro
		}
		if k >= a.Size {
			return nil, fmt.Errorf("%s: there is no position %d along axis %s", c.op, k, a.Axis)
		}
		return []*ir.Array{Part(in[0], a.Dim, a.Size, k)}, nil
	case ops.SendAttrs:
		return b.send(c, a, micro, in[0])
	case ops.RecvAttrs:
		return b.receive(c, a, micro)
	}
	return b.meet(c, in)
}

// meet joins the collective of the op's group.
func (b *board) meet(c call, in []*ir.Array) ([]*ir.Array, error) {
	axis, size := axisOf(c.op)
	group := b.m.Group(c.rank, axis)
	if axis == "" || axis == mesh.TimeAxis || size > 0 && size != len(group) {
		return nil, fmt.Errorf("%s: axis %s has %d ranks", c.op, axis, len(group))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return nil, b.err
	}
	key := rendezvousKey{axis, group[0], b.met[c.rank][axis]}
	b.met[c.rank][axis]++
	m := b.open[key]
	if m == nil {
		m = &rendezvous{group: group, calls: make([]call, len(group)), in: make([][]*ir.Array, len(group))}
		b.open[key] = m
	}
	me := b.m.Coord(c.rank, axis)
	m.calls[me], m.in[me] = c, in
	m.arrived++
	for _, o := range m.calls {
		if o.op != nil && o.op != c.op && !sameCollective(o.op, c.op) {
			return nil, b.fail(fmt.Errorf("collective %d over %s differs:\n  %s\n  %s", key.number, axis, o, c))
		}
	}
	if m.arrived < len(group) {
		if err := b.block(c); err != nil {
			return nil, err
		}
		return m.out[me], nil
	}
	delete(b.open, key)
	m.out = combineGroup(c.op, m.in)
	for _, r := range group {
		if w := b.waits[r]; w != nil && r != c.rank {
			b.wake(w)
		}
	}
	return m.out[me], nil
}

// sameCollective reports whether two ranks' ops are each other's counterpart.
func sameCollective(x, y *ir.Op) bool {
	if x.Def != y.Def || !reflect.DeepEqual(x.Attrs, y.Attrs) || len(x.In) != len(y.In) {
		return false
	}
	for i := range x.In {
		if !x.In[i].Type.Equal(y.In[i].Type) {
			return false
		}
	}
	return true
}

// axisOf is the mesh axis of a collective, and its size where the op says it.
func axisOf(op *ir.Op) (string, int) {
	switch a := op.Attrs.(type) {
	case ops.AllReduceAttrs:
		return a.Axis, 0
	case ops.AllGatherAttrs:
		return a.Axis, a.Size
	case ops.ReduceScatterAttrs:
		return a.Axis, a.Size
	case ops.AllToAllAttrs:
		return a.Axis, a.Size
	}
	return "", 0
}

// combineGroup gives each member its results; in holds the operands by member. Members share what is equal.
func combineGroup(op *ir.Op, in [][]*ir.Array) [][]*ir.Array {
	n := len(in)
	out := make([][]*ir.Array, n)
	pick := func(i int) []*ir.Array {
		xs := make([]*ir.Array, n)
		for k := range in {
			xs[k] = in[k][i]
		}
		return xs
	}
	each := func(f func(k int) *ir.Array) {
		for k := range out {
			out[k] = append(out[k], f(k))
		}
	}
	switch a := op.Attrs.(type) {
	case ops.AllReduceAttrs:
		for i := range op.In {
			sum := combine(a.Op, pick(i))
			each(func(int) *ir.Array { return sum })
		}
	case ops.AllGatherAttrs:
		whole := Join(a.Dim, pick(0))
		each(func(int) *ir.Array { return whole })
	case ops.ReduceScatterAttrs:
		sum := combine(a.Op, pick(0))
		each(func(k int) *ir.Array { return Part(sum, a.Dim, n, k) })
	case ops.AllToAllAttrs:
		each(func(k int) *ir.Array {
			parts := make([]*ir.Array, n)
			for j, x := range pick(0) {
				parts[j] = Part(x, a.Split, n, k)
			}
			return Join(a.Join, parts)
		})
	}
	return out
}

// peer is the rank at coordinate k on axis, the other coordinates being those of rank.
func (b *board) peer(c call, axis string, k int) (int, error) {
	group := b.m.Group(c.rank, axis)
	if k < 0 || k >= len(group) || group[k] == c.rank {
		return 0, fmt.Errorf("%s: there is no other rank at %s=%d", c, axis, k)
	}
	return group[k], nil
}

func (b *board) send(c call, a ops.SendAttrs, micro int, x *ir.Array) ([]*ir.Array, error) {
	to, err := b.peer(c, a.Axis, a.Peer)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := [2]int{c.rank, to}
	b.boxes[key] = append(b.boxes[key], letter{c, a.Tag, micro, x})
	if w := b.waits[to]; w != nil && !w.done {
		if r, ok := w.call.op.Attrs.(ops.RecvAttrs); ok && b.m.Group(to, r.Axis)[r.Peer] == c.rank {
			b.wake(w)
		}
	}
	return []*ir.Array{ir.NewArray(c.op.Out[0].Type)}, b.err
}

func (b *board) receive(c call, a ops.RecvAttrs, micro int) ([]*ir.Array, error) {
	from, err := b.peer(c, a.Axis, a.Peer)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return nil, b.err
	}
	key := [2]int{from, c.rank}
	next := func() int { return min(0, len(b.boxes[key])-1) }
	if b.byTag {
		next = func() int {
			return slices.IndexFunc(b.boxes[key], func(l letter) bool { return l.tag == a.Tag && l.micro == micro })
		}
	}
	for next() < 0 {
		if err := b.block(c); err != nil {
			return nil, err
		}
	}
	at := next()
	l := b.boxes[key][at]
	if l.tag != a.Tag || !l.x.Type.Equal(c.op.Out[0].Type) {
		return nil, b.fail(fmt.Errorf("a message is not what its receiver expects:\n  %s\n  %s", l.call, c))
	}
	b.boxes[key] = slices.Delete(b.boxes[key], at, at+1)
	return []*ir.Array{l.x}, nil
}

// combine reduces arrays element by element by a tree over neighbours, ((0+1)+(2+3)), as the ranks do.
func combine(op string, xs []*ir.Array) *ir.Array {
	if len(xs) == 1 {
		return xs[0]
	}
	sums := make([]*ir.Array, 0, (len(xs)+1)/2)
	for i := 0; i < len(xs); i += 2 {
		if i+1 == len(xs) {
			sums = append(sums, xs[i])
			break
		}
		out := copyOf(xs[i])
		for j, v := range xs[i+1].F {
			out.F[j] = combineOf(op, out.F[j], v)
		}
		for j, v := range xs[i+1].I {
			out.I[j] = combineOf(op, out.I[j], v)
		}
		sums = append(sums, out)
	}
	return combine(op, sums)
}

func combineOf[T int64 | float64](op string, x, y T) T {
	switch op {
	case "max":
		return max(x, y)
	case "min":
		return min(x, y)
	case "prod":
		return x * y
	}
	return x + y
}

func copyOf(x *ir.Array) *ir.Array {
	return &ir.Array{Type: x.Type, F: append([]float64(nil), x.F...), I: append([]int64(nil), x.I...)}
}
