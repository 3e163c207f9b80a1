// Package mem is the memory of a rank program: one arena, mapped once, in which the compiler has given every
// tensor its place, and what the process holds in all.
package mem

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"unsafe"
)

// Arena is one block of zeroed memory of a fixed size. The system rounds it up to whole pages; nothing else is added.
type Arena struct {
	data   []byte
	mapped bool
}

// New maps an arena of size bytes (0 is allowed), aligned to at least a page, in huge pages where the system has
// them. It fails when the system refuses that much address space.
func New(size int) (*Arena, error) {
	if size < 0 {
		return nil, fmt.Errorf("BUG: an arena cannot have %d bytes", size)
	}
	if size == 0 {
		return &Arena{}, nil
	}
	a := &Arena{}
	if err := a.allocate(size); err != nil {
		return nil, fmt.Errorf("the plan needs an arena of %d bytes (%.1f MiB): %w", size, float64(size)/(1<<20), err)
	}
	return a, nil
}

// Size is the number of bytes asked for.
func (a *Arena) Size() int { return len(a.data) }

// Base is the address of the first byte; nil for an empty arena.
func (a *Arena) Base() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(a.data)) }

// Bytes is the stretch of n bytes at offset. It panics when that is not inside the arena: the caller has checked
// the plan.
func (a *Arena) Bytes(offset, n int) []byte { return a.data[offset : offset+n : offset+n] }

// Holds reports whether n bytes at offset lie inside.
func (a *Arena) Holds(offset, n int) bool {
	return offset >= 0 && n >= 0 && offset <= len(a.data) && n <= len(a.data)-offset
}

// Populate has the system find the memory for all of the arena now, with contents as they are, rather than page by page when each is
// written first. A system that cannot does nothing, which is slower later and no loss now.
func (a *Arena) Populate() {
	if a.mapped && len(a.data) > 0 {
		populate(a.data)
	}
}

// Close gives the memory back; the arena must not be used afterwards. It may be called twice.
func (a *Arena) Close() error {
	data := a.data
	a.data = nil
	if !a.mapped || data == nil {
		return nil
	}
	return unmap(data)
}

// Resident is the physical memory that this process holds now and the most it ever held, in bytes; zeros where the
// system does not tell (it is read from /proc/self/status of Linux).
func Resident() (now, peak int64) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	return field(text, "VmRSS:"), field(text, "VmHWM:")
}

// field reads a line such as "VmRSS:	   123456 kB".
func field(text []byte, name string) int64 {
	_, rest, ok := bytes.Cut(text, []byte("\n"+name))
	if !ok {
		return 0
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	number, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
	kb, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		return 0
	}
	return kb << 10
}
