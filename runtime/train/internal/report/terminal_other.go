//go:build !linux

package report

import (
	"io"
	"os"
)

// terminal reports whether w is a terminal on which a line can be rewritten; other character devices look the same.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
