package comm

import (
	"fmt"
	"strings"
)

// Kind is what ended a job.
type Kind uint8

// Kinds of failure. For all but KindUsage and KindMismatch, Error.Rank is the
// rank at fault.
const (
	KindDied     Kind = iota // its process is gone
	KindHung                 // it made no progress for Options.Timeout
	KindLeft                 // it closed its communicator while others needed it
	KindAborted              // it called Abort, or gave a call bad arguments
	KindMismatch             // two ranks made different calls
	KindUsage                // this rank gave a call bad arguments
	KindClosed               // this rank used a closed communicator
)

var kindVerbs = [...]string{"died", "hung", "left", "aborted", "made a different call", "made a bad call", "is closed"}

// String is the kind's verb, such as "died".
func (k Kind) String() string {
	if int(k) >= len(kindVerbs) {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindVerbs[k]
}

// Error is how every call of a communicator fails. Ranks in it are those of
// the whole job, not of a sub-group.
type Error struct {
	Kind   Kind
	Rank   int    // the rank at fault
	Self   int    // the rank that reports
	Call   string // what Self was doing: all_reduce of "d_w" (model.py:41)
	Detail string
	// Recent lists this rank's last calls, oldest first, where knowing them
	// helps (KindHung and KindMismatch).
	Recent []Event
}

// Error is one line, such as
//
//	rank 1 died: all_reduce of "d_w" (model.py:41) on rank 0: connection closed
//
// followed, for hung ranks and mismatches, by the last calls of this rank.
func (e *Error) Error() string {
	var b strings.Builder
	switch e.Kind {
	case KindMismatch:
		fmt.Fprintf(&b, "collective mismatch: %s on rank %d: %s", e.Call, e.Self, e.Detail)
	case KindUsage:
		fmt.Fprintf(&b, "%s on rank %d: %s", e.Call, e.Self, e.Detail)
	case KindClosed:
		fmt.Fprintf(&b, "%s on rank %d: the communicator is closed", e.Call, e.Self)
	case KindAborted: // the cause comes first: what the others were doing has nothing to do with it
		fmt.Fprintf(&b, "rank %d aborted: %s (rank %d was in %s)", e.Rank, e.Detail, e.Self, brief(e.Call))
	default:
		fmt.Fprintf(&b, "rank %d %s: %s on rank %d: %s", e.Rank, e.Kind, brief(e.Call), e.Self, e.Detail)
	}
	if len(e.Recent) > 0 {
		fmt.Fprintf(&b, "\nlast collectives of rank %d:", e.Self)
		for _, ev := range e.Recent {
			b.WriteString("\n  ")
			b.WriteString(ev.String())
		}
	}
	return b.String()
}

// brief is a call with the first few of its tensors: all_reduce of "d_w, d_v, d_u and 17 more" (model.py:41).
func brief(call string) string {
	const most = 3
	before, rest, ok := strings.Cut(call, `"`)
	names, behind, closed := strings.Cut(rest, `"`)
	list := strings.Split(names, ", ")
	if !ok || !closed || len(list) <= most+1 {
		return call
	}
	return fmt.Sprintf(`%s"%s and %d more"%s`, before, strings.Join(list[:most], ", "), len(list)-most, behind)
}

// failure is the end of a job as all ranks share it; each call in progress
// turns it into an Error of its own.
type failure struct {
	kind   Kind
	rank   int
	detail string
}

// maxDetail bounds the text of a failure that travels to other ranks.
const maxDetail = 1500

// errorFor is the Error that call c of world w returns for f.
func (w *world) errorFor(c fmt.Stringer, f *failure) *Error {
	e := &Error{Kind: f.kind, Rank: f.rank, Self: w.rank, Call: c.String(), Detail: f.detail}
	switch {
	case f.kind == KindUsage && f.rank != w.rank:
		e.Kind = KindAborted
	case f.kind == KindHung, f.kind == KindMismatch:
		e.Recent = w.recent.list()
	}
	return e
}
