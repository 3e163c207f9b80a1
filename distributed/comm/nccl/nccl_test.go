package nccl

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/comm/commtest"
	cuda "github.com/gtc-compiler/gtc/runtime/device/cuda/driver"
)

// realVariable asks for the machine's own NCCL and GPUs instead of the stand-in; tests/gpu/nccl.sh sets it.
const realVariable = "GTC_TEST_NCCL"

// TestMain compiles testdata/standin.c and makes it both libraries.
func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if os.Getenv(realVariable) != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "gtc-nccl-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	lib := filepath.Join(dir, "standin.so")
	if out, err := exec.Command(cc, "-O1", "-shared", "-fPIC", "-pthread", "-o", lib, "testdata/standin.c").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "compiling the stand-in: %v\n%s", err, out)
		return 1
	}
	os.Setenv(LibraryVariable, lib)
	os.Setenv(cuda.Variable, lib)
	return m.Run()
}

// ranks connects n ranks of this process.
func ranks(t *testing.T, n int, timeout time.Duration) []comm.Communicator {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	cs := make([]comm.Communicator, n)
	errs := each(n, func(r int) (err error) {
		cs[r], err = comm.Connect(comm.Options{Rank: r, LocalRank: r, World: n, Port: port, Transport: "nccl", Plan: "p", Timeout: timeout})
		return err
	})
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	return cs
}

func each(n int, f func(r int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() { errs[r] = f(r) })
	}
	wg.Wait()
	return errs
}

// TestConformance runs the suite between ranks that are threads; with the real
// libraries there is one for each GPU.
func TestConformance(t *testing.T) {
	if err := Available(); err != nil {
		t.Skip(err)
	}
	sizes := []int{2, 3, 4}
	if os.Getenv(realVariable) != "" {
		lib, _ := open()
		gpus, err := lib.cuda.Devices()
		if err != nil {
			t.Fatal(err)
		}
		if gpus < 2 {
			t.Skipf("this machine has %d GPU, and NCCL takes one for each rank", gpus)
		}
		sizes = []int{2, gpus}
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			cs := ranks(t, n, 2*time.Minute)
			for _, tc := range commtest.Cases(commtest.AnyOrder) {
				if tc.Ranks > n || tc.Long && os.Getenv("GTC_LONG") == "" {
					continue
				}
				for r, err := range each(n, func(r int) error { return tc.Run(cs[r]) }) {
					if err != nil {
						t.Fatalf("%s: rank %d: %v", tc.Name, r, err)
					}
				}
			}
			for r, err := range each(n, func(r int) error { return cs[r].Close() }) {
				if err != nil {
					t.Errorf("close: rank %d: %v", r, err)
				}
			}
		})
	}
}

// TestHung has an operation on the device that never ends.
func TestHung(t *testing.T) {
	if os.Getenv(realVariable) != "" {
		t.Skip("only the stand-in loses operations")
	}
	t.Setenv("GTC_STANDIN_LOSE", "1")
	cs := ranks(t, 2, 300*time.Millisecond)
	errs := each(2, func(r int) error {
		return cs[r].AllReduce(commtest.Site("d_w"), commtest.Aligned(64), comm.F32, comm.Sum)
	})
	for r, err := range errs {
		var e *comm.Error
		if !errors.As(err, &e) || e.Kind != comm.KindHung {
			t.Errorf("rank %d: %v, want a rank that hung", r, err)
		}
	}
	each(2, func(r int) error { return cs[r].Close() })
}

// TestAbort has rank 1 abort while rank 0 waits on the device: it is told so,
// long before the time-out.
func TestAbort(t *testing.T) {
	if err := Available(); err != nil {
		t.Skip(err)
	}
	if os.Getenv(realVariable) != "" {
		t.Skip("needs two GPUs; TestConformance says whether they are there")
	}
	cs := ranks(t, 2, 20*time.Second)
	start := time.Now()
	errs := each(2, func(r int) error {
		if r == 1 {
			time.Sleep(50 * time.Millisecond)
			cs[r].Abort("disk is full")
		}
		return cs[r].AllReduce(commtest.Site("d_w"), commtest.Aligned(64), comm.F32, comm.Sum)
	})
	for r, err := range errs {
		var e *comm.Error
		if !errors.As(err, &e) || e.Kind != comm.KindAborted || e.Rank != 1 {
			t.Errorf("rank %d: %v, want that rank 1 aborted", r, err)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	each(2, func(r int) error { return cs[r].Close() })
}

// TestNames: with a wrong name, Connect says
// what there is.
func TestNames(t *testing.T) {
	_, err := comm.Connect(comm.Options{World: 2, Port: 1, Transport: "smoke signals"})
	if err == nil || err.Error() != `transport "smoke signals" is none of auto, shm, tcp, nccl (GTC_COMM)` {
		t.Error(err)
	}
}
