package build

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder of many ranks has one command and a link for each rank; where a link is missing, a copy of the program takes its
// place.
func TestManyRanksAreOneProgram(t *testing.T) {
	const ranks = 1024
	dir := filepath.Join(t.TempDir(), "out")
	f := &Folder{Dir: dir, Programs: []map[string][]byte{{"program.go": []byte("package prog0\n")}}, Ranks: ranks, Manifest: []byte("{}")}
	for range 2 { // again over the folder that is there
		if err := Write(f); err != nil {
			t.Fatal(err)
		}
	}
	var files, links int
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d.Type()&fs.ModeSymlink != 0 {
			links++
		} else if !d.IsDir() && !strings.Contains(path, "vendor") {
			files++
		}
		return err
	})
	if links != ranks || files > 10 {
		t.Errorf("%d links, %d files", links, files)
	}
	if to, err := os.Readlink(RankBinary(dir, ranks-1)); to != Command || err != nil {
		t.Errorf("the last rank's link leads to %q, %v", to, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", Command), []byte("program"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(RankBinary(dir, 3)); err != nil {
		t.Fatal(err)
	}
	if err := copies(dir, ranks); err != nil {
		t.Fatal(err)
	}
	for _, r := range []int{3, 4} {
		got, err := os.ReadFile(RankBinary(dir, r))
		st, err2 := os.Stat(RankBinary(dir, r))
		if string(got) != "program" || err != nil || err2 != nil || st.Mode()&0o100 == 0 {
			t.Errorf("rank %d: %q, %v, %v", r, got, err, err2)
		}
	}
}
