package rank

import (
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// collective places a mesh op on the arena.
func (g *generator) collective(op *ir.Op) (*abi.Comm, error) {
	last := op.Out[len(op.Out)-1]
	cm := &abi.Comm{Kind: op.Def.Rules.Collective, Loc: op.Loc.String(), Offset: op.Out[0].Offset, Bytes: last.Offset + last.Type.Bytes() - op.Out[0].Offset}
	for i, v := range op.Out {
		if i > 0 {
			cm.Tensor += ", "
		}
		cm.Tensor += v.Name
	}
	cm.DType = op.Out[0].Type.DType.String()
	if len(op.In) > 0 {
		cm.Source, cm.DType = group.Alias(op.In[0]).Offset, op.In[0].Type.DType.String()
	}
	dim := 0
	switch a := op.Attrs.(type) {
	case ops.AllReduceAttrs:
		cm.Axis, cm.Op = a.Axis, a.Op
		for i, v := range op.In {
			if from := group.Alias(v).Offset; from != op.Out[i].Offset {
				cm.Before = append(cm.Before, abi.Copy{From: from, To: op.Out[i].Offset, Bytes: v.Type.Bytes()})
			}
		}
	case ops.AllGatherAttrs:
		cm.Axis, dim = a.Axis, outer(a.Dim, op.Out[0].Type.Dims)
	case ops.ReduceScatterAttrs:
		cm.Axis, cm.Op, dim = a.Axis, a.Op, outer(a.Dim, op.In[0].Type.Dims)
	case ops.ShardSliceAttrs:
		cm.Axis = a.Axis
		cm.Outer = ir.Product(op.In[0].Type.Dims[:a.Dim])
		cm.Stride = op.In[0].Type.Bytes() / max(cm.Outer, 1)
	case ops.AllToAllAttrs:
		cm.Axis, dim = a.Axis, max(outer(a.Split, op.In[0].Type.Dims), outer(a.Join, op.Out[0].Type.Dims))
	case ops.SendAttrs:
		cm.Axis, cm.Peer, cm.Tensor, cm.Bytes = a.Axis, a.Peer, a.Tag, op.In[0].Type.Bytes()
		to := g.stashOf(op.In[0])
		switch {
		case to == nil && strings.Contains(g.f.Name, "."): // the proof of the schedule has it that nobody waits for the message
			return nil, ir.Errorf(op.Loc, "BUG: @%s sends %%%s, which it does not stash", g.f.Name, op.In[0].Name)
		case to == nil:
		case to.Offset != cm.Source:
			cm.Before = []abi.Copy{{From: cm.Source, To: to.Offset, Bytes: cm.Bytes}}
			cm.Source = to.Offset
			fallthrough
		default:
			cm.Stays = true
		}
	case ops.RecvAttrs:
		cm.Axis, cm.Peer, cm.Tensor = a.Axis, a.Peer, a.Tag
	default:
		return nil, fmt.Errorf("BUG: no run-time form of collective %s", op.Def.Name)
	}
	if dim != 0 {
		return nil, ir.Errorf(op.Loc, "%s along dimension %d: the run-time joins parts along the outermost dimension only", op.Def.Name, dim)
	}
	return cm, nil
}

// stashOf is the stash that keeps v, which the function sends; nil for none. The message leaves from there: what v is a view
// of may be another function's, which overwrites it while the message is on its way.
func (g *generator) stashOf(v *ir.Value) *ir.Value {
	for _, r := range g.f.Results {
		if r.Value == v && r.Updates != nil && r.Updates.Role == ir.Stash {
			return r.Updates
		}
	}
	return nil
}

// outer is 0 when every dim before d has size 1, so that parts along d follow each other in memory.
func outer(d int, dims []int) int {
	if ir.Product(dims[:d]) == 1 {
		return 0
	}
	return d
}

// Collectives lists the mesh operations of m for the manifest, in program order. Those of a send and of the recv that
// takes it are called by their tag.
func Collectives(m *ir.Module) []abi.Collective {
	var out []abi.Collective
	g := &generator{m: m}
	for _, f := range m.Funcs {
		g.f = f
		for _, op := range f.Ops {
			kind := op.Def.Rules.Collective
			if !kind.Talks() {
				continue
			}
			cm, err := g.collective(op)
			if err != nil {
				continue // Generate reports it
			}
			out = append(out, abi.Collective{Func: f.Name, Kind: kind, Axis: cm.Axis, Peer: cm.Peer, Op: cm.Op, DType: cm.DType,
				Bytes: cm.Bytes, Tensors: strings.Split(cm.Tensor, ", "), Loc: op.Loc.String(), Why: op.Why})
		}
	}
	return out
}
