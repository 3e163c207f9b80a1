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
	unlock, warning, err := lockOut(dir)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(dir); err != nil {
		t.Fatal(err)
	} else if err := filelock.Try(f); errors.Is(err, errors.ErrUnsupported) {
		if !strings.Contains(warning, dir+" cannot be locked") {
			t.Errorf("nobody is told that there is no lock: %q", warning)
		}
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

// TestLockOutKeeps: a folder that somebody made, and a link to one, stay where a compilation is over, be they empty or not.
func TestLockOutKeeps(t *testing.T) {
	dir := t.TempDir()
	own, link := filepath.Join(dir, "own"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(own, 0o777), os.Symlink(own, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, own} {
		unlock, _, err := lockOut(path)
		if err != nil {
			t.Fatal(err)
		}
		unlock()
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}
