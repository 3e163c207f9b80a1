package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm/commtest"
	"github.com/gtc-compiler/gtc/runtime/ckpt"
)

// minute is what a job that should end at once gets on a busy machine.
const minute = time.Minute

// command runs a program to its end and returns its exit code (-1 when a signal ended it) and all that it printed.
func command(ctx context.Context, dir string, env []string, name string, args ...string) (code int, text string) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		return -1, err.Error()
	}
	return c.ProcessState.ExitCode(), string(out)
}

// event is a line that rank 0 prints under --json.
type event struct {
	Event    string  `json:"event"`
	Step     int64   `json:"step"`
	Loss     float64 `json:"loss"`
	Bits     string  `json:"loss_bits"`
	Accuracy float64 `json:"accuracy"`
	Arena    int     `json:"arena_bytes"`
	Resident int64   `json:"resident_bytes"`
	Peak     int64   `json:"peak_bytes"`
	Samples  int64   `json:"samples"`
	Why      string  `json:"why"`
}

// job is one process for each rank of a folder.
type job struct {
	t      testing.TB
	ranks  []*exec.Cmd
	errs   []*syncBuffer // standard error of each rank
	events []event       // of rank 0, complete when out is closed
	out    chan event    // unbuffered: a job that nobody listens to does not run ahead by more than a pipe's worth
	quit   chan struct{}
	ended  []chan struct{}
}

// syncBuffer is a buffer that is read while a process writes to it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start starts all ranks of a folder, the way a launcher does, with one thread each. They end with the test.
func start(t testing.TB, dir string, ranks int, args ...string) *job {
	t.Helper()
	m, err := commtest.Listen("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer m.File.Close()
	j := &job{t: t, out: make(chan event), quit: make(chan struct{})}
	t.Cleanup(func() {
		close(j.quit)
		for _, done := range j.ended {
			<-done
		}
	})
	args = append([]string{"--json", "--log-every", "1", "--threads", "1"}, args...)
	for r := range ranks {
		bin, err := filepath.Abs(filepath.Join(dir, "bin", fmt.Sprintf("rank-%d", r)))
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(bin, args...)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		c.Env = append(os.Environ(), fmt.Sprint("RANK=", r), fmt.Sprint("LOCAL_RANK=", r), fmt.Sprint("WORLD_SIZE=", ranks),
			fmt.Sprint("LOCAL_WORLD_SIZE=", ranks), "MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", m.Port), "OMP_NUM_THREADS=1")
		e := &syncBuffer{}
		c.Stderr = e
		j.errs = append(j.errs, e)
		done := make(chan struct{})
		j.ended = append(j.ended, done)
		read := make(chan struct{})
		if r == 0 {
			c.ExtraFiles, c.Env = []*os.File{m.File}, append(c.Env, "GTC_LISTEN_FD=3")
			pipe, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				defer close(read)
				defer close(j.out)
				for lines := bufio.NewScanner(pipe); lines.Scan(); {
					var e event
					if json.Unmarshal(lines.Bytes(), &e) == nil {
						select {
						case j.out <- e:
						case <-j.quit:
							return
						}
					}
				}
			}()
		} else {
			close(read)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		j.ranks = append(j.ranks, c)
		t.Cleanup(func() { c.Process.Kill() })
		go func() {
			<-read // before Wait, which closes the pipe
			c.Wait()
			close(done)
		}()
	}
	return j
}

// pid is the process of a rank.
func (j *job) pid(rank int) int { return j.ranks[rank].Process.Pid }

// until reads events until one is of that kind at that step or later.
func (j *job) until(kind string, step int64) event {
	j.t.Helper()
	limit := time.After(2 * minute)
	for {
		select {
		case e, ok := <-j.out:
			if !ok {
				j.t.Fatalf("the job ended before the event %q of step %d:\n%s", kind, step, j.text())
			}
			j.events = append(j.events, e)
			if e.Event == kind && e.Step >= step {
				return e
			}
		case <-limit:
			j.t.Fatalf("no event %q of step %d came:\n%s", kind, step, j.text())
		}
	}
}

// code waits for a rank to end and gives its exit code, -1 after a signal. The job fails when it takes longer than limit.
func (j *job) code(rank int, limit time.Duration) int {
	j.t.Helper()
	timer := time.After(limit)
	for {
		select {
		case e, ok := <-j.out:
			if ok {
				j.events = append(j.events, e)
			} else {
				j.out = nil
			}
		case <-j.ended[rank]:
			if j.out != nil && rank == 0 {
				for e := range j.out {
					j.events = append(j.events, e)
				}
			}
			return j.ranks[rank].ProcessState.ExitCode()
		case <-timer:
			j.t.Fatalf("rank %d still runs after %v:\n%s", rank, limit, j.text())
		}
	}
}

// text is what all ranks said on standard error.
func (j *job) text() string {
	var b strings.Builder
	for r, e := range j.errs {
		fmt.Fprintf(&b, "rank %d: %s", r, e)
	}
	return b.String()
}

// run runs a job to its end, which must be a good one, and gives the events of rank 0.
func run(t testing.TB, dir string, ranks int, args ...string) []event {
	t.Helper()
	j := start(t, dir, ranks, args...)
	for r := range ranks {
		if code := j.code(r, 3*time.Minute); code != 0 {
			t.Fatalf("rank %d ended with code %d:\n%s", r, code, j.text())
		}
	}
	return j.events
}

// fails runs one rank, which must end with a code and say all of want.
func fails(t *testing.T, dir string, code int, args []string, want ...string) {
	t.Helper()
	j := start(t, dir, 1, args...)
	got := j.code(0, minute)
	told(t, got, code, j.text(), want...)
}

// told checks an exit code and what was printed.
func told(t *testing.T, got, code int, text string, want ...string) {
	t.Helper()
	if got != code {
		t.Errorf("exit code %d, want %d:\n%s", got, code, text)
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in:\n%s", w, text)
		}
	}
	if strings.Contains(text, "BUG") || strings.Contains(text, "panic") || strings.Contains(text, "goroutine ") {
		t.Errorf("a fault of gtc:\n%s", text)
	}
}

// last is the last event of a kind.
func last(t testing.TB, events []event, kind string) event {
	t.Helper()
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Event == kind {
			return events[i]
		}
	}
	t.Fatalf("no event %q among %d", kind, len(events))
	return event{}
}

// losses are those of the steps, in order.
func losses(events []event) []float64 {
	var out []float64
	for _, e := range events {
		if e.Event == "step" {
			out = append(out, e.Loss)
		}
	}
	return out
}

// tensors reads a checkpoint: the newest of a folder of steps, or the folder of one step.
func tensors(t testing.TB, dir string) (step int64, data map[string][]byte) {
	t.Helper()
	c, err := ckpt.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Verify(); err != nil {
		t.Fatal(err)
	}
	data = map[string][]byte{}
	for _, n := range c.Names() {
		b, err := c.ReadAll(n)
		if err != nil {
			t.Fatal(err)
		}
		data[n] = bytes.Clone(b)
	}
	return c.Index().Step, data
}

// sameTensors compares the newest checkpoints of two folders to the byte.
func sameTensors(t *testing.T, dirA, dirB string) {
	t.Helper()
	stepA, a := tensors(t, dirA)
	stepB, b := tensors(t, dirB)
	if stepA != stepB || len(a) != len(b) || len(a) == 0 {
		t.Errorf("%s is step %d of %d tensors, %s step %d of %d", dirA, stepA, len(a), dirB, stepB, len(b))
	}
	for n := range a {
		if !bytes.Equal(a[n], b[n]) {
			t.Errorf("%q differs between %s and %s", n, dirA, dirB)
		}
	}
}
