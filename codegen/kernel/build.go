// Package kernel turns a fused group of tensor ops into kernel IR. It replays the group's iteration space
// (ir/group), expresses every operand as an affine load and every op as scalar instructions.
package kernel

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Arg is what a kernel's buffer stands for: a value, from element Start on. Offsets are arguments rather than part of
// the kernel, so that the steps of an unrolled loop, which differ in nothing else, share one.
type Arg struct {
	Value *ir.Value
	Start int
}

// Align is the bytes that the argument's place in the arena is a multiple of, as far as it can be told from Start.
func (a Arg) Align() int {
	n := a.Start * a.Value.Type.DType.Size()
	for align := abi.Align; align > 1; align /= 2 {
		if n%align == 0 {
			return align
		}
	}
	return 1
}

// Built is a kernel with the arguments for its Params, in order.
type Built struct {
	Kernel *kir.Kernel
	Args   []Arg
	Name   string // what it does, in words joined by _
}

type builder struct {
	g      group.Group
	space  *group.Space
	k      *kir.Kernel
	args   []Arg
	value  map[*ir.Value]int // instruction of a value made in the group
	loads  map[string]int    // CSE of instructions by their text
	stored []*ir.Value
	seen   map[*kir.Expr]int // instructions of the shared subexpressions of the op at hand
}

// Build makes the kernel of a group; outputs are its values that others read.
func Build(g group.Group, outputs []*ir.Value) (*Built, error) {
	space, ok := group.Build(g.Ops)
	if !ok {
		return nil, fmt.Errorf("BUG: group %d does not share an iteration space", g.ID)
	}
	b := &builder{g: g, space: space, value: map[*ir.Value]int{}, loads: map[string]int{}, stored: outputs}
	b.k = &kir.Kernel{Dims: slices.Clone(space.Dims), Row: slices.Clone(space.Row)}
	b.rows()
	b.k.Chunks, b.k.Work = space.Chunks(), space.WorkBytes()
	for _, op := range g.Ops {
		if err := b.op(op); err != nil {
			return nil, err
		}
	}
	b.k.Collapse()
	if err := b.k.Verify(); err != nil {
		return nil, fmt.Errorf("BUG: %w\n%s", err, b.k)
	}
	return &Built{Kernel: b.k, Args: b.args}, nil
}

// wideRow is how many elements a row should have, when nothing else decides, so that its loop pays.
const wideRow = 512

// rows decides what a row is when no reduction does: the last dim for column accumulations (as Space.Chunks
// counts), else as many trailing dims as make a wide one.
func (b *builder) rows() {
	if b.space.Decided {
		return
	}
	n := 1
	for d := len(b.k.Dims) - 1; d >= 0 && n < wideRow; d-- {
		b.k.Row[d] = true
		n *= b.k.Dims[d]
		if b.space.WorkBytes() > 0 {
			return
		}
	}
}

// op appends the instructions of one op, and the stores of its results.
func (b *builder) op(op *ir.Op) error {
	impl := group.Impl(op)
	switch impl.Kind {
	case kir.View:
		n, err := b.operand(op, op.In[0])
		if err != nil {
			return err
		}
		return b.done(op.Out[0], n)
	case kir.Pointwise:
		b.seen = map[*kir.Expr]int{}
		for i, e := range impl.Expr {
			n, err := b.expr(op, e, op.Out[i].Type.DType)
			if err != nil {
				return err
			}
			if err := b.done(op.Out[i], n); err != nil {
				return err
			}
		}
		return nil
	case kir.Reduce:
		return b.reduce(op, impl)
	}
	return fmt.Errorf("BUG: %s in a fused group", op.Def.Name)
}

func (b *builder) reduce(op *ir.Op, impl kir.Impl) error {
	n, err := b.operand(op, op.In[0])
	if err != nil {
		return err
	}
	out := op.Out[0]
	switch b.space.Level[out] {
	case group.Row:
		in := kir.Inst{Op: "reduce", Fn: impl.ReduceOp, DType: out.Type.DType, Args: []int{n}}
		return b.done(out, b.emit(in))
	case group.Acc:
		acc, err := b.accAccess(out)
		if err != nil {
			return err
		}
		to := b.param(out, true, &acc)
		b.emit(kir.Inst{Op: "acc", Fn: impl.ReduceOp, DType: out.Type.DType, Args: []int{n}, Param: to, Access: acc})
		return nil
	}
	return b.done(out, n) // nothing is reduced: the dims had size 1
}

// accAccess is where a column accumulation lies: dense over the row dims, or one scalar.
func (b *builder) accAccess(out *ir.Value) (kir.Access, error) {
	a := kir.Access{Dims: b.k.Dims, Strides: make([]int, len(b.k.Dims))}
	n := 1
	if out.Type.Elems() == 1 {
		return a, nil
	}
	for d := len(b.k.Dims) - 1; d >= 0; d-- {
		if b.k.Row[d] {
			a.Strides[d] = n
			n *= b.k.Dims[d]
		}
	}
	if n != out.Type.Elems() {
		return a, fmt.Errorf("BUG: accumulator %s has %d elements, its row %d", out.Name, out.Type.Elems(), n)
	}
	return a, nil
}

// done records the instruction of a value and stores it when others read it.
func (b *builder) done(v *ir.Value, n int) error {
	n = b.rounded(v.Type.DType, n)
	b.value[v] = n
	if !slices.Contains(b.stored, v) {
		return nil
	}
	acc, err := b.spread(v, kir.Dense(v.Type.Dims), b.space.Level[v])
	if err != nil {
		return err
	}
	to := b.param(v, true, &acc)
	b.emit(kir.Inst{Op: "store", DType: v.Type.DType, Args: []int{n}, Param: to, Access: acc})
	return nil
}

// rounded rounds a result of half precision, which is computed in f32, to its type: what a kernel goes on with is what it
// stores, however ops are grouped.
func (b *builder) rounded(d dtype.DType, n int) int {
	if d != dtype.F16 && d != dtype.BF16 || b.exact(d, n) {
		return n
	}
	return b.emit(kir.Inst{Op: "cast", DType: d, Args: []int{n}})
}

// exact reports whether instruction n gives values of type d without rounding.
func (b *builder) exact(d dtype.DType, n int) bool {
	in := b.k.Insts[n]
	args := in.Args
	switch f := kir.Lookup(in.Op); {
	case in.Op == "load" || f != nil && f.Rule == kir.Convert:
		return in.DType == d
	case in.Op == "const":
		return d.Round(in.Value) == in.Value
	case f == nil || !f.Exact:
		return false
	case f.Rule == kir.Choose:
		args = args[1:]
	}
	return !slices.ContainsFunc(args, func(a int) bool { return !b.exact(d, a) })
}

// spread expresses an access over the dims of v (or of the op that reads it) over the kernel's dims.
func (b *builder) spread(v *ir.Value, a kir.Access, l group.Level) (kir.Access, error) {
	if l != group.Row {
		if out, ok := group.SpreadAccess(a, b.space.Dims); ok {
			return out, nil
		}
		return a, fmt.Errorf("BUG: %s %s does not spread over %v", v.Name, v.Type, b.space.Dims)
	}
	var rows []int
	for d, n := range b.space.Dims {
		if !b.space.Row[d] {
			rows = append(rows, n)
		}
	}
	on, ok := group.SpreadAccess(a, rows)
	if !ok {
		return a, fmt.Errorf("BUG: %s %s does not spread over rows %v", v.Name, v.Type, rows)
	}
	out := kir.Access{Offset: on.Offset, Dims: b.space.Dims, Strides: make([]int, len(b.space.Dims))}
	i := 0
	for d := range b.space.Dims {
		if !b.space.Row[d] {
			out.Strides[d] = on.Strides[i]
			i++
		}
	}
	return out, nil
}

// operand gives the instruction that holds op's operand v at the current point.
func (b *builder) operand(op *ir.Op, v *ir.Value) (int, error) {
	if e, ok := group.Scalar(v); ok {
		return b.emit(kir.Inst{Op: "const", DType: v.Type.DType, Value: e.Value}), nil
	}
	src, acc, ok := group.OperandAccess(op, v)
	if !ok {
		return 0, fmt.Errorf("BUG: operand %s of %s is not affine", v.Name, op.Def.Name)
	}
	if n, inside := b.value[src]; inside {
		return n, nil
	}
	at, err := b.spread(v, acc, b.space.Level[op.Out[0]].AtOperand(op))
	if err != nil {
		return 0, err
	}
	from := b.param(src, false, &at)
	return b.emit(kir.Inst{Op: "load", DType: src.Type.DType, Param: from, Access: at}), nil
}

// expr appends the instructions of one scalar expression and gives the last.
func (b *builder) expr(op *ir.Op, e *kir.Expr, t dtype.DType) (int, error) {
	if n, ok := b.seen[e]; ok {
		return n, nil
	}
	n, err := b.exprOnce(op, e, t)
	b.seen[e] = n
	return n, err
}

func (b *builder) exprOnce(op *ir.Op, e *kir.Expr, t dtype.DType) (int, error) {
	switch e.Op {
	case "arg":
		return b.operand(op, op.In[e.Index])
	case "const":
		return b.emit(kir.Inst{Op: "const", DType: e.DType, Value: e.Value}), nil
	case "index":
		dims := op.Out[0].Type.Dims
		a := kir.Access{Dims: dims, Strides: make([]int, len(dims))}
		if dims[e.Index] > 1 {
			a.Strides[e.Index] = 1
		}
		at, err := b.spread(op.Out[0], a, b.space.Level[op.Out[0]])
		return b.emit(kir.Inst{Op: "index", DType: dtype.I64, Access: at}), err
	}
	in := kir.Inst{Op: e.Op, DType: e.DType}
	for _, a := range e.Args {
		n, err := b.expr(op, a, t)
		if err != nil {
			return 0, err
		}
		in.Args = append(in.Args, n)
	}
	f := kir.Lookup(in.Op)
	if f == nil {
		return 0, fmt.Errorf("BUG: %s calls %q, which is not a scalar function", op.Def.Name, in.Op)
	}
	var types []dtype.DType
	for _, a := range in.Args {
		types = append(types, b.k.Insts[a].DType)
	}
	d, err := f.Result(in.DType, types...)
	if err != nil {
		return 0, fmt.Errorf("BUG: %s: %w", op.Def.Name, err)
	}
	in.DType = d
	return b.emit(in), nil
}

// param is the number of the kernel's buffer for v under access a, whose offset moves into the argument.
func (b *builder) param(v *ir.Value, out bool, a *kir.Access) int {
	arg := Arg{v, a.Offset}
	a.Offset = 0
	i := slices.Index(b.args, arg)
	if i < 0 {
		i = len(b.args)
		b.args = append(b.args, arg)
		b.k.Params = append(b.k.Params, kir.Param{DType: v.Type.DType, Elems: v.Type.Elems(), Align: arg.Align()})
	}
	b.k.Params[i].Out = b.k.Params[i].Out || out
	return i
}

// emit appends an instruction, or finds an equal one, and works out its level and stage.
func (b *builder) emit(in kir.Inst) int {
	for _, a := range in.Args {
		in.Level = max(in.Level, b.k.Insts[a].Level)
		in.Stage = max(in.Stage, b.k.Insts[a].Stage)
	}
	switch in.Op {
	case "load", "index":
		in.Level = b.levelOf(in.Access)
	case "reduce":
		in.Level, in.Stage = kir.PerRow, in.Stage+1
	case "store", "acc":
		in.Level = max(in.Level, b.levelOf(in.Access))
	}
	key := ""
	if in.Op != "store" && in.Op != "acc" {
		key = fmt.Sprintf("%s|%s|%d|%v|%d|%d%v|%v", in.Op, in.Fn, in.DType, in.Args, in.Param, in.Access.Offset, in.Access.Strides, in.Value)
		if n, ok := b.loads[key]; ok {
			return n
		}
	}
	b.k.Insts = append(b.k.Insts, in)
	n := len(b.k.Insts) - 1
	if key != "" {
		b.loads[key] = n
	}
	return n
}

func (b *builder) levelOf(a kir.Access) kir.Level {
	l := kir.Uniform
	for d, s := range a.Strides {
		if s != 0 && b.k.Row[d] {
			return kir.PerElem
		}
		if s != 0 {
			l = kir.PerRow
		}
	}
	return l
}
