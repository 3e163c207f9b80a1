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

// Of is the kernel of work that no template does, of group g: that of a fused group, or of a part of an assembly. It is made once.
func Of(g group.Group, w *ir.Work) (*Built, error) {
	if b, ok := w.Lowered.(*Built); ok {
		return b, nil
	}
	b, err := of(g, w)
	if err == nil {
		w.Lowered = b
	}
	return b, err
}

func of(g group.Group, w *ir.Work) (*Built, error) {
	op := g.Ops[0]
	impl := group.Impl(op)
	if impl.Kind != kir.Assemble {
		b, err := Build(g, w.Write)
		if err != nil {
			return nil, err
		}
		b.Name = op.Def.Name
		if last := g.Ops[len(g.Ops)-1]; last != op {
			b.Name += "_" + last.Def.Name
		}
		return b, nil
	}
	b := &Built{Name: "fill", Kernel: fill(op.Out[0], impl.Fill), Args: []Arg{{Value: op.Out[0]}}}
	if w.Part != ir.PartFill {
		var err error
		b.Name = op.Def.Name
		if b.Kernel, b.Args, err = box(op, w.Part-1); err != nil {
			return nil, err
		}
	}
	b.Kernel.Collapse()
	if err := b.Kernel.Verify(); err != nil {
		return nil, fmt.Errorf("BUG: %w\n%s", err, b.Kernel)
	}
	return b, nil
}

// At is where the arguments are in the planned arena, in bytes.
func (b *Built) At() []int {
	at := make([]int, len(b.Args))
	for i, a := range b.Args {
		at[i] = a.Value.Offset + a.Start*a.Value.Type.DType.Size()
	}
	return at
}

func overDims(dims []int) *kir.Kernel {
	k := &kir.Kernel{Dims: slices.Clone(dims), Row: make([]bool, len(dims)), Chunks: 1}
	n := 1
	for d := len(dims) - 1; d >= 0 && n < wideRow; d-- {
		k.Row[d] = true
		n *= dims[d]
	}
	return k
}

// fill sets all of out to v.
func fill(out *ir.Value, v float64) *kir.Kernel {
	if out.Type.DType == dtype.Bool && v != 0 {
		v = 1
	}
	k := overDims(out.Type.Dims)
	k.Params = []kir.Param{{DType: out.Type.DType, Elems: out.Type.Elems(), Out: true, Align: abi.Align}}
	k.Insts = []kir.Inst{
		{Op: "const", DType: out.Type.DType, Value: v},
		{Op: "store", DType: out.Type.DType, Args: []int{0}, Access: kir.Access{Strides: ir.Strides(out.Type.Dims)}, Level: kir.PerElem},
	}
	return k
}

// box copies operand i of op, read through its views, into its box of the result.
func box(op *ir.Op, i int) (*kir.Kernel, []Arg, error) {
	out, v := op.Out[0], op.In[i]
	k := overDims(v.Type.Dims)
	var args []Arg
	dst := group.BoxAccess(op, i)
	start := dst.Offset
	dst.Offset = 0
	load := kir.Inst{DType: v.Type.DType, Level: kir.PerElem}
	if e, ok := group.Scalar(v); ok {
		load.Op, load.Value, load.Level = "const", e.Value, kir.Uniform
	} else {
		src, acc, ok := group.Resolve(v)
		if !ok {
			return nil, nil, fmt.Errorf("BUG: operand %s of %s is not affine", v.Name, op.Def.Name)
		}
		args = append(args, Arg{Value: src, Start: acc.Offset})
		acc.Offset = 0
		load.Op, load.Access = "load", acc
		k.Params = []kir.Param{{DType: src.Type.DType, Elems: src.Type.Elems(), Align: args[0].Align()}}
	}
	to := Arg{Value: out, Start: start}
	k.Params = append(k.Params, kir.Param{DType: out.Type.DType, Elems: out.Type.Elems(), Out: true, Align: to.Align()})
	k.Insts = []kir.Inst{load,
		{Op: "store", DType: out.Type.DType, Args: []int{0}, Param: len(k.Params) - 1, Access: dst, Level: kir.PerElem}}
	return k, append(args, to), nil
}
