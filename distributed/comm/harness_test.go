package comm_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/comm/commtest"
)

// kinds are the backends under test; "mem" is the reference.
var kinds = []string{"mem", "shm", "tcp"}

// loopback is where most tests' ranks meet.
const loopback = "127.0.0.1"

// meet opens the socket on which the ranks of a test meet, as commtest.Listen.
func meet(t testing.TB, host string) *commtest.Rendezvous {
	t.Helper()
	m, err := commtest.Listen(host)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// open makes n connected ranks in this process.
func open(t testing.TB, kind string, n int, opt Options) []Communicator {
	t.Helper()
	if kind == "mem" {
		return InProcessWith(n, opt)
	}
	host := loopback
	if opt.Addr != "" {
		host = ""
	}
	cs, errs := openAll(n, func(r int) Options {
		o := opt
		o.Transport = kind
		return o
	}, meet(t, host))
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	return cs
}

// openAll has n ranks of this process meet at m, which it uses up.
func openAll(n int, optOf func(r int) Options, m *commtest.Rendezvous) ([]Communicator, []error) {
	cs, errs := make([]Communicator, n), make([]error, n)
	fd, err := m.FD()
	if err != nil {
		errs[0] = err
		return cs, errs
	}
	var wg sync.WaitGroup
	for r := range n {
		o := optOf(r)
		o.Rank, o.Port = r, m.Port
		if r == 0 {
			o.ListenFD = fd
		}
		if o.World == 0 {
			o.World = n
		}
		if o.Addr == "" {
			o.Addr = "127.0.0.1"
		}
		wg.Go(func() { cs[r], errs[r] = Connect(o) })
	}
	wg.Wait()
	return cs, errs
}

// each runs f for every rank at once and gives back the errors.
func each(cs []Communicator, f func(c Communicator) error) []error {
	errs := make([]error, len(cs))
	var wg sync.WaitGroup
	for i, c := range cs {
		if c == nil {
			continue
		}
		wg.Go(func() { errs[i] = f(c) })
	}
	wg.Wait()
	return errs
}

// must is each for what may not fail.
func must(t testing.TB, cs []Communicator, f func(c Communicator) error) {
	t.Helper()
	for r, err := range each(cs, f) {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

func closeAll(t testing.TB, cs []Communicator) {
	t.Helper()
	must(t, cs, func(c Communicator) error { return c.Close() })
}

// abandon closes ranks of a job that has failed.
func abandon(cs []Communicator) {
	each(cs, func(c Communicator) error { c.Close(); return nil })
}

// wantError checks that err is an *Error of kind that blames rank and whose
// text has all of parts.
func wantError(t *testing.T, who string, err error, kind Kind, rank int, parts ...string) {
	t.Helper()
	e, ok := err.(*Error)
	if !ok {
		t.Errorf("%s: got %v, want an *Error", who, err)
		return
	}
	if e.Kind != kind || e.Rank != rank {
		t.Errorf("%s: error blames rank %d (%s), want rank %d (%s):\n%v", who, e.Rank, e.Kind, rank, kind, err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%s: error does not have %q:\n%v", who, p, err)
		}
	}
}

// within fails the test when f takes longer than limit.
func within(t *testing.T, limit time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > limit {
		t.Errorf("took %v, want at most %v", took, limit)
	}
}

func site(tensor string) *Site { return &Site{Tensor: tensor, Loc: "model.py:41"} }

func name(kind string, n int) string { return fmt.Sprintf("%s/%d", kind, n) }
