//go:build unix

package filelock

import (
	"errors"
	"os"
	"syscall"
)

// Try locks f, a file or a folder, until it is closed. It never waits: the error is ErrHeld when another has the lock, and any
// other where the file system has no locks.
func Try(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrHeld
		}
		return err
	}
}
