// Package ir is gtc's intermediate representation: single-assignment tensor ops with static shapes.
// It knows how programs are written, printed, parsed and checked. What an op means is in the Rules
// that ir/ops defines; this package names no op.
package ir

import (
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Type is the element type and the static shape of a tensor. A scalar has no dims.
type Type struct {
	DType dtype.DType
	Dims  []int // sizes, outermost first; none for a scalar
}

// T builds a Type; it is short because every op rule writes it.
func T(d dtype.DType, dims ...int) Type { return Type{d, dims} }

// Elems is the number of elements.
func (t Type) Elems() int { return Product(t.Dims) }

// Bytes is the number of bytes, densely stored.
func (t Type) Bytes() int { return t.Elems() * t.DType.Size() }

// Equal reports whether both element type and dims agree.
func (t Type) Equal(o Type) bool { return t.DType == o.DType && slices.Equal(t.Dims, o.Dims) }

// With is the type of the same dims and another element type.
func (t Type) With(d dtype.DType) Type { return Type{d, t.Dims} }

// Product multiplies sizes; 1 for none.
func Product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// Role says what a function parameter is to training.
type Role uint8

// The roles of a function parameter.
const (
	Input  Role = iota // a model input, from the data
	Target             // what the loss compares with, from the data
	Weight             // per-sample weight f32[batch]: 1 counts, 0 is padding
	Param              // trained
	Buffer             // kept between steps but not trained by the optimizer (running statistics), or frozen
	State              // optimizer state, the step counter, accumulated gradients
	Stash              // kept from the forward to the backward action of one micro-batch in flight; has a copy in every slot
	Whole              // an Input, Target or Weight of all micro-batches of the step; its name is abi.WholeData of the other's
)

var roleNames = [...]abi.Role{abi.RoleInput, abi.RoleTarget, abi.RoleWeight, abi.RoleParam, abi.RoleBuffer, abi.RoleState, abi.RoleStash, abi.RoleWhole}

// FromData reports whether a parameter of the role is read from the data set.
func (r Role) FromData() bool { return r == Input || r == Target || r == Weight || r == Whole }

// String is the role's name in the text form.
func (r Role) String() string { return string(roleNames[r]) }

// Named is the role as plans have it.
func (r Role) Named() abi.Role { return roleNames[r] }

// Value is one tensor of a function: a parameter or the result of an op. It is assigned once.
type Value struct {
	Name     string // unique in its function, meaningful: the ONNX name, d_<name> for a gradient
	Type     Type
	Op       *Op           // the op that makes it; nil for a parameter
	Index    int           // its position among the results of Op, or among the function's parameters
	Role     Role          // of a parameter, to training; of no meaning for the result of an op
	Init     *Tensor       // initial contents of a Param, Buffer or State; nil means zeros
	Sharding mesh.Sharding // how ranks split it; the zero value until the shard pass, and for a value that all ranks have whole
	Data     bool          // it depends on what is read from the data set; set with Sharding, no part of the text form
	Offset   int           // bytes from the start of the arena, or of host storage (OnHost), set by memplan; NoOffset before, and where it has no memory
	Within   *Value        // the larger value in whose memory it is computed, as a part of it, set by schedule; nil: it has memory of its own
	Alone    bool          // no other value uses its memory at any time during the function, set by schedule, so that its calls may be delayed
}

// NoOffset marks a value that has no place in the arena (yet).
const NoOffset = -1

// Op is one operation: a Def applied to operands with attributes.
type Op struct {
	Def   *Def
	In    []*Value // operands; nil for an optional one that is left out
	Out   []*Value // results
	Attrs any      // the struct type that Def declares, by value; nil when it declares none
	Loc   Loc      // the node of the model that it serves
	Group int      // number of the fused kernel that it belongs to, from 1, given by fuse; 0 before

	// Why says, of a collective, why it is there ("ZeRO-3 gathers the parameter"). It is told to people and is no part
	// of the text form.
	Why string

	// Lowered keeps what group.Impl worked out from Def, operand types and Attrs, which from the fuse
	// pass on no longer change.
	Lowered any
}

// Result is one result of a function. Updates, when set, is the parameter whose contents the value
// replaces when the function returns (a weight, a running mean, optimizer state).
type Result struct {
	Name    string // by which the run-time knows it: "loss_sum", "count", "out0", …; "" for updates
	Value   *Value // what is given back
	Updates *Value // the parameter that has Value's contents after the call; nil for a named result
}

// Func is a straight-line program. Ops are in an order in which every operand comes first.
type Func struct {
	Name    string
	Params  []*Value
	Ops     []*Op
	Results []Result
	Calls   []Call // what runs, in order, made from the ops by the schedule pass; nil before it
}

// Module is what passes transform: the functions of one training program and the mesh it runs on.
type Module struct {
	Mesh  mesh.Mesh // the ranks that run it together, and its micro-batches; no axes for one rank
	Funcs []*Func   // forward, step, eval, …: see abi.Func
}

// Func returns the function with that name, or nil.
func (m *Module) Func(name string) *Func {
	for _, f := range m.Funcs {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Param returns the parameter with that name, or nil.
func (f *Func) Param(name string) *Value {
	for _, p := range f.Params {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Result returns the value of the named result, or nil.
func (f *Func) Result(name string) *Value {
	for _, r := range f.Results {
		if r.Name == name {
			return r.Value
		}
	}
	return nil
}

// Uses maps each value to the ops that read it, each op once, in program order.
func (f *Func) Uses() map[*Value][]*Op {
	uses := map[*Value][]*Op{}
	for _, op := range f.Ops {
		for i, v := range op.In {
			if v != nil && !slices.Contains(op.In[:i], v) {
				uses[v] = append(uses[v], op)
			}
		}
	}
	return uses
}

// Replace makes every use of old, in ops and results, a use of new. Updates targets stay.
func (f *Func) Replace(old, new *Value) {
	for _, op := range f.Ops {
		for i, v := range op.In {
			if v == old {
				op.In[i] = new
			}
		}
	}
	for i := range f.Results {
		if f.Results[i].Value == old {
			f.Results[i].Value = new
		}
	}
}

// ReplaceAll applies many replacements at once, following chains.
func (f *Func) ReplaceAll(subst map[*Value]*Value) {
	if len(subst) == 0 {
		return
	}
	find := func(v *Value) *Value {
		for n, ok := subst[v]; ok; n, ok = subst[v] {
			v = n
		}
		return v
	}
	for _, op := range f.Ops {
		for i, v := range op.In {
			op.In[i] = find(v)
		}
	}
	for i := range f.Results {
		f.Results[i].Value = find(f.Results[i].Value)
	}
}

// DCE drops ops none of whose results is used, and reports how many it dropped.
func (f *Func) DCE() int {
	live := map[*Value]bool{}
	for _, r := range f.Results {
		live[r.Value] = true
	}
	kept := make([]*Op, 0, len(f.Ops))
	for i := len(f.Ops) - 1; i >= 0; i-- {
		op := f.Ops[i]
		if !op.Def.Rules.Effect && !slices.ContainsFunc(op.Out, func(v *Value) bool { return live[v] }) {
			continue
		}
		for _, v := range op.In {
			live[v] = true
		}
		kept = append(kept, op)
	}
	slices.Reverse(kept)
	n := len(f.Ops) - len(kept)
	f.Ops = kept
	return n
}

// Clone copies a function deeply (values, ops, results; attributes and tensors are shared, they are
// never changed in place), and returns the map from old to new values.
func (f *Func) Clone() (*Func, map[*Value]*Value) {
	m := map[*Value]*Value{nil: nil}
	g := &Func{Name: f.Name}
	for _, p := range f.Params {
		q := *p
		m[p] = &q
		g.Params = append(g.Params, &q)
	}
	for _, op := range f.Ops {
		g.Ops = append(g.Ops, op.cloneInto(m))
	}
	for _, r := range f.Results {
		g.Results = append(g.Results, Result{r.Name, m[r.Value], m[r.Updates]})
	}
	for _, op := range g.Ops {
		for _, v := range op.Out {
			v.Within = m[v.Within]
		}
	}
	g.Calls = cloneCalls(f.Calls, m)
	return g, m
}

func (op *Op) cloneInto(m map[*Value]*Value) *Op {
	c := *op
	c.Lowered = nil
	c.In = make([]*Value, len(op.In))
	for i, v := range op.In {
		c.In[i] = m[v]
	}
	c.Out = make([]*Value, len(op.Out))
	for i, v := range op.Out {
		w := *v
		w.Op = &c
		m[v] = &w
		c.Out[i] = &w
	}
	return &c
}
