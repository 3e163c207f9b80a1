package ckpt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// tensorSpec is a tensor of the tests; its content is a function of name and step.
type tensorSpec struct {
	name, dtype string
	shape       []int
	elem        int
}

var specs = []tensorSpec{
	{"emb.weight", "f32", []int{12, 8}, 4},
	{"blocks.0.w", "bf16", []int{4, 6, 8}, 2},
	{"blocks.0.b", "f32", []int{8}, 4},
	{"mask", "bool", []int{4, 4}, 1},
	{"step", "i64", nil, 8},
	{"none", "f32", []int{0, 3}, 4},
}

func (s *tensorSpec) content(step int64) []byte {
	n := s.elem
	for _, d := range s.shape {
		n *= d
	}
	r := rand.NewChaCha8([32]byte{byte(step), byte(step >> 8), byte(len(s.name)), s.name[0]})
	b := make([]byte, n)
	r.Read(b)
	return b
}

// cut takes a box out of a whole tensor, element by element.
func (s *tensorSpec) cut(whole []byte, off, shape []int) []byte {
	out := []byte{}
	var walk func(dim, index int)
	walk = func(dim, index int) {
		if dim == len(shape) {
			out = append(out, whole[index*s.elem:(index+1)*s.elem]...)
			return
		}
		for i := range shape[dim] {
			walk(dim+1, index*s.shape[dim]+off[dim]+i)
		}
	}
	walk(0, 0)
	return out
}

// split gives rank's box when dim is divided over world; ok is false when the tensor is
// left to rank 0 instead.
func (s *tensorSpec) split(dim, rank, world int) (off, shape []int, ok bool) {
	off, shape = make([]int, len(s.shape)), append([]int{}, s.shape...)
	if dim >= len(s.shape) || s.shape[dim]%world != 0 || s.shape[dim] == 0 {
		return off, shape, rank == 0
	}
	shape[dim] /= world
	off[dim] = rank * shape[dim]
	return off, shape, true
}

// save writes step by world ranks with every tensor divided along dim.
func save(dir string, step int64, world, dim int, opt Options) error {
	infos := make([]ShardInfo, world)
	var first *Writer
	var errs []error
	for rank := world - 1; rank >= 0; rank-- { // rank 0 last: it may come late
		w, err := Begin(dir, step, rank, world, opt)
		if err != nil {
			return err
		}
		for _, s := range specs {
			if off, shape, ok := s.split(dim, rank, world); ok {
				if err := w.Add(s.name, s.dtype, s.shape, off, shape, s.cut(s.content(step), off, shape)); err != nil {
					return err
				}
			}
		}
		info, err := w.CloseShard()
		errs = append(errs, err)
		text, err := json.Marshal(info)
		errs = append(errs, err, json.Unmarshal(text, &infos[rank]))
		first = w
	}
	err := first.Commit(infos, Meta{Seed: 1<<63 + 1, Optimizer: Optimizer{"adamw", map[string]float64{"lr": 0.1}},
		Data: DataState{Seed: 7, NextStep: step, Batch: 8, Samples: 100}, User: map[string]string{"loss": "1.5"}})
	return errors.Join(append(errs, err)...)
}

// load checks that the newest checkpoint in dir is whole and holds what its step says.
func load(dir string) (int64, error) {
	c, err := Open(dir)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	step := c.Index().Step
	if err := c.Verify(); err != nil {
		return step, err
	}
	for _, s := range specs {
		if got, err := c.ReadAll(s.name); err != nil || !bytes.Equal(got, s.content(step)) {
			return step, fmt.Errorf("step %d: %s is wrong: %v", step, s.name, err)
		}
	}
	return step, nil
}

// Whatever layout wrote a checkpoint, any other can read it.
func TestAcrossLayouts(t *testing.T) {
	for _, world := range []int{1, 2, 4} {
		for dim := range 3 {
			dir := t.TempDir()
			if err := save(dir, 5, world, dim, Options{}); err != nil {
				t.Fatal(err)
			}
			if step, err := load(dir); err != nil || step != 5 {
				t.Fatal(step, err)
			}
			c, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if m := c.Index().Meta; m.Seed != 1<<63+1 || m.Optimizer.Hyper["lr"] != 0.1 || m.Data.NextStep != 5 {
				t.Errorf("meta %+v", m)
			}
			r := rand.New(rand.NewPCG(1, 2))
			for _, s := range specs {
				for range 20 {
					off, shape, n := make([]int, len(s.shape)), make([]int, len(s.shape)), s.elem
					for i, d := range s.shape {
						off[i] = r.IntN(d + 1)
						shape[i] = r.IntN(d - off[i] + 1)
						n *= shape[i]
					}
					got := make([]byte, n)
					if err := c.Read(s.name, off, shape, got); err != nil || !bytes.Equal(got, s.cut(s.content(5), off, shape)) {
						t.Errorf("%d ranks along dim %d: %s at %v of %v: %v", world, dim, s.name, off, shape, err)
					}
				}
			}
		}
	}
}

func entries(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestKeepAndTidy(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, ErrNone) {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "no")); !errors.Is(err, ErrNone) {
		t.Errorf("no folder: %v", err)
	}
	for _, step := range []int64{10, 20, 30, 40} {
		if err := save(dir, step, 2, 0, Options{Keep: 2}); err != nil {
			t.Fatal(err)
		}
	}
	if got := entries(t, dir); got != "latest step-000030 step-000040" {
		t.Errorf("left: %s", got)
	}
	// Leftovers of killed saves: ignored by loading, removed by the next save.
	for _, name := range []string{".tmp-step-000041", ".tmp-step-000050", ".del-step-000010", ".old-step-000040"} {
		os.MkdirAll(filepath.Join(dir, name), 0o755)
		os.WriteFile(filepath.Join(dir, name, "shard-00000-of-00007.safetensors"), []byte("half"), 0o644)
	}
	os.WriteFile(filepath.Join(dir, "latest.tmp"), nil, 0o644)
	// A step that was being replaced when the save was killed is still there.
	os.Rename(filepath.Join(dir, "step-000030"), filepath.Join(dir, ".old-step-000030"))
	if step, err := load(dir); err != nil || step != 40 {
		t.Errorf("step %d, %v", step, err)
	}
	if err := save(dir, 50, 2, 0, Options{Keep: 3}); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, dir); got != "latest step-000030 step-000040 step-000050" {
		t.Errorf("left: %s", got)
	}
	if got := entries(t, filepath.Join(dir, "step-000050")); strings.Contains(got, "of-00007") {
		t.Errorf("a shard of a killed save came along: %s", got)
	}
	// Going back and saving again: newer steps stay, latest points to the new one.
	if err := save(dir, 40, 1, 0, Options{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	if step, err := load(dir); err != nil || step != 40 || entries(t, dir) != "latest step-000040 step-000050" {
		t.Errorf("step %d, %v, %s", step, err, entries(t, dir))
	}
	// The states between the two renames of a replaced step.
	os.Rename(filepath.Join(dir, "step-000040"), filepath.Join(dir, ".old-step-000040"))
	if step, err := load(dir); err != nil || step != 40 {
		t.Errorf("step %d, %v", step, err)
	}
	os.Remove(filepath.Join(dir, "latest"))
	os.RemoveAll(filepath.Join(dir, "step-000050"))
	if step, err := load(dir); err != nil || step != 40 {
		t.Errorf("without latest: step %d, %v", step, err)
	}
}

func TestSavesAreEqual(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	for _, dir := range []string{a, b} {
		if err := save(dir, 1, 2, 0, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range strings.Fields(entries(t, filepath.Join(a, "step-000001"))) {
		x, _ := os.ReadFile(filepath.Join(a, "step-000001", name))
		y, _ := os.ReadFile(filepath.Join(b, "step-000001", name))
		if len(x) == 0 || !bytes.Equal(x, y) {
			t.Errorf("%s differs", name)
		}
	}
}

func TestCommitErrors(t *testing.T) {
	box := func(n ...int) []int { return n }
	type add struct {
		rank                 int
		dtype                string
		global, offset, size []int
	}
	for _, c := range []struct {
		name string
		adds []add
		want string
	}{
		{"fine", []add{{0, "f32", box(4), box(0), box(2)}, {1, "F32", box(4), box(2), box(2)}}, ""},
		{"gap", []add{{0, "f32", box(4), box(0), box(2)}, {1, "f32", box(4), box(2), box(1)}}, `tensor "w": 12 of the 16 bytes of f32[4] are in its 2 parts`},
		{"replica", []add{{0, "f32", box(4), box(0), box(4)}, {1, "f32", box(4), box(0), box(4)}}, "overlaps the part at [0] of shape [4] in shard 0"},
		{"dtype", []add{{0, "f32", box(4), box(0), box(2)}, {1, "i32", box(4), box(2), box(2)}}, `tensor "w" is f32[4] on rank 0 and i32[4] on rank 1`},
		{"shape", []add{{0, "f32", box(4), box(0), box(2)}, {1, "f32", box(5), box(2), box(2)}}, "f32[5] on rank 1"},
		{"outside", []add{{0, "f32", box(4), box(3), box(2)}}, "dim 0: the part 3:5 is outside the tensor, whose size there is 4"},
		{"dims", []add{{0, "f32", box(4), box(0, 0), box(2, 1)}}, "cannot belong"},
		{"unknown type", []add{{0, "f99", box(4), box(0), box(4)}}, `type "f99"`},
	} {
		dir := t.TempDir()
		if err := save(dir, 1, 1, 0, Options{}); err != nil {
			t.Fatal(err)
		}
		var ws [2]*Writer
		var infos []ShardInfo
		var err error
		for rank := range ws {
			if ws[rank], err = Begin(dir, 2, rank, 2, Options{}); err != nil {
				t.Fatal(err)
			}
		}
		var all []error
		for _, a := range c.adds {
			n := 4
			for _, d := range a.size {
				n *= d
			}
			all = append(all, ws[a.rank].Add("w", a.dtype, a.global, a.offset, a.size, make([]byte, n)))
		}
		for _, w := range ws {
			info, err := w.CloseShard()
			all = append(all, err)
			infos = append(infos, info)
		}
		if err := errors.Join(all...); err == nil {
			err = ws[0].Commit(infos, Meta{})
			all = append(all, err)
		} else {
			ws[0].Abort()
		}
		err = errors.Join(all...)
		want := int64(1)
		if c.want == "" {
			if want = 2; err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		x, err := Open(dir)
		if err != nil || x.Index().Step != want {
			t.Errorf("%s: afterwards the newest is not step %d: %v", c.name, want, err)
		}
		if c.want != "" && entries(t, dir) != "latest step-000001" {
			t.Errorf("%s: left %s", c.name, entries(t, dir))
		}
	}
	dir := t.TempDir()
	w, _ := Begin(dir, 1, 0, 2, Options{})
	info, _ := w.CloseShard()
	if err := w.Commit([]ShardInfo{info}, Meta{}); err == nil || !strings.Contains(err.Error(), "rank 1 of 2 did not write its shard") {
		t.Errorf("missing rank: %v", err)
	}
	w, _ = Begin(dir, 1, 0, 2, Options{})
	info, _ = w.CloseShard()
	other := info
	other.Rank, other.Shard.File = 1, "shard-00001-of-00002.safetensors"
	if err := w.Commit([]ShardInfo{other, info}, Meta{}); err == nil || !strings.Contains(err.Error(), "the shard of rank 1 is not there") {
		t.Errorf("shard on another machine: %v", err)
	}
}

func TestReadErrors(t *testing.T) {
	dir := t.TempDir()
	if err := save(dir, 3, 1, 0, Options{}); err != nil {
		t.Fatal(err)
	}
	c, err := Open(filepath.Join(dir, "step-000003"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if want := []string{"blocks.0.b", "blocks.0.w", "emb.weight", "mask", "none", "step"}; !reflect.DeepEqual(c.Names(), want) {
		t.Errorf("names %v", c.Names())
	}
	for want, err := range map[string]error{
		`no tensor "x"`:              c.Read("x", nil, nil, nil),
		"has 32 bytes, but there is": c.Read("blocks.0.b", []int{0}, []int{8}, make([]byte, 31)),
		"the part 4:9 is outside":    c.Read("blocks.0.b", []int{4}, []int{5}, make([]byte, 20)),
		"cannot belong to a tensor":  c.Read("blocks.0.b", nil, nil, make([]byte, 4)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "step-000003") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
