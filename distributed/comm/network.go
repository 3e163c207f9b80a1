package comm

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// network is where a rank takes data connections from its peers.
type network struct {
	w       *world
	ln      net.Listener
	session string        // the job, as rank 0 named it
	ready   chan struct{} // closed when session is set

	mu      sync.Mutex
	waiting map[pairKey]chan net.Conn
}

// pairKey names one connection of one pair of ranks in one group.
type pairKey struct {
	group, channel string
	from           int
}

// Each pair of a group has two connections, so that send/recv and collectives
// may be in progress together.
const (
	chanCollective = "collective"
	chanMessage    = "message"
)

func openNetwork(w *world) (*network, error) {
	bind := ":0"
	if isLoopback(w.opt.Addr) {
		bind = "127.0.0.1:0"
		if ip := net.ParseIP(w.opt.Addr); ip != nil && ip.To4() == nil {
			bind = "[::1]:0"
		}
	}
	ln, err := net.Listen("tcp", bind)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for data: %w", err)
	}
	n := &network{w: w, ln: ln, ready: make(chan struct{}), waiting: make(map[pairKey]chan net.Conn)}
	go n.accept()
	return n, nil
}

// advertise is the address that peers dial; host is how they reach this machine.
func (n *network) advertise(host string) string {
	bound, port, _ := net.SplitHostPort(n.ln.Addr().String())
	if isLoopback(n.w.opt.Addr) {
		host = bound
	}
	return net.JoinHostPort(host, port)
}

func (n *network) accept() {
	for {
		conn, err := n.ln.Accept()
		if err != nil {
			return
		}
		go func() {
			h, err := welcome(conn, n.w.opt.Token, n.admit)
			if err != nil {
				conn.Close()
				return
			}
			select {
			case n.slot(pairKey{h.Group, h.Chan, h.Rank}) <- conn:
			default:
				conn.Close() // a second one of the same name
			}
		}()
	}
}

// name tells the network which job it serves.
func (n *network) name(session string) {
	n.session = session
	close(n.ready)
}

func (n *network) admit(h hello) error {
	// A peer that has the roster may dial before this rank has it.
	select {
	case <-n.ready:
	case <-time.After(handshakeTime / 2):
		return errors.New("this rank has not joined a job yet")
	}
	switch {
	case h.Kind != "data" || h.Session != n.session:
		return errors.New("this rank is not in your job")
	case h.Rank <= n.w.rank || h.Rank >= n.w.size:
		return fmt.Errorf("rank %d does not expect a connection from rank %d", n.w.rank, h.Rank)
	}
	return nil
}

func (n *network) slot(k pairKey) chan net.Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	ch := n.waiting[k]
	if ch == nil {
		ch = make(chan net.Conn, 1)
		n.waiting[k] = ch
	}
	return ch
}

// take waits for the connection that rank k.from dials.
func (n *network) take(k pairKey, until time.Time) (net.Conn, error) {
	ch := n.slot(k)
	for {
		select {
		case conn := <-ch:
			return conn, nil
		case <-time.After(min(time.Until(until), 50*time.Millisecond)):
		}
		if f := n.w.failed.Load(); f != nil {
			return nil, fmt.Errorf("rank %d %s: %s", f.rank, f.kind, f.detail)
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("rank %d did not connect within %v", k.from, n.w.opt.ConnectTimeout)
		}
	}
}

func (n *network) dial(peer int, group, channel string, until time.Time) (net.Conn, error) {
	w := n.w
	conn, err := dialFor(w.hub[peer].Addr, until)
	if err == nil {
		err = greet(conn, w.opt.Token, hello{Kind: "data", Rank: w.rank, World: w.size, Session: n.session, Group: group, Chan: channel})
		if err != nil {
			conn.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot connect to rank %d at %s: %w", peer, w.hub[peer].Addr, err)
	}
	return conn, nil
}

// stop takes no more connections.
func (n *network) stop() { n.ln.Close() }

func (n *network) close() {
	n.stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ch := range n.waiting {
		select {
		case conn := <-ch:
			conn.Close()
		default:
		}
	}
}

// dialGroup connects every pair of s: the higher rank of the job dials.
func dialGroup(s *group) (backend, error) {
	n := s.w.net
	until := time.Now().Add(s.w.opt.ConnectTimeout)
	b := newTCP(s)
	for j, peer := range s.ranks {
		if j == s.rank {
			continue
		}
		var pair [2]net.Conn
		for i, channel := range []string{chanCollective, chanMessage} {
			var err error
			if peer < s.w.rank {
				pair[i], err = n.dial(peer, s.id, channel, until)
			} else {
				pair[i], err = n.take(pairKey{s.id, channel, peer}, until)
			}
			if err != nil {
				b.close()
				return nil, fmt.Errorf("group %q: %w", s.name, err)
			}
		}
		b.connect(j, pair[0], pair[1])
	}
	return b, nil
}
