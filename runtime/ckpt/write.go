package ckpt

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// File is what a checkpoint file is written through.
type File interface {
	io.Writer
	Sync() error // force to disk
	Close() error
}

// Options of a save; the zero value keeps every checkpoint.
type Options struct {
	Keep   int                              // newest checkpoints to keep, this one included; 0: all
	Create func(path string) (File, error)  // how files are made; nil: os.Create
	Log    func(format string, args ...any) // told of what could not be tidied up; nil: silence
}

// Writer is one rank's side of a save.
type Writer struct {
	dir         string
	step        int64
	rank, world int
	opt         Options
	tensors     []safetensors.Tensor
	info        ShardInfo
}

// ShardInfo is what rank 0 must know of a rank's shard. It travels as JSON.
type ShardInfo struct {
	Rank  int        `json:"rank"`
	Shard Shard      `json:"shard"`
	Parts []PartInfo `json:"parts"`
	Err   string     `json:"err,omitempty"` // why this rank could not write its shard
}

// PartInfo is a part with the tensor it belongs to.
type PartInfo struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"` // of the whole tensor
	Part  Part   `json:"part"`
}

// Begin starts a save of the state after step updates into dir, as one of world ranks.
// Rank 0 also removes what killed saves left behind.
func Begin(dir string, step int64, rank, world int, opt Options) (*Writer, error) {
	if step < 0 || rank < 0 || rank >= world {
		return nil, fmt.Errorf("BUG: checkpoint of step %d by rank %d of %d", step, rank, world)
	}
	if opt.Create == nil {
		opt.Create = func(path string) (File, error) { return os.Create(path) }
	}
	if opt.Log == nil {
		opt.Log = func(string, ...any) {}
	}
	w := &Writer{dir: dir, step: step, rank: rank, world: world, opt: opt}
	w.info = ShardInfo{Rank: rank, Shard: Shard{File: fmt.Sprintf("shard-%05d-of-%05d.safetensors", rank, world)}}
	if err := os.MkdirAll(w.temp(), 0o755); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if rank == 0 {
		w.tidy()
	}
	return w, nil
}

// temp is the folder that the save is written in.
func (w *Writer) temp() string { return filepath.Join(w.dir, ".tmp-"+stepName(w.step)) }

// Add puts a part of a tensor into this rank's shard: the box at offset, of the given
// shape, of the tensor name, which is dtype[global...] as a whole. dtype is a short name
// ("f32") or one of safetensors ("F32"). data, row-major and little-endian, is not
// copied: it must stay as it is until CloseShard. Each element of a tensor belongs in one
// shard; replicas are for the caller to leave out. A nil offset stands for zeros.
func (w *Writer) Add(name, dtype string, global, offset, shape []int, data []byte) error {
	if offset == nil {
		offset = make([]int, len(shape))
	}
	p := PartInfo{Name: name, DType: strings.ToLower(dtype), Shape: slices.Clone(global),
		Part: Part{Shard: w.rank, Offset: slices.Clone(offset), Shape: slices.Clone(shape)}}
	n, err := safetensors.ByteSize(dtype, shape)
	if err == nil {
		err = inside(global, offset, shape)
	}
	if err == nil && n != len(data) {
		err = fmt.Errorf("%s%v needs %d bytes, but %d are given", p.DType, shape, n, len(data))
	}
	if err != nil {
		return fmt.Errorf("checkpoint: tensor %q: %w", name, err)
	}
	w.tensors = append(w.tensors, safetensors.Tensor{Name: key(name, global, &p.Part), DType: dtype, Shape: p.Part.Shape, Data: data})
	w.info.Parts = append(w.info.Parts, p)
	return nil
}

// CloseShard writes this rank's shard, forces it to disk, reads it back and compares. On
// an error the shard is removed (and, where this is the only rank, the whole temporary
// folder); the information, which then carries the error, should still go to rank 0, whose
// Commit will refuse and tidy up.
func (w *Writer) CloseShard() (ShardInfo, error) {
	path := filepath.Join(w.temp(), w.info.Shard.File)
	err := w.writeShard(path)
	if err != nil {
		err = fmt.Errorf("checkpoint of step %d: writing %s: %w", w.step, path, err)
		w.info.Err = err.Error()
		if w.world == 1 {
			w.Abort()
		} else {
			os.Remove(path)
		}
	}
	w.tensors = nil
	return w.info, err
}

func (w *Writer) writeShard(path string) error {
	for i := range w.tensors {
		w.info.Parts[i].Part.CRC = sum(w.tensors[i].Data)
	}
	meta := map[string]string{"format": "pt"} // what PyTorch's loader asks for
	crc, size, err := w.write(path, func(f io.Writer) error { return safetensors.Write(f, w.tensors, meta) })
	if err != nil {
		return err
	}
	w.info.Shard.Size, w.info.Shard.CRC = size, crc
	return reread(path, size, crc)
}

// counter sums and counts what goes through, and turns a short write into an error.
type counter struct {
	w   io.Writer
	n   int64
	crc uint32
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if n > 0 {
		c.n += int64(n)
		c.crc = crc32.Update(c.crc, castagnoli, b[:n])
	}
	return n, err
}

// write makes a file, fills it and forces it to disk.
func (w *Writer) write(path string, fill func(io.Writer) error) (Sum, int64, error) {
	f, err := w.opt.Create(path)
	if err != nil {
		return 0, 0, err
	}
	c := &counter{w: f}
	if err = fill(c); err == nil {
		err = f.Sync()
	}
	return Sum(c.crc), c.n, errors.Join(err, f.Close())
}

// reread compares a file with what was meant to be written.
func reread(path string, size int64, want Sum) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := crc32.New(castagnoli)
	n, err := io.Copy(h, f)
	if err != nil {
		return err
	}
	if n != size || Sum(h.Sum32()) != want {
		return fmt.Errorf("reading it back gives %d bytes with checksum %s, not %d with %s", n, Sum(h.Sum32()), size, want)
	}
	return nil
}

// Abort gives the save up. Rank 0 removes the temporary folder, another rank its shard.
func (w *Writer) Abort() {
	path := filepath.Join(w.temp(), w.info.Shard.File)
	if w.rank == 0 {
		path = w.temp()
	}
	if err := os.RemoveAll(path); err != nil {
		w.opt.Log("checkpoint: cannot remove %s: %v", path, err)
	}
}
