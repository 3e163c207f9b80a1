package nccl

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

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
	m, err := commtest.Listen("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	fd, err := m.FD()
	if err != nil {
		t.Fatal(err)
	}
	cs := make([]comm.Communicator, n)
	errs := each(n, func(r int) (err error) {
		o := comm.Options{Rank: r, LocalRank: r, World: n, Port: m.Port, Transport: "nccl", Plan: "p", Timeout: timeout}
		if r == 0 {
			o.ListenFD = fd
		}
		cs[r], err = comm.Connect(o)
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

// needLibraries fails where there are no libraries: the stand-in is always there, and who asks for the machine's own has them.
func needLibraries(t *testing.T) {
	t.Helper()
	if err := Available(); err != nil {
		t.Fatalf("NCCL, the stand-in or with %s the machine's own, does not load: %v", realVariable, err)
	}
}

// TestConformance runs the suite between ranks that are threads; with the real
// libraries there is one for each GPU.
func TestConformance(t *testing.T) {
	needLibraries(t)
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

// TestHung has an operation on the device that never ends: the rank that finds out first tells the other, which may be told
// before it finds out itself.
func TestHung(t *testing.T) {
	if os.Getenv(realVariable) != "" {
		t.Skip("only the stand-in loses operations")
	}
	t.Setenv("GTC_STANDIN_LOSE", "1")
	cs := ranks(t, 2, 300*time.Millisecond)
	errs := each(2, func(r int) error {
		return cs[r].AllReduce(commtest.Site("d_w"), commtest.Aligned(64), comm.F32, comm.Sum)
	})
	first := 0
	for r, err := range errs {
		var e *comm.Error
		switch {
		case errors.As(err, &e) && e.Kind == comm.KindHung:
			first++
		case e == nil || e.Kind != comm.KindAborted || !strings.Contains(err.Error(), "hung: no progress"):
			t.Errorf("rank %d: %v, want a rank that hung, or word of it", r, err)
		}
	}
	if first == 0 {
		t.Errorf("no rank found out that one hung: %v", errs)
	}
	each(2, func(r int) error { return cs[r].Close() })
}

// TestAbort has rank 1 abort while rank 0 waits on the device: it is told so,
// long before the time-out.
func TestAbort(t *testing.T) {
	needLibraries(t)
	if os.Getenv(realVariable) != "" {
		t.Skip("tried with the stand-in only: of the real libraries TestConformance alone is run")
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
	if err == nil || err.Error() != `transport "smoke signals" (GTC_COMM) is not one of auto, shm, tcp, nccl` {
		t.Error(err)
	}
}

// TestOnDevice has calls on devices' memory, which the stand-in's is like any other.
func TestOnDevice(t *testing.T) {
	if os.Getenv(realVariable) != "" {
		t.Skip("the memory of this test is the stand-in's")
	}
	lib, err := open()
	if err != nil {
		t.Fatal(err)
	}
	dev, err := lib.cuda.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	context, err := lib.cuda.Retain(dev)
	if err != nil {
		t.Fatal(err)
	}
	const n = 3
	world, at := comm.InProcess(n), func(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }
	errs := each(n, func(r int) error {
		runtime.LockOSThread()
		bind := func() error { return lib.cuda.SetContext(context) }
		if err := bind(); err != nil {
			return err
		}
		c, err := openDevice(world[r], bind)
		if err != nil {
			return err
		}
		stream, err := lib.cuda.NewStream(0)
		if err != nil {
			return err
		}
		call := func(op comm.Op, dt comm.DType, dst, src []byte, bytes, root int) {
			d := &comm.DeviceCall{Op: op, DType: dt, Root: root, Bytes: bytes, Stream: stream}
			if dst != nil {
				d.Dst = at(dst)
			}
			if src != nil {
				d.Src = at(src)
			}
			err = errors.Join(err, c.Enqueue(d))
		}
		sum, gathered, part, moved := make([]byte, 12), make([]byte, 3*n), make([]byte, 4), make([]byte, n)
		for i := range 3 {
			sum[4*i] = byte(10*i + r)
		}
		call(comm.OpReduceScatter, comm.I32, part, sum, 12, 0)
		call(comm.OpAllReduce, comm.I32, sum, nil, 12, 0)
		call(comm.OpAllGather, comm.U8, gathered, []byte{byte(r), 7, byte(2 * r)}, 3, 0)
		call(comm.OpAllToAll, comm.U8, moved, []byte{byte(10 * r), byte(10*r + 1), byte(10*r + 2)}, n, 0)
		got := []byte{0}
		if r == 0 {
			call(comm.OpSend, comm.U8, nil, []byte{99}, 1, 1)
		} else if r == 1 {
			call(comm.OpRecv, comm.U8, got, nil, 1, 0)
		}
		switch {
		case err != nil:
		case sum[0] != 3 || sum[4] != 33 || sum[8] != 63 || part[0] != []byte{3, 33, 63}[r]:
			err = fmt.Errorf("the sums are %v, part %v", sum, part)
		case !bytes.Equal(gathered, []byte{0, 7, 0, 1, 7, 2, 2, 7, 4}) || !bytes.Equal(moved, []byte{byte(r), byte(10 + r), byte(20 + r)}):
			err = fmt.Errorf("gathered %v, moved %v", gathered, moved)
		case r == 1 && got[0] != 99:
			err = fmt.Errorf("received %v", got)
		case c.Enqueue(&comm.DeviceCall{Op: comm.OpAllReduce, DType: comm.I16, Bytes: 2}) == nil:
			err = errors.New("NCCL adds i16")
		case c.Failed() != nil:
			err = c.Failed()
		}
		return errors.Join(err, c.Close())
	})
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestSuits: NCCL is for ranks with the same version of it, and before 2.30 for those that share no GPU.
func TestSuits(t *testing.T) {
	a, b := [16]byte{1}, [16]byte{2}
	for want, ranks := range map[string][]comm.DeviceState{
		"":                           {{ID: a, Version: 22803}, {ID: b, Version: 22803}},
		"rank 1 could not load NCCL": {{ID: a, Version: 22803}, {ID: b}},
		"rank 0 has NCCL 2.28.3, but rank 1 has 2.27.0":                         {{ID: a, Version: 22803}, {ID: b, Version: 22700}},
		"ranks 0 and 2 share a GPU, which NCCL 2.28.3 refuses (2.30 allows it)": {{ID: a, Version: 22803}, {ID: b, Version: 22803}, {ID: a, Version: 22803}},
	} {
		err := suits(ranks)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	t.Setenv(shareVariable, "")
	if err := suits([]comm.DeviceState{{ID: a, Version: 23000}, {ID: a, Version: 23000}}); err != nil || os.Getenv(shareVariable) != "1" {
		t.Errorf("NCCL 2.30: %v, %s=%s", err, shareVariable, os.Getenv(shareVariable))
	}
}
