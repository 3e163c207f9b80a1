package comm

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"sort"
	"strings"
	"time"
)

// listen opens rank 0's socket, or takes the one its launcher opened.
func (w *world) listen() (net.Listener, error) {
	o := &w.opt
	if o.ListenFD > 0 {
		f := os.NewFile(uintptr(o.ListenFD), "rendezvous")
		if f == nil {
			return nil, fmt.Errorf("GTC_LISTEN_FD %d is not an open file", o.ListenFD)
		}
		defer f.Close()
		ln, err := net.FileListener(f)
		if err != nil {
			return nil, fmt.Errorf("GTC_LISTEN_FD %d is not a listening socket: %w", o.ListenFD, err)
		}
		return ln, nil
	}
	host := o.Addr
	if !isLoopback(host) {
		host = "" // the name may be that of another interface than peers reach us by
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(o.Port)))
	if err != nil {
		return nil, fmt.Errorf("cannot listen for the other ranks: %w", err)
	}
	return ln, nil
}

// host is Connect for rank 0: it collects the others, tells each about all and
// forms the group.
func (w *world) host() error {
	ln, err := w.listen()
	if err != nil {
		return err
	}
	defer ln.Close()
	if w.net, err = openNetwork(w); err != nil {
		return err
	}
	id, err := nonce()
	if err != nil {
		return err
	}
	ro := roster{Session: hex.EncodeToString(id[:16]), Transport: w.opt.Transport, Algorithm: w.opt.Algorithm, Peers: make([]peerAddr, w.size)}
	ro.Peers[0] = peerAddr{Host: hostID(), Addr: w.net.advertise(w.opt.Addr)}
	w.ctl = newControl(w)
	until := time.Now().Add(w.opt.ConnectTimeout)
	if err := w.collect(ln, until, ro.Peers); err != nil {
		for _, c := range w.ctl.conns {
			if c != nil {
				c.conn.SetDeadline(time.Now().Add(time.Second))
				writeJSON(c.conn, roster{Err: err.Error()})
			}
		}
		return err
	}
	w.hub = ro.Peers
	w.net.name(ro.Session)
	for r, c := range w.ctl.conns {
		if r == 0 {
			continue
		}
		c.conn.SetDeadline(until)
		if err := writeJSON(c.conn, ro); err != nil {
			return fmt.Errorf("rank %d went away during start-up: %w", r, err)
		}
	}
	return w.formRoot(&controlMessenger{w.ctl})
}

// join is Connect for every other rank.
func (w *world) join() error {
	o := &w.opt
	until := time.Now().Add(o.ConnectTimeout)
	addr := net.JoinHostPort(o.Addr, fmt.Sprint(o.Port))
	conn, err := dialFor(addr, until)
	if err != nil {
		return fmt.Errorf("cannot reach rank 0 at %s within %v: %w", addr, o.ConnectTimeout, err)
	}
	w.ctl = newControl(w)
	w.ctl.conns[0] = &controlConn{conn: conn}
	if w.net, err = openNetwork(w); err != nil {
		return err
	}
	local, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	h := hello{Kind: "control", Rank: o.Rank, World: o.World, Plan: o.Plan, Host: hostID(), Addr: w.net.advertise(local)}
	if err := greet(conn, o.Token, h); err != nil {
		var no *errRefused
		if errors.As(err, &no) {
			return fmt.Errorf("rank 0 at %s refused: %w", addr, err)
		}
		return fmt.Errorf("handshake with rank 0 at %s: %w", addr, err)
	}
	var ro roster
	conn.SetDeadline(until.Add(handshakeTime))
	if err := readJSON(conn, &ro); err != nil {
		return fmt.Errorf("rank 0 at %s went away while it waited for the other ranks: %w", addr, err)
	}
	switch {
	case ro.Err != "":
		return fmt.Errorf("rank 0 cannot start the job: %s", ro.Err)
	case len(ro.Peers) != w.size:
		return fmt.Errorf("rank 0 sent the addresses of %d ranks, not of %d", len(ro.Peers), w.size)
	}
	w.hub, w.opt.Transport, w.opt.Algorithm = ro.Peers, ro.Transport, ro.Algorithm
	w.net.name(ro.Session)
	return w.formRoot(&controlMessenger{w.ctl})
}

// formRoot agrees on the backend of the whole job and starts the control
// connections' loops, before data connections are made: a rank that fails then
// is known to all at once.
func (w *world) formRoot(m messenger) error {
	be, err := agreeShm(w.root, m)
	if err != nil {
		return err
	}
	for _, c := range w.ctl.conns {
		if c != nil {
			c.conn.SetDeadline(time.Time{})
		}
	}
	w.ctl.start()
	if be == nil {
		if be, err = dialGroup(w.root); err != nil {
			w.fail(&failure{kind: KindAborted, rank: w.rank, detail: err.Error()})
			return err
		}
	} else {
		w.net.stop() // all are on this host: nobody will dial
	}
	w.root.be = be
	return nil
}

// collect accepts connections until every rank has joined. Strangers are
// ignored; a rank with a good token and another program ends the job.
func (w *world) collect(ln net.Listener, until time.Time, peers []peerAddr) error {
	type joined struct {
		h    hello
		conn net.Conn
		err  error
	}
	ch := make(chan joined)
	done := make(chan struct{})
	defer close(done)
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				h, err := welcome(conn, w.opt.Token, w.admit)
				select {
				case ch <- joined{h, conn, err}:
				case <-done:
					conn.Close()
				}
			}()
		}
	}()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	refused := ""
	for missing := w.size - 1; missing > 0; {
		select {
		case j := <-ch:
			var no *errRefused
			switch {
			case j.err == nil && w.ctl.conns[j.h.Rank] != nil:
				j.conn.Close()
				return fmt.Errorf("two processes say that they are rank %d", j.h.Rank)
			case j.err == nil:
				w.ctl.conns[j.h.Rank] = &controlConn{conn: j.conn}
				peers[j.h.Rank] = peerAddr{Host: j.h.Host, Addr: j.h.Addr}
				missing--
			default:
				j.conn.Close()
				if errors.As(j.err, &no) {
					return no
				}
				refused = fmt.Sprintf("; a connection from %s was refused: %v", j.conn.RemoteAddr(), j.err)
			}
		case <-timer.C:
			return fmt.Errorf("%s did not join within %v%s", w.missing(), w.opt.ConnectTimeout, refused)
		}
	}
	return nil
}

// admit compares a peer's claims with this rank's own.
func (w *world) admit(h hello) error {
	switch {
	case h.Kind != "control":
		return fmt.Errorf("the connection is of kind %q, not control", h.Kind)
	case h.World != w.size:
		return fmt.Errorf("rank %d was started as one of %d ranks, but rank 0 as one of %d", h.Rank, h.World, w.size)
	case h.Rank < 1 || h.Rank >= w.size:
		return fmt.Errorf("rank %d cannot join: ranks are 1..%d", h.Rank, w.size-1)
	case h.Plan != w.opt.Plan:
		return fmt.Errorf("programs differ: rank %d runs plan %q, rank 0 runs plan %q: all ranks must come from one gtc compile and get the same flags", h.Rank, h.Plan, w.opt.Plan)
	}
	return nil
}

func (w *world) missing() string {
	var names []string
	for r, c := range w.ctl.conns {
		if r > 0 && c == nil {
			names = append(names, fmt.Sprint(r))
		}
	}
	sort.SliceStable(names, func(i, j int) bool { return len(names[i]) < len(names[j]) })
	if len(names) == 1 {
		return "rank " + names[0]
	}
	return "ranks " + strings.Join(names, ", ")
}

// controlMessenger sends agreements over control connections, before their
// loops run.
type controlMessenger struct{ c *control }

func (m *controlMessenger) sendTo(r int, a agreement) error {
	if err := writeJSON(m.c.conns[r].conn, a); err != nil {
		return fmt.Errorf("rank %d went away during start-up: %w", r, err)
	}
	return nil
}

func (m *controlMessenger) recvFrom(r int) (agreement, error) {
	var a agreement
	if err := readJSON(m.c.conns[r].conn, &a); err != nil {
		return a, fmt.Errorf("rank %d went away during start-up: %w", r, err)
	}
	return a, nil
}
