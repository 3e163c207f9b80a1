package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// shakespeare is the character model as its page trains it.
var shakespeare = spec{model: gpt, batch: 12, dp: 1, micro: 1, lr: 2e-3}

const (
	page     = 4 << 10
	hugePage = 2 << 20
	slack    = 64 << 20 // what a rank may hold beyond its arena and the file of its weights
)

// A rank maps one arena of exactly the size that the plan says, and holds little else.
func TestArenaIsWhatThePlanSays(t *testing.T) {
	res := compiled(t, shakespeare)
	plan := res.Manifest.Programs[0].ArenaBytes
	sum := 0
	for _, n := range res.Manifest.Programs[0].Segments {
		sum += n
	}
	t.Logf("arena %d bytes, its segments %d: %v", plan, sum, res.Manifest.Programs[0].Segments)
	st, err := os.Stat(filepath.Join(res.Dir, abi.Weights))
	if err != nil {
		t.Fatal(err)
	}
	j := start(t, res.Dir, 1, "--data", plays(t), "--steps", "100000", "--checkpoint-dir", filepath.Join(t.TempDir(), "c"), "--save-every", "10")
	first := j.until("start", 0)
	if first.Arena != plan {
		t.Errorf("the program allocated %d bytes, the plan says %d", first.Arena, plan)
	}
	e := j.until("step", 25)
	size, resident := arenaMapping(t, j.pid(0), plan)
	t.Logf("the arena's mapping has %d bytes, %d of them resident; the process holds %d", size, resident, e.Resident)
	bound := int64(plan) + st.Size() + slack
	if _, peak := memory(t, j.pid(0)); peak > bound || e.Resident > bound || e.Resident < resident {
		t.Errorf("the process holds %d bytes, at most %d: arena %d + weights %d + 64 MiB = %d", e.Resident, peak, plan, st.Size(), bound)
	} else {
		t.Logf("at most %.1f MiB: %.1f MiB beyond arena and weights", float64(peak)/(1<<20), float64(peak-int64(plan)-st.Size())/(1<<20))
	}
}

// arenaMapping finds the one mapping that can hold the arena: anonymous, writable, of its size in whole pages. The system
// joins neighbours of the same kind, so it may be a little larger.
func arenaMapping(t *testing.T, pid, arena int) (size, resident int64) {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Skipf("this system has no smaps: %v", err)
	}
	defer f.Close()
	want := int64((arena + page - 1) / page * page)
	found := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to, n int64
		var mode string
		if k, _ := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode); k == 3 {
			found = mode == "rw-p" && len(strings.Fields(lines.Text())) == 5 && to-from >= want && to-from < want+hugePage
			if found {
				size = to - from
			}
		} else if k, _ := fmt.Sscanf(lines.Text(), "Rss: %d kB", &n); k == 1 && found {
			resident = n << 10
		}
	}
	if size == 0 {
		t.Errorf("the process has no anonymous mapping of %d bytes", want)
	}
	return size, resident
}

// memory is what a process holds and the most it ever held, in bytes.
func memory(t *testing.T, pid int) (now, peak int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("this system has no status of processes: %v", err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		var n int64
		if k, _ := fmt.Sscanf(line, "VmRSS: %d kB", &n); k == 1 {
			now = n << 10
		}
		if k, _ := fmt.Sscanf(line, "VmHWM: %d kB", &n); k == 1 {
			peak = n << 10
		}
	}
	return now, peak
}
