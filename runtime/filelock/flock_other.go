//go:build !unix

package filelock

import (
	"errors"
	"os"
)

// Try locks nothing on systems without flock(2), and says so.
func Try(*os.File) error { return errors.ErrUnsupported }
