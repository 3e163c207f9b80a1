package comm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/comm/commtest"
)

// TestMismatch has rank 1 make another call than the rest.
func TestMismatch(t *testing.T) {
	buf := func(n int) []byte { return commtest.Aligned(n) }
	cases := []struct {
		name  string
		rest  func(c Communicator) error
		odd   func(c Communicator) error
		parts []string
	}{
		{"operation",
			func(c Communicator) error { return c.AllReduce(site("d_a"), buf(64), F32, Sum) },
			func(c Communicator) error { return c.AllGather(site("a"), buf(64*c.Size()), buf(64), F32) },
			[]string{`all_reduce of "d_a"`, `all_gather of "a"`, "model.py:41"}},
		{"size",
			func(c Communicator) error { return c.AllReduce(site("d_a"), buf(64), F32, Sum) },
			func(c Communicator) error { return c.AllReduce(site("d_a"), buf(400_000), F32, Sum) },
			[]string{"64 bytes", "400000 bytes"}},
		{"larger size",
			func(c Communicator) error { return c.AllReduce(site("d_a"), buf(800_000), F32, Sum) },
			func(c Communicator) error { return c.AllReduce(site("d_a"), buf(400_000), F32, Sum) },
			[]string{"800000 bytes", "400000 bytes"}},
		{"dtype",
			func(c Communicator) error { return c.AllReduce(site("d_a"), buf(64), F32, Sum) },
			func(c Communicator) error { return c.AllReduce(site("d_a"), buf(64), BF16, Sum) },
			[]string{"f32", "bf16"}},
		{"reduction",
			func(c Communicator) error { return c.AllReduce(site("d_a"), buf(64), F32, Sum) },
			func(c Communicator) error { return c.AllReduce(site("d_a"), buf(64), F32, Avg) },
			[]string{"sum", "avg"}},
		{"tensor",
			func(c Communicator) error { return c.AllReduce(site("d_a"), buf(64), F32, Sum) },
			func(c Communicator) error { return c.AllReduce(site("d_b"), buf(64), F32, Sum) },
			[]string{`"d_a"`, `"d_b"`}},
		{"root",
			func(c Communicator) error { return c.Broadcast(site("a"), buf(64), F32, 0) },
			func(c Communicator) error { return c.Broadcast(site("a"), buf(64), F32, 2) },
			// Over TCP only receivers compare, so it may show one call later.
			[]string{`broadcast of "a"`, "root 2"}},
		{"barrier",
			func(c Communicator) error { return c.Barrier(nil) },
			func(c Communicator) error { return c.Broadcast(site("a"), buf(64), F32, 0) },
			[]string{"barrier", `broadcast of "a"`}},
	}
	for _, g := range []struct {
		kind, algorithm string
		n               int
	}{{"mem", "", 3}, {"shm", "", 3}, {"tcp", "", 3}, {"tcp", "halving", 4}, {"tcp", "ring", 4}} {
		for _, tc := range cases {
			t.Run(strings.TrimSuffix(g.kind+"/"+g.algorithm, "/")+"/"+tc.name, func(t *testing.T) {
				cs := open(t, g.kind, g.n, Options{Timeout: 5 * time.Second, Algorithm: g.algorithm})
				defer abandon(cs)
				errs := each(cs, func(c Communicator) error {
					call := tc.rest
					if c.Rank() == 1 {
						call = tc.odd
					}
					if err := call(c); err != nil {
						return err
					}
					// A rank that only sent learns of it at its next call.
					return c.Barrier(nil)
				})
				for r, err := range errs {
					var e *Error
					if !errors.As(err, &e) || e.Kind != KindMismatch {
						t.Fatalf("rank %d: %v, want a mismatch", r, err)
					}
					for _, p := range append(tc.parts, "rank 1 calls") {
						if !strings.Contains(err.Error(), p) {
							t.Errorf("rank %d: error does not have %q:\n%v", r, p, err)
						}
					}
				}
			})
		}
	}
}

func TestMessageMismatch(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			cs := open(t, kind, 2, Options{Timeout: 5 * time.Second})
			defer abandon(cs)
			errs := each(cs, func(c Communicator) error {
				if c.Rank() == 0 {
					if err := c.Send(site("h"), make([]byte, 16), F32, 1); err != nil {
						return err
					}
				} else if err := c.Recv(site("h"), make([]byte, 32), F32, 0); err != nil {
					return err
				}
				return c.Barrier(nil)
			})
			for r, err := range errs {
				var e *Error
				if !errors.As(err, &e) || e.Kind != KindMismatch || !strings.Contains(err.Error(), "16 bytes") || !strings.Contains(err.Error(), "32 bytes") {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

// TestHung has rank 2 stay away from a collective.
func TestHung(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cs := open(t, kind, 3, Options{Timeout: 400 * time.Millisecond})
			defer abandon(cs)
			within(t, 5*time.Second, func() {
				errs := each(cs[:2], func(c Communicator) error {
					return c.AllReduce(site("d_w"), commtest.Aligned(100_000), F32, Sum)
				})
				for r, err := range errs {
					wantError(t, fmt.Sprint("rank ", r), err, KindHung, 2, "rank 2 hung",
						fmt.Sprintf(`all_reduce of "d_w" (model.py:41) on rank %d`, r), "last collectives")
				}
			})
		})
	}
}

// TestHungRounds is TestHung for algorithms of several rounds, in which most
// ranks wait for a rank that waits itself.
func TestHungRounds(t *testing.T) {
	for _, algorithm := range []string{"halving", "ring"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			cs := open(t, "tcp", 4, Options{Timeout: 800 * time.Millisecond, Algorithm: algorithm})
			defer abandon(cs)
			within(t, 8*time.Second, func() {
				errs := each([]Communicator{cs[0], cs[1], nil, cs[3]}, func(c Communicator) error {
					return c.AllReduce(site("d_w"), commtest.Aligned(100_000), F32, Sum)
				})
				for _, r := range []int{0, 1, 3} {
					wantError(t, fmt.Sprint("rank ", r), errs[r], KindHung, 2, "rank 2 hung")
				}
			})
		})
	}
}

// TestChain has rank 0 wait for 1, which waits for 2, which does nothing: 2 is
// to blame.
func TestChain(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cs := open(t, kind, 3, Options{Timeout: time.Second})
			defer abandon(cs)
			errs := each(cs[:2], func(c Communicator) error {
				return c.Recv(site("h"), make([]byte, 4), F32, c.Rank()+1)
			})
			for r, err := range errs {
				wantError(t, fmt.Sprint("rank ", r), err, KindHung, 2, "alive but waits for no one")
			}
		})
	}
}

func TestLeft(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cs := open(t, kind, 3, Options{Timeout: 5 * time.Second})
			defer abandon(cs)
			errs := each(cs, func(c Communicator) error {
				if c.Rank() == 1 {
					return c.Close()
				}
				return c.Barrier(site("end"))
			})
			for _, r := range []int{0, 2} {
				wantError(t, fmt.Sprint("rank ", r), errs[r], KindLeft, 1, "rank 1 left")
			}
		})
	}
}

func TestAbort(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cs := open(t, kind, 3, Options{Timeout: 20 * time.Second})
			defer abandon(cs)
			within(t, 5*time.Second, func() {
				errs := each(cs, func(c Communicator) error {
					if c.Rank() == 1 {
						c.Abort("disk is full")
					}
					return c.AllReduce(site("d_w"), commtest.Aligned(64), F32, Sum)
				})
				for r, err := range errs {
					wantError(t, fmt.Sprint("rank ", r), err, KindAborted, 1, "disk is full")
				}
			})
		})
	}
}

func TestBadArguments(t *testing.T) {
	big := commtest.Aligned(4096)
	cases := []struct {
		want string
		call func(c Communicator) error
	}{
		{"not a whole number of f32", func(c Communicator) error { return c.AllReduce(site("x"), big[:10], F32, Sum) }},
		{"not aligned", func(c Communicator) error { return c.AllReduce(site("x"), big[1:9], F32, Sum) }},
		{"avg is not defined for i32", func(c Communicator) error { return c.AllReduce(site("x"), big[:8], I32, Avg) }},
		{"unknown reduction", func(c Communicator) error { return c.AllReduce(site("x"), big[:8], I32, 99) }},
		{"unknown element type", func(c Communicator) error { return c.Broadcast(site("x"), big[:8], 99, 0) }},
		{"rank 2 is not in a group of 2", func(c Communicator) error { return c.Broadcast(site("x"), big[:8], F32, 2) }},
		{"not 2 blocks of 8", func(c Communicator) error { return c.AllGather(site("x"), big[:12], big[100:108], F32) }},
		{"not this rank's block", func(c Communicator) error { return c.AllGather(site("x"), big[:16], big[4:12], F32) }},
		{"overlap", func(c Communicator) error { return c.AllToAll(site("x"), big[:16], big[8:24], F32) }},
		{"not 2 equal blocks", func(c Communicator) error { return c.AllToAll(site("x"), big[:12], big[100:112], F32) }},
		{"cannot send to itself", func(c Communicator) error { return c.Send(site("x"), big[:12], F32, c.Rank()) }},
		{"listed twice", func(c Communicator) error { _, err := c.Sub("x", []int{1, 1}); return err }},
		{"rank 5 is not in a group of 2", func(c Communicator) error { _, err := c.Sub("x", []int{5}); return err }},
	}
	for _, tc := range cases {
		cs := InProcess(2)
		err := tc.call(cs[1])
		wantError(t, "rank 1", err, KindUsage, 1, tc.want, "on rank 1")
		wantError(t, "rank 0", cs[0].Barrier(nil), KindAborted, 1, tc.want)
		abandon(cs)
	}
}

func TestClosed(t *testing.T) {
	cs := InProcess(1)
	closeAll(t, cs)
	closeAll(t, cs)
	wantError(t, "closed", cs[0].Barrier(nil), KindClosed, 0, "closed")
}

func TestRecent(t *testing.T) {
	cs := InProcess(2)
	must(t, cs, func(c Communicator) error {
		for range RecentSize + 5 {
			if err := c.AllReduce(site("d_w"), commtest.Aligned(8), F32, Sum); err != nil {
				return err
			}
		}
		return nil
	})
	var mine []Event
	for _, e := range Recent() {
		if e.Rank == 1 && e.Site != nil && e.Site.Tensor == "d_w" {
			mine = append(mine, e)
		}
	}
	if len(mine) != RecentSize || mine[0].Seq != 5 || mine[RecentSize-1].Took <= 0 {
		t.Errorf("%d events of rank 1, first %+v", len(mine), mine[0])
	}
	if s := mine[0].String(); !strings.Contains(s, `world#5 all_reduce of "d_w" (model.py:41) f32 8 bytes took`) {
		t.Errorf("event is %q", s)
	}
	closeAll(t, cs)
}

func TestQueue(t *testing.T) {
	for _, kind := range kinds {
		cs := open(t, kind, 2, Options{Timeout: time.Second})
		errs := each(cs, func(c Communicator) error {
			q := NewQueue(c)
			bufs := make([][]byte, 300)
			var seq uint64
			for i := range bufs {
				bufs[i] = commtest.Fill(c.Rank(), 100, F32)
				seq = q.AllReduce(site(fmt.Sprint("g", i)), bufs[i], F32, Sum)
			}
			if seq != 300 {
				return fmt.Errorf("number of the last call is %d", seq)
			}
			want := commtest.Reduced([][]byte{commtest.Fill(0, 100, F32), commtest.Fill(1, 100, F32)}, F32, Sum)
			for i := range bufs {
				if err := q.Wait(uint64(i + 1)); err != nil {
					return err
				}
				if err := commtest.Expect("queued", bufs[i], want); err != nil {
					return err
				}
			}
			// After a failure everything fails, and nothing waits.
			if c.Rank() == 1 {
				c.Abort("enough")
			}
			q.Barrier(nil)
			q.AllReduce(site("late"), bufs[0], F32, Sum)
			q.WaitAll()
			return q.Close()
		})
		for r, err := range errs {
			wantError(t, fmt.Sprint(kind, " rank ", r), err, KindAborted, 1, "enough")
		}
		abandon(cs)
	}
}

// TestNoAllocation is for the calls of a training step.
func TestNoAllocation(t *testing.T) {
	for _, kind := range kinds {
		for _, size := range []int{1 << 10, 1 << 20} {
			cs := open(t, kind, 2, Options{})
			s := site("d_w")
			const runs = 50
			step := func(c Communicator, q *Queue, buf []byte) error {
				if err := c.AllReduce(s, buf, F32, Sum); err != nil {
					return err
				}
				return q.Wait(q.AllReduce(s, buf, F32, Sum))
			}
			done := make(chan error, 1)
			go func() {
				q, buf := NewQueue(cs[1]), commtest.Aligned(size)
				for range runs + 1 { // AllocsPerRun runs once to warm up
					if err := step(cs[1], q, buf); err != nil {
						done <- err
						return
					}
				}
				done <- q.Close()
			}()
			q, buf := NewQueue(cs[0]), commtest.Aligned(size)
			var err error
			allocs := testing.AllocsPerRun(runs, func() {
				if e := step(cs[0], q, buf); e != nil {
					err = e
				}
			})
			if e := <-done; err != nil || e != nil {
				t.Fatal(err, e)
			}
			if allocs != 0 {
				t.Errorf("%s, %d bytes: %v allocations in a call of all_reduce", kind, size, allocs)
			}
			q.Close()
			closeAll(t, cs)
		}
	}
}
