package overlap

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Collective is one message among ranks, as all members must agree on it.
type Collective struct {
	Func, Kind, Axis, Op, DType string
	Bytes                       int
	Loc                         ir.Loc
}

// String tells it in an error: all_reduce sum over dp of f32, 1024 bytes.
func (c Collective) String() string {
	op := ""
	if c.Op != "" {
		op = " " + c.Op
	}
	return fmt.Sprintf("%s%s over %s of %s, %d bytes, in @%s at %s", c.Kind, op, c.Axis, c.DType, c.Bytes, c.Func, c.Loc)
}

// same reports whether two ranks' collectives are each other's counterpart.
func (c Collective) same(o Collective) bool {
	c.Loc, o.Loc = ir.Loc{}, ir.Loc{}
	return c == o
}

// List gives the collectives of a rank program in the order in which it issues them. shard_slice is none: it
// talks to nobody.
func List(m *ir.Module) []Collective {
	var out []Collective
	for _, f := range m.Funcs {
		for _, op := range f.Ops {
			c := Collective{Func: f.Name, Kind: op.Def.Rules.Collective, DType: "", Loc: op.Loc}
			switch a := op.Attrs.(type) {
			case ops.AllReduceAttrs:
				c.Axis, c.Op = a.Axis, a.Op
			case ops.AllGatherAttrs:
				c.Axis = a.Axis
			case ops.ReduceScatterAttrs:
				c.Axis, c.Op = a.Axis, a.Op
			default:
				continue
			}
			c.DType = op.In[0].Type.DType.String()
			for _, v := range op.In {
				c.Bytes += v.Type.Bytes()
			}
			out = append(out, c)
		}
	}
	return out
}

// Match checks that the programs of all ranks issue the same collectives in the same order, so that no rank waits
// for one that never comes. progs may hold the same module more than once; the error names both ops.
func Match(progs []*ir.Module) error {
	if len(progs) == 0 {
		return nil
	}
	want := List(progs[0])
	for r, m := range progs[1:] {
		if m == progs[0] {
			continue
		}
		got := List(m)
		for i := range max(len(want), len(got)) {
			switch {
			case i >= len(got):
				return fmt.Errorf("rank 0 waits for %s, which rank %d never issues", want[i], r+1)
			case i >= len(want):
				return fmt.Errorf("rank %d waits for %s, which rank 0 never issues", r+1, got[i])
			case !want[i].same(got[i]):
				return fmt.Errorf("collective %d differs: rank 0 issues %s; rank %d issues %s", i, want[i], r+1, got[i])
			}
		}
	}
	return nil
}
