//go:build unix

package launch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
)

// TestMain lets the test binary be a rank process.
func TestMain(m *testing.M) {
	if mode := os.Getenv("GTC_LAUNCH_TEST"); mode != "" {
		os.Exit(rankMain(mode))
	}
	os.Exit(m.Run())
}

func rankMain(mode string) int {
	rank := os.Getenv("RANK")
	switch mode {
	case "sum":
		return sum()
	case "fail": // rank 1 fails at once; the others lose it
		if rank == "1" {
			fmt.Fprintln(os.Stderr, "disk is full")
			return 7
		}
		return comm.ExitPeerLost
	case "stay": // rank 1 kills itself, the others do not notice
		if rank == "1" {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		time.Sleep(time.Minute)
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		if rank == "0" {
			return 1
		}
		time.Sleep(time.Minute)
	case "wait":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
		fmt.Println("waiting")
		<-c
		return 4
	case "print":
		fmt.Println("out", rank)
		fmt.Fprintln(os.Stderr, "err", rank)
		fmt.Fprint(os.Stderr, "no end")
	}
	return 0
}

// sum is a real rank.
func sum() int {
	opt, err := comm.FromEnv()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c, err := comm.Connect(opt)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	buf := make([]byte, 4)
	binary.LittleEndian.PutUint32(buf, uint32(c.Rank()+1))
	if err := c.AllReduce(&comm.Site{Tensor: "x"}, buf, comm.I32, comm.Sum); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if c.Rank() == 0 {
		fmt.Println("sum", binary.LittleEndian.Uint32(buf))
	}
	c.Close()
	return 0
}

// run starts n ranks in a mode.
func run(t *testing.T, ctx context.Context, n int, mode string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	o := Options{Env: []string{"GTC_LAUNCH_TEST=" + mode}, Stdout: &out, Stderr: &errs, Grace: 300 * time.Millisecond, Dir: t.TempDir()}
	for range n {
		o.Bins = append(o.Bins, os.Args[0])
	}
	err = Local(ctx, o)
	return out.String(), errs.String(), err
}

func TestSum(t *testing.T) {
	out, errs, err := run(t, t.Context(), 3, "sum")
	if err != nil || out != "sum 6\n" {
		t.Errorf("%v, output %q, errors %q", err, out, errs)
	}
	if ExitCode(err) != 0 {
		t.Error(ExitCode(err))
	}
}

func TestOutput(t *testing.T) {
	out, errs, err := run(t, t.Context(), 2, "print")
	if err != nil || out != "out 0\n" {
		t.Errorf("%v, output %q", err, out)
	}
	for _, want := range []string{"err 0\n", "[rank 1] out 1\n", "[rank 1] err 1\n", "[rank 1] no end\n"} {
		if !strings.Contains(errs, want) {
			t.Errorf("errors have no %q: %q", want, errs)
		}
	}
}

// want checks who is held responsible.
func want(t *testing.T, err error, rank, code int, text string) {
	t.Helper()
	var job *Error
	if !errors.As(err, &job) {
		t.Fatalf("got %v, want an *Error", err)
	}
	if job.Rank != rank || ExitCode(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("rank %d, code %d, %q; want rank %d, code %d, %q", job.Rank, ExitCode(err), err, rank, code, text)
	}
}

func TestFailures(t *testing.T) {
	_, errs, err := run(t, t.Context(), 3, "fail")
	want(t, err, 1, 7, "rank 1 exited with code 7; rank 0 exited with code 3")
	if !strings.Contains(errs, "[rank 1] disk is full\n") {
		t.Errorf("errors are %q", errs)
	}
	begin := time.Now()
	_, _, err = run(t, t.Context(), 2, "stay")
	want(t, err, 1, 128+9, "rank 1 was ended by signal 9 (killed); rank 0 was killed because it did not end")
	_, _, err = run(t, t.Context(), 2, "deaf")
	want(t, err, 0, 1, "rank 0 exited with code 1; rank 1 was killed")
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("ending the ranks took %v", took)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, _, err := run(t, ctx, 2, "wait")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled job: %v", err)
	}
}

// TestSignal sends SIGTERM to this process while the launcher waits.
func TestSignal(t *testing.T) {
	go func() {
		time.Sleep(300 * time.Millisecond)
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}()
	_, _, err := run(t, t.Context(), 2, "wait")
	if ExitCode(err) != 128+15 || !strings.Contains(err.Error(), "got signal terminated") {
		t.Errorf("%v, code %d", err, ExitCode(err))
	}
}

func TestCannotStart(t *testing.T) {
	err := Local(t.Context(), Options{Bins: []string{os.Args[0], "./no/such/program"}, Env: []string{"GTC_LAUNCH_TEST=wait"}})
	if err == nil || ExitCode(err) != ExitStart || !strings.Contains(err.Error(), "cannot start rank 1") {
		t.Error(err)
	}
	if err := Local(t.Context(), Options{}); err == nil {
		t.Error("no ranks started without error")
	}
}
