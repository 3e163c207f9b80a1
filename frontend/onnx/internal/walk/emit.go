package walk

import (
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/roles"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// emit builds f in the program.
func emit(f *roles.Form, w *Walker) *ir.Value {
	if f.Op == roles.Leaf {
		return w.leaf(f.Param)
	}
	in := make([]*ir.Value, len(f.Args))
	for i, a := range f.Args {
		in[i] = emit(a, w)
	}
	switch f.Op {
	case roles.Permute:
		return ops.Transpose(w.B, in[0], f.Ints)
	case roles.Reshaped:
		return ops.Reshape(w.B, in[0], f.Type.Dims)
	case roles.Expanded:
		return ops.Expand(w.B, in[0], f.Type.Dims)
	case roles.Sliced:
		return ops.SliceDim(w.B, in[0], f.Ints[0], f.Ints[1], f.Ints[2])
	case roles.Joined:
		return ops.Concat(w.B, f.Ints[0], in...)
	case roles.Picked:
		rows := ir.NewArray(ir.T(dtype.I64, len(f.Ints)))
		for i, r := range f.Ints {
			rows.I[i] = int64(r)
		}
		return ops.Gather(w.B, in[0], w.B.Rename(ops.Const(w.B, rows.Tensor()), "rows"), 0)
	}
	if f.Func == "*c" {
		return ops.Mul(w.B, in[0], ops.ScalarLike(w.B, in[0], f.Scale))
	}
	n := &model.Node{Op: f.Func, Opset: int64(w.File.Opset()), In: []string{""}, Out: []string{""}, Loc: w.B.Loc}
	row, _ := Lookup(n)
	return w.Value(row.Rule(w, n, []*Val{{Type: in[0].Type, Value: in[0]}})[0])
}

// leaf is a parameter in the program; one that took a constant's role is a constant.
func (w *Walker) leaf(p *roles.Parameter) *ir.Value {
	if p.Role != roles.RoleConstant {
		return p.Value
	}
	data, err := p.Data()
	if err != nil {
		panic(ir.Errorf(w.B.Loc, "%v", err))
	}
	return w.B.Rename(ops.Const(w.B, &ir.Tensor{Type: p.Type, Data: data}), p.Name)
}
