package ckpt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Commit, on rank 0, makes the save the newest checkpoint. infos are those of all ranks,
// in any order; every rank's CloseShard must have returned. On an error the temporary
// folder is removed and the previous checkpoint remains the newest.
func (w *Writer) Commit(infos []ShardInfo, meta Meta) error {
	if w.rank != 0 {
		return fmt.Errorf("BUG: rank %d commits a checkpoint, which only rank 0 may", w.rank)
	}
	err := w.finish(infos, meta)
	if err != nil {
		w.Abort()
		return fmt.Errorf("checkpoint of step %d: %w", w.step, err)
	}
	final := filepath.Join(w.dir, stepName(w.step))
	if err := w.switchTo(final); err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", w.step, err)
	}
	w.prune()
	return nil
}

// finish completes the temporary folder.
func (w *Writer) finish(infos []ShardInfo, meta Meta) error {
	index, err := w.join(infos, meta)
	if err != nil {
		return err
	}
	keep := map[string]bool{"index.json": true}
	for i, s := range index.Shards {
		path := filepath.Join(w.temp(), s.File)
		st, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("the shard of rank %d is not there (do all ranks see the same folder?): %w", i, err)
		}
		if st.Size() != s.Size {
			return fmt.Errorf("%s has %d bytes, but rank %d wrote %d", path, st.Size(), i, s.Size)
		}
		keep[s.File] = true
	}
	entries, err := os.ReadDir(w.temp())
	if err != nil {
		return err
	}
	for _, e := range entries { // of a killed save of this step, on another number of ranks
		if !keep[e.Name()] {
			if err := os.RemoveAll(filepath.Join(w.temp(), e.Name())); err != nil {
				return err
			}
		}
	}
	text, err := index.encode()
	if err != nil {
		return err
	}
	path := filepath.Join(w.temp(), "index.json")
	crc, size, err := w.write(path, func(f io.Writer) error { _, err := f.Write(text); return err })
	if err == nil {
		err = reread(path, size, crc)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return syncDir(w.temp())
}

// join makes the index of all ranks' shards, and checks that every tensor is complete.
func (w *Writer) join(infos []ShardInfo, meta Meta) (*Index, error) {
	x := &Index{Format: Format, Step: w.step, World: w.world, Meta: meta,
		Shards: make([]Shard, w.world), Tensors: map[string]Tensor{}}
	for _, in := range infos {
		if in.Err != "" {
			return nil, fmt.Errorf("rank %d: %s", in.Rank, in.Err)
		}
		if in.Rank < 0 || in.Rank >= w.world || x.Shards[in.Rank].File != "" {
			return nil, fmt.Errorf("BUG: a shard too many came from rank %d of %d", in.Rank, w.world)
		}
		x.Shards[in.Rank] = in.Shard
	}
	for rank, s := range x.Shards {
		if s.File == "" {
			return nil, fmt.Errorf("rank %d of %d did not write its shard", rank, w.world)
		}
	}
	infos = slices.Clone(infos)
	slices.SortFunc(infos, func(a, b ShardInfo) int { return a.Rank - b.Rank })
	for _, in := range infos {
		for _, p := range in.Parts {
			t, ok := x.Tensors[p.Name]
			if ok && (t.DType != p.DType || !slices.Equal(t.Shape, p.Shape)) {
				return nil, fmt.Errorf("tensor %q is %s%v on rank %d and %s%v on rank %d", p.Name,
					t.DType, t.Shape, t.Parts[0].Shard, p.DType, p.Shape, in.Rank)
			}
			p.Part.Shard = in.Rank
			x.Tensors[p.Name] = Tensor{DType: p.DType, Shape: p.Shape, Parts: append(t.Parts, p.Part)}
		}
	}
	return x, x.check()
}

// switchTo gives the finished folder its name and points latest at it.
func (w *Writer) switchTo(final string) error {
	old := filepath.Join(w.dir, ".old-"+stepName(w.step))
	if _, err := os.Lstat(final); err == nil {
		// The step was saved before. A kill between the two renames leaves it under the
		// name .old, where loading and the next save find it.
		if err := os.Rename(final, old); err != nil {
			w.Abort()
			return err
		}
	}
	if err := os.Rename(w.temp(), final); err != nil {
		if _, e := os.Lstat(old); e == nil {
			err = errors.Join(err, os.Rename(old, final))
		}
		w.Abort()
		return err
	}
	if err := syncDir(w.dir); err != nil {
		return err
	}
	w.remove(old)
	latest := filepath.Join(w.dir, "latest")
	_, _, err := w.write(latest+".tmp", func(f io.Writer) error {
		_, err := io.WriteString(f, stepName(w.step)+"\n")
		return err
	})
	if err == nil {
		err = os.Rename(latest+".tmp", latest)
	}
	if err != nil {
		os.Remove(latest + ".tmp")
		return fmt.Errorf("%s is complete, but %s could not be switched to it: %w", final, latest, err)
	}
	return syncDir(w.dir)
}

// prune deletes the oldest checkpoints up to this step. The folder is renamed first, so
// that a kill cannot leave half a checkpoint under a step's name.
func (w *Writer) prune() {
	if w.opt.Keep <= 0 {
		return
	}
	steps, err := Steps(w.dir)
	if err != nil {
		w.opt.Log("checkpoint: %v", err)
		return
	}
	steps = slices.DeleteFunc(steps, func(s int64) bool { return s > w.step })
	for _, s := range steps[:max(0, len(steps)-w.opt.Keep)] {
		gone := filepath.Join(w.dir, ".del-"+stepName(s))
		if err := os.Rename(filepath.Join(w.dir, stepName(s)), gone); err != nil {
			w.opt.Log("checkpoint: %v", err)
			continue
		}
		w.remove(gone)
	}
}

// tidy removes what killed saves left in the folder.
func (w *Writer) tidy() {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		w.opt.Log("checkpoint: %v", err)
		return
	}
	for _, e := range entries {
		name := e.Name()
		path := filepath.Join(w.dir, name)
		switch {
		case name == "latest.tmp",
			strings.HasPrefix(name, ".del-step-"),
			strings.HasPrefix(name, ".tmp-step-") && path != w.temp():
			w.remove(path)
		case strings.HasPrefix(name, ".old-step-"):
			final := filepath.Join(w.dir, strings.TrimPrefix(name, ".old-"))
			if _, err := os.Lstat(final); os.IsNotExist(err) {
				if err := os.Rename(path, final); err != nil {
					w.opt.Log("checkpoint: %v", err)
				}
				continue
			}
			w.remove(path)
		}
	}
}

func (w *Writer) remove(path string) {
	if err := os.RemoveAll(path); err != nil {
		w.opt.Log("checkpoint: cannot remove %s: %v", path, err)
	}
}

// syncDir forces a folder's entries to disk.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
