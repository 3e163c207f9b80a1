// Package ckpt writes and reads checkpoints that any parallel layout can load.
//
// # Format
//
//	DIR/latest                                       the name of the newest step's folder, and a newline
//	DIR/step-000123/index.json                       what is where (type Index), with a checksum
//	DIR/step-000123/shard-00000-of-00002.safetensors what rank 0 of 2 held
//	DIR/.tmp-step-000124/                            a save that is under way, or was killed
//
// Tensors go by their original parameter names. A shard holds whole tensors under their
// names and parts as NAME@0:4,8:16 (from and to along each dim, in the whole tensor); the
// index says for each tensor which parts exist, in which shard, and the CRC-32C of each.
// The parts of a tensor cover it exactly once. Any box of it can be read, whatever the
// number of ranks that wrote it.
//
// # Saving
//
// Every rank writes its shard into the temporary folder, forces it to disk, reads it back
// and compares. Rank 0 then writes the index, renames the folder, and switches "latest"
// by another rename; only then are old checkpoints deleted. A kill or an error at any
// moment leaves the previous checkpoint loadable and pointed to. What a killed save left
// behind is ignored, and removed by the next save. All ranks must see the same DIR.
//
// Checksums guard against accidents, not against someone who wants to deceive.
package ckpt

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// Format is the version of the index that this package writes, and the only one it reads.
const Format = 1

// Index is the content of index.json.
type Index struct {
	Format  int               `json:"format"`
	Step    int64             `json:"step"`  // updates done
	World   int               `json:"world"` // ranks that wrote it
	Meta    Meta              `json:"meta"`
	Shards  []Shard           `json:"shards"`
	Tensors map[string]Tensor `json:"tensors"`
}

// Meta is what a run needs, beside its tensors, to go on bit for bit.
type Meta struct {
	Seed      uint64            `json:"seed"`
	Optimizer Optimizer         `json:"optimizer"`
	Data      DataState         `json:"data"`
	RNG       []uint64          `json:"rng,omitempty"`        // state of generators, as the program defines it
	LossScale *LossScale        `json:"loss_scale,omitempty"` // of mixed precision
	User      map[string]string `json:"user,omitempty"`
}

// Optimizer says which rule made the optimizer state, with its settings ("lr", "beta1", ...).
type Optimizer struct {
	Name  string             `json:"name"`
	Hyper map[string]float64 `json:"hyper,omitempty"`
}

// DataState is the position in the data: NextStep with the same Seed, Batch and Samples
// gives the samples that follow (package data).
type DataState struct {
	Seed     uint64 `json:"seed"`
	NextStep int64  `json:"next_step"`
	Batch    int    `json:"batch"`   // global
	Samples  int64  `json:"samples"` // in the data set
}

// LossScale is the state of dynamic loss scaling.
type LossScale struct {
	Scale     float64 `json:"scale"`
	GoodSteps int64   `json:"good_steps"` // since it last changed
}

// Shard is one safetensors file of a checkpoint.
type Shard struct {
	File string `json:"file"` // name within the folder
	Size int64  `json:"size"` // bytes
	CRC  Sum    `json:"crc32c"`
}

// Tensor is one tensor of a checkpoint.
type Tensor struct {
	DType string `json:"dtype"` // short name: "f32", "bf16", ...
	Shape []int  `json:"shape"` // of the whole tensor
	Parts []Part `json:"parts"` // cover it exactly once
}

// Part is a box of a tensor: Offset[i] <= index < Offset[i]+Shape[i] along each dim i.
type Part struct {
	Shard  int   `json:"shard"` // in Index.Shards
	Offset []int `json:"offset"`
	Shape  []int `json:"shape"`
	CRC    Sum   `json:"crc32c"` // of its bytes, row-major
}

// Sum is a CRC-32C (Castagnoli), printed in hexadecimal.
type Sum uint32

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(b []byte) Sum { return Sum(crc32.Checksum(b, castagnoli)) }

// String is eight hexadecimal digits.
func (s Sum) String() string { return fmt.Sprintf("%08x", uint32(s)) }

// MarshalText is String.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (s *Sum) UnmarshalText(b []byte) error {
	var v uint32
	if _, err := fmt.Sscanf(string(b), "%08x", &v); err != nil || len(b) != 8 {
		return fmt.Errorf("checksum %q is not eight hexadecimal digits", b)
	}
	*s = Sum(v)
	return nil
}

// key is the name under which a shard holds a part.
func key(name string, shape []int, p *Part) string {
	if slices.Equal(shape, p.Shape) {
		return name
	}
	dims := make([]string, len(shape))
	for i := range dims {
		dims[i] = fmt.Sprintf("%d:%d", p.Offset[i], p.Offset[i]+p.Shape[i])
	}
	return name + "@" + strings.Join(dims, ",")
}

// errVersion says that an index may be fine, but is not for this program.
var errVersion = errors.New("the index has format")

// encode prints an index between braces with its checksum.
func (x *Index) encode() ([]byte, error) {
	body, err := json.MarshalIndent(x, "", " ")
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "{\"crc32c\": %q, \"index\":\n%s}\n", sum(body), body), nil
}

// decode reads and checks what encode wrote.
func decode(b []byte) (*Index, error) {
	var outer struct {
		CRC   Sum             `json:"crc32c"`
		Index json.RawMessage `json:"index"`
	}
	if err := json.Unmarshal(b, &outer); err != nil {
		return nil, err
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(outer.Index, &version); err == nil && version.Format != Format {
		return nil, fmt.Errorf("%w %d; this program reads %d", errVersion, version.Format, Format)
	}
	if got := sum(outer.Index); got != outer.CRC {
		return nil, fmt.Errorf("its checksum is %s, but the file says %s", got, outer.CRC)
	}
	x := &Index{}
	if err := json.Unmarshal(outer.Index, x); err != nil {
		return nil, err
	}
	return x, x.check()
}

// check refuses an index that names files elsewhere, or whose parts do not make up its tensors.
func (x *Index) check() error {
	for _, s := range x.Shards {
		if s.File != filepath.Base(s.File) || !strings.HasPrefix(s.File, "shard-") {
			return fmt.Errorf("%q is not the name of a shard", s.File)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.Tensors)) {
		t := x.Tensors[name]
		if err := t.check(len(x.Shards)); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
	}
	return nil
}

// check says whether the parts cover the tensor exactly once.
func (t *Tensor) check(shards int) error {
	total, err := safetensors.ByteSize(t.DType, t.Shape)
	if err != nil {
		return err
	}
	if n, err := safetensors.ByteSize(t.DType, []int{1}); err != nil || n == 0 {
		return fmt.Errorf("elements of type %s do not fill whole bytes", t.DType)
	}
	covered := 0
	for i := range t.Parts {
		p := &t.Parts[i]
		if p.Shard < 0 || p.Shard >= shards {
			return fmt.Errorf("a part is in shard %d, but there are %d shards", p.Shard, shards)
		}
		if err := inside(t.Shape, p.Offset, p.Shape); err != nil {
			return err
		}
		for k := range i {
			if q := &t.Parts[k]; overlap(p.Offset, p.Shape, q.Offset, q.Shape) {
				return fmt.Errorf("the part at %v of shape %v in shard %d overlaps the part at %v of shape %v in shard %d",
					p.Offset, p.Shape, p.Shard, q.Offset, q.Shape, q.Shard)
			}
		}
		n, err := safetensors.ByteSize(t.DType, p.Shape)
		if err != nil {
			return err
		}
		covered += n
	}
	if covered != total {
		return fmt.Errorf("%d of the %d bytes of %s%v are in its %s", covered, total, t.DType, t.Shape, printable.Count(len(t.Parts), "part"))
	}
	return nil
}

// stepName is the folder of a step.
func stepName(step int64) string { return fmt.Sprintf("step-%06d", step) }

// parseStep reads a folder's name.
func parseStep(name string) (int64, bool) {
	step, err := strconv.ParseInt(strings.TrimPrefix(name, "step-"), 10, 64)
	return step, err == nil && step >= 0 && name == stepName(step)
}

// Steps lists the steps that have a folder in dir, ascending.
func Steps(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var steps []int64
	for _, e := range entries {
		if step, ok := parseStep(e.Name()); ok && e.IsDir() {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	return steps, nil
}
