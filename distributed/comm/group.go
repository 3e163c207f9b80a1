package comm

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/printable"
)

// backend moves the bytes of one group. Its methods get checked calls, return
// nil or the failure, and are called as Communicator allows. kill makes calls
// in progress return soon; close releases everything.
type backend interface {
	collective(c *call) *failure
	send(c *call) *failure
	recv(c *call) *failure
	kill()
	close()
}

// group is a Communicator over any backend.
type group struct {
	w     *world
	name  string
	id    string // equal on all members and unique in the job
	ranks []int  // members, as ranks of the job
	rank  int
	be    backend // nil for a group of one

	c            call // the collective in progress
	sends, recvs []call
	subs         map[string]int // how often each name was used
	noted        [numOpcodes][numAlgorithms]bool
	busy         atomic.Int32
	closed       atomic.Bool
}

func newGroup(w *world, name, id string, ranks []int) *group {
	g := &group{w: w, name: name, id: id, ranks: ranks, rank: slices.Index(ranks, w.rank)}
	g.sends, g.recvs = make([]call, len(ranks)), make([]call, len(ranks))
	return g
}

// add makes g known to the world, which kills its calls when the job fails.
func (w *world) add(g *group) {
	w.mu.Lock()
	w.groups = append(w.groups, g)
	w.mu.Unlock()
	if w.failed.Load() != nil && g.be != nil {
		g.be.kill()
	}
}

// Rank implements Communicator.
func (g *group) Rank() int { return g.rank }

// Size implements Communicator.
func (g *group) Size() int { return len(g.ranks) }

// AllReduce implements Communicator.
func (g *group) AllReduce(s *Site, buf []byte, dt DType, op ReduceOp) error {
	return g.do(OpAllReduce, s, args{dst: buf, dt: dt, red: op})
}

// Reduce implements Communicator.
func (g *group) Reduce(s *Site, buf []byte, dt DType, op ReduceOp, root int) error {
	return g.do(OpReduce, s, args{dst: buf, dt: dt, red: op, root: root})
}

// Broadcast implements Communicator.
func (g *group) Broadcast(s *Site, buf []byte, dt DType, root int) error {
	return g.do(OpBroadcast, s, args{dst: buf, dt: dt, root: root})
}

// AllGather implements Communicator.
func (g *group) AllGather(s *Site, dst, src []byte, dt DType) error {
	return g.do(OpAllGather, s, args{dst: dst, src: src, dt: dt})
}

// ReduceScatter implements Communicator.
func (g *group) ReduceScatter(s *Site, dst, src []byte, dt DType, op ReduceOp) error {
	return g.do(OpReduceScatter, s, args{dst: dst, src: src, dt: dt, red: op})
}

// AllToAll implements Communicator.
func (g *group) AllToAll(s *Site, dst, src []byte, dt DType) error {
	return g.do(OpAllToAll, s, args{dst: dst, src: src, dt: dt})
}

// Gather implements Communicator.
func (g *group) Gather(s *Site, dst, src []byte, dt DType, root int) error {
	return g.do(OpGather, s, args{dst: dst, src: src, dt: dt, root: root})
}

// Scatter implements Communicator.
func (g *group) Scatter(s *Site, dst, src []byte, dt DType, root int) error {
	return g.do(OpScatter, s, args{dst: dst, src: src, dt: dt, root: root})
}

// Barrier implements Communicator.
func (g *group) Barrier(s *Site) error { return g.do(OpBarrier, s, args{}) }

// Send implements Communicator.
func (g *group) Send(s *Site, buf []byte, dt DType, to int) error {
	return g.do(OpSend, s, args{src: buf, dt: dt, root: to})
}

// Recv implements Communicator.
func (g *group) Recv(s *Site, buf []byte, dt DType, from int) error {
	return g.do(OpRecv, s, args{dst: buf, dt: dt, root: from})
}

// Abort implements Communicator.
func (g *group) Abort(reason string) {
	g.w.fail(&failure{kind: KindAborted, rank: g.w.rank, detail: reason})
}

// args are the arguments of a call before they are checked.
type args struct {
	dst, src []byte
	dt       DType
	red      ReduceOp
	root     int
}

// do runs one operation from checking its arguments to its error.
func (g *group) do(op Op, s *Site, a args) error {
	w := g.w
	if s == nil {
		s = noSite
	}
	g.busy.Add(1)
	defer g.busy.Add(-1)
	if f := w.failed.Load(); f != nil {
		return w.errorFor(&call{op: op, site: s}, f)
	}
	if g.closed.Load() {
		return w.errorFor(&call{op: op, site: s}, &failure{kind: KindClosed, rank: w.rank})
	}
	if msg := g.check(op, &a); msg != "" {
		f := w.fail(&failure{kind: KindUsage, rank: w.rank, detail: msg})
		return w.errorFor(&call{op: op, site: s}, f)
	}
	c := &g.c
	switch op {
	case OpSend:
		c = &g.sends[a.root]
	case OpRecv:
		c = &g.recvs[a.root]
	}
	c.op, c.site, c.dt, c.red, c.root, c.dst, c.src = op, s, a.dt, a.red, a.root, a.dst, a.src
	c.encode()
	id := w.recent.start(w, g.name, c)
	f := g.dispatch(c)
	w.recent.finish(id, f != nil)
	c.seq++
	if f == nil {
		c.dst, c.src = nil, nil
		return nil
	}
	return w.errorFor(c, w.fail(f))
}

func (g *group) dispatch(c *call) *failure {
	switch {
	case c.op == OpSend:
		return g.be.send(c)
	case c.op == OpRecv:
		return g.be.recv(c)
	case g.be != nil:
		return g.be.collective(c)
	}
	// Alone: every reduction of one is itself, and every block is block 0.
	if c.src != nil {
		copyBlock(c.dst, c.src)
	}
	return nil
}

// copyBlock copies unless both are the same memory.
func copyBlock(dst, src []byte) {
	if len(dst) > 0 && len(src) > 0 && &dst[0] == &src[0] {
		return
	}
	copy(dst, src)
}

// check returns what is wrong with the arguments, or "".
func (g *group) check(op Op, a *args) string {
	n := len(g.ranks)
	if op == OpBarrier {
		return ""
	}
	es := a.dt.Size()
	switch {
	case es == 0:
		return fmt.Sprintf("unknown element type %s", a.dt)
	case op.reduces() && !a.red.Known():
		return fmt.Sprintf("unknown reduction %s", a.red)
	case op.reduces() && a.red == Avg && !a.dt.Float():
		return fmt.Sprintf("avg is not defined for %s", a.dt)
	case len(a.dst)%es != 0 || len(a.src)%es != 0:
		return fmt.Sprintf("buffer of %d bytes is not a whole number of %s", max(len(a.dst), len(a.src)), a.dt)
	case op.reduces() && (!aligned(a.dst, es) || !aligned(a.src, es)):
		return fmt.Sprintf("buffer is not aligned to %d bytes for %s", es, a.dt)
	case a.root < 0 || a.root >= n:
		return fmt.Sprintf("rank %d is not in a group of %s", a.root, printable.Count(n, "rank"))
	case (op == OpSend || op == OpRecv) && a.root == g.rank:
		return "a rank cannot send to itself"
	}
	return g.checkSizes(op, a)
}

func (g *group) checkSizes(op Op, a *args) string {
	n := len(g.ranks)
	whole, block := a.dst, a.src
	switch op {
	case OpGather:
		if g.rank != a.root {
			return ""
		}
	case OpScatter:
		if g.rank != a.root {
			a.src = nil
			return ""
		}
		whole, block = a.src, a.dst
	case OpReduceScatter:
		whole, block = a.src, a.dst
	case OpAllToAll:
		switch {
		case len(a.dst) != len(a.src) || len(a.src)%(n*a.dt.Size()) != 0:
			return fmt.Sprintf("buffers of %d and %d bytes are not %d equal blocks", len(a.dst), len(a.src), n)
		case n > 1 && overlaps(a.dst, a.src):
			return "the buffers of an all_to_all overlap"
		}
		return ""
	case OpAllGather:
	default:
		return ""
	}
	own := whole[min(g.rank*len(block), len(whole)):]
	switch {
	case len(whole) != n*len(block):
		return fmt.Sprintf("buffer of %d bytes is not %d blocks of %d bytes", len(whole), n, len(block))
	case overlaps(whole, block) && unsafe.SliceData(own) != unsafe.SliceData(block):
		return "the block overlaps the whole buffer but is not this rank's block of it"
	}
	return ""
}

func aligned(b []byte, es int) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%uintptr(es) == 0
}

func overlaps(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

// Close implements Communicator.
func (g *group) Close() error {
	if g.closed.Swap(true) {
		return nil
	}
	if g == g.w.root {
		return g.w.close()
	}
	g.release()
	return nil
}

// release gives up the backend once no call uses it. A call that is stuck
// keeps its memory mapped: better a leak than a fault in another goroutine.
func (g *group) release() {
	if g.be == nil {
		return
	}
	for end := time.Now().Add(2 * time.Second); g.busy.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			g.be.kill()
			return
		}
	}
	g.be.close()
}

// mismatch is the failure of a call whose peer (of the group) sent header peer.
func (g *group) mismatch(c *call, peer int, hdr []byte) *failure {
	in := ""
	if g.name != "world" {
		in = fmt.Sprintf(" in group %q", g.name)
	}
	return &failure{kind: KindMismatch, rank: g.ranks[peer], detail: fmt.Sprintf("rank %d calls %s, rank %d calls %s%s",
		g.w.rank, describeHeader(c.hdr[:]), g.ranks[peer], describeHeader(hdr), in)}
}
