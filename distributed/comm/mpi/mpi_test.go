//go:build mpi

package mpi

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/comm/commtest"
)

// connect joins the job of mpirun; tests/comm/mpi.sh starts it.
func connect(t *testing.T, timeout time.Duration) comm.Communicator {
	t.Helper()
	if !here() {
		t.Skip("this test is a rank of an MPI job: tests/comm/mpi.sh runs it under mpirun")
	}
	opt, err := comm.FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	opt.Transport, opt.Plan, opt.Timeout = "mpi", "conformance", timeout
	c, err := comm.Connect(opt)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestConformance runs the suite on every rank of the job. GTC_LONG=1 adds the
// buffers of 100 MB.
func TestConformance(t *testing.T) {
	c := connect(t, 60*time.Second)
	for _, tc := range commtest.Cases(commtest.Tree) {
		if tc.Ranks > c.Size() || tc.Long && os.Getenv("GTC_LONG") == "" {
			continue
		}
		if err := tc.Run(c); err != nil {
			t.Fatalf("rank %d of %d: %s: %v", c.Rank(), c.Size(), tc.Name, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestHung has rank 0 stay away from a collective; it must be run by itself,
// since it is the end of the job. What the others return is printed with the
// word "hung", and the job ends by itself.
func TestHung(t *testing.T) {
	if os.Getenv("GTC_MPI_TEST_HUNG") == "" {
		t.Skip("tests/comm/mpi.sh runs this by itself")
	}
	c := connect(t, time.Second)
	if c.Rank() == 0 {
		time.Sleep(time.Minute)
		t.Fatal("mpirun did not end this rank")
	}
	err := c.AllReduce(commtest.Site("d_w"), commtest.Aligned(100_000), comm.F32, comm.Sum)
	var e *comm.Error
	if !errors.As(err, &e) || e.Kind != comm.KindHung || e.Self != c.Rank() {
		t.Fatalf("rank %d: %v, want a rank that hung", c.Rank(), err)
	}
	os.Stderr.WriteString("as it should be: " + err.Error() + "\n")
	os.Exit(comm.ExitPeerLost)
}
