package ckpt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// ErrNone is wrapped by Open's error when a folder holds no checkpoint at all.
var ErrNone = errors.New("no checkpoint")

// CorruptError says that a checkpoint is damaged, and which older one is not.
type CorruptError struct {
	Path   string // the damaged file
	Err    error
	Intact string // folder of the newest older checkpoint whose checksums are right; empty: none
}

// Error names the file and what to load instead.
func (e *CorruptError) Error() string {
	s := fmt.Sprintf("%s: %v: the checkpoint is damaged; ", e.Path, e.Err)
	if e.Intact == "" {
		return s + "no older one is intact"
	}
	return s + "the older " + e.Intact + " is intact and can be loaded by its path"
}

// Unwrap is the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// Checkpoint is an open checkpoint. Its methods may be called from several goroutines.
type Checkpoint struct {
	dir   string // the step's folder
	index *Index

	mu      sync.Mutex
	shards  []*safetensors.File // nil until used
	checked map[string]bool     // parts, by shard and key, whose checksums were right
}

// Open opens a step's folder, or the newest checkpoint of a folder of steps: the one that
// its file latest names. Tensors are read, and their checksums verified, when asked for.
func Open(dir string) (*Checkpoint, error) {
	path, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	return openStep(path)
}

// resolve finds the step's folder.
func resolve(dir string) (string, error) {
	_, isStep := parseStep(filepath.Base(dir))
	if _, err := os.Stat(filepath.Join(dir, "index.json")); err == nil {
		return dir, nil
	}
	if _, err := os.Stat(dir); err == nil && isStep {
		return dir, nil // and be told that its index is missing
	}
	text, err := os.ReadFile(filepath.Join(dir, "latest"))
	if errors.Is(err, fs.ErrNotExist) {
		return newest(dir) // killed before the first switch, or the steps were copied one by one
	}
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(string(text))
	if _, ok := parseStep(name); !ok {
		return "", corrupt(dir, filepath.Join(dir, "latest"), 1<<62, fmt.Errorf("it names %q, which is not the folder of a step", name))
	}
	for _, prefix := range []string{"", ".old-"} {
		path := filepath.Join(dir, prefix+name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", corrupt(dir, filepath.Join(dir, "latest"), 1<<62, fmt.Errorf("it names %s, which does not exist", name))
}

// newest finds the last step without the help of latest.
func newest(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: %w: there is no such folder", dir, ErrNone)
	}
	if err != nil {
		return "", err
	}
	best, path := int64(-1), ""
	for _, e := range entries {
		step, ok := parseStep(strings.TrimPrefix(e.Name(), ".old-"))
		if ok && step > best { // .old-step-N comes before step-N, which then does not replace it: both are whole
			best, path = step, filepath.Join(dir, e.Name())
		}
	}
	if best < 0 {
		return "", fmt.Errorf("%s: %w", dir, ErrNone)
	}
	return path, nil
}

// corrupt makes a CorruptError; the older checkpoint is looked for among the steps of
// root before step.
func corrupt(root, path string, step int64, err error) error {
	e := &CorruptError{Path: path, Err: err}
	steps, _ := Steps(root)
	slices.Reverse(steps)
	for _, s := range steps {
		if s >= step {
			continue
		}
		c, err := read(filepath.Join(root, stepName(s)))
		if err == nil {
			_, err = c.verify()
			c.Close()
		}
		if err == nil {
			e.Intact = c.dir
			break
		}
	}
	return e
}

// read opens a step's folder; errors are plain.
func read(dir string) (*Checkpoint, error) {
	text, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		return nil, err
	}
	x, err := decode(text)
	if err != nil {
		return nil, err
	}
	return &Checkpoint{dir: dir, index: x, shards: make([]*safetensors.File, len(x.Shards)), checked: map[string]bool{}}, nil
}

func openStep(dir string) (*Checkpoint, error) {
	c, err := read(dir)
	if err == nil {
		return c, nil
	}
	path := filepath.Join(dir, "index.json")
	if errors.Is(err, errVersion) || os.IsPermission(err) {
		return nil, fmt.Errorf("%s: %w", path, err) // not damaged
	}
	step, _ := parseStep(strings.TrimPrefix(filepath.Base(dir), ".old-"))
	return nil, corrupt(filepath.Dir(dir), path, step, err)
}

// Close gives the files back; it may be called twice.
func (c *Checkpoint) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.shards {
		if s != nil {
			s.Close()
			c.shards[i] = nil
		}
	}
	clear(c.checked)
}

// Index describes the checkpoint; it must not be changed.
func (c *Checkpoint) Index() *Index { return c.index }

// Dir is the step's folder.
func (c *Checkpoint) Dir() string { return c.dir }

// Names lists the tensors, sorted.
func (c *Checkpoint) Names() []string {
	names := make([]string, 0, len(c.index.Tensors))
	for n := range c.index.Tensors {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Tensor describes a tensor.
func (c *Checkpoint) Tensor(name string) (Tensor, error) {
	t, ok := c.index.Tensors[name]
	if !ok {
		return Tensor{}, fmt.Errorf("%s: the checkpoint has no tensor %q", c.dir, name)
	}
	return t, nil
}

// Read puts the box at offset, of the given shape, of a tensor into dst, row-major, from
// however many shards hold it. The checksum of every part that is touched is verified.
func (c *Checkpoint) Read(name string, offset, shape []int, dst []byte) error {
	t, err := c.Tensor(name)
	if err != nil {
		return err
	}
	n, err := safetensors.ByteSize(t.DType, shape)
	if err == nil {
		err = inside(t.Shape, offset, shape)
	}
	if err == nil && n != len(dst) {
		err = fmt.Errorf("%s%v has %d bytes, but there is room for %d", t.DType, shape, n, len(dst))
	}
	if err != nil {
		return fmt.Errorf("%s: tensor %q: %w", c.dir, name, err)
	}
	elem, err := safetensors.ByteSize(t.DType, []int{1})
	if err != nil {
		return err
	}
	out := box{off: offset, shape: shape, data: dst}
	for i := range t.Parts {
		p := &t.Parts[i]
		if !overlap(offset, shape, p.Offset, p.Shape) {
			continue
		}
		data, path, err := c.part(name, &t, p)
		if err != nil {
			return corrupt(filepath.Dir(c.dir), path, c.index.Step, err)
		}
		copyBox(&out, &box{off: p.Offset, shape: p.Shape, data: data}, elem)
	}
	return nil
}

// ReadAll returns a whole tensor.
func (c *Checkpoint) ReadAll(name string) ([]byte, error) {
	t, err := c.Tensor(name)
	if err != nil {
		return nil, err
	}
	n, err := safetensors.ByteSize(t.DType, t.Shape)
	if err != nil {
		return nil, err
	}
	// The shards' sizes were checked against the index only if they were opened: do not
	// allocate what the index merely claims.
	for _, p := range t.Parts {
		if _, path, err := c.part(name, &t, &p); err != nil {
			return nil, corrupt(filepath.Dir(c.dir), path, c.index.Step, err)
		}
	}
	dst := make([]byte, n)
	return dst, c.Read(name, make([]int, len(t.Shape)), t.Shape, dst)
}

// part returns the verified bytes of a part, and the path of the file they are in.
func (c *Checkpoint) part(name string, t *Tensor, p *Part) ([]byte, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path := filepath.Join(c.dir, c.index.Shards[p.Shard].File)
	f, err := c.shard(p.Shard, path)
	if err != nil {
		return nil, path, err
	}
	k := key(name, t.Shape, p)
	x, err := f.Tensor(k)
	if err != nil {
		return nil, path, err
	}
	if x.Elem() != t.DType || !slices.Equal(x.Shape, p.Shape) {
		return nil, path, fmt.Errorf("tensor %q is %s%v, but the index says %s%v", k, x.Elem(), x.Shape, t.DType, p.Shape)
	}
	if mark := fmt.Sprint(p.Shard, "/", k); !c.checked[mark] {
		if got := sum(x.Data); got != p.CRC {
			return nil, path, fmt.Errorf("tensor %q has checksum %s, but the index says %s", k, got, p.CRC)
		}
		c.checked[mark] = true
	}
	return x.Data, path, nil
}

// shard opens a shard once and compares its size; c.mu is held.
func (c *Checkpoint) shard(i int, path string) (*safetensors.File, error) {
	if c.shards[i] != nil {
		return c.shards[i], nil
	}
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	if n := int64(len(f.Bytes())); n != c.index.Shards[i].Size {
		f.Close()
		return nil, fmt.Errorf("it has %d bytes, but the index says %d", n, c.index.Shards[i].Size)
	}
	c.shards[i] = f
	return f, nil
}

// Verify reads everything and compares all checksums.
func (c *Checkpoint) Verify() error {
	if path, err := c.verify(); err != nil {
		return corrupt(filepath.Dir(c.dir), path, c.index.Step, err)
	}
	return nil
}

func (c *Checkpoint) verify() (string, error) {
	for i, s := range c.index.Shards {
		path := filepath.Join(c.dir, s.File)
		c.mu.Lock()
		f, err := c.shard(i, path)
		c.mu.Unlock()
		if err != nil {
			return path, err
		}
		if got := sum(f.Bytes()); got != s.CRC {
			return path, fmt.Errorf("its checksum is %s, but the index says %s", got, s.CRC)
		}
	}
	for _, name := range c.Names() {
		t := c.index.Tensors[name]
		for i := range t.Parts {
			if _, path, err := c.part(name, &t, &t.Parts[i]); err != nil {
				return path, err
			}
		}
	}
	return "", nil
}
