package comm

import "github.com/gtc-compiler/gtc/distributed/comm/internal/elem"

// shm is the backend of ranks that share memory.
//
// A collective is a sequence of steps that all members make in lockstep. In a
// step a rank waits until all have published the step before, reads what they
// staged in it, stages its own next piece in the other of two buffers, and
// publishes. One counter per rank is enough: publishing step s says both "my
// data of s is there" and "I have read your data of s-1", so that its buffers
// may be written again in step s+1.
type shm struct {
	g     *group
	seg   segment
	drop  func() // unmaps the segment
	s     uint32 // steps published by this rank
	pubs  []*word
	srcs  [][]byte
	heads []uint32 // messages sent, by receiver
	tails []uint32 // messages received, by sender
}

// smallReduce is the size up to which every rank sums everything itself, which
// saves two of three steps.
const smallReduce = 16 << 10

func newShm(g *group, mem []byte, drop func()) *shm {
	n := len(g.ranks)
	b := &shm{g: g, seg: layout(n), drop: drop, pubs: make([]*word, n), srcs: make([][]byte, n)}
	b.seg.mem = mem
	b.heads, b.tails = make([]uint32, n), make([]uint32, n)
	for r := range b.pubs {
		b.pubs[r] = b.seg.pub(r)
	}
	return b
}

func (b *shm) kill() {} // sleeping calls look at the world's failure by themselves

func (b *shm) close() {
	if b.drop != nil {
		b.drop()
		b.drop = nil
	}
}

// all waits until every member has published step b.s.
func (b *shm) all(c *call) *failure {
	for r, x := range b.pubs {
		if x.reached(b.s) {
			continue
		}
		if f := b.g.w.await(x, b.s, b.g.ranks[r], c); f != nil {
			return f
		}
	}
	return nil
}

func (b *shm) publish() {
	b.s++
	b.pubs[b.g.rank].advance(b.s)
}

// verify compares the headers that all members published in the last step.
func (b *shm) verify(c *call) *failure {
	for r := range b.pubs {
		if h := b.seg.hdr(r, int(b.s&1)); !c.agrees(h) {
			return b.g.mismatch(c, r, h)
		}
	}
	return nil
}

func (b *shm) collective(c *call) *failure {
	n := b.seg.n
	b.g.note(c, algShared)
	switch c.op {
	case OpBarrier:
		return b.pipe(c, 1)
	case OpAllReduce:
		if len(c.dst) <= smallReduce {
			return b.pipe(c, 1)
		}
		return b.allReduce(c)
	case OpReduceScatter, OpAllToAll, OpScatter:
		block := len(c.dst)
		if c.op == OpAllToAll {
			block /= n
		}
		return b.pipe(c, pieces(block, b.blockPiece()))
	}
	return b.pipe(c, pieces(c.bytes(), b.seg.chunk))
}

// blockPiece is how much of each rank's block fits into one stage.
func (b *shm) blockPiece() int { return b.seg.chunk / b.seg.n &^ 63 }

func pieces(size, piece int) int { return max((size+piece-1)/piece, 1) }

// pipe makes the steps of an operation in which data passes once: stage piece
// t while the others' piece t-1 is read.
func (b *shm) pipe(c *call, n int) *failure {
	for t := 0; ; t++ {
		if f := b.all(c); f != nil {
			return f
		}
		if t == 1 {
			if f := b.verify(c); f != nil {
				return f
			}
		}
		p := int(b.s & 1)
		if t > 0 {
			b.get(c, t-1, p)
		}
		if t == n {
			return nil
		}
		if t == 0 {
			copy(b.seg.hdr(b.g.rank, 1-p), c.hdr[:])
		}
		b.put(c, t, b.seg.stage(b.g.rank, 1-p))
		b.publish()
	}
}

// span is piece t of a buffer of size bytes.
func span(size, piece, t int) (lo, hi int) {
	return min(t*piece, size), min((t+1)*piece, size)
}

// put stages piece t of what this rank gives.
func (b *shm) put(c *call, t int, stage []byte) {
	me := b.g.rank
	switch c.op {
	case OpAllReduce:
		copy(stage, c.dst)
	case OpReduce, OpBroadcast:
		if (c.op == OpBroadcast) == (me == c.root) {
			lo, hi := span(len(c.dst), len(stage), t)
			copy(stage, c.dst[lo:hi])
		}
	case OpAllGather, OpGather:
		lo, hi := span(len(c.src), len(stage), t)
		copy(stage, c.src[lo:hi])
	case OpReduceScatter, OpAllToAll, OpScatter:
		if c.op == OpScatter && me != c.root {
			return
		}
		n, piece := b.seg.n, b.blockPiece()
		block := len(c.src) / n
		lo, hi := span(block, piece, t)
		for r := range n {
			if r != me {
				copy(stage[r*piece:], c.src[r*block+lo:r*block+hi])
			}
		}
	}
}

// get takes piece t of what the others staged with parity p.
func (b *shm) get(c *call, t, p int) {
	me, n, chunk := b.g.rank, b.seg.n, b.seg.chunk
	switch c.op {
	case OpAllReduce:
		for r := range n {
			b.srcs[r] = b.seg.stage(r, p)[:len(c.dst)]
		}
		elem.Reduce(c.dst, b.srcs, c.dt, c.red)
	case OpReduce:
		if me == c.root {
			lo, hi := span(len(c.dst), chunk, t)
			for r := range n {
				b.srcs[r] = b.seg.stage(r, p)[:hi-lo]
			}
			b.srcs[me] = c.dst[lo:hi]
			elem.Reduce(c.dst[lo:hi], b.srcs, c.dt, c.red)
		}
	case OpBroadcast:
		if me != c.root {
			lo, hi := span(len(c.dst), chunk, t)
			copy(c.dst[lo:hi], b.seg.stage(c.root, p))
		}
	case OpAllGather, OpGather:
		if c.op == OpGather && me != c.root {
			return
		}
		lo, hi := span(len(c.src), chunk, t)
		for r := range n {
			d := c.dst[r*len(c.src)+lo : r*len(c.src)+hi]
			if r == me {
				copyBlock(d, c.src[lo:hi])
			} else {
				copy(d, b.seg.stage(r, p))
			}
		}
	default:
		b.getBlock(c, t, p)
	}
}

// getBlock is get for operations whose stages hold a block per receiver.
func (b *shm) getBlock(c *call, t, p int) {
	me, n, piece := b.g.rank, b.seg.n, b.blockPiece()
	at := me * piece
	switch c.op {
	case OpReduceScatter:
		lo, hi := span(len(c.dst), piece, t)
		for r := range n {
			b.srcs[r] = b.seg.stage(r, p)[at : at+hi-lo]
		}
		own := me * len(c.dst)
		b.srcs[me] = c.src[own+lo : own+hi]
		elem.Reduce(c.dst[lo:hi], b.srcs, c.dt, c.red)
	case OpAllToAll:
		block := len(c.dst) / n
		lo, hi := span(block, piece, t)
		for r := range n {
			d := c.dst[r*block+lo : r*block+hi]
			if r == me {
				copy(d, c.src[r*block+lo:r*block+hi])
			} else {
				copy(d, b.seg.stage(r, p)[at:])
			}
		}
	case OpScatter:
		lo, hi := span(len(c.dst), piece, t)
		if me == c.root {
			own := me * len(c.dst)
			copyBlock(c.dst[lo:hi], c.src[own+lo:own+hi])
		} else {
			copy(c.dst[lo:hi], b.seg.stage(c.root, p)[at:])
		}
	}
}

// allReduce is reduce-scatter and all-gather over chunks, in one pipeline: a
// step collects the results of chunk t-2, sums this rank's part of chunk t-1
// and stages chunk t.
func (b *shm) allReduce(c *call) *failure {
	buf, chunk, me, n := c.dst, b.seg.chunk, b.g.rank, b.seg.n
	last := pieces(len(buf), chunk)
	for t := 0; ; t++ {
		if f := b.all(c); f != nil {
			return f
		}
		if t == 1 {
			if f := b.verify(c); f != nil {
				return f
			}
		}
		p := int(b.s & 1)
		if t >= 2 {
			lo, hi := span(len(buf), chunk, t-2)
			b.collect(buf[lo:hi], p)
		}
		if t == last+1 {
			return nil
		}
		if t == 0 {
			copy(b.seg.hdr(me, 1-p), c.hdr[:])
		}
		if t >= 1 && t <= last {
			lo, hi := span(len(buf), chunk, t-1)
			b.sumPart(c, buf[lo:hi], p)
		}
		if t < last {
			lo, hi := span(len(buf), chunk, t)
			mine, end := partOf(hi-lo, n, me)
			stage := b.seg.stage(me, 1-p)
			copy(stage, buf[lo:lo+mine])
			copy(stage[end:], buf[lo+end:hi])
		}
		b.publish()
	}
}

// sumPart reduces this rank's part of a chunk that all staged with parity p,
// in place, and offers it to the others.
func (b *shm) sumPart(c *call, chunk []byte, p int) {
	me := b.g.rank
	lo, hi := partOf(len(chunk), b.seg.n, me)
	for r := range b.srcs {
		b.srcs[r] = b.seg.stage(r, p)[lo:hi]
	}
	b.srcs[me] = chunk[lo:hi]
	elem.Reduce(chunk[lo:hi], b.srcs, c.dt, c.red)
	copy(b.seg.res(me, 1-p), chunk[lo:hi])
}

// collect copies the others' parts of a reduced chunk.
func (b *shm) collect(chunk []byte, p int) {
	for r := range b.srcs {
		if r != b.g.rank {
			lo, hi := partOf(len(chunk), b.seg.n, r)
			copy(chunk[lo:hi], b.seg.res(r, p))
		}
	}
}

// send passes a message through the two slots of the pair; it returns when the
// last piece is in a slot, read or not.
func (b *shm) send(c *call) *failure {
	me, to, msg := b.g.rank, c.root, b.seg.msg
	head, tail := b.seg.head(me, to), b.seg.tail(me, to)
	for t := range pieces(len(c.src), msg) {
		h := b.heads[to]
		if f := b.g.w.await(tail, h-1, b.g.ranks[to], c); f != nil {
			return f
		}
		if t == 0 {
			copy(b.seg.msgHdr(me, to, int(h&1)), c.hdr[:])
		}
		lo, hi := span(len(c.src), msg, t)
		copy(b.seg.message(me, to, int(h&1)), c.src[lo:hi])
		b.heads[to] = h + 1
		head.advance(h + 1)
	}
	return nil
}

func (b *shm) recv(c *call) *failure {
	me, from, msg := b.g.rank, c.root, b.seg.msg
	head, tail := b.seg.head(from, me), b.seg.tail(from, me)
	for t := range pieces(len(c.dst), msg) {
		h := b.tails[from]
		if f := b.g.w.await(head, h+1, b.g.ranks[from], c); f != nil {
			return f
		}
		if t == 0 {
			if hdr := b.seg.msgHdr(from, me, int(h&1)); !c.agrees(hdr) {
				return b.g.mismatch(c, from, hdr)
			}
		}
		lo, hi := span(len(c.dst), msg, t)
		copy(c.dst[lo:hi], b.seg.message(from, me, int(h&1)))
		b.tails[from] = h + 1
		tail.advance(h + 1)
	}
	return nil
}
