package loop

import (
	"bufio"
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
	"time"

	"github.com/gtc-compiler/gtc/distributed/launch"
	"github.com/gtc-compiler/gtc/runtime/ckpt"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// TestMain turns this test's program into a rank of the toy when GTC_TOY gives its shape: ranks, micro-batches, the
// rank that kills itself and the step at which it does, and the rank that it is when no launcher says.
func TestMain(m *testing.M) {
	if s := os.Getenv("GTC_TOY"); s != "" {
		t := &toy{batch: 8, dim: 5}
		victim, at, rank := 0, int64(0), 0
		fmt.Sscan(s, &t.dp, &t.micro, &victim, &at, &rank)
		if r, err := strconv.Atoi(os.Getenv("RANK")); err == nil {
			rank = r
		}
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
	if !errors.As(err, &le) || le.Rank != 1 || le.All[0].Code != ranks.ExitPeer {
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
	if launch.ExitCode(err) != ranks.ExitUsage || !strings.Contains(stderr, "compiled for one rank, but the launcher started 2") {
		t.Errorf("%v\n%s", err, stderr)
	}
	_, stderr, err = launchToy(t, "2 1 1 0", 3, "--dir", dir, "--data", data)
	if launch.ExitCode(err) != ranks.ExitUsage || !strings.Contains(stderr, "compiled for 2 ranks, but the launcher started 3") {
		t.Errorf("%v\n%s", err, stderr)
	}
}

// Ranks started by hand, without a launcher's variables, find each other through the folder's name.
func TestRanksStartedByHand(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var ranks [2]*exec.Cmd
	var out [2]bytes.Buffer
	for r := range ranks {
		c := exec.Command(exe, "--dir", dir, "--data", data, "--steps", "20", "--json")
		c.Env = append(os.Environ(), fmt.Sprintf("GTC_TOY=2 1 0 0 %d", r), "OMP_NUM_THREADS=1")
		c.Stdout, c.Stderr = &out[r], &out[r]
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ranks[r] = c
	}
	for r, c := range ranks {
		if err := c.Wait(); err != nil {
			t.Errorf("rank %d: %v\n%s", r, err, out[r].String())
		}
	}
	if !strings.Contains(out[0].String(), `"event":"end"`) || out[1].Len() > 0 {
		t.Errorf("rank 0 says %q, rank 1 %q", out[0].String(), out[1].String())
	}
}

// However often a run is killed while it saves, what is there loads, and the run can go on.
func TestKillsDuringSavesLeaveALoadableState(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	last := int64(-1)
	for i := range 12 {
		c := exec.Command(exe, "--dir", dir, "--data", data, "--steps", "100000000", "--save-every", "1", "--resume", "--json")
		c.Env = append(os.Environ(), "GTC_TOY=1 1 0 0", "OMP_NUM_THREADS=1")
		pipe, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(pipe); lines.Scan() && !strings.Contains(lines.Text(), `"save"`); {
		}
		time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		c.Process.Kill()
		c.Wait()
		k, err := ckpt.Open(filepath.Join(dir, "checkpoints"))
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Verify(); err != nil || k.Index().Step < last {
			t.Fatalf("step %d after %d: %v", k.Index().Step, last, err)
		}
		last = k.Index().Step
		k.Close()
	}
	if last < 12 {
		t.Errorf("only %d steps were saved", last)
	}
}

// What every rank finds is told once; what only one finds has its rank once.
func TestErrorsAreToldOnce(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	blocked := filepath.Join(dir, "file")
	if err := os.WriteFile(blocked, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--epoch", "3"}, "gtc: unknown flag --epoch (did you mean --epochs?)"},
		{[]string{"--data", "nowhere.npz"}, "gtc: --data: "},
		{[]string{"--data", data, "--eval-data", "nowhere.npz"}, "gtc: --eval-data: "},
		{[]string{"--data", data, "--checkpoint-dir", blocked}, "gtc: checkpoints cannot be saved"},
	} {
		_, stderr, err := launchToy(t, "2 1 1 0", 2, append(c.args, "--dir", dir)...)
		if launch.ExitCode(err) != ranks.ExitUsage || !strings.HasPrefix(stderr, c.want) || strings.Count(stderr, "gtc: ") != 1 {
			t.Errorf("%v: %v\n%s", c.args, err, stderr)
		}
		if strings.Contains(stderr, "gtc: rank 1") {
			t.Errorf("the rank is told twice: %s", stderr)
		}
	}
}

// A launcher that starts fewer ranks than the program has is told so: the others will not come.
func TestLauncherOfOne(t *testing.T) {
	dir, data := newToy().folder(t, 50)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe, "--dir", dir, "--data", data, "--timeout", "20s")
	c.Env = append(os.Environ(), "GTC_TOY=2 1 0 0 0", "RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0")
	out, _ := c.CombinedOutput()
	if c.ProcessState.ExitCode() != ranks.ExitUsage || !strings.Contains(string(out), "compiled for 2 ranks, but the launcher started 1 (WORLD_SIZE)") {
		t.Errorf("exit code %d: %s", c.ProcessState.ExitCode(), out)
	}
}

func TestARankAloneSaysHowToStartAll(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []string{"0", "1"} {
		c := exec.Command(exe, "--dir", dir, "--data", data, "--timeout", "300ms")
		c.Env = append(os.Environ(), "GTC_TOY=2 1 0 0 "+r)
		begin := time.Now()
		out, _ := c.CombinedOutput()
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("rank %s waited for %v", r, took)
		}
		if c.ProcessState.ExitCode() == 0 || !strings.Contains(string(out), "gtc run "+dir) || !strings.Contains(string(out), "300ms") {
			t.Errorf("rank %s: %s", r, out)
		}
	}
}
