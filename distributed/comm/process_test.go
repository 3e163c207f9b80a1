//go:build unix

package comm_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/comm/commtest"
)

// TestMain lets the test binary be a rank: see rankMain.
func TestMain(m *testing.M) {
	if mode := os.Getenv("GTC_COMM_TEST_RANK"); mode != "" {
		os.Exit(rankMain(mode))
	}
	os.Exit(m.Run())
}

// rankMain is a rank process. In mode "loop" it reduces until something goes
// wrong; in mode "once" it reduces, checks the sum and leaves.
func rankMain(mode string) int {
	opt, err := FromEnv()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	c, err := Connect(opt)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if mode == "bench" {
		return rankBench(c)
	}
	s := &Site{Tensor: "d_h.0.attn.weight", Loc: "model.py:41"}
	buf := commtest.Fill(c.Rank(), 10_000, F32)
	if mode == "once" {
		err = commtest.Reductions(c, 100_003, F32, Sum)
		if err == nil {
			err = commtest.Messages(c, 50_000, F32)
		}
	}
	for step := 0; err == nil && mode == "loop"; step++ {
		if err = c.AllReduce(s, buf, F32, Max); err == nil && step == 20 {
			fmt.Println("ready")
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ExitPeerLost
	}
	if err := c.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// benchSizes are bytes reduced at a time by BenchmarkProcesses.
var benchSizes = []int{4, 64 << 10, 4 << 20}

// rankBench prints the shortest time of all_reduce for each size. The machine
// is rarely idle in tests, so the shortest of many is the honest one.
func rankBench(c Communicator) int {
	for _, size := range benchSizes {
		buf := commtest.Aligned(size)
		best := time.Hour
		for range 400 {
			start := time.Now()
			const batch = 4
			for range batch {
				if err := c.AllReduce(site("d_w"), buf, F32, Sum); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return 1
				}
			}
			best = min(best, time.Since(start)/batch)
		}
		if c.Rank() == 0 {
			fmt.Fprintln(os.Stderr, best.Nanoseconds())
		}
	}
	c.Close()
	return 0
}

// BenchmarkProcesses reports the shortest all_reduce between two processes.
func BenchmarkProcesses(b *testing.B) {
	for _, kind := range []string{"shm", "tcp"} {
		b.Run(kind, func(b *testing.B) {
			procs := startRanks(b, 2, "bench", "GTC_COMM="+kind)
			for _, p := range procs {
				if err := <-p.end; err != nil {
					b.Fatal(err, p.stderr.String())
				}
			}
			for i, line := range strings.Fields(procs[0].stderr.String()) {
				ns, _ := strconv.ParseFloat(line, 64)
				b.ReportMetric(ns/1000, fmt.Sprintf("us/%dB", benchSizes[i]))
			}
		})
	}
}

type rankProc struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	ready  chan bool
	end    chan error
}

// startRanks starts n rank processes and waits until all say that they are
// ready, in mode "loop".
func startRanks(t testing.TB, n int, mode string, env ...string) []*rankProc {
	t.Helper()
	m := meet(t, loopback)
	defer m.File.Close()
	procs := make([]*rankProc, n)
	for r := range procs {
		p := &rankProc{cmd: exec.Command(os.Args[0]), ready: make(chan bool, 1), end: make(chan error, 1)}
		p.cmd.Env = append(os.Environ(), "GTC_COMM_TEST_RANK="+mode, "MASTER_ADDR=127.0.0.1",
			fmt.Sprint("MASTER_PORT=", m.Port), fmt.Sprint("RANK=", r), fmt.Sprint("WORLD_SIZE=", n), fmt.Sprint("LOCAL_RANK=", r))
		p.cmd.Env = append(p.cmd.Env, env...)
		if r == 0 {
			p.cmd.ExtraFiles, p.cmd.Env = []*os.File{m.File}, append(p.cmd.Env, "GTC_LISTEN_FD=3")
		}
		p.cmd.Stderr = &p.stderr
		out, err := p.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if lines.Text() == "ready" {
					p.ready <- true
				}
			}
			p.end <- p.cmd.Wait()
		}()
		procs[r] = p
	}
	t.Cleanup(func() {
		for _, p := range procs {
			p.cmd.Process.Kill()
		}
	})
	for r, p := range procs {
		if mode != "loop" {
			break
		}
		select {
		case <-p.ready:
		case err := <-p.end:
			t.Fatalf("rank %d ended early: %v\n%s", r, err, p.stderr.String())
		case <-time.After(20 * time.Second):
			t.Fatalf("rank %d is not ready", r)
		}
	}
	return procs
}

// survivors waits for all ranks but victim and checks what they say.
func survivors(t *testing.T, procs []*rankProc, victim int, limit time.Duration, parts ...string) {
	t.Helper()
	deadline := time.After(limit)
	for r, p := range procs {
		if r == victim {
			continue
		}
		select {
		case err := <-p.end:
			if p.cmd.ProcessState.ExitCode() != ExitPeerLost {
				t.Errorf("rank %d: %v, want exit code %d", r, err, ExitPeerLost)
			}
		case <-deadline:
			t.Fatalf("rank %d has not ended within %v", r, limit)
		}
		parts := append(parts, fmt.Sprintf(`all_reduce of "d_h.0.attn.weight" (model.py:41) on rank %d`, r))
		for _, want := range parts {
			if !strings.Contains(p.stderr.String(), want) {
				t.Errorf("rank %d does not say %q:\n%s", r, want, p.stderr.String())
			}
		}
	}
}

func TestProcesses(t *testing.T) {
	for _, kind := range []string{"shm", "tcp"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for r, p := range startRanks(t, 3, "once", "GTC_COMM="+kind) {
				if err := <-p.end; err != nil {
					t.Errorf("rank %d: %v\n%s", r, err, p.stderr.String())
				}
			}
		})
	}
}

// TestKilled kills a rank, the hub of the control connections among them: the
// others must know at once, not after a time-out.
func TestKilled(t *testing.T) {
	for _, kind := range []string{"shm", "tcp"} {
		for _, victim := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s/rank%d", kind, victim), func(t *testing.T) {
				t.Parallel()
				procs := startRanks(t, 3, "loop", "GTC_COMM="+kind)
				procs[victim].cmd.Process.Kill()
				// A dead peer takes milliseconds to notice; the limit allows
				// for a busy machine and is far below the time-out of 30 s.
				survivors(t, procs, victim, 5*time.Second, fmt.Sprintf("rank %d died", victim))
			})
		}
	}
}

// TestStopped stops a rank without ending it.
func TestStopped(t *testing.T) {
	for _, kind := range []string{"shm", "tcp"} {
		for _, victim := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s/rank%d", kind, victim), func(t *testing.T) {
				t.Parallel()
				procs := startRanks(t, 3, "loop", "GTC_COMM="+kind, "GTC_TIMEOUT=1s")
				procs[victim].cmd.Process.Signal(syscall.SIGSTOP)
				survivors(t, procs, victim, 8*time.Second, fmt.Sprintf("rank %d hung", victim), "last collectives of rank")
			})
		}
	}
}
