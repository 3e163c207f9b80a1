package comm

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// tcp is the backend of ranks that do not share memory. Every pair has its own
// connections, and every rank sends to and receives from each peer directly,
// but for large data between many ranks (see algorithm). A writer goroutine per peer
// keeps a full socket from holding up the reads that would empty the peer's.
type tcp struct {
	g       *group
	peers   []*tcpPeer // by rank in the group; own is nil
	srcs    [][]byte
	scratch [][]byte // by rank: a piece that came in
	once    sync.Once
}

type tcpPeer struct {
	b        *tcp
	rank     int // in the group
	conn     net.Conn
	msg      net.Conn // send/recv
	jobs     chan tcpJob
	done     chan *failure
	pending  int
	failed   *failure
	small    []byte
	hdr      [headerSize]byte
	msgHdr   [headerSize]byte
	msgMu    sync.Mutex // one send at a time
	msgSmall []byte
}

// tcpJob is a header, unless nil, and data to write.
type tcpJob struct {
	c         *call
	hdr, data []byte
}

const (
	// tcpPiece is how much of each peer's data is in scratch while it is summed.
	tcpPiece = 128 << 10
	// tcpSmall is the size up to which all data goes to all and each rank sums
	// everything: one round instead of two.
	tcpSmall = 8 << 10
	// tcpInline is the size that is written without the writer goroutine; a
	// socket buffers at least this much more than one call's data.
	tcpInline = 2 << 10
)

func newTCP(g *group) *tcp {
	n := len(g.ranks)
	b := &tcp{g: g, peers: make([]*tcpPeer, n), srcs: make([][]byte, n), scratch: make([][]byte, n)}
	for r := range n {
		b.scratch[r] = alignedBytes(tcpPiece)
	}
	return b
}

func (b *tcp) connect(r int, conn, msg net.Conn) {
	p := &tcpPeer{
		b: b, rank: r, conn: conn, msg: msg,
		jobs: make(chan tcpJob, 4), done: make(chan *failure, 4),
		small: make([]byte, headerSize+tcpInline), msgSmall: make([]byte, headerSize+tcpInline),
	}
	b.peers[r] = p
	go p.write()
}

// write is the writer goroutine.
func (p *tcpPeer) write() {
	for j := range p.jobs {
		f := p.put(p.conn, j.hdr, j.c)
		if f == nil {
			f = p.put(p.conn, j.data, j.c)
		}
		p.done <- f
	}
}

// post sends header (unless nil) and data, without waiting for large data to go.
func (p *tcpPeer) post(hdr, data []byte, c *call) *failure {
	if len(hdr)+len(data) == 0 {
		return nil
	}
	if len(data) <= tcpInline {
		if f := p.flush(); f != nil {
			return f
		}
		n := copy(p.small, hdr)
		n += copy(p.small[n:], data)
		return p.put(p.conn, p.small[:n], c)
	}
	for p.pending == cap(p.jobs) {
		p.collect()
	}
	p.pending++
	p.jobs <- tcpJob{c: c, hdr: hdr, data: data}
	return nil
}

func (p *tcpPeer) collect() {
	if f := <-p.done; f != nil {
		p.failed = f
	}
	p.pending--
}

// flush waits until all that was posted is written, so that the caller may
// change it.
func (p *tcpPeer) flush() *failure {
	for p.pending > 0 {
		p.collect()
	}
	return p.failed
}

func (b *tcp) flush() *failure {
	for _, p := range b.peers {
		if p != nil {
			if f := p.flush(); f != nil {
				return f
			}
		}
	}
	return nil
}

// slice is how long a read or write goes without a look at the job's state.
func (b *tcp) slice() time.Duration { return min(b.g.w.opt.Timeout/4+time.Millisecond, time.Second) }

// put writes data to conn within the time-out.
func (p *tcpPeer) put(conn net.Conn, data []byte, c *call) *failure {
	w, slice := p.b.g.w, p.b.slice()
	k := clock{}
	waited := false
	for len(data) > 0 {
		now := time.Now()
		if k.last.IsZero() {
			k.last = now
		}
		conn.SetWriteDeadline(now.Add(slice))
		n, err := conn.Write(data)
		data = data[n:]
		if n > 0 {
			k = clock{last: now}
		}
		if err != nil {
			if f := p.fault(err, &k, slice); f != nil {
				return f
			}
			waited = true
			w.setWait(p.b.g.ranks[p.rank], c)
		}
	}
	if waited {
		w.setWait(-1, nil)
	}
	return nil
}

// get fills data from conn within the time-out.
func (p *tcpPeer) get(conn net.Conn, data []byte, c *call) *failure {
	w, slice := p.b.g.w, p.b.slice()
	k := clock{}
	waited := false
	for len(data) > 0 {
		now := time.Now()
		if k.last.IsZero() {
			k.last = now
		}
		conn.SetReadDeadline(now.Add(slice))
		n, err := conn.Read(data)
		data = data[n:]
		if n > 0 {
			k = clock{last: now}
		}
		if err != nil && len(data) > 0 {
			if f := p.fault(err, &k, slice); f != nil {
				return f
			}
			waited = true
			w.setWait(p.b.g.ranks[p.rank], c)
		}
	}
	if waited {
		w.setWait(-1, nil)
	}
	return nil
}

// fault turns an I/O error into a failure, or nil when it was only the end of
// a slice of waiting.
func (p *tcpPeer) fault(err error, k *clock, slice time.Duration) *failure {
	w := p.b.g.w
	peer := p.b.g.ranks[p.rank]
	if f := w.failed.Load(); f != nil {
		return f
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if w.left[peer].Load() {
			return w.leftFailure(peer)
		}
		if waited := k.tick(2 * slice); waited > w.opt.Timeout {
			return w.hungFailure(peer, waited)
		}
		return nil
	}
	// The connection is gone. The control connections know better why, and
	// whether this peer is only the second victim.
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if f := w.failed.Load(); f != nil {
			return f
		}
		if w.left[peer].Load() {
			return w.leftFailure(peer)
		}
	}
	detail := err.Error()
	if errors.Is(err, io.EOF) {
		detail = "connection closed"
	}
	return &failure{kind: KindDied, rank: peer, detail: detail}
}

// header takes peer r's header and compares it with c's.
func (b *tcp) header(r int, c *call) *failure {
	p := b.peers[r]
	if f := p.get(p.conn, p.hdr[:], c); f != nil {
		return f
	}
	if !c.agrees(p.hdr[:]) {
		return b.g.mismatch(c, r, p.hdr[:])
	}
	return nil
}

func (b *tcp) send(c *call) *failure {
	p := b.peers[c.root]
	p.msgMu.Lock()
	defer p.msgMu.Unlock()
	if len(c.src) <= tcpInline {
		n := copy(p.msgSmall, c.hdr[:])
		n += copy(p.msgSmall[n:], c.src)
		return p.put(p.msg, p.msgSmall[:n], c)
	}
	if f := p.put(p.msg, c.hdr[:], c); f != nil {
		return f
	}
	return p.put(p.msg, c.src, c)
}

func (b *tcp) recv(c *call) *failure {
	p := b.peers[c.root]
	if f := p.get(p.msg, p.msgHdr[:], c); f != nil {
		return f
	}
	if !c.agrees(p.msgHdr[:]) {
		return b.g.mismatch(c, c.root, p.msgHdr[:])
	}
	return p.get(p.msg, c.dst, c)
}

func (b *tcp) kill() {
	for _, p := range b.peers {
		if p != nil {
			p.conn.Close()
			p.msg.Close()
		}
	}
}

func (b *tcp) close() {
	b.once.Do(func() {
		b.kill()
		for _, p := range b.peers {
			if p != nil {
				close(p.jobs)
			}
		}
	})
}
