package proof

import (
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// actor is a rank that runs.
type actor struct {
	rank    int
	program *program
	actions []abi.Action
	at      int // action
	op      int // within its function
	waits   int // what it waits for
	queued  bool
	sent    map[from][]*message // by the function and slot that sent them: messages that may still be on their way
}

// from is where the buffer of a message lies.
type from struct {
	fn   string
	slot int
}

// What an actor waits for.
const (
	nothing = iota
	members // of its collective
	sender  // of the message that it receives
	taking  // of messages that it sent
)

// message is on its way, or was received.
type message struct {
	op       *op
	micro    int
	by       int
	received bool
}

// meet is a collective that members wait at.
type meet struct {
	op    *op // of the first member
	micro int
	here  []int
}

// simulation runs all ranks through one entry.
type simulation struct {
	*job
	entry  string
	actors map[int]*actor
	ready  []*actor
	meets  map[[2]int]*meet      // by axis and first member of the group
	queues map[[2]int][]*message // by sender and receiver
	count  map[[2]int]int        // collectives of a group that are over
	did    Run
}

func newSimulation(j *job, entry string) *simulation {
	s := &simulation{job: j, entry: entry, actors: map[int]*actor{}, meets: map[[2]int]*meet{}, queues: map[[2]int][]*message{}, count: map[[2]int]int{}}
	s.did.Name = entry
	for _, r := range j.run {
		p := j.of(r)
		a := &actor{rank: r, program: p, actions: j.actions(p, entry), sent: map[from][]*message{}}
		s.actors[r] = a
		s.did.Actions += len(a.actions)
		s.wake(a)
	}
	return s
}

func (s *simulation) wake(a *actor) {
	if !a.queued {
		a.queued = true
		s.ready = append(s.ready, a)
	}
}

// all runs until every rank ends.
func (s *simulation) all() error {
	for len(s.ready) > 0 {
		a := s.ready[0]
		s.ready = s.ready[1:]
		a.queued = false
		if err := s.advance(a); err != nil {
			return err
		}
	}
	if err := s.stuck(); err != nil {
		return err
	}
	var left *message
	to := 0
	for key, q := range s.queues {
		if len(q) > 0 && (left == nil || key[0] < left.by || key[0] == left.by && key[1] < to) {
			left, to = q[0], key[1]
		}
	}
	if left != nil {
		return fmt.Errorf("rank %d sends rank %d %s, micro-batch %d, which it never receives", left.by, to, tell(left.op.Collective), left.micro)
	}
	return nil
}

// current is the op that an actor is at, nil at the start of an action.
func (a *actor) current() *op {
	list := a.program.funcs[a.actions[a.at].Func]
	if a.op < len(list) {
		return &list[a.op]
	}
	return nil
}

// advance runs an actor until it waits.
func (s *simulation) advance(a *actor) error {
	for a.at < len(a.actions) {
		now := a.actions[a.at]
		if a.op == 0 && !s.taken(a, from{now.Func, now.Slot}) {
			a.waits = taking
			return nil
		}
		a.waits = nothing
		for o := a.current(); o != nil; o = a.current() {
			on, err := s.do(a, o, now)
			if err != nil {
				return err
			}
			if !on {
				return nil
			}
			a.op++
		}
		a.at, a.op = a.at+1, 0
	}
	a.waits = nothing
	return nil
}

// taken reports whether all messages from a buffer were received, and forgets them.
func (s *simulation) taken(a *actor, f from) bool {
	for _, m := range a.sent[f] {
		if !m.received {
			return false
		}
	}
	delete(a.sent, f)
	return true
}

// do issues one op; false: the actor waits at it.
func (s *simulation) do(a *actor, o *op, now abi.Action) (bool, error) {
	switch o.do {
	case doSend:
		to := s.mesh.Group(a.rank, o.Axis)[o.Peer]
		if to == a.rank {
			return false, fmt.Errorf("rank %d sends to itself: %s", a.rank, tell(o.Collective))
		}
		key, m := [2]int{a.rank, to}, &message{op: o, micro: now.Micro, by: a.rank}
		s.queues[key] = append(s.queues[key], m)
		f := from{now.Func, now.Slot}
		a.sent[f] = append(a.sent[f], m)
		if b := s.actors[to]; b.waits == sender {
			s.wake(b)
		}
		return true, nil
	case doRecv:
		return s.receive(a, o, now)
	}
	if s.through[o.axis] {
		s.did.Collectives++
		return true, nil
	}
	return s.join(a, o, now)
}

func (s *simulation) receive(a *actor, o *op, now abi.Action) (bool, error) {
	key := [2]int{s.mesh.Group(a.rank, o.Axis)[o.Peer], a.rank}
	q := s.queues[key]
	if len(q) == 0 {
		a.waits = sender
		return false, nil
	}
	m := q[0]
	if m.op.is != o.is || m.micro != now.Micro {
		return false, fmt.Errorf("rank %d receives from rank %d %s, micro-batch %d, but what comes is %s, micro-batch %d",
			a.rank, m.by, tell(o.Collective), now.Micro, tell(m.op.Collective), m.micro)
	}
	s.queues[key], m.received = q[1:], true
	s.did.Messages++
	if b := s.actors[m.by]; b.waits == taking {
		s.wake(b)
	}
	a.waits = nothing
	return true, nil
}

// join takes part in a collective; the last member lets all others go on.
func (s *simulation) join(a *actor, o *op, now abi.Action) (bool, error) {
	group := s.mesh.Group(a.rank, o.Axis)
	key := [2]int{o.axis, group[0]}
	m := s.meets[key]
	if m == nil {
		m = &meet{op: o, micro: now.Micro}
		s.meets[key] = m
	}
	if m.op.is != o.is || m.micro != now.Micro {
		return false, fmt.Errorf("collective %d over %s differs: rank %d issues %s, micro-batch %d; rank %d issues %s, micro-batch %d",
			s.count[key], o.Axis, m.here[0], tell(m.op.Collective), m.micro, a.rank, tell(o.Collective), now.Micro)
	}
	m.here = append(m.here, a.rank)
	s.did.Collectives++
	if len(m.here) < len(group) {
		a.waits = members
		return false, nil
	}
	delete(s.meets, key)
	s.count[key]++
	for _, r := range m.here {
		if b := s.actors[r]; b != a { // they stopped at the op
			b.op++
			b.waits = nothing
			s.wake(b)
		}
	}
	return true, nil
}

// stuck is nil when all actors ended, else it tells who waits for whom.
func (s *simulation) stuck() error {
	var first *actor
	for _, r := range s.run {
		if a := s.actors[r]; a.at < len(a.actions) {
			if by, ended := s.blocker(a); ended {
				return fmt.Errorf("rank %d waits for %s, which rank %d never %s: its @%s is over", a.rank, s.wants(a), by, s.answers(a), s.entry)
			}
			if first == nil {
				first = a
			}
		}
	}
	if first == nil {
		return nil
	}
	place, chain := map[*actor]int{}, []*actor{}
	a := first
	for {
		if _, seen := place[a]; seen {
			break
		}
		place[a] = len(chain)
		chain = append(chain, a)
		by, _ := s.blocker(a)
		a = s.actors[by]
	}
	var lines []string
	for _, b := range chain[place[a]:] {
		by, _ := s.blocker(b)
		lines = append(lines, fmt.Sprintf("rank %d waits for rank %d, at %s", b.rank, by, s.wants(b)))
	}
	return fmt.Errorf("ranks wait for one another forever:\n  %s", strings.Join(lines, "\n  "))
}

// blocker is a rank that a waits for, and whether that one has ended.
func (s *simulation) blocker(a *actor) (rank int, ended bool) {
	over := func(r int) bool { b := s.actors[r]; return b.at >= len(b.actions) }
	now := a.actions[a.at]
	switch a.waits {
	case sender:
		o := a.current()
		r := s.mesh.Group(a.rank, o.Axis)[o.Peer]
		return r, over(r)
	case taking:
		for _, m := range a.sent[from{now.Func, now.Slot}] {
			if !m.received {
				r := s.mesh.Group(a.rank, m.op.Axis)[m.op.Peer]
				return r, over(r)
			}
		}
	}
	o := a.current()
	group := s.mesh.Group(a.rank, o.Axis)
	m := s.meets[[2]int{o.axis, group[0]}]
	by := -1
	for _, r := range group {
		here := false
		for _, h := range m.here {
			here = here || h == r
		}
		if !here && (by < 0 || over(r)) {
			by = r
		}
	}
	return by, over(by)
}

// wants is what an actor waits for.
func (s *simulation) wants(a *actor) string {
	now := a.actions[a.at]
	if a.waits == taking {
		for _, m := range a.sent[from{now.Func, now.Slot}] {
			if !m.received {
				return fmt.Sprintf("%s, micro-batch %d, to be received before slot %d is used again", tell(m.op.Collective), m.micro, now.Slot)
			}
		}
	}
	return fmt.Sprintf("%s, micro-batch %d", tell(a.current().Collective), now.Micro)
}

// answers is what would end the wait.
func (s *simulation) answers(a *actor) string {
	switch a.waits {
	case sender:
		return "sends"
	case taking:
		return "receives"
	}
	return "issues"
}

// tell describes a collective in an error: all_reduce sum over dp of f32, 1024 bytes (d_w1, d_w2), in @step at "/fc" m.py:4.
func tell(c *abi.Collective) string {
	var b strings.Builder
	b.WriteString(string(c.Kind))
	if c.Op != "" {
		b.WriteString(" " + c.Op)
	}
	b.WriteString(" over " + c.Axis)
	switch kindOf(c) {
	case doSend:
		fmt.Fprintf(&b, " to %d", c.Peer)
	case doRecv:
		fmt.Fprintf(&b, " from %d", c.Peer)
	}
	names := c.Tensors
	more := ""
	if len(names) > 3 {
		names, more = names[:2], fmt.Sprintf(" and %d more", len(names)-2)
	}
	fmt.Fprintf(&b, " of %s, %d bytes (%s%s), in @%s", c.DType, c.Bytes, strings.Join(names, ", "), more, c.Func)
	if c.Loc != "" {
		b.WriteString(" at " + c.Loc)
	}
	return b.String()
}
