// Package interp evaluates the IR slowly and obviously: every op by its own Eval (or, when it has none, by its
// decomposition), in float64 and int64. Results of half precision are rounded to it, so that casts mean what they say; those
// of f32 and f64 are not rounded. It is the oracle of the pass tests.
package interp

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Outcome is what one call of a function gives.
type Outcome struct {
	All     []*ir.Array          // in the order of the function's results
	Named   map[string]*ir.Array // results with a name, by name
	Updates map[string]*ir.Array // new contents of parameters, by parameter name
}

// Options choose how a function is run.
type Options struct {
	Exact bool // results of half precision are not rounded, as those of no op by itself are
	// Shuffle, unless 0, is a seed for what the program leaves open: independent ops run in another order; a function with calls runs by
	// them, on memory, and its collectives end at other moments. Results must be the same, to the bit.
	Shuffle uint64

	Micro int // number of the current micro-batch: the coordinate on mesh.TimeAxis
	// Watch, when set, sees the results of every op of every rank.
	Watch func(rank int, op *ir.Op, out []*ir.Array)
}

// Run evaluates f. args gives the contents of parameters by name; the types must agree. A Param, Buffer or State
// that is not given starts as its Init, or as zeros. Collectives run as on a mesh of one rank.
func Run(f *ir.Func, args map[string]*ir.Array) (*Outcome, error) {
	return Options{}.Run(f, args)
}

// Run is Run with options.
func (o Options) Run(f *ir.Func, args map[string]*ir.Array) (*Outcome, error) {
	out, err := o.RunRanks(&ir.Module{}, f, 1, []map[string]*ir.Array{args})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// env holds the values that one rank knows.
type env map[*ir.Value]*ir.Array

// enter binds the parameters.
func enter(f *ir.Func, args map[string]*ir.Array) (env, error) {
	e := env{}
	for _, p := range f.Params {
		a := given(args, p)
		switch {
		case a != nil && !a.Type.Equal(p.Type):
			return nil, fmt.Errorf("@%s: parameter %q is %s, but %s is given", f.Name, p.Name, p.Type, a.Type)
		case a != nil:
		case p.Init != nil:
			a = p.Init.Array()
		case p.Role == ir.Param || p.Role == ir.Buffer || p.Role == ir.State:
			a = ir.NewArray(p.Type)
		default:
			return nil, fmt.Errorf("@%s: no value is given for %s %q", f.Name, p.Role, p.Name)
		}
		e[p] = a
	}
	return e, nil
}

// given is what args, whole contents by name, hold for p: of role Whole, the contents of the data that it stands for.
func given(args map[string]*ir.Array, p *ir.Value) *ir.Array {
	if a := args[p.Name]; a != nil || p.Role != ir.Whole {
		return a
	}
	return args[abi.WholeData.Trim(p.Name)]
}

// leave collects the results.
func (e env) leave(f *ir.Func) *Outcome {
	o := &Outcome{Named: map[string]*ir.Array{}, Updates: map[string]*ir.Array{}}
	for _, r := range f.Results {
		o.All = append(o.All, e[r.Value])
		switch {
		case r.Updates != nil:
			o.Updates[r.Updates.Name] = e[r.Value]
		case r.Name != "":
			o.Named[r.Name] = e[r.Value]
		}
	}
	return o
}

// operands looks up what op reads; absent operands are nil.
func (e env) operands(op *ir.Op) []*ir.Array {
	in := make([]*ir.Array, len(op.In))
	for i, v := range op.In {
		if v != nil {
			in[i] = e[v]
		}
	}
	return in
}

// Op evaluates one op, which is not a collective, without rounding.
func Op(op *ir.Op, in []*ir.Array) (out []*ir.Array, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("BUG: evaluating %s: %v", op, r)
		}
	}()
	switch r := &op.Def.Rules; {
	case r.Eval != nil:
		out = r.Eval(op, in)
	case r.Decompose != nil:
		if out, err = ByParts(op, in); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("BUG: %s has neither Eval nor Decompose", op.Def.Name)
	}
	if len(out) != len(op.Out) {
		return nil, fmt.Errorf("BUG: %s evaluates to %d results, has %d", op.Def.Name, len(out), len(op.Out))
	}
	for i, a := range out {
		if !a.Type.Equal(op.Out[i].Type) || len(a.F)+len(a.I) != a.Type.Elems() {
			return nil, fmt.Errorf("BUG: result %d of %s evaluates to %s", i, op, a.Type)
		}
	}
	return out, nil
}

// rounded is a with its elements rounded to half precision, if that is its type; a itself may be an operand.
func rounded(a *ir.Array) *ir.Array {
	if !half(a.Type) {
		return a
	}
	r := ir.NewArray(a.Type)
	for i, v := range a.F {
		r.F[i] = a.Type.DType.Round(v)
	}
	return r
}

func half(t ir.Type) bool { return t.DType == dtype.F16 || t.DType == dtype.BF16 }

// ByParts evaluates op through its decomposition.
func ByParts(op *ir.Op, in []*ir.Array) ([]*ir.Array, error) {
	f, args := Alone(op, in)
	b := ir.NewBuilder(f)
	b.Loc = f.Ops[0].Loc
	for _, v := range op.Def.Rules.Decompose(b, f.Ops[0]) {
		b.Result("", v)
	}
	f.Ops = f.Ops[1:]
	for _, made := range f.Ops {
		if made.Def == op.Def && made.Def.Rules.Eval == nil {
			return nil, fmt.Errorf("BUG: %s decomposes into itself and has no Eval", op.Def.Name)
		}
	}
	out, err := Options{Exact: true}.Run(f, args)
	if err != nil {
		return nil, err
	}
	return out.All, nil
}

// Alone makes a function with a copy of op as its only op; its parameters, a0, a1, …, are inputs, one for each
// operand that is present. It has no results yet. args binds them to in.
func Alone(op *ir.Op, in []*ir.Array) (f *ir.Func, args map[string]*ir.Array) {
	f, args = &ir.Func{Name: op.Def.Name}, map[string]*ir.Array{}
	b := ir.NewBuilder(f)
	c := &ir.Op{Def: op.Def, Attrs: op.Attrs, Loc: op.Loc}
	if c.Loc.IsZero() {
		c.Loc = ir.Loc{Node: op.Def.Name}
	}
	for i, v := range op.In {
		if v == nil {
			c.In = append(c.In, nil)
			continue
		}
		p := b.Param(fmt.Sprintf("a%d", i), v.Type, ir.Input)
		c.In = append(c.In, p)
		args[p.Name] = in[i]
	}
	for i, v := range op.Out {
		c.Out = append(c.Out, &ir.Value{Name: b.Name(op.Def.Name), Type: v.Type, Op: c, Index: i, Offset: ir.NoOffset})
	}
	f.Ops = []*ir.Op{c}
	return f, args
}
