package compiler

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/filelock"
)

// TestLockOut: while one compilation writes a folder another is refused and changes nothing; a folder that nothing was put into
// goes again.
func TestLockOut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "some", "out")
	unlock, err := lockOut(dir)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(dir); err != nil {
		t.Fatal(err)
	} else if err := filelock.Try(f); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this system has no locks on files")
	} else if f.Close(); !errors.Is(err, filelock.ErrHeld) {
		t.Fatalf("the folder is not locked: %v", err)
	}
	o := Defaults()
	o.Model, o.Out, o.Pass.Loss = hostileFile(t, t.TempDir()), dir, "mse"
	var fault *InputError
	if _, err := Run(t.Context(), &o); !errors.As(err, &fault) || !strings.Contains(err.Error(), "another gtc compile is writing "+dir) {
		t.Fatalf("a second compilation was not refused: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("what was refused left %v, %v", left, err)
	}
	unlock()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("an empty folder stays: %v", err)
	}
	if _, err := Run(t.Context(), &o); err != nil {
		t.Errorf("after the first compilation: %v", err)
	}
}
