// Package filelock keeps two processes from writing one folder at a time, by advisory locks of the system (flock(2)). A
// lock ends with its process, however that ends; nothing of it stays on disk.
package filelock

import "errors"

// ErrHeld says that another open file, of this process or another, has the lock.
var ErrHeld = errors.New("locked")
