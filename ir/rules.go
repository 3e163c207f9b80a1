package ir

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Def is one kind of op. Declare it with NewOp as a package variable, then Define its rules in init:
// two steps, because rules name each other's Defs.
type Def struct {
	Name  string
	Rules Rules
}

// Rules is everything gtc knows about one kind of op. ir/ops/conform_test.go checks each against the others.
type Rules struct {
	// Attrs is a zero value of the attribute struct, nil for none. Fields may be int, []int, float64,
	// bool, string, dtype.DType, *Tensor.
	Attrs any
	// Operands is the number of required operands; Optional, how many more may follow (absent or nil);
	// Operands -1 means any number of required ones. Checked before Infer.
	Operands, Optional int
	// Infer gives the result types from operand types and attributes, or an error that says which
	// operand is wrong and how. Required.
	Infer func(op *Op) ([]Type, error)
	// Factors is the dimension rule; nil means every dimension is blocked (replicate to be safe).
	Factors func(op *Op) factor.Rule
	// VJP builds, from the gradients of the results (nil where none flows), the gradient of each operand
	// (nil where none). It may use op.In and op.Out. Nil VJP: Decompose is differentiated, else NoGrad
	// must say why there is none.
	VJP func(b *Builder, op *Op, dy []*Value) []*Value
	// NoGrad says why the op has no gradient, such as "integer result".
	NoGrad string
	// Eval is the meaning, in float64 and int64. Required unless Decompose is given.
	Eval func(op *Op, in []*Array) []*Array
	// Decompose rewrites the op as more primitive ones (results in order). Without Impl, the fuse pass
	// uses it, so that the parts fuse with their neighbours.
	Decompose func(b *Builder, op *Op) []*Value
	// Impl says how a kernel computes the op. Nil: Decompose, or a clear compile error.
	Impl func(op *Op) kir.Impl
	// Resize gives the attributes of the same op on operands and results of other dims (a shard's), where
	// attributes carry sizes (a reshape's Dims). Nil: the attributes stay as they are.
	Resize func(op *Op, in, out [][]int) any
	// Indexed emits the op on a part of its factor of kind factor.Index: the part begins at first (i64, a scalar) of op's
	// whole dimension; attrs are op's, resized, and in the operands of the part. Required with such a factor.
	Indexed func(b *Builder, op *Op, attrs any, in []*Value, first *Value) []*Value
	// Samples gives small typical instances for the conformance test. Required.
	Samples func(r *rand.Rand) []Sample
	// Facts is what passes ask besides.
	Facts
	// Precision is the autocast rule: "" follow the operands, "keep" in f32, "narrow" in f32 and stored as narrow as the
	// operands, for results are no larger than they, "low" runs in bf16/f16, "own" runs in its operands' type, whose elements
	// it moves or adds a few of.
	Precision string
	// Collective names the mesh operation for ops that talk to other ranks (mesh.AllReduce, …).
	Collective mesh.Collective
	// Transfer says that the op copies between the arena and host storage.
	Transfer Transfer
	// Lands says, of a transfer to host storage, when it is over at the latest: when so many kernels behind it, at least 1, have started.
	Lands func(op *Op) int
	// Effect keeps an op that has no used result (a barrier, a check).
	Effect bool
	// Doc is one line that says what the op computes, shown by gtc ops.
	Doc string
}

// Sample is one instance for the conformance test: operand types, attributes, and how to fill operands
// (nil Fill: standard normal floats, small non-negative ints below Limit or 4).
type Sample struct {
	In    []Type
	Attrs any
	Limit int                             // exclusive upper bound of random integers; 0 means 4
	Fill  func(r *rand.Rand, in []*Array) // optional: overwrite contents (positive values, off kinks)
}

var registry = map[string]*Def{}

// NewOp declares an op kind. Names are lower_case and unique.
func NewOp(name string) *Def {
	if registry[name] != nil {
		panic("BUG: op " + name + " declared twice")
	}
	d := &Def{Name: name}
	registry[name] = d
	return d
}

// Define sets the rules of d once.
func (d *Def) Define(r Rules) {
	if d.Rules.Infer != nil || r.Infer == nil {
		panic("BUG: op " + d.Name + " defined twice or without Infer")
	}
	d.Rules = r
}

// LookupDef finds an op kind by name; nil when there is none.
func LookupDef(name string) *Def { return registry[name] }

// Defs lists all op kinds by name.
func Defs() []*Def {
	return slices.SortedFunc(maps.Values(registry), func(a, b *Def) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
}

// Builder appends ops to a function. Its methods and the constructors of ir/ops panic with an *Error on
// operands that do not fit (see Recover).
type Builder struct {
	F    *Func
	Loc  Loc             // given to every op it emits
	used map[string]bool // names in use
	next map[string]int  // the next suffix to try, never taken back, so that naming stays linear
}

// NewBuilder starts building at the end of f.
func NewBuilder(f *Func) *Builder {
	b := &Builder{F: f, used: map[string]bool{}, next: map[string]int{}}
	for _, p := range f.Params {
		b.used[p.Name] = true
	}
	for _, op := range f.Ops {
		for _, v := range op.Out {
			b.used[v.Name] = true
		}
	}
	return b
}

// Name makes a name that no value of the function has: base, or base.1, base.2, …
func (b *Builder) Name(base string) string {
	if base == "" {
		base = "v"
	}
	name := base
	for b.used[name] {
		b.next[base]++
		name = fmt.Sprintf("%s.%d", base, b.next[base])
	}
	b.used[name] = true
	return name
}

// Param adds a parameter. Its name is made unique.
func (b *Builder) Param(name string, t Type, role Role) *Value {
	v := &Value{Name: b.Name(name), Type: t, Index: len(b.F.Params), Role: role, Offset: NoOffset}
	b.F.Params = append(b.F.Params, v)
	return v
}

// Emit appends an op and returns its first result. Results are named after the op until renamed.
func (b *Builder) Emit(d *Def, attrs any, in ...*Value) *Value { return b.EmitN(d, attrs, in...)[0] }

// EmitN appends an op and returns all its results.
func (b *Builder) EmitN(d *Def, attrs any, in ...*Value) []*Value {
	if want := reflect.TypeOf(d.Rules.Attrs); reflect.TypeOf(attrs) != want {
		panic(fmt.Sprintf("BUG: %s takes attributes %v, not %T", d.Name, want, attrs))
	}
	op := &Op{Def: d, In: slices.Clone(in), Attrs: attrs, Loc: b.Loc}
	types, err := op.infer()
	if err != nil {
		panic(b.explain(op, err))
	}
	for i, t := range types {
		op.Out = append(op.Out, &Value{Name: b.Name(d.Name), Type: t, Op: op, Index: i, Offset: NoOffset})
	}
	b.F.Ops = append(b.F.Ops, op)
	return op.Out
}

// infer checks the operand count and applies the def's Infer.
func (op *Op) infer() ([]Type, error) {
	r := &op.Def.Rules
	n, lo, hi := len(op.In), r.Operands, r.Operands+r.Optional
	if r.Operands >= 0 && (n < lo || n > hi) {
		return nil, fmt.Errorf("has %d operands, but takes %d to %d", n, lo, hi)
	}
	for i, v := range op.In {
		if v == nil && (r.Operands < 0 || i < lo) {
			return nil, fmt.Errorf("operand %d is missing", i)
		}
	}
	types, err := r.Infer(op)
	if err != nil {
		return nil, err
	}
	for i, t := range types {
		if err := t.addressable(); err != nil {
			return nil, fmt.Errorf("result %d: %w", i, err)
		}
	}
	return types, nil
}

// addressable fails for dims that are negative or whose product, zeros apart, is above maxElems: then byte offsets, and
// sums of a few of them, fit an int.
func (t Type) addressable() error {
	n := 1
	for _, d := range t.Dims {
		if d < 0 {
			return fmt.Errorf("dims are %v, but must not be negative", t.Dims)
		}
		if d > 0 && n > maxElems/d {
			return fmt.Errorf("dims %v hold more elements than can be addressed", t.Dims)
		}
		n *= max(d, 1)
	}
	return nil
}

func (b *Builder) explain(op *Op, err error) *Error {
	e := Errorf(b.Loc, "%s: %v", op.Def.Name, err)
	for i, v := range op.In {
		if v != nil {
			e.Note("operand %d is %q %s", i, v.Name, v.Type)
		}
	}
	return e
}

// Rename gives v a better name, made unique, and returns v.
func (b *Builder) Rename(v *Value, base string) *Value {
	if v.Op != nil && v.Name != base {
		delete(b.used, v.Name)
		v.Name = b.Name(base)
	}
	return v
}

// Result appends a named result.
func (b *Builder) Result(name string, v *Value) {
	b.F.Results = append(b.F.Results, Result{Name: name, Value: v})
}

// Update appends a result that replaces the contents of parameter p.
func (b *Builder) Update(p, v *Value) {
	b.F.Results = append(b.F.Results, Result{Value: v, Updates: p})
}
