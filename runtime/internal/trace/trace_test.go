package trace

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

type event struct {
	Ph, Name string
	Pid, Tid int
	Ts, Dur  float64
	Args     map[string]string
}

func TestTraceIsJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.json")
	w, err := Create(path, 3)
	if err != nil {
		t.Fatal(err)
	}
	nasty := "h\"\\\n\x01\xff…"
	w.Add(LaneCalls, nasty, "/0/Gemm\" model.py:41", w.start.Add(1500*time.Nanosecond), 2*time.Millisecond)
	w.Add(LaneComm, "all_reduce", "", w.start, 0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []event
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(got) != 10 {
		t.Fatalf("%d events: %v", len(got), got)
	}
	e := got[7]
	if e.Ph != "X" || e.Name != "h\"\\\n\x01\ufffd…" || e.Pid != 3 || e.Tid != LaneCalls || e.Ts != 1.5 || e.Dur != 2000 || e.Args["loc"] != "/0/Gemm\" model.py:41" {
		t.Errorf("%+v", e)
	}
	if got[0].Args["name"] != "rank 3" {
		t.Errorf("%+v", got[0])
	}
}

func TestNilWriterDoesNothing(t *testing.T) {
	var w *Writer
	w.Add(LaneCalls, "x", "", time.Now(), 0)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	w, err := Create(filepath.Join(t.TempDir(), "t.json"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if n := testing.AllocsPerRun(100, func() { w.Add(LaneCalls, "h = k17_add", "model.py:4", time.Now(), time.Microsecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAFullDiskIsReported(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	w, err := Create("/dev/full", 0)
	if err != nil {
		t.Fatal(err)
	}
	if w.Close() == nil {
		t.Error("no error")
	}
}
