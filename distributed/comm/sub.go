package comm

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/runtime/printable"
)

// Sub makes a sub-group; see Communicator.
func (g *group) Sub(name string, ranks []int) (Communicator, error) {
	w := g.w
	site := &Site{Collective: "sub-group", Tensor: name}
	c := &call{op: OpBarrier, site: site}
	if f := w.failed.Load(); f != nil {
		return nil, w.errorFor(c, f)
	}
	if msg := g.checkSub(ranks); msg != "" {
		return nil, w.errorFor(c, w.fail(&failure{kind: KindUsage, rank: w.rank, detail: msg}))
	}
	if !slices.Contains(ranks, g.rank) {
		return nil, nil
	}
	world := make([]int, len(ranks))
	for i, r := range ranks {
		world[i] = g.ranks[r]
	}
	// Members make their Sub calls in the same order, but may each have made
	// others with other ranks: count by name and members.
	key := fmt.Sprint(name, world)
	if g.subs == nil {
		g.subs = make(map[string]int)
	}
	g.subs[key]++
	s := newGroup(w, name, fmt.Sprintf("%s/%s#%d", g.id, key, g.subs[key]), world)
	if err := g.form(s, ranks, site); err != nil {
		return nil, err
	}
	w.add(s)
	return s, nil
}

func (g *group) checkSub(ranks []int) string {
	seen := make(map[int]bool)
	for _, r := range ranks {
		switch {
		case r < 0 || r >= len(g.ranks):
			return fmt.Sprintf("rank %d is not in a group of %s", r, printable.Count(len(g.ranks), "rank"))
		case seen[r]:
			return fmt.Sprintf("rank %d is listed twice", r)
		}
		seen[r] = true
	}
	if len(ranks) == 0 {
		return "a group needs at least one rank"
	}
	return ""
}

// form gives s, of which ranks are the members as ranks of g, its backend.
func (g *group) form(s *group, ranks []int, site *Site) error {
	switch {
	case len(ranks) == 1:
		return nil
	case g.w.mem != nil:
		s.be = g.w.mem.join(s)
		return nil
	case g.w.driver:
		return g.formDriven(s, ranks, site)
	}
	be, err := agreeShm(s, &parentMessenger{g: g, ranks: ranks, site: site})
	if err == nil && be == nil {
		be, err = dialGroup(s)
	}
	if err != nil {
		f := g.w.fail(&failure{kind: KindAborted, rank: g.w.rank, detail: err.Error()})
		return g.w.errorFor(&call{op: OpBarrier, site: site}, f)
	}
	s.be = be
	return nil
}

// messenger carries the few words by which members agree on a backend. Ranks
// are those of the new group; rank 0 is the leader.
type messenger interface {
	sendTo(r int, m agreement) error
	recvFrom(r int) (agreement, error)
}

// agreement is one such message.
type agreement struct {
	Path  string `json:",omitempty"` // shared memory to map; empty means TCP
	Nonce uint64 `json:",omitempty"` // what must stand at its start
	OK    bool   `json:",omitempty"`
	Err   string `json:",omitempty"`
}

// parentMessenger sends agreements through the parent group.
type parentMessenger struct {
	g     *group
	ranks []int
	site  *Site
}

const agreementSize = 1024

func (m *parentMessenger) sendTo(r int, a agreement) error {
	b, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("BUG: the message in which ranks agree on a new group: %w", err)
	}
	if len(b) > agreementSize {
		return fmt.Errorf("BUG: the message in which ranks agree on a new group has %d bytes, more than %d", len(b), agreementSize)
	}
	buf := make([]byte, agreementSize)
	copy(buf, b)
	return m.g.Send(m.site, buf, U8, m.ranks[r])
}

func (m *parentMessenger) recvFrom(r int) (agreement, error) {
	var a agreement
	buf := make([]byte, agreementSize)
	if err := m.g.Recv(m.site, buf, U8, m.ranks[r]); err != nil {
		return a, err
	}
	end := slices.Index(buf, 0)
	if end < 0 {
		end = len(buf)
	}
	return a, json.Unmarshal(buf[:end], &a)
}

// agreeShm is called by every member of s. The leader offers shared memory where
// all are on one host. The result is nil, nil when one of them cannot map it:
// all use TCP then.
func agreeShm(s *group, m messenger) (backend, error) {
	w := s.w
	var be backend
	var err error
	switch {
	case w.opt.Transport == TransportTCP:
		return nil, nil
	case !w.sameHost(s.ranks):
	case s.rank == 0:
		be, err = leadShm(s, m)
	default:
		be, err = followShm(s, m)
	}
	if err == nil && be == nil && w.opt.Transport == TransportShm {
		err = fmt.Errorf("group %q cannot use shared memory on rank %d, and GTC_COMM=shm asks for it: "+
			"are all ranks on one host, and is there room in /dev/shm or GTC_SHM_DIR?", s.name, w.rank)
	}
	return be, err
}

// leadShm makes the segment and collects who could map it. It returns nil, nil
// when not all could.
func leadShm(s *group, m messenger) (backend, error) {
	file, ferr := createShm(s.w.opt.ShmDir, layout(len(s.ranks)).total)
	offer := agreement{}
	if ferr == nil {
		offer = agreement{Path: file.path, Nonce: file.nonce}
		// Once all have it mapped, or on any error, the name goes away.
		defer file.unlink()
	}
	for r := 1; r < len(s.ranks); r++ {
		if err := m.sendTo(r, offer); err != nil {
			return nil, err
		}
	}
	ok := ferr == nil
	for r := 1; r < len(s.ranks); r++ {
		a, err := m.recvFrom(r)
		if err != nil {
			return nil, err
		}
		ok = ok && a.OK
	}
	for r := 1; r < len(s.ranks); r++ {
		if err := m.sendTo(r, agreement{OK: ok}); err != nil {
			return nil, err
		}
	}
	if !ok {
		if ferr == nil {
			file.unmap()
		}
		return nil, nil
	}
	return newShm(s, file.mem, file.unmap), nil
}

func followShm(s *group, m messenger) (backend, error) {
	offer, err := m.recvFrom(0)
	if err != nil {
		return nil, err
	}
	var file *shmFile
	if offer.Path != "" {
		file, _ = openShm(offer.Path, offer.Nonce, layout(len(s.ranks)).total)
	}
	if err := m.sendTo(0, agreement{OK: file != nil}); err != nil {
		return nil, err
	}
	verdict, err := m.recvFrom(0)
	switch {
	case err != nil:
		return nil, err
	case !verdict.OK:
		if file != nil {
			file.unmap()
		}
		return nil, nil
	}
	return newShm(s, file.mem, file.unmap), nil
}
