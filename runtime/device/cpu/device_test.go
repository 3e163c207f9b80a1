package cpu

import (
	"bytes"
	"errors"
	"testing"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/device/devicetest"
)

// TestDevice: the arena is in this process's memory and begins as zeros; every method has done its work when it returns; a call
// gets the arena and its arguments, and what it refuses is its error.
func TestDevice(t *testing.T) {
	dev, err := Open(nil, device.Options{ArenaBytes: 64, RuntimeBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	local, ok := dev.(device.Local)
	if !ok {
		t.Fatal("it is not Local")
	}
	arena := local.Bytes(0, 64)
	if !bytes.Equal(arena, make([]byte, 64)) {
		t.Error("the arena is not zeros")
	}
	if dev.Address(5) != uintptr(unsafe.Pointer(&arena[5])) {
		t.Error("an address is not in the arena")
	}
	s, err := dev.NewStream(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(dev.Put(0, []byte("abcdefgh")), s.Copy(8, 0, 4), s.Upload(12, []byte("xy")), s.CopyRows(16, 4, 0, 3, 2, 3)); err != nil {
		t.Fatal(err)
	}
	const want = "abcdefghabcdxy\x00\x00ab\x00\x00de\x00\x00gh"
	got := make([]byte, len(want))
	if err := errors.Join(dev.Get(got[:6], 0), s.Download(got[6:], 6)); err != nil || string(got) != want || string(arena[:len(want)]) != want {
		t.Errorf("%q, in the arena %q, %v; want %q", got, arena[:len(want)], err, want)
	}
	work, err := dev.Prepare(&device.Task{Run: func(b unsafe.Pointer, at []int) int64 {
		p := (*byte)(unsafe.Add(b, at[0]))
		*p++
		return int64(*p) - 'b' - 1 // -1 the first time
	}, At: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	var refused device.Refused
	if err := dev.Main().Run(work); err != nil || arena[0] != 'b' {
		t.Errorf("%v, %c", err, arena[0])
	}
	if err := s.Run(work); !errors.As(err, &refused) || refused != 0 || arena[0] != 'c' {
		t.Errorf("%v, %c", err, arena[0])
	}
	if _, err := dev.Prepare(&device.Task{Launches: []abi.Launch{{}}}); err == nil {
		t.Error("a launch is taken for a function")
	}
	if _, err := Open(nil, device.Options{ArenaBytes: -1}); err == nil {
		t.Error("an arena of less than nothing")
	}
}

// TestConforms: the processor does what every device does.
func TestConforms(t *testing.T) {
	dev, err := Open(nil, device.Options{ArenaBytes: devicetest.Arena})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	devicetest.Run(t, dev)
}
