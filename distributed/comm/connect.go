package comm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/runtime/printable"
)

// peerAddr is what the roster says of one rank.
type peerAddr struct {
	Host string // equal where memory can be shared
	Addr string // host:port of its data connections
}

// roster is rank 0's message to all once everybody is there.
type roster struct {
	Session   string
	Transport string
	Algorithm string
	Peers     []peerAddr
	Err       string `json:",omitempty"` // the job cannot start
}

// Connect joins the job and returns the communicator of all its ranks. It
// waits up to ConnectTimeout for the others. With a world of one it opens
// nothing.
func Connect(opt Options) (Communicator, error) {
	opt.fill()
	if err := opt.validate(); err != nil {
		return nil, err
	}
	w := newWorld(opt)
	all := make([]int, opt.World)
	for i := range all {
		all[i] = i
	}
	w.root = newGroup(w, "world", "world", all)
	if opt.World > 1 {
		var err error
		switch b := opt.backend(); {
		case b != nil:
			err = w.drive(b)
		case opt.Rank == 0:
			err = w.host()
		default:
			err = w.join()
		}
		if err != nil {
			w.shutdown()
			return nil, fmt.Errorf("rank %d of %d: %w", opt.Rank, opt.World, err)
		}
	}
	w.add(w.root)
	register(w)
	return w.root, nil
}

func (o *Options) validate() error {
	switch {
	case o.World > maxWorld:
		return fmt.Errorf("world size %d (WORLD_SIZE) is more than the %d ranks that gtc supports", o.World, maxWorld)
	case o.Rank < 0 || o.Rank >= o.World:
		return fmt.Errorf("rank %d is not in a world of %s (RANK, WORLD_SIZE)", o.Rank, printable.Count(o.World, "rank"))
	case !o.knownTransport():
		return o.unknownTransport()
	case !o.knownAlgorithm():
		return fmt.Errorf("algorithm %q is not auto, direct, halving or ring (GTC_COMM_ALGORITHM)", o.Algorithm)
	case o.World == 1 || o.backend() != nil:
		return nil
	case o.Port <= 0 || o.Port > 65535:
		return fmt.Errorf("port %d of rank 0 is not in 1..65535: set MASTER_PORT, or start the ranks with gtc run", o.Port)
	case o.Token == "" && !isLoopback(o.Addr):
		return fmt.Errorf("MASTER_ADDR %q is not a loopback address: ranks on a network need GTC_TOKEN, "+
			"a secret that is the same on every rank", o.Addr)
	case o.Token != "" && len(o.Token) < 8 && !isLoopback(o.Addr):
		return errors.New("GTC_TOKEN is shorter than 8 characters: anyone could guess it")
	}
	return nil
}

// isLoopback reports whether addr can only be this machine. Names other than
// localhost are not looked up: their meaning may change.
func isLoopback(addr string) bool {
	if addr == "localhost" {
		return true
	}
	ip := net.ParseIP(addr)
	return ip != nil && ip.IsLoopback()
}

// hostID is equal for two ranks that can share memory through a file.
func hostID() string {
	name, _ := os.Hostname()
	return strings.Join([]string{strings.TrimSpace(bootID()), name, mountNamespace(), strconv.Itoa(os.Getuid())}, "|")
}

func (w *world) sameHost(ranks []int) bool {
	for _, r := range ranks {
		if h := w.hub[r].Host; h != w.hub[ranks[0]].Host || h == "" {
			return false
		}
	}
	return true
}

// close is the good end of this rank's part in the job.
func (w *world) close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	groups := w.groups
	w.groups = nil
	w.mu.Unlock()
	var err error
	switch {
	case w.ctl != nil:
		if f := w.ctl.leave(); f != nil {
			err = w.errorFor(&call{op: OpBarrier, site: &Site{Collective: "close"}}, f)
		}
	case w.mem != nil:
		w.mem.leave(w.rank)
	}
	for _, g := range groups {
		if g.closed.Swap(true) && g != w.root {
			continue
		}
		g.release()
	}
	w.shutdown()
	unregister(w)
	return err
}

// shutdown closes all connections.
func (w *world) shutdown() {
	if w.ctl != nil {
		w.ctl.shutdown()
	}
	if w.net != nil {
		w.net.close()
	}
}

// dialFor dials addr until it answers or until is past.
func dialFor(addr string, until time.Time) (net.Conn, error) {
	pause := 5 * time.Millisecond
	for {
		conn, err := net.DialTimeout("tcp", addr, max(time.Until(until), time.Millisecond))
		if err == nil {
			return conn, nil
		}
		if time.Now().Add(pause).After(until) {
			return nil, err
		}
		time.Sleep(pause)
		pause = min(pause*3/2, 200*time.Millisecond)
	}
}
