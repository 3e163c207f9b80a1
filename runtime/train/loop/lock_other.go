//go:build !unix

package loop

import (
	"errors"
	"os"
)

// flock locks no file on systems without flock(2).
func flock(*os.File) error { return errors.ErrUnsupported }
