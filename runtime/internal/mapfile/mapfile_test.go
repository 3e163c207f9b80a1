package mapfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, want := range []string{"", "x", strings.Repeat("0123456789", 1000)} {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Data) != want {
			t.Errorf("got %d bytes, want %d", len(m.Data), len(want))
		}
		for range 2 {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("opening a folder: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Errorf("opening nothing: %v", err)
	}
}

// A path that a script has left empty is told as that, not as a file without a name that does not exist.
func TestNoName(t *testing.T) {
	if _, err := Open(""); err == nil || !strings.Contains(err.Error(), "path is empty") {
		t.Error(err)
	}
}
