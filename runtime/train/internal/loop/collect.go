package loop

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/runtime/npz"
	"github.com/gtc-compiler/gtc/runtime/train/internal/machine"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// collector gathers the results of functions, from all micro-batches and ranks.
type collector struct {
	s     *session
	parts []part
}

// part is one rank's share of a result, in one micro-batch.
type part struct {
	Name, DType string
	Dims        []int // of this part
	Whole       []int // of the whole tensor
	At          []int // where in the whole tensor this part begins
	data        []byte
}

// take copies the results of f. Of results that are not spread over micro-batches, the last remain.
func (c *collector) take(f *machine.Function, micro int) error {
	x := c.s.Plan
	for i := range f.Info.Results {
		t := &f.Info.Results[i]
		data, err := c.s.m.Result(f, t)
		if err != nil {
			return err
		}
		p := part{t.Name, t.DType, t.Dims, x.Whole(t), x.Start(t, x.Rank, micro), slices.Clone(data)}
		old := slices.IndexFunc(c.parts, func(q part) bool { return q.Name == t.Name })
		if old >= 0 && !program.Split(t, mesh.TimeAxis) {
			c.parts[old] = p
		} else {
			c.parts = append(c.parts, p)
		}
	}
	return nil
}

var resultSite = comm.Site{Tensor: "results"}

// join puts the parts together, on rank 0; the others get nothing. Of ranks that have the same part, the first gives it.
func (c *collector) join() ([]npz.Array, error) {
	ranks, err := c.lists()
	if err != nil {
		return nil, err
	}
	var arrays []npz.Array
	at, seen := map[string]int{}, map[string]bool{}
	for r, parts := range ranks {
		for i := range parts {
			p := &parts[i]
			key := fmt.Sprint(p.Name, p.At)
			if seen[key] {
				continue
			}
			seen[key] = true
			if err := c.bring(r, p); err != nil {
				return nil, err
			}
			if c.s.Plan.Rank != 0 {
				continue
			}
			k, ok := at[p.Name]
			if !ok {
				k = len(arrays)
				at[p.Name] = k
				arrays = append(arrays, npz.Array{Name: p.Name, DType: p.DType, Shape: slices.Clone(p.Whole), Data: make([]byte, program.ElemSize(p.DType)*program.Elems(p.Whole))})
			}
			program.CopyBox(program.Region{Data: arrays[k].Data, Dims: arrays[k].Shape, At: p.At}, program.Region{Data: p.data, Dims: p.Dims}, p.Dims, program.ElemSize(p.DType))
		}
	}
	return arrays, nil
}

// lists is what every rank has, known to all; a rank has the contents of its own alone.
func (c *collector) lists() ([][]part, error) {
	if c.s.World == nil {
		return [][]part{c.parts}, nil
	}
	mine, err := json.Marshal(c.parts)
	if err != nil {
		return nil, err
	}
	texts, err := c.s.Gather(mine)
	if err != nil {
		return nil, err
	}
	ranks := make([][]part, len(texts))
	for r, text := range texts {
		if err := json.Unmarshal(text, &ranks[r]); err != nil {
			return nil, fmt.Errorf("BUG: the message of rank %d about its results: %w", r, err)
		}
	}
	ranks[c.s.Plan.Rank] = c.parts
	return ranks, nil
}

// bring moves the contents of a part of rank r to rank 0.
func (c *collector) bring(r int, p *part) error {
	n := program.ElemSize(p.DType) * program.Elems(p.Dims)
	switch {
	case r == 0 || n == 0:
	case c.s.Plan.Rank == r:
		return c.s.World.Send(&resultSite, p.data, comm.U8, 0)
	case c.s.Plan.Rank == 0:
		p.data = make([]byte, n)
		return c.s.World.Recv(&resultSite, p.data, comm.U8, r)
	}
	return nil
}
