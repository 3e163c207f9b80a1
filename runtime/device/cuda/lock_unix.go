//go:build unix

package cuda

import (
	"os"
	"syscall"
)

// lock waits until no other process holds the file and gives what lets go of it; a process that ends does so too.
func lock(file string) (unlock func()) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return func() {}
	}
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return func() { f.Close() }
		}
	}
}
