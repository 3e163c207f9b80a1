package mem

import (
	"runtime"
	"testing"
	"unsafe"
)

func TestArenaIsExactZeroedAndAligned(t *testing.T) {
	for _, size := range []int{0, 1, 64, 4097, 3<<20 + 192} {
		a, err := New(size)
		if err != nil {
			t.Fatal(err)
		}
		if a.Size() != size || uintptr(a.Base())%4096 != 0 {
			t.Errorf("size %d at %p, want %d on a page", a.Size(), a.Base(), size)
		}
		for i, b := range a.Bytes(0, size) {
			if b != 0 {
				t.Fatalf("byte %d is %d", i, b)
			}
		}
		if !a.Holds(0, size) || !a.Holds(size, 0) || a.Holds(0, size+1) || a.Holds(size, 1) || a.Holds(-1, 1) || a.Holds(1, -1) {
			t.Errorf("size %d: Holds is wrong", size)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := New(-1); err == nil {
		t.Error("a negative size is allowed")
	}
}

func TestBytesIsAViewAtTheOffset(t *testing.T) {
	a, err := New(256)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b := a.Bytes(64, 32)
	if len(b) != 32 || cap(b) != 32 || unsafe.Pointer(&b[0]) != unsafe.Add(a.Base(), 64) {
		t.Errorf("len %d cap %d at %p of %p", len(b), cap(b), &b[0], a.Base())
	}
}

func TestResidentGrowsWithTouchedMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells how much of a mapping is in memory")
	}
	before, _ := Resident()
	const size = 64 << 20
	a, err := New(size)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for i := 0; i < size; i += 4096 {
		a.Bytes(i, 1)[0] = 1
	}
	now, peak := Resident()
	if now-before < size*9/10 || peak < now {
		t.Errorf("resident went from %d to %d (peak %d) by touching %d bytes", before, now, peak, size)
	}
}

func TestPopulateKeepsContents(t *testing.T) {
	const size = 48 << 20
	a, err := New(size)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.Bytes(5000, 1)[0] = 7
	a.Populate()
	for i, b := range a.Bytes(0, size) {
		if (b != 0) != (i == 5000) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	(&Arena{}).Populate()
}
