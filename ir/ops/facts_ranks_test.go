package ops_test

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
)

// other is how many times what rank 0 has the other rank of onRanks has.
const other = -2

// onRanks is what a collective makes on each of two ranks, of which the first has in and the second other times as much.
func onRanks(op *ir.Op, in []*ir.Array) ([][]*ir.Array, error) {
	m := &ir.Module{Mesh: mesh.Mesh{Axes: []mesh.Axis{{Name: attribute(op, "Axis"), Size: 2}}}}
	f, first := interp.Alone(op, in)
	f.Results = nil
	for _, v := range f.Ops[0].Out {
		f.Results = append(f.Results, ir.Result{Value: v})
	}
	second := map[string]*ir.Array{}
	for name, a := range first {
		second[name] = combined(a, a, other, 0)
	}
	got, err := interp.Options{Exact: true}.RunRanks(m, f, 2, []map[string]*ir.Array{first, second})
	if err != nil {
		return nil, err
	}
	return [][]*ir.Array{got[0].All, got[1].All}, nil
}

// attribute is a text attribute of op; "" when it has none of that name.
func attribute(op *ir.Op, name string) string {
	if v := reflect.ValueOf(op.Attrs); v.Kind() == reflect.Struct && v.FieldByName(name).IsValid() {
		return v.FieldByName(name).String()
	}
	return ""
}

// combines looks on rank 0, or on both ranks together, for the sum of what they have, element by element.
func combines(x *instance) error {
	if x.op.Def.Rules.Collective == "" || attribute(x.op, "Op") != "sum" {
		return fmt.Errorf("no sum over ranks")
	}
	ranks, err := onRanks(x.op, x.in)
	if err != nil {
		return err
	}
	for i, a := range x.in {
		want := slices.Sorted(slices.Values(elements(combined(a, a, 1+other, 0))))
		one := elements(ranks[0][i])
		both := slices.Concat(one, elements(ranks[1][i]))
		slices.Sort(one)
		slices.Sort(both)
		if !slices.Equal(one, want) && !slices.Equal(both, want) {
			return fmt.Errorf("operand %d: ranks have %v, want %v", i, both, want)
		}
	}
	return nil
}

// alone compares each result with what the op makes of that operand alone.
func alone(x *instance) error {
	if x.op.Def.Rules.Collective == "" || x.op.Def.Rules.Operands >= 0 || len(x.op.Out) != len(x.op.In) {
		return fmt.Errorf("no collective on any number of operands")
	}
	all, err := onRanks(x.op, x.in)
	if err != nil {
		return err
	}
	for i, a := range x.in {
		b := ir.NewBuilder(&ir.Func{Name: "alone"})
		b.Loc = x.op.Loc
		one := b.EmitN(x.op.Def, x.op.Attrs, b.Param("a", a.Type, ir.Input))[0].Op
		got, err := onRanks(one, []*ir.Array{a})
		if err != nil {
			return err
		}
		for rank := range all {
			if err := interp.Differ(all[rank][i], got[rank][0], 0); err != nil {
				return fmt.Errorf("operand %d on rank %d: %w", i, rank, err)
			}
		}
	}
	return nil
}

// movesOnRanks looks where the elements that two ranks have are after a collective.
func movesOnRanks(x *instance, m ir.Move) error {
	if len(x.in) != 1 {
		return fmt.Errorf("it has %d operands", len(x.in))
	}
	in := numbered(x.in[0], 1)
	ranks, err := onRanks(x.op, []*ir.Array{in})
	if err != nil {
		return err
	}
	own, one := elements(in), elements(ranks[0][0])
	all := slices.Concat(own, elements(combined(in, in, other, 0)))
	both := slices.Concat(one, elements(ranks[1][0]))
	slices.Sort(all)
	slices.Sort(both)
	slices.Sort(one)
	switch m {
	case ir.Permutes:
		return same(both, all)
	case ir.Joins:
		return same(one, all)
	case ir.Selects:
		for i, v := range one {
			if !slices.Contains(own, v) || i > 0 && one[i-1] == v {
				return fmt.Errorf("%g is not of this rank, or twice in the result", v)
			}
		}
		return nil
	}
	return fmt.Errorf("no collective does that")
}
