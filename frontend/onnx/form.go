package onnx

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// formOp is one step of how an operand is made of parameters.
type formOp uint8

const (
	leaf     formOp = iota // the parameter itself
	permute                // dims in the order ints
	reshaped               // the same elements under other dims
	expanded               // dims of size 1 repeated
	sliced                 // ints are dim, first index and size
	joined                 // args along dim ints[0]
	picked                 // rows ints along dim 0
	function               // the element-wise function fn
)

// form says how an operand's value is made: it is a parameter, or what an exporter computed of some. Training goes
// through it, so that whatever copies of a parameter a file holds, the parameter stays one.
type form struct {
	op    formOp
	param *Parameter // of a leaf
	args  []*form
	ints  []int
	fn    string // an ONNX operator of one operand, or "*c" for a product with the constant scale
	scale float64
	typ   ir.Type
}

// leafOf is parameter p as it is.
func leafOf(p *Parameter) *form { return &form{op: leaf, param: p, typ: p.Type} }

func (f *form) step(op formOp, dims []int, ints ...int) *form {
	return &form{op: op, args: []*form{f}, ints: ints, typ: ir.Type{DType: f.typ.DType, Dims: dims}}
}

// permute reorders dims; dim i of the result is dim perm[i].
func (f *form) permute(perm ...int) *form {
	dims := make([]int, len(perm))
	for i, p := range perm {
		dims[i] = f.typ.Dims[p]
	}
	return f.step(permute, dims, perm...)
}

// reshape gives the same elements other dims.
func (f *form) reshape(dims []int) *form {
	if slices.Equal(dims, f.typ.Dims) {
		return f
	}
	return f.step(reshaped, dims)
}

// expand repeats f to dims, as NumPy broadcasts.
func (f *form) expand(dims []int) *form {
	if slices.Equal(dims, f.typ.Dims) {
		return f
	}
	if more := len(dims) - len(f.typ.Dims); more > 0 {
		f = f.reshape(slices.Concat(slices.Repeat([]int{1}, more), f.typ.Dims))
	}
	return f.step(expanded, dims)
}

// slice takes size indices of dim from start on.
func (f *form) slice(dim, start, size int) *form {
	dims := slices.Clone(f.typ.Dims)
	dims[dim] = size
	return f.step(sliced, dims, dim, start, size)
}

// join concatenates along dim.
func join(dim int, args ...*form) *form {
	if len(args) == 1 {
		return args[0]
	}
	t := ir.Type{DType: args[0].typ.DType, Dims: slices.Clone(args[0].typ.Dims)}
	for _, a := range args[1:] {
		t.Dims[dim] += a.typ.Dims[dim]
	}
	return &form{op: joined, args: args, ints: []int{dim}, typ: t}
}

// pick gathers rows of dim 0.
func (f *form) pick(rows []int) *form {
	return f.step(picked, slices.Concat([]int{len(rows)}, f.typ.Dims[1:]), rows...)
}

// apply is an ONNX operator of one operand on every element.
func (f *form) apply(fn string) *form {
	out := f.step(function, f.typ.Dims)
	out.fn = fn
	return out
}

// times multiplies every element by c.
func (f *form) times(c float64) *form {
	out := f.apply("*c")
	out.scale = c
	return out
}

// as is f seen through a layout, with dims as the operand's.
func (f *form) as(lay layout, dims []int) *form {
	switch lay {
	case transposed:
		return f.permute(1, 0)
	case flat:
		return f.reshape(dims)
	case repeated:
		return f.expand(dims)
	}
	return f
}

// leaves lists the parameters that f is made of, each once.
func (f *form) leaves() []*Parameter {
	if f.op == leaf {
		return []*Parameter{f.param}
	}
	var out []*Parameter
	for _, a := range f.args {
		for _, p := range a.leaves() {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// with puts another form in the place of parameter p.
func (f *form) with(p *Parameter, by *form) *form {
	if f.op == leaf {
		if f.param == p {
			return by
		}
		return f
	}
	out := *f
	out.args = make([]*form, len(f.args))
	for i, a := range f.args {
		out.args[i] = a.with(p, by)
	}
	return &out
}

// String names f for maps and messages; equal texts are equal forms.
func (f *form) String() string {
	if f.op == leaf {
		return fmt.Sprintf("%q", f.param.Name)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d%v%s%g%v(", f.op, f.ints, f.fn, f.scale, f.typ.Dims)
	for _, a := range f.args {
		b.WriteString(a.String() + ",")
	}
	return b.String() + ")"
}

// suffix is what the name of f's value has after the parameter's.
func (f *form) suffix() string {
	return map[formOp]string{permute: ".T", expanded: ".expand", sliced: ".part", joined: ".joined", picked: ".rows",
		reshaped: ".view", function: ".value"}[f.op]
}

// contents is the initial data of p.
func (p *Parameter) contents() ([]byte, error) { return p.data() }

// bytes evaluates f on contents of its parameters.
func (f *form) bytes(contents func(*Parameter) ([]byte, error)) ([]byte, error) {
	if f.op == leaf {
		return contents(f.param)
	}
	in := make([][]byte, len(f.args))
	for i, a := range f.args {
		data, err := a.bytes(contents)
		if err != nil {
			return nil, err
		}
		if len(data) != a.typ.Bytes() {
			return nil, fmt.Errorf("%d bytes are given for %s", len(data), a.typ)
		}
		in[i] = data
	}
	size := f.typ.DType.Size()
	d := f.args[0].typ.Dims
	strides := ir.Strides(d)
	switch f.op {
	case permute:
		s := make([]int, len(d))
		for i, p := range f.ints {
			s[i] = strides[p]
		}
		return pickBytes(in[0], size, f.typ.Dims, s, 0), nil
	case expanded:
		for i := range strides {
			if d[i] != f.typ.Dims[i] {
				strides[i] = 0
			}
		}
		return pickBytes(in[0], size, f.typ.Dims, strides, 0), nil
	case sliced:
		return pickBytes(in[0], size, f.typ.Dims, strides, f.ints[1]*strides[f.ints[0]]), nil
	case joined:
		return f.joinBytes(in), nil
	case picked:
		row := size * ir.Product(d[1:])
		out := make([]byte, 0, f.typ.Bytes())
		for _, r := range f.ints {
			out = append(out, in[0][r*row:(r+1)*row]...)
		}
		return out, nil
	case function:
		return f.mapBytes(in[0]), nil
	}
	return in[0], nil
}

func (f *form) joinBytes(in [][]byte) []byte {
	dim, size := f.ints[0], f.typ.DType.Size()
	out := make([]byte, 0, f.typ.Bytes())
	for o := range ir.Product(f.typ.Dims[:dim]) {
		for i, a := range f.args {
			row := size * ir.Product(a.typ.Dims[dim:])
			out = append(out, in[i][o*row:(o+1)*row]...)
		}
	}
	return out
}

// mapBytes applies the element-wise function.
func (f *form) mapBytes(data []byte) []byte {
	a := (&ir.Tensor{Type: f.typ, Data: data}).Array()
	if f.fn == "*c" {
		each(a.F, func(x float64) float64 { return x * f.scale })
		return settle(a).Tensor().Data
	}
	if f.fn == "Softplus" {
		each(a.F, func(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) })
		return settle(a).Tensor().Data
	}
	return folders[f.fn](&node{op: f.fn}, []*ir.Array{a})[0].Tensor().Data
}

// pickBytes is pick on raw elements of size bytes.
func pickBytes(data []byte, size int, dims, strides []int, base int) []byte {
	total := ir.Product(dims)
	out := make([]byte, 0, total*size)
	index := make([]int, len(dims))
	at := base
	for range total {
		out = append(out, data[at*size:(at+1)*size]...)
		for d := len(dims) - 1; d >= 0; d-- {
			index[d]++
			at += strides[d]
			if index[d] < dims[d] {
				break
			}
			at -= strides[d] * dims[d]
			index[d] = 0
		}
	}
	return out
}

// emit builds f in the program.
func (f *form) emit(w *walker) *ir.Value {
	if f.op == leaf {
		return w.leaf(f.param)
	}
	in := make([]*ir.Value, len(f.args))
	for i, a := range f.args {
		in[i] = a.emit(w)
	}
	switch f.op {
	case permute:
		return ops.Transpose(w.b, in[0], f.ints)
	case reshaped:
		return ops.Reshape(w.b, in[0], f.typ.Dims)
	case expanded:
		return ops.Expand(w.b, in[0], f.typ.Dims)
	case sliced:
		return ops.SliceDim(w.b, in[0], f.ints[0], f.ints[1], f.ints[2])
	case joined:
		return ops.Concat(w.b, f.ints[0], in...)
	case picked:
		rows := ir.NewArray(ir.T(dtype.I64, len(f.ints)))
		for i, r := range f.ints {
			rows.I[i] = int64(r)
		}
		return ops.Gather(w.b, in[0], w.b.Rename(ops.Const(w.b, rows.Tensor()), "rows"), 0)
	}
	if f.fn == "*c" {
		return ops.Mul(w.b, in[0], ops.ScalarLike(w.b, in[0], f.scale))
	}
	n := &node{op: f.fn, opset: w.m.opset, in: []string{""}, out: []string{""}, loc: w.b.Loc}
	row, _ := lookup(n)
	return w.value(row.rule(w, n, []*val{{t: in[0].Type, v: in[0]}})[0])
}

// leaf is a parameter in the program; one that took a constant's role is a constant.
func (w *walker) leaf(p *Parameter) *ir.Value {
	if p.Role != RoleConstant {
		return p.value
	}
	data, err := p.data()
	if err != nil {
		panic(ir.Errorf(w.b.Loc, "%v", err))
	}
	return w.b.Rename(ops.Const(w.b, &ir.Tensor{Type: p.Type, Data: data}), p.Name)
}
