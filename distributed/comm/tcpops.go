package comm

import "github.com/gtc-compiler/gtc/distributed/comm/internal/elem"

// This file has the collectives of the tcp backend. Peers are always visited
// in the order after the own rank when sending, so that not all start with
// rank 0, and in rank order when receiving.

func (b *tcp) collective(c *call) *failure {
	f := b.run(c)
	if f != nil {
		// Ends the writers too, which may wait for a peer that has stopped.
		f = b.g.w.fail(f)
	}
	if e := b.flush(); f == nil {
		f = e
	}
	return f
}

func (b *tcp) run(c *call) *failure {
	switch c.op {
	case OpBarrier:
		b.g.note(c, algDirect)
		if f := b.toAll(c, true, nil); f != nil {
			return f
		}
		return b.headers(c)
	case OpAllReduce:
		switch a := b.choose(c); {
		case a == algHalving:
			return b.halve(c)
		case a == algRing:
			return b.ringAllReduce(c)
		case len(c.dst) <= tcpSmall:
			return b.smallAllReduce(c)
		}
		return b.allReduce(c)
	case OpReduceScatter:
		own := c.src[b.g.rank*len(c.dst):][:len(c.dst)]
		if f := b.scatterBlocks(c, c.src); f != nil {
			return f
		}
		return b.sum(c, c.dst, own)
	case OpAllGather:
		if b.choose(c) == algRing {
			return b.ringAllGather(c)
		}
		return b.allGather(c)
	case OpAllToAll:
		return b.allToAll(c)
	case OpBroadcast:
		return b.broadcast(c)
	default:
		return b.rootOp(c)
	}
}

// choose is the algorithm of c, which it notes.
func (b *tcp) choose(c *call) algorithm {
	a := b.g.w.choose(c, len(b.peers))
	b.g.note(c, a)
	return a
}

// next is the i-th peer after this rank, i from 1.
func (b *tcp) next(i int) int { return (b.g.rank + i) % len(b.peers) }

// toAll sends the same data to every peer.
func (b *tcp) toAll(c *call, header bool, data []byte) *failure {
	var hdr []byte
	if header {
		hdr = c.hdr[:]
	}
	for i := 1; i < len(b.peers); i++ {
		if f := b.peers[b.next(i)].post(hdr, data, c); f != nil {
			return f
		}
	}
	return nil
}

// scatterBlocks sends block r of buf, with a header, to each peer r.
func (b *tcp) scatterBlocks(c *call, buf []byte) *failure {
	n := len(b.peers)
	block := len(buf) / n
	for i := 1; i < n; i++ {
		r := b.next(i)
		if f := b.peers[r].post(c.hdr[:], buf[r*block:(r+1)*block], c); f != nil {
			return f
		}
	}
	return nil
}

// headers takes and compares the header of every peer.
func (b *tcp) headers(c *call) *failure {
	for r, p := range b.peers {
		if p != nil {
			if f := b.header(r, c); f != nil {
				return f
			}
		}
	}
	return nil
}

// sum takes headers and data of the size of dst from all peers and leaves the
// combination with own in dst.
func (b *tcp) sum(c *call, dst, own []byte) *failure {
	if f := b.headers(c); f != nil {
		return f
	}
	for lo := 0; lo < len(dst); lo += tcpPiece {
		hi := min(lo+tcpPiece, len(dst))
		for r, p := range b.peers {
			if p == nil {
				b.srcs[r] = own[lo:hi]
				continue
			}
			b.srcs[r] = b.scratch[r][:hi-lo]
			if f := p.get(p.conn, b.srcs[r], c); f != nil {
				return f
			}
		}
		elem.Reduce(dst[lo:hi], b.srcs, c.dt, c.red)
	}
	return nil
}

func (b *tcp) smallAllReduce(c *call) *failure {
	buf := c.dst
	if f := b.toAll(c, true, buf); f != nil {
		return f
	}
	// The writers may still be reading buf, so the sum is made elsewhere.
	tmp := b.scratch[b.g.rank][:len(buf)]
	if f := b.sum(c, tmp, buf); f != nil {
		return f
	}
	if f := b.flush(); f != nil {
		return f
	}
	copy(buf, tmp)
	return nil
}

// allReduce has each rank sum its part and send it to all. The parts that this
// rank gave away are overwritten in the second round, so the writers must be
// done with them; they are soon, because every peer is reading.
func (b *tcp) allReduce(c *call) *failure {
	if f := b.sumPart(c); f != nil {
		return f
	}
	buf, n := c.dst, len(b.peers)
	lo, hi := partOf(len(buf), n, b.g.rank)
	if f := b.toAll(c, false, buf[lo:hi]); f != nil {
		return f
	}
	for r, p := range b.peers {
		if p == nil {
			continue
		}
		lo, hi := partOf(len(buf), n, r)
		if f := p.get(p.conn, buf[lo:hi], c); f != nil {
			return f
		}
	}
	return nil
}

// sumPart leaves this rank's part of the result in its place, and the others'
// places free to be overwritten.
func (b *tcp) sumPart(c *call) *failure {
	buf, n, me := c.dst, len(b.peers), b.g.rank
	for i := 1; i < n; i++ {
		r := b.next(i)
		lo, hi := partOf(len(buf), n, r)
		if f := b.peers[r].post(c.hdr[:], buf[lo:hi], c); f != nil {
			return f
		}
	}
	lo, hi := partOf(len(buf), n, me)
	if f := b.sum(c, buf[lo:hi], buf[lo:hi]); f != nil {
		return f
	}
	return b.flush()
}

func (b *tcp) allGather(c *call) *failure {
	if f := b.toAll(c, true, c.src); f != nil {
		return f
	}
	size := len(c.src)
	for r, p := range b.peers {
		d := c.dst[r*size : (r+1)*size]
		if p == nil {
			copyBlock(d, c.src)
			continue
		}
		if f := b.take(r, c, d); f != nil {
			return f
		}
	}
	return nil
}

// take gets peer r's header and data.
func (b *tcp) take(r int, c *call, d []byte) *failure {
	if f := b.header(r, c); f != nil {
		return f
	}
	return b.peers[r].get(b.peers[r].conn, d, c)
}

func (b *tcp) allToAll(c *call) *failure {
	if f := b.scatterBlocks(c, c.src); f != nil {
		return f
	}
	block := len(c.dst) / len(b.peers)
	for r, p := range b.peers {
		lo, hi := r*block, (r+1)*block
		if p == nil {
			copy(c.dst[lo:hi], c.src[lo:hi])
		} else if f := b.take(r, c, c.dst[lo:hi]); f != nil {
			return f
		}
	}
	return nil
}

// broadcast sends small data from the root to all. Large data goes out in
// parts, one to each rank, which then pass theirs on to all: the root sends
// the buffer once or twice, not n-1 times.
func (b *tcp) broadcast(c *call) *failure {
	buf, n, me, root := c.dst, len(b.peers), b.g.rank, c.root
	if len(buf) < n*tcpPiece || n == 2 {
		if me == root {
			return b.toAll(c, true, buf)
		}
		return b.take(root, c, buf)
	}
	lo, hi := partOf(len(buf), n, me)
	if me == root {
		for i := 1; i < n; i++ {
			r := b.next(i)
			plo, phi := partOf(len(buf), n, r)
			if f := b.peers[r].post(c.hdr[:], buf[plo:phi], c); f != nil {
				return f
			}
		}
		return b.toAll(c, false, buf[lo:hi])
	}
	if f := b.take(root, c, buf[lo:hi]); f != nil {
		return f
	}
	for i := 1; i < n; i++ {
		if r := b.next(i); r != root {
			if f := b.peers[r].post(nil, buf[lo:hi], c); f != nil {
				return f
			}
		}
	}
	for r, p := range b.peers {
		if p == nil {
			continue
		}
		plo, phi := partOf(len(buf), n, r)
		if f := p.get(p.conn, buf[plo:phi], c); f != nil {
			return f
		}
	}
	return nil
}

// rootOp is reduce, gather and scatter.
func (b *tcp) rootOp(c *call) *failure {
	me := b.g.rank
	switch {
	case c.op == OpReduce && me == c.root:
		return b.sum(c, c.dst, c.dst)
	case c.op == OpReduce:
		return b.peers[c.root].post(c.hdr[:], c.dst, c)
	case c.op == OpGather && me != c.root:
		return b.peers[c.root].post(c.hdr[:], c.src, c)
	case c.op == OpScatter && me != c.root:
		return b.take(c.root, c, c.dst)
	case c.op == OpScatter:
		if f := b.scatterBlocks(c, c.src); f != nil {
			return f
		}
		copyBlock(c.dst, c.src[me*len(c.dst):][:len(c.dst)])
		return nil
	}
	size := len(c.src)
	for r, p := range b.peers {
		d := c.dst[r*size : (r+1)*size]
		if p == nil {
			copyBlock(d, c.src)
		} else if f := b.take(r, c, d); f != nil {
			return f
		}
	}
	return nil
}
