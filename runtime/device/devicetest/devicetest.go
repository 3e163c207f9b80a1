// Package devicetest is what every device.Device must do with memory, streams and events, whatever its kernels are.
package devicetest

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/runtime/device"
)

// Arena is the bytes of the arena that Run wants.
const Arena = 8192

// Run checks a device that was just opened with an arena of Arena bytes and nothing behind it, on the calling goroutine.
func Run(t *testing.T, d device.Device) {
	t.Helper()
	one, two := pattern(1), pattern(2)
	check := func(what string, at int, want []byte) {
		t.Helper()
		got := make([]byte, len(want))
		if err := d.Get(got, at); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %v at %d, want %v", what, got, at, want)
		}
		if local, ok := d.(device.Local); ok && !bytes.Equal(local.Bytes(at, len(want)), want) {
			t.Errorf("%s: the arena itself has %v at %d, want %v", what, local.Bytes(at, len(want)), at, want)
		}
	}
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	if d.Info().Name == "" {
		t.Error("it has no name")
	}
	must(d.Bind())
	check("a new arena", 0, make([]byte, Arena))
	if from := d.Address(256) - d.Address(0); from != 256 {
		t.Errorf("offset 256 is %d bytes from offset 0", from)
	}

	main := d.Main()
	must(d.Put(0, one), main.Copy(64, 0, 64), main.CopyRows(256, 16, 0, 8, 4, 3), main.Sync())
	check("a copy", 64, one)
	rows := slices.Concat(one[:4], make([]byte, 12), one[8:12], make([]byte, 12), one[16:20])
	check("a copy of rows", 256, rows)

	other, err1 := d.NewStream(true)
	begun, err2 := d.NewEvent()
	ended, err3 := d.NewEvent()
	pinned, err4 := d.Pinned(128)
	must(err1, err2, err3, err4)
	if len(pinned) != 128 {
		t.Errorf("%d bytes of pinned memory, not 128", len(pinned))
	}
	if over, err := d.Done(begun); !over || err != nil {
		t.Errorf("an event never recorded: %v, %v", over, err)
	}
	// main fills, other copies what was filled, main copies that: each waits for an event of the one before.
	copy(pinned, two)
	must(main.Upload(1024, pinned[:64]), main.Record(begun), other.Wait(begun), other.Copy(2048, 1024, 64), other.Record(ended),
		main.Wait(ended), main.Copy(4096, 2048, 64), main.Download(pinned[64:], 4096))
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		done, err := main.Query()
		must(err)
		if done {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatal("a stream is not done after a minute")
		}
	}
	check("a copy on another stream", 4096, two)
	if !bytes.Equal(pinned[64:], two) {
		t.Errorf("%v came back, want %v", pinned[64:], two)
	}
	if over, err := d.Done(ended); !over || err != nil {
		t.Errorf("an event that was waited for: %v, %v", over, err)
	}
	must(other.Sync(), d.Put(Arena-64, one))
	check("the end of the arena", Arena-64, one)
	if u := d.Usage(); u.Used < -1 || u.Total < -1 || u.Busy < -1 || u.Busy > 100 {
		t.Errorf("it is used so: %+v", u)
	}
}

// pattern is 64 bytes that tell their places.
func pattern(by byte) []byte {
	b := make([]byte, 64)
	for i := range b {
		b[i] = by*64 + byte(i)
	}
	return b
}
