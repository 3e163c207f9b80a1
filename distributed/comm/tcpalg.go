package comm

import "github.com/gtc-compiler/gtc/distributed/comm/internal/elem"

// This file has the collectives of the tcp backend that do not talk to all
// peers at once; see algorithm.

// halve is all_reduce by recursive halving and doubling between a power of two
// of ranks.
func (b *tcp) halve(c *call) *failure {
	n, me, buf := len(b.peers), b.g.rank, c.dst
	var given [elem.MaxDepth][2]int // what this rank gave away, by round
	lo, hi := 0, len(buf)
	rounds := 0
	for d := 1; d < n; d *= 2 {
		mid := min(lo+partSize(hi-lo, 2), hi)
		keep, give := [2]int{lo, mid}, [2]int{mid, hi}
		if me&d != 0 {
			keep, give = give, keep
		}
		p := b.peers[me^d]
		if f := p.post(c.hdr[:], buf[give[0]:give[1]], c); f != nil {
			return f
		}
		if f := b.join(c, me^d, buf[keep[0]:keep[1]]); f != nil {
			return f
		}
		given[rounds] = give
		lo, hi = keep[0], keep[1]
		rounds++
	}
	elem.Average(buf[lo:hi], c.dt, c.red, n)
	// What was given away is overwritten now.
	if f := b.flush(); f != nil {
		return f
	}
	for d := n / 2; d > 0; d /= 2 {
		rounds--
		p := b.peers[me^d]
		if f := p.post(nil, buf[lo:hi], c); f != nil {
			return f
		}
		theirs := given[rounds]
		if f := p.get(p.conn, buf[theirs[0]:theirs[1]], c); f != nil {
			return f
		}
		lo, hi = min(lo, theirs[0]), max(hi, theirs[1])
	}
	return nil
}

// join combines dst with what peer r sends. Sums of two are the same in both
// orders, so it does not matter whose ranks are lower.
func (b *tcp) join(c *call, r int, dst []byte) *failure {
	if f := b.header(r, c); f != nil {
		return f
	}
	op := c.red
	if op == Avg {
		op = Sum // divided at the end, once
	}
	p := b.peers[r]
	pair := b.srcs[:2]
	for lo := 0; lo < len(dst); lo += tcpPiece {
		hi := min(lo+tcpPiece, len(dst))
		pair[0], pair[1] = dst[lo:hi], b.scratch[r][:hi-lo]
		if f := p.get(p.conn, pair[1], c); f != nil {
			return f
		}
		elem.Reduce(dst[lo:hi], pair, c.dt, op)
	}
	return nil
}

// ringAllReduce has each rank sum its part, as the direct algorithm does, and
// then passes the parts round.
func (b *tcp) ringAllReduce(c *call) *failure {
	if f := b.sumPart(c); f != nil {
		return f
	}
	n := len(b.peers)
	return b.ring(c, false, func(r int) []byte {
		lo, hi := partOf(len(c.dst), n, r)
		return c.dst[lo:hi]
	})
}

// ringAllGather is all_gather by passing blocks round.
func (b *tcp) ringAllGather(c *call) *failure {
	size := len(c.src)
	block := func(r int) []byte { return c.dst[r*size : (r+1)*size] }
	copyBlock(block(b.g.rank), c.src)
	return b.ring(c, true, block)
}

// ring has every rank send its block to the next and then what came from the
// one before, until all have all.
func (b *tcp) ring(c *call, header bool, block func(r int) []byte) *failure {
	n, me := len(b.peers), b.g.rank
	to, from := b.peers[(me+1)%n], (me+n-1)%n
	var hdr []byte
	if header {
		hdr = c.hdr[:]
	}
	for i := range n - 1 {
		if f := to.post(hdr, block((me+n-i)%n), c); f != nil {
			return f
		}
		hdr = nil
		if header && i == 0 {
			if f := b.header(from, c); f != nil {
				return f
			}
		}
		p := b.peers[from]
		if f := p.get(p.conn, block((from+n-i)%n), c); f != nil {
			return f
		}
	}
	return nil
}
