package comm

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// control is a rank's side of the control connections, which form a star with
// rank 0 at its hub. They carry heartbeats with what each rank waits for,
// failures, and good-byes; data never goes over them, so that they tell of a
// death even when no data moves.
type control struct {
	w     *world
	conns []*controlConn // hub: by rank, own is nil; others: [0] is the hub

	mu     sync.Mutex
	states []rankState

	over    chan struct{} // closed by shutdown
	once    sync.Once
	goodbye chan struct{} // one token for each good-bye or end of a connection
	running atomic.Bool
}

type controlConn struct {
	conn net.Conn
	mu   sync.Mutex
	buf  []byte
	gone atomic.Bool // closed in good order, or reported dead
}

// rankState is the last news of a rank.
type rankState struct {
	waitOn int
	text   string
	heard  time.Time
	missed int // heartbeats of this rank's own clock since then
}

// Frame types of a running control connection.
const (
	framePing  = iota + 1 // i32 rank waited for, text of the call
	frameTable            // for each rank: u32 ms of silence, i32 waited for, u16 length and text
	frameFail             // u8 kind, u32 rank, text
	frameBye              // this rank closes; the hub answers with the same
	frameLeft             // u32 rank that closed
)

func newControl(w *world) *control {
	return &control{
		w: w, conns: make([]*controlConn, w.size), states: make([]rankState, w.size),
		over: make(chan struct{}), goodbye: make(chan struct{}, 2*w.size),
	}
}

func (c *control) hub() bool { return c.w.rank == 0 }

// start runs a reader for each connection and the heartbeat.
func (c *control) start() {
	now := time.Now()
	for r := range c.states {
		c.states[r] = rankState{waitOn: -1, heard: now}
	}
	c.running.Store(true)
	for r, cc := range c.conns {
		if cc != nil {
			go c.read(r, cc)
		}
	}
	go c.beat()
}

// write sends one frame; a peer that does not take it is found out by other
// means, so errors are not reported.
func (cc *controlConn) write(kind byte, payload func([]byte) []byte) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	b := append(cc.buf[:0], 0, 0, 0, 0, kind)
	if payload != nil {
		b = payload(b)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	cc.buf = b
	cc.conn.SetWriteDeadline(time.Now().Add(time.Second))
	cc.conn.Write(b)
}

// read takes frames of rank r until the connection ends.
func (c *control) read(r int, cc *controlConn) {
	var buf []byte
	for {
		var err error
		if buf, err = readFrame(cc.conn, buf); err != nil || len(buf) == 0 {
			c.lost(r, cc)
			return
		}
		c.frame(r, cc, buf[0], buf[1:])
	}
}

// lost is the end of rank r's connection. Without a good-bye its process died:
// the system closes the connections of a process that is killed.
func (c *control) lost(r int, cc *controlConn) {
	select {
	case <-c.over:
		return
	default:
	}
	if cc.gone.Swap(true) {
		return
	}
	c.goodbye <- struct{}{}
	c.w.fail(&failure{kind: KindDied, rank: r, detail: "connection closed"})
}

func (c *control) frame(r int, cc *controlConn, kind byte, b []byte) {
	le := binary.LittleEndian
	switch {
	case kind == framePing && len(b) >= 4:
		c.heard(r, int(int32(le.Uint32(b))), b[4:], 0)
	case kind == frameTable:
		for i := range c.states {
			if len(b) < 10 || len(b) < 10+int(le.Uint16(b[8:])) {
				return
			}
			n := int(le.Uint16(b[8:]))
			c.heard(i, int(int32(le.Uint32(b[4:]))), b[10:10+n], time.Duration(le.Uint32(b))*time.Millisecond)
			b = b[10+n:]
		}
	case kind == frameFail && len(b) >= 5:
		c.w.failFrom(&failure{kind: Kind(b[0]), rank: int(le.Uint32(b[1:])), detail: string(b[5:])}, r)
	case kind == frameBye:
		if !c.hub() {
			c.goodbye <- struct{}{}
			return
		}
		if !cc.gone.Swap(true) {
			c.left(r)
			cc.write(frameBye, nil)
			c.goodbye <- struct{}{}
		}
	case kind == frameLeft && len(b) >= 4:
		if q := int(le.Uint32(b)); q < c.w.size {
			c.w.markLeft(q)
		}
	}
}

// heard notes news of rank i that is old by silent.
func (c *control) heard(i, waitOn int, text []byte, silent time.Duration) {
	c.mu.Lock()
	s := &c.states[i]
	s.waitOn, s.heard, s.missed = waitOn, time.Now().Add(-silent), 0
	if s.text != string(text) { // no allocation while nothing changes
		s.text = string(text)
	}
	c.mu.Unlock()
}

// state is what is known of rank r.
func (c *control) state(r int) (peerState, bool) {
	if r == c.w.rank {
		return c.w.ownState(), true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.states[r]
	return peerState{waitOn: s.waitOn, text: s.text, silent: time.Since(s.heard)}, c.running.Load()
}

// left tells everyone else that rank r closed in good order.
func (c *control) left(r int) {
	c.w.markLeft(r)
	for q, cc := range c.conns {
		if cc != nil && q != r {
			cc.write(frameLeft, func(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, uint32(r)) })
		}
	}
}

// tell passes a failure on, to all but rank except.
func (c *control) tell(f *failure, except int) {
	if !c.running.Load() {
		return
	}
	for q, cc := range c.conns {
		if cc != nil && q != except {
			cc.write(frameFail, func(b []byte) []byte {
				b = append(b, byte(f.kind))
				b = binary.LittleEndian.AppendUint32(b, uint32(f.rank))
				return append(b, f.detail...)
			})
		}
	}
}

// beat sends heartbeats, and fails the job when a rank has been silent for
// longer than any call may wait. It counts its own ticks rather than time: a
// job that was stopped as a whole has missed nothing.
func (c *control) beat() {
	every := c.w.beat()
	limit := int(c.w.opt.Timeout/every) + 3
	ping := c.appendPing
	if c.hub() {
		ping = c.appendTable
	}
	kind := byte(framePing)
	if c.hub() {
		kind = frameTable
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-c.over:
			return
		case <-t.C:
		}
		for _, cc := range c.conns {
			if cc != nil && !cc.gone.Load() {
				cc.write(kind, ping)
			}
		}
		if r := c.silent(limit); r >= 0 {
			c.w.fail(&failure{kind: KindHung, rank: r, detail: "no sign of life for " + c.w.opt.Timeout.String()})
		}
	}
}

func (c *control) silent(limit int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, cc := range c.conns {
		if cc == nil || cc.gone.Load() {
			continue
		}
		if c.states[r].missed++; c.states[r].missed > limit {
			return r
		}
	}
	return -1
}

// maxText bounds what a heartbeat says of a call.
const maxText = 200

func (c *control) appendPing(b []byte) []byte {
	w := c.w
	w.waitMu.Lock()
	defer w.waitMu.Unlock()
	b = binary.LittleEndian.AppendUint32(b, uint32(int32(w.wait.on)))
	if w.wait.on >= 0 {
		b = w.appendWait(b)
	}
	return b
}

// appendWait is siteString without allocation.
func (w *world) appendWait(b []byte) []byte {
	at := len(b)
	b = append(b, opNames[w.wait.op]...)
	if s := w.wait.site; s != nil {
		if s.Tensor != "" {
			b = append(b, " of \""...)
			b = append(b, s.Tensor...)
			b = append(b, '"')
		}
		if s.Loc != "" {
			b = append(b, " ("...)
			b = append(b, s.Loc...)
			b = append(b, ')')
		}
	}
	return b[:min(len(b), at+maxText)]
}

func (c *control) appendTable(b []byte) []byte {
	le := binary.LittleEndian
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.w
	for r := range c.states {
		s := &c.states[r]
		if r == 0 {
			w.waitMu.Lock()
			b = le.AppendUint32(b, 0)
			b = le.AppendUint32(b, uint32(int32(w.wait.on)))
			at := len(b)
			b = append(b, 0, 0)
			if w.wait.on >= 0 {
				b = w.appendWait(b)
			}
			le.PutUint16(b[at:], uint16(len(b)-at-2))
			w.waitMu.Unlock()
			continue
		}
		b = le.AppendUint32(b, uint32(min(time.Since(s.heard).Milliseconds(), 1<<31)))
		b = le.AppendUint32(b, uint32(int32(s.waitOn)))
		text := s.text[:min(len(s.text), maxText)]
		b = le.AppendUint16(b, uint16(len(text)))
		b = append(b, text...)
	}
	return b
}

// leave says good-bye. The hub then waits for the others, because while they
// work it must be there to tell them of each other's deaths.
func (c *control) leave() *failure {
	if f := c.w.failed.Load(); f != nil {
		return nil // reported by the call that met it
	}
	if !c.hub() {
		cc := c.conns[0]
		cc.gone.Store(true)
		cc.write(frameBye, nil)
		select {
		case <-c.goodbye:
		case <-time.After(500 * time.Millisecond):
		}
		return nil
	}
	c.left(0)
	timer := time.NewTimer(c.w.opt.Timeout)
	defer timer.Stop()
	for range c.w.size - 1 {
		select {
		case <-c.goodbye:
		case <-timer.C:
			for r, cc := range c.conns {
				if cc != nil && !cc.gone.Load() {
					return c.w.fail(&failure{kind: KindHung, rank: r, detail: "it did not close its communicator within " + c.w.opt.Timeout.String()})
				}
			}
		}
		if f := c.w.failed.Load(); f != nil {
			return f
		}
	}
	return nil
}

// shutdown closes the connections. Half-closing first lets a last failure
// notice reach the hub.
func (c *control) shutdown() {
	c.once.Do(func() {
		close(c.over)
		for _, cc := range c.conns {
			if cc == nil {
				continue
			}
			if t, ok := cc.conn.(*net.TCPConn); ok && c.w.failed.Load() != nil && c.running.Load() {
				t.CloseWrite()
			}
		}
		for _, cc := range c.conns {
			if cc != nil {
				cc.conn.Close()
			}
		}
	})
}
