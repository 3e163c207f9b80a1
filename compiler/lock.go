package compiler

import (
	"errors"
	"fmt"
	"os"

	"github.com/gtc-compiler/gtc/runtime/filelock"
)

// lockOut takes the folder dir for this compilation, until unlock: two that write one folder would leave the files of both. It
// makes the folder, which goes again if nothing is put into it. "" is refused by who writes. Where the file system has no locks,
// it goes without.
func lockOut(dir string) (unlock func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if errors.Is(filelock.Try(f), filelock.ErrHeld) {
		f.Close()
		return nil, fmt.Errorf("another gtc compile is writing %s: wait until it is over, or choose another folder with --out", dir)
	}
	return func() {
		os.Remove(dir) // fails where something is in it, as it should
		f.Close()
	}, nil
}
