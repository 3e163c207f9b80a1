package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A file that cannot be written to its end is an error that names it; the older checkpoint is still the newest, and the job
// goes on from it to the same end.
func TestLimitedFileSize(t *testing.T) {
	dir := compiled(t, one).Dir
	straight, limited := filepath.Join(t.TempDir(), "straight"), filepath.Join(t.TempDir(), "limited")
	args := []string{"--data", digits, "--threads", "1", "--json", "--save-every", "10", "--checkpoint-dir"}
	want := last(t, run(t, dir, 1, append(args, straight, "--steps", "40")...), "end")
	run(t, dir, 1, append(args, limited, "--steps", "20")...)

	bin, err := filepath.Abs(filepath.Join(dir, "bin", "rank-0"))
	if err != nil {
		t.Fatal(err)
	}
	// The shell's unit is 512 or 1,024 bytes: 256 or 512 KiB, where a checkpoint has 1.4 MB.
	script := append([]string{"-c", `ulimit -f 512 && exec "$0" "$@"`, bin}, append(args, limited, "--steps", "40", "--resume")...)
	code, text := command(context.Background(), ".", nil, "sh", script...)
	told(t, code, 1, text, limited, "step-000030", "file too large")
	if step, _ := tensors(t, limited); step != 20 {
		t.Errorf("the newest checkpoint is of step %d, want 20", step)
	}
	if got := last(t, run(t, dir, 1, append(args, limited, "--steps", "40", "--resume")...), "end"); got.Bits != want.Bits {
		t.Errorf("loss bits %s, an undisturbed run has %s", got.Bits, want.Bits)
	}
	sameTensors(t, straight, limited)
	leftovers(t, limited)
}

// leftovers makes sure that saves which failed or were killed left nothing behind once another one succeeded.
func leftovers(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") && e.Name() != ".lock" { // which stays for the next run to lock
			t.Errorf("%s is left in %s", e.Name(), dir)
		}
	}
}

// A disk that is full during a save: the job ends with an error, what was saved before is there, and with more room it goes
// on. The disk is a small file system in memory, in a mount namespace of its own.
func TestFullDisk(t *testing.T) {
	dir := compiled(t, one).Dir
	bin, err := filepath.Abs(filepath.Join(dir, "bin", "rank-0"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := filepath.Abs(digits)
	if err != nil {
		t.Fatal(err)
	}
	script := `mount -t tmpfs -o size=3m gtc "$1" || exit 77
common="--data $2 --threads 1 --save-every 10 --checkpoint-dir $1/c --progress plain"
"$0" $common --steps 40
echo "full: code $?"
df "$1" | tail -1
mount -o remount,size=32m "$1" || exit 77
"$0" $common --steps 40 --resume --json
echo "with room: code $?"
ls -A "$1/c"
`
	c := exec.Command("sh", "-c", script, bin, t.TempDir(), data)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := c.CombinedOutput()
	text := string(out)
	if c.ProcessState == nil || c.ProcessState.ExitCode() == 77 {
		t.Skipf("SKIPPED: this system lets an ordinary user make no file system in memory: %v %s", err, text)
	}
	told(t, c.ProcessState.ExitCode(), 0, text, "full: code 1", "no space left on device", "step-0000", "resumed from", "with room: code 0", `"step":40`)
	if strings.Contains(text, "\n.tmp") {
		t.Errorf("a failed save is left: %s", text)
	}
}

// Ten kills at random moments of a job that saves after every step: whatever was killed, and whenever, there is a
// checkpoint that loads, never an older one than before, and in the end the same bits as without kills.
func TestKillsDuringSaves(t *testing.T) {
	kills := 10
	if os.Getenv("GTC_LONG") != "" {
		kills = 100
	}
	dir := compiled(t, two).Dir
	straight, killed := filepath.Join(t.TempDir(), "straight"), filepath.Join(t.TempDir(), "killed")
	args := []string{"--data", digits, "--seed", "5", "--timeout", "10s", "--save-every", "1", "--checkpoint-dir"}
	random := rand.New(rand.NewPCG(1, 2))
	newest := int64(0)
	for i := range kills {
		j := start(t, dir, 2, append(args, killed, "--steps", "1000000", "--resume")...)
		j.until("save", newest+1)
		time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
		victims := [][]int{{0}, {1}, {0, 1}}[random.IntN(3)]
		for _, r := range victims {
			syscall.Kill(j.pid(r), syscall.SIGKILL)
		}
		for r := range 2 {
			if code := j.code(r, 20*time.Second); code != -1 && code != 3 {
				t.Errorf("kill %d of %v: rank %d ended with code %d:\n%s", i, victims, r, code, j.text())
			}
		}
		step, _ := tensors(t, killed) // checks all of it
		if step <= newest {
			t.Fatalf("kill %d of %v: the newest checkpoint is of step %d, it was of %d", i, victims, step, newest)
		}
		newest = step
	}
	steps := fmt.Sprint(newest + 3)
	got := last(t, run(t, dir, 2, append(args, killed, "--steps", steps, "--resume")...), "end")
	args[7] = "1000000"
	want := last(t, run(t, dir, 2, append(args, straight, "--steps", steps)...), "end")
	t.Logf("%d kills within %d steps; loss bits %s", kills, newest, got.Bits)
	if got.Bits != want.Bits {
		t.Errorf("loss bits %s after the kills, %s without", got.Bits, want.Bits)
	}
	sameTensors(t, straight, killed)
	leftovers(t, killed)
}
