package carry

import (
	"bytes"
	"path/filepath"
	"reflect"
	"testing"
)

// TestFile: a group comes back from a file as it was, and contents of which there are many copies take the room of one.
func TestFile(t *testing.T) {
	big := make([]byte, 100*piece+7)
	for i := range big {
		big[i] = byte(i * i >> 3)
	}
	g := &Group{Name: "g", Kernels: []Kernel{{Name: "k", Text: "t"}}, Cases: []Case{
		{Name: "a", Memory: big, Size: len(big) + 9, Results: []Result{{Offset: 256, Want: big[256:777]}}, Launches: []Launch{{Args: []int{0, -1}}}},
		{Name: "b", Memory: bytes.Clone(big), Results: []Result{{Want: []byte{}}, {Want: big}}},
	}}
	path := filepath.Join(t.TempDir(), "g.cases")
	if err := Write(path, g); err != nil {
		t.Fatal(err)
	}
	if len(g.Cases[0].Memory) != len(big) || len(g.Cases[1].Results[1].Want) != len(big) {
		t.Error("Write changes the group")
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, g) {
		t.Errorf("read %+v", got)
	}
	p := packer{known: map[string]int32{}}
	p.add(big)
	n := len(p.Pieces)
	if p.add(big); len(p.Pieces) != n || n > len(big)+piece {
		t.Errorf("%d bytes of pieces, then %d", n, len(p.Pieces))
	}
}
