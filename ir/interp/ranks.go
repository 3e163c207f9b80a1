package interp

import (
	"fmt"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// RunRanks evaluates f on world ranks of m's mesh, args for each. All ranks run the same program, so they go through
// it in step, one op at a time: a collective sees the operands of every rank.
func RunRanks(m *ir.Module, f *ir.Func, world int, args []map[string]*ir.Array) ([]*Outcome, error) {
	return Options{}.RunRanks(m, f, world, args)
}

// RunRanks is RunRanks with options.
func (o Options) RunRanks(m *ir.Module, f *ir.Func, world int, args []map[string]*ir.Array) ([]*Outcome, error) {
	if world != m.Mesh.Ranks() || len(args) != world {
		return nil, fmt.Errorf("%d ranks with %d arguments on mesh %s of %d ranks", world, len(args), m.Mesh, m.Mesh.Ranks())
	}
	envs := make([]env, world)
	for r := range envs {
		var err error
		if envs[r], err = enter(f, args[r]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
	}
	for _, op := range f.Ops {
		in := make([][]*ir.Array, world)
		for r, e := range envs {
			in[r] = e.operands(op)
		}
		for r, e := range envs {
			out, err := o.at(m.Mesh, r, op, in)
			if err != nil {
				return nil, fmt.Errorf("@%s, rank %d: %w", f.Name, r, err)
			}
			for i, v := range op.Out {
				e[v] = out[i]
			}
			if o.Watch != nil {
				o.Watch(r, op, out)
			}
		}
	}
	out := make([]*Outcome, world)
	for r, e := range envs {
		out[r] = e.leave(f)
	}
	return out, nil
}

// at evaluates op on rank r; in holds the operands of all ranks.
func (o Options) at(m mesh.Mesh, r int, op *ir.Op, in [][]*ir.Array) ([]*ir.Array, error) {
	if op.Def.Rules.Collective == "" {
		return Op(op, in[r])
	}
	group := func(axis string, size int) ([]int, error) {
		g := m.Group(r, axis)
		if axis == mesh.TimeAxis || size > 0 && size != len(g) {
			return nil, fmt.Errorf("%s: axis %s has %d ranks", op, axis, len(g))
		}
		return g, nil
	}
	switch a := op.Attrs.(type) {
	case ops.AllReduceAttrs:
		g, err := group(a.Axis, 0)
		if err != nil {
			return nil, err
		}
		var out []*ir.Array
		for i := range op.In {
			out = append(out, combine(a.Op, pick(in, g, i)))
		}
		return out, nil
	case ops.AllGatherAttrs:
		g, err := group(a.Axis, a.Size)
		if err != nil {
			return nil, err
		}
		return []*ir.Array{Join(a.Dim, pick(in, g, 0))}, nil
	case ops.ReduceScatterAttrs:
		g, err := group(a.Axis, a.Size)
		if err != nil {
			return nil, err
		}
		return []*ir.Array{Part(combine(a.Op, pick(in, g, 0)), a.Dim, a.Size, m.Coord(r, a.Axis))}, nil
	case ops.ShardSliceAttrs:
		k := m.Coord(r, a.Axis)
		if a.Axis == mesh.TimeAxis {
			k = o.Micro
		}
		if k >= a.Size {
			return nil, fmt.Errorf("%s: position %d along %s", op, k, a.Axis)
		}
		return []*ir.Array{Part(in[r][0], a.Dim, a.Size, k)}, nil
	}
	return nil, fmt.Errorf("BUG: collective %s is unknown to the evaluator", op.Def.Name)
}

// pick takes operand i of the ranks of a group.
func pick(in [][]*ir.Array, group []int, i int) []*ir.Array {
	out := make([]*ir.Array, len(group))
	for k, r := range group {
		out[k] = in[r][i]
	}
	return out
}

// combine reduces arrays element by element, in rank order.
func combine(op string, xs []*ir.Array) *ir.Array {
	out := copyOf(xs[0])
	for _, x := range xs[1:] {
		for i, v := range x.F {
			out.F[i] = combineF(op, out.F[i], v)
		}
		for i, v := range x.I {
			out.I[i] = combineI(op, out.I[i], v)
		}
	}
	return out
}

func combineF(op string, x, y float64) float64 {
	switch op {
	case "max":
		return max(x, y)
	case "min":
		return min(x, y)
	case "prod":
		return x * y
	}
	return x + y
}

func combineI(op string, x, y int64) int64 {
	switch op {
	case "max":
		return max(x, y)
	case "min":
		return min(x, y)
	case "prod":
		return x * y
	}
	return x + y
}

func copyOf(x *ir.Array) *ir.Array {
	return &ir.Array{Type: x.Type, F: append([]float64(nil), x.F...), I: append([]int64(nil), x.I...)}
}
