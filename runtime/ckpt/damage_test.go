package ckpt

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// disk is a file system with room for so many more bytes.
type disk struct{ room int }

type diskFile struct {
	*os.File
	d     *disk
	short bool // write less without an error, as a careless writer would
}

func (f *diskFile) Write(b []byte) (int, error) {
	n := min(len(b), f.d.room)
	f.d.room -= n
	m, err := f.File.Write(b[:n])
	if err == nil && n < len(b) && !f.short {
		err = &os.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	return m, err
}

func TestDiskFull(t *testing.T) {
	// How much a save writes, found by letting it.
	d := &disk{room: 1 << 30}
	create := func(short bool) func(string) (File, error) {
		return func(path string) (File, error) {
			f, err := os.Create(path)
			return &diskFile{f, d, short}, err
		}
	}
	if err := save(t.TempDir(), 2, 2, 0, Options{Create: create(false)}); err != nil {
		t.Fatal(err)
	}
	total := 1<<30 - d.room
	for _, short := range []bool{false, true} {
		dir := t.TempDir()
		if err := save(dir, 1, 2, 0, Options{}); err != nil {
			t.Fatal(err)
		}
		for room := 0; room < total; room += 97 {
			d.room = room
			err := save(dir, 2, 2, 0, Options{Keep: 1, Create: create(short)})
			want := syscall.ENOSPC.Error()
			if short {
				want = io.ErrShortWrite.Error()
			}
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
				t.Fatalf("room for %d of %d bytes: got %v", room, total, err)
			}
			if step, err := load(dir); err != nil || step != 1 {
				t.Fatalf("room for %d of %d bytes: the old checkpoint is lost: step %d, %v", room, total, step, err)
			}
			if got := entries(t, dir); got != "latest step-000001" {
				t.Fatalf("room for %d of %d bytes: left %s", room, total, got)
			}
		}
		// Room for all but the last byte of latest: the new step is whole, but not the newest.
		d.room = total - 1
		err := save(dir, 2, 2, 0, Options{Keep: 1, Create: create(short)})
		if err == nil || !strings.Contains(err.Error(), "is complete, but") {
			t.Errorf("latest cannot be written: %v", err)
		}
		if step, err := load(dir); err != nil || step != 1 {
			t.Errorf("step %d, %v", step, err)
		}
		d.room = total
		if err := save(dir, 2, 2, 0, Options{Keep: 1, Create: create(short)}); err != nil {
			t.Error(err)
		}
		if step, err := load(dir); err != nil || step != 2 || entries(t, dir) != "latest step-000002" {
			t.Errorf("step %d, %v, %s", step, err, entries(t, dir))
		}
	}
}

// What is written must be what is on the disk: a file system that loses a byte is noticed
// before the switch.
func TestLyingDisk(t *testing.T) {
	dir := t.TempDir()
	lie := func(path string) (File, error) {
		f, err := os.Create(path)
		return &liar{f}, err
	}
	if err := save(dir, 2, 1, 0, Options{Create: lie}); err == nil || !strings.Contains(err.Error(), "reading it back") {
		t.Errorf("got %v", err)
	}
	if got := entries(t, dir); got != "" {
		t.Errorf("left %s", got)
	}
}

type liar struct{ *os.File }

func (f *liar) Sync() error {
	_, err := f.WriteAt([]byte{0xaa}, 100)
	return err
}

func TestDamage(t *testing.T) {
	dir := t.TempDir()
	for step := int64(1); step <= 3; step++ {
		if err := save(dir, step, 2, 0, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	step3 := filepath.Join(dir, "step-000003")
	for _, name := range append(strings.Fields(entries(t, step3)), "../latest") {
		path := filepath.Join(step3, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		replace := func(b []byte) {
			os.Remove(path) // it may be mapped
			if b != nil {
				os.WriteFile(path, b, 0o644)
			}
		}
		for i := range 60 {
			var b []byte // at first: the file is gone
			switch {
			case i%2 == 1:
				b = whole[:r.IntN(len(whole))]
			case i > 0:
				b = append([]byte{}, whole...)
				b[r.IntN(len(b))] ^= byte(1 + r.IntN(255))
			}
			replace(b)
			step, err := load(dir)
			if err == nil && step == 3 {
				continue // white space around the index or in latest, or latest is gone
			}
			if name == "../latest" && err == nil && step < 3 {
				continue // a changed digit names another step, as well as it can
			}
			var c *CorruptError
			if !errors.As(err, &c) || c.Path != filepath.Clean(path) {
				t.Fatalf("%s damaged (%d): %v", name, i, err)
			}
			if name != "../latest" && (c.Intact != filepath.Join(dir, "step-000002") || !strings.Contains(err.Error(), c.Intact)) {
				t.Fatalf("%s damaged: the intact one is %q: %v", name, c.Intact, err)
			}
		}
		replace(whole)
	}
	// With step 2 damaged too, step 1 is offered, and loads by its path.
	for _, s := range []string{"step-000002", "step-000003"} {
		os.Truncate(filepath.Join(dir, s, "shard-00001-of-00002.safetensors"), 200)
	}
	_, err := load(dir)
	var c *CorruptError
	if !errors.As(err, &c) || c.Intact != filepath.Join(dir, "step-000001") {
		t.Fatalf("got %v", err)
	}
	if step, err := load(c.Intact); err != nil || step != 1 {
		t.Errorf("step %d, %v", step, err)
	}
	// An index of a later version is not damaged, only too new.
	x := &Index{Format: 9}
	b, _ := x.encode()
	os.WriteFile(filepath.Join(step3, "index.json"), b, 0o644)
	if _, err := Open(dir); err == nil || errors.As(err, &c) && strings.Contains(err.Error(), "damaged") ||
		!strings.Contains(err.Error(), "index.json: the index has format 9; this program reads 1") {
		t.Errorf("got %v", err)
	}
}

// An index must not make the reader open files elsewhere.
func TestIndexStaysInside(t *testing.T) {
	for _, file := range []string{"../step-000001/shard-x", "/etc/passwd", "index.json", ""} {
		x := &Index{Format: Format, Shards: []Shard{{File: file}}}
		b, _ := x.encode()
		if _, err := decode(b); err == nil || !strings.Contains(err.Error(), "is not the name of a shard") {
			t.Errorf("%q: %v", file, err)
		}
	}
}

const childDir = "GTC_CKPT_TEST_DIR"

// TestMain makes the test binary save for ever when TestKills runs it as a child.
func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	from, _ := strconv.ParseInt(os.Getenv(childDir+"_FROM"), 10, 64)
	for step := from; ; step++ {
		for range 1 + step%3/2 { // every third step is saved twice, the second time over the first
			if err := save(dir, step, 1+int(step%2), 0, Options{Keep: 2}); err != nil {
				fmt.Println("error", err)
				os.Exit(1)
			}
			fmt.Println("done", step)
		}
	}
}

func TestKills(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: starts and kills 100 processes")
	}
	dir := t.TempDir()
	if err := save(dir, 0, 2, 0, Options{}); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	last, leftovers := int64(0), 0
	for kill := range 100 {
		done := runAndKill(t, dir, last+1, time.Duration(r.IntN(12_000))*time.Microsecond)
		step, err := load(dir)
		if err != nil {
			t.Fatalf("after kill %d: %v; the folder has %s", kill, err, entries(t, dir))
		}
		if step < max(last, done) {
			t.Fatalf("after kill %d the newest is step %d, but %d was committed", kill, step, max(last, done))
		}
		if strings.Contains(entries(t, dir), ".") {
			leftovers++
		}
		last = step
	}
	if err := save(dir, last+1, 1, 0, Options{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, dir); got != "latest "+stepName(last+1) {
		t.Errorf("left after all: %s", got)
	}
	t.Logf("%d of 100 kills interrupted a save; reached step %d", leftovers, last)
	if leftovers < 10 {
		t.Errorf("only %d of 100 kills interrupted a save: the test does not test", leftovers)
	}
}

// runAndKill lets a child save from a step on, kills it (SIGKILL) after a while, and
// returns the last step that it reported as committed, 0 for none.
func runAndKill(t *testing.T, dir string, from int64, after time.Duration) int64 {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childDir+"="+dir, fmt.Sprintf("%s_FROM=%d", childDir, from))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := int64(0)
	lines := bufio.NewScanner(out)
	var timer *time.Timer
	for first := true; lines.Scan(); first = false {
		if step, ok := strings.CutPrefix(lines.Text(), "done "); ok {
			done, _ = strconv.ParseInt(step, 10, 64)
		} else {
			t.Error(lines.Text())
		}
		if first { // it is at work
			timer = time.AfterFunc(after, func() { cmd.Process.Kill() })
		}
	}
	cmd.Wait()
	if timer != nil {
		timer.Stop()
	}
	return done
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"format":1,"shards":[{"file":"shard-0"}],"tensors":{"w":{"dtype":"f32","shape":[4],` +
		`"parts":[{"shard":0,"offset":[0],"shape":[4],"crc32c":"00000000"}]}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		decode(b)
		x, err := decode(fmt.Appendf(nil, "{\"crc32c\": %q, \"index\":%s}", sum(b), b))
		if err != nil {
			return
		}
		if text, err := x.encode(); err != nil {
			t.Fatalf("accepted %+v, cannot print it: %v", x, err)
		} else if _, err := decode(text); err != nil {
			t.Fatalf("cannot read back: %v", err)
		}
	})
}
