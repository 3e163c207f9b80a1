package train

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/launch"
)

// TestMain turns this test's program into a rank of the toy when GTC_TOY gives its shape: ranks, micro-batches, the
// rank that kills itself and the step at which it does.
func TestMain(m *testing.M) {
	if s := os.Getenv("GTC_TOY"); s != "" {
		t := &toy{batch: 8, dim: 5}
		victim, at := 0, int64(0)
		fmt.Sscan(s, &t.dp, &t.micro, &victim, &at)
		rank, _ := strconv.Atoi(os.Getenv("RANK"))
		t.hook = func(_ int, step int64) {
			if rank == victim && step == at {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
		Main(t.program(noTest{}), min(rank, t.dp-1))
	}
	os.Exit(m.Run())
}

// noTest is a testing.TB outside a test.
type noTest struct{ testing.TB }

func (noTest) Helper()           {}
func (noTest) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// launchToy runs the toy as processes and returns the output, the error output and the launcher's error.
func launchToy(t *testing.T, shape string, ranks int, args ...string) (out, stderr string, err error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var o, e bytes.Buffer
	bins := make([]string, ranks)
	for i := range bins {
		bins[i] = exe
	}
	err = launch.Local(t.Context(), launch.Options{Bins: bins, Args: args, Env: []string{"GTC_TOY=" + shape, "OMP_NUM_THREADS=1"}, Stdout: &o, Stderr: &e})
	return o.String(), e.String(), err
}

func TestAKilledRankIsNamedAndTheJobResumes(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	args := []string{"--dir", dir, "--data", data, "--steps", "60", "--save-every", "7", "--json", "--timeout", "10s"}
	out, stderr, err := launchToy(t, "2 1 1 0", 2, append(args, "--checkpoint-dir", filepath.Join(dir, "straight"))...)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	want := events(t, out, "end")[0]["loss_bits"]

	_, stderr, err = launchToy(t, "2 1 1 31", 2, args...)
	var le *launch.Error
	if !errors.As(err, &le) || le.Rank != 1 || le.All[0].Code != ExitPeer {
		t.Fatalf("%v\n%s", err, stderr)
	}
	for _, want := range []string{"rank 1 died", `"d_w"`, "toy.py:2", "rank 0"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in %s", want, stderr)
		}
	}
	out, stderr, err = launchToy(t, "2 1 1 0", 2, append(args, "--resume")...)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if !strings.Contains(stderr, "step 28") {
		t.Errorf("not resumed from step 28: %s", stderr)
	}
	if got := events(t, out, "end")[0]["loss_bits"]; got != want {
		t.Errorf("loss bits %v after the kill, %v without", got, want)
	}
}

func TestASignalledProcessExitsWith143(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe, "--dir", dir, "--data", data, "--steps", "100000000", "--json", "--log-every", "1000")
	c.Env = append(os.Environ(), "GTC_TOY=1 1 0 0")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	pipe, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	pipe.Read(make([]byte, 1)) // it is training, or about to
	c.Process.Signal(syscall.SIGTERM)
	var all bytes.Buffer
	all.ReadFrom(pipe)
	c.Wait()
	if code := c.ProcessState.ExitCode(); code != 143 || !strings.Contains(all.String(), `"why":"stopped by signal 15"`) {
		t.Errorf("exit code %d\n%s\n%.500s", code, stderr.String(), all.String())
	}
	if _, err := os.Stat(filepath.Join(dir, "checkpoints", "latest")); err != nil {
		t.Error(err)
	}
}

func TestALauncherOfAnotherSizeIsRefused(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	_, stderr, err := launchToy(t, "1 1 1 0", 2, "--dir", dir, "--data", data)
	if launch.ExitCode(err) != ExitUsage || !strings.Contains(stderr, "compiled for one rank, the launcher started 2") {
		t.Errorf("%v\n%s", err, stderr)
	}
	_, stderr, err = launchToy(t, "2 1 1 0", 3, "--dir", dir, "--data", data)
	if launch.ExitCode(err) != ExitUsage || !strings.Contains(stderr, "compiled for 2 ranks, the launcher started 3") {
		t.Errorf("%v\n%s", err, stderr)
	}
}
