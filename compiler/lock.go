package compiler

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/gtc-compiler/gtc/runtime/filelock"
)

// lockOut takes the folder dir for this compilation, until unlock: two that write one folder would leave the files of both. A
// folder that it makes goes again if nothing is put into it; one that was there, or a link to one, stays. "" is refused by who
// writes. Where the file system has no locks it goes without, and the warning says so; else that is "".
func lockOut(dir string) (unlock func(), warning string, err error) {
	if dir == "" {
		return func() {}, "", nil
	}
	_, err = os.Stat(dir)
	made := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, "", err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, "", err
	}
	switch err := filelock.Try(f); {
	case errors.Is(err, filelock.ErrHeld):
		f.Close()
		return nil, "", fmt.Errorf("another gtc compile is writing %s: wait until it is over, or choose another folder with --out", dir)
	case err != nil:
		warning = fmt.Sprintf("%s cannot be locked (%v): nothing keeps another gtc compile from writing there at the same time", dir, err)
	}
	return func() {
		if made {
			os.Remove(dir) // fails where something is in it, as it should
		}
		f.Close()
	}, warning, nil
}
