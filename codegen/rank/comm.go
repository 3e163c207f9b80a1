package rank

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// collective places a mesh op on the arena.
func (g *generator) collective(op *ir.Op) (*comm, error) {
	last := op.Out[len(op.Out)-1]
	cm := &comm{op: op, offset: op.Out[0].Offset, bytes: last.Offset + last.Type.Bytes() - op.Out[0].Offset}
	src := group.Alias(op.In[0])
	cm.source = src.Offset
	dim := 0
	switch a := op.Attrs.(type) {
	case ops.AllReduceAttrs:
		cm.axis, cm.reduce = a.Axis, a.Op
		for i, v := range op.In {
			if from := group.Alias(v).Offset; from != op.Out[i].Offset {
				cm.before = append(cm.before, pass.Copy{From: from, To: op.Out[i].Offset, Bytes: v.Type.Bytes()})
			}
		}
	case ops.AllGatherAttrs:
		cm.axis, dim = a.Axis, outer(a.Dim, op.Out[0].Type.Dims)
	case ops.ReduceScatterAttrs:
		cm.axis, cm.reduce, dim = a.Axis, a.Op, outer(a.Dim, op.In[0].Type.Dims)
	case ops.ShardSliceAttrs:
		cm.axis = a.Axis
		cm.outer = ir.Product(op.In[0].Type.Dims[:a.Dim])
		cm.stride = op.In[0].Type.Bytes() / max(cm.outer, 1)
	default:
		return nil, fmt.Errorf("BUG: no run-time form of collective %s", op.Def.Name)
	}
	if dim != 0 {
		return nil, ir.Errorf(op.Loc, "%s along dimension %d: the run-time joins parts along the outermost dimension only", op.Def.Name, dim)
	}
	return cm, nil
}

// outer is 0 when every dim before d has size 1, so that parts along d follow each other in memory.
func outer(d int, dims []int) int {
	if ir.Product(dims[:d]) == 1 {
		return 0
	}
	return d
}

// Collectives lists the mesh operations of m for the manifest, in program order.
func Collectives(m *ir.Module) []abi.Collective {
	var out []abi.Collective
	g := &generator{m: m}
	for _, f := range m.Funcs {
		for _, op := range f.Ops {
			kind := op.Def.Rules.Collective
			if kind == "" || kind == "shard_slice" {
				continue
			}
			cm, err := g.collective(op)
			if err != nil {
				continue // Generate reports it
			}
			c := abi.Collective{Func: f.Name, Kind: kind, Axis: cm.axis, Op: cm.reduce, DType: op.In[0].Type.DType.String(),
				Bytes: cm.bytes, Loc: op.Loc.String()}
			for _, v := range op.Out {
				c.Tensors = append(c.Tensors, v.Name)
			}
			out = append(out, c)
		}
	}
	return out
}
