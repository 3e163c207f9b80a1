package comm

import "unsafe"

// segment is the shared memory of one group of n ranks. All sizes follow from
// n, so that members agree on the layout without exchanging it.
//
//	words    n counters of published steps, then n*n heads and n*n tails of
//	         the send/recv channels (from, to)
//	headers  n x 2 step headers, n*n x 2 message headers
//	stage    n x 2 x chunk: what a rank lets the others read in a step
//	result   n x 2 x part: its part of a reduced chunk
//	message  n*n x 2 x msg
type segment struct {
	mem              []byte
	n                int
	chunk, part, msg int
	oHdr, oMsgHdr    int
	oStage, oRes     int
	oMsg, total      int
}

const segmentStart = 4096 // first bytes: proof that two ranks mapped the same file

// layout computes the layout for n ranks.
func layout(n int) segment {
	// Two ranks move most with chunks that stay in the second-level cache.
	// More ranks wait for each other more often, above all where they are more
	// than the cores, so that fewer and larger steps are better: 20 % of the
	// bandwidth of 64 MB between 4 ranks on 2 cores.
	s := segment{n: n, chunk: 256 << 10, msg: 64 << 10}
	switch {
	case n > 32:
		s.chunk, s.msg = 64<<10, 4<<10
	case n > 8:
		s.chunk, s.msg = 128<<10, 16<<10
	case n > 4:
		s.chunk = 256 << 10
	case n > 2:
		s.chunk = 1 << 20
	}
	s.part = partSize(s.chunk, n)
	at := segmentStart + (n+2*n*n)*wordSize
	place := func(size int) int {
		o := at
		at += (size + 4095) &^ 4095
		return o
	}
	s.oHdr = place(n * 2 * headerSize)
	s.oMsgHdr = place(n * n * 2 * headerSize)
	s.oStage = place(n * 2 * s.chunk)
	s.oRes = place(n * 2 * s.part)
	s.oMsg = place(n * n * 2 * s.msg)
	s.total = at
	return s
}

// partSize is the share of one of n ranks in size bytes, a multiple of 64 so
// that no element and no cache line is split; the last shares may be smaller.
func partSize(size, n int) int { return ((size+n-1)/n + 63) &^ 63 }

// partOf is the range of rank r in size bytes cut by partSize.
func partOf(size, n, r int) (lo, hi int) {
	q := partSize(size, n)
	return min(r*q, size), min((r+1)*q, size)
}

func (s *segment) word(i int) *word {
	return (*word)(unsafe.Pointer(&s.mem[segmentStart+i*wordSize]))
}

func (s *segment) pub(r int) *word         { return s.word(r) }
func (s *segment) head(from, to int) *word { return s.word(s.n + from*s.n + to) }
func (s *segment) tail(from, to int) *word { return s.word(s.n + s.n*s.n + from*s.n + to) }

func (s *segment) slot(base, size, i, parity int) []byte {
	o := base + (2*i+parity)*size
	return s.mem[o : o+size : o+size]
}

func (s *segment) hdr(r, p int) []byte   { return s.slot(s.oHdr, headerSize, r, p) }
func (s *segment) stage(r, p int) []byte { return s.slot(s.oStage, s.chunk, r, p) }
func (s *segment) res(r, p int) []byte   { return s.slot(s.oRes, s.part, r, p) }
func (s *segment) msgHdr(from, to, p int) []byte {
	return s.slot(s.oMsgHdr, headerSize, from*s.n+to, p)
}
func (s *segment) message(from, to, p int) []byte { return s.slot(s.oMsg, s.msg, from*s.n+to, p) }
