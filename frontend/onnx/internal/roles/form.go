package roles

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
)

// formOp is one step of how an operand is made of parameters.
type formOp uint8

const (
	Leaf     formOp = iota // the parameter itself
	Permute                // dims in the order ints
	Reshaped               // the same elements under other dims
	Expanded               // dims of size 1 repeated
	Sliced                 // ints are dim, first index and size
	Joined                 // args along dim ints[0]
	Picked                 // rows ints along dim 0
	function               // the element-wise function fn
)

// Form says how an operand's value is made: it is a parameter, or what an exporter computed of some. Training goes
// through it, so that whatever copies of a parameter a file holds, the parameter stays one.
type Form struct {
	Op    formOp
	Param *Parameter // of a leaf
	Args  []*Form
	Ints  []int
	Func  string // an ONNX operator of one operand, or "*c" for a product with the constant scale
	Scale float64
	Type  ir.Type
}

// leafOf is parameter p as it is.
func leafOf(p *Parameter) *Form { return &Form{Op: Leaf, Param: p, Type: p.Type} }

func (f *Form) step(op formOp, dims []int, ints ...int) *Form {
	return &Form{Op: op, Args: []*Form{f}, Ints: ints, Type: ir.Type{DType: f.Type.DType, Dims: dims}}
}

// permute reorders dims; dim i of the result is dim perm[i].
func (f *Form) permute(perm ...int) *Form {
	dims := make([]int, len(perm))
	for i, p := range perm {
		dims[i] = f.Type.Dims[p]
	}
	return f.step(Permute, dims, perm...)
}

// reshape gives the same elements other dims.
func (f *Form) reshape(dims []int) *Form {
	if slices.Equal(dims, f.Type.Dims) {
		return f
	}
	return f.step(Reshaped, dims)
}

// expand repeats f to dims, as NumPy broadcasts.
func (f *Form) expand(dims []int) *Form {
	if slices.Equal(dims, f.Type.Dims) {
		return f
	}
	if more := len(dims) - len(f.Type.Dims); more > 0 {
		f = f.reshape(slices.Concat(slices.Repeat([]int{1}, more), f.Type.Dims))
	}
	return f.step(Expanded, dims)
}

// slice takes size indices of dim from start on.
func (f *Form) slice(dim, start, size int) *Form {
	dims := slices.Clone(f.Type.Dims)
	dims[dim] = size
	return f.step(Sliced, dims, dim, start, size)
}

// join concatenates along dim.
func join(dim int, args ...*Form) *Form {
	if len(args) == 1 {
		return args[0]
	}
	t := ir.Type{DType: args[0].Type.DType, Dims: slices.Clone(args[0].Type.Dims)}
	for _, a := range args[1:] {
		t.Dims[dim] += a.Type.Dims[dim]
	}
	return &Form{Op: Joined, Args: args, Ints: []int{dim}, Type: t}
}

// pick gathers rows of dim 0.
func (f *Form) pick(rows []int) *Form {
	return f.step(Picked, slices.Concat([]int{len(rows)}, f.Type.Dims[1:]), rows...)
}

// apply is an ONNX operator of one operand on every element.
func (f *Form) apply(fn string) *Form {
	out := f.step(function, f.Type.Dims)
	out.Func = fn
	return out
}

// times multiplies every element by c.
func (f *Form) times(c float64) *Form {
	out := f.apply("*c")
	out.Scale = c
	return out
}

// as is f seen through a layout, with dims as the operand's.
func (f *Form) as(lay layout, dims []int) *Form {
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

// Leaves lists the parameters that f is made of, each once.
func (f *Form) Leaves() []*Parameter {
	if f.Op == Leaf {
		return []*Parameter{f.Param}
	}
	var out []*Parameter
	for _, a := range f.Args {
		for _, p := range a.Leaves() {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// with puts another form in the place of parameter p.
func (f *Form) with(p *Parameter, by *Form) *Form {
	if f.Op == Leaf {
		if f.Param == p {
			return by
		}
		return f
	}
	out := *f
	out.Args = make([]*Form, len(f.Args))
	for i, a := range f.Args {
		out.Args[i] = a.with(p, by)
	}
	return &out
}

// String names f for maps and messages; equal texts are equal forms.
func (f *Form) String() string {
	if f.Op == Leaf {
		return fmt.Sprintf("%q", f.Param.Name)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d%v%s%g%v(", f.Op, f.Ints, f.Func, f.Scale, f.Type.Dims)
	for _, a := range f.Args {
		b.WriteString(a.String() + ",")
	}
	return b.String() + ")"
}

// Suffix is what the name of f's value has after the parameter's.
func (f *Form) Suffix() string {
	return map[formOp]string{Permute: ".T", Expanded: ".expand", Sliced: ".part", Joined: ".joined", Picked: ".rows",
		Reshaped: ".view", function: ".value"}[f.Op]
}

// Contents is the initial data of p.
func (p *Parameter) Contents() ([]byte, error) { return p.Data() }

// Bytes evaluates f on contents of its parameters.
func (f *Form) Bytes(contents func(*Parameter) ([]byte, error)) ([]byte, error) {
	if f.Op == Leaf {
		return contents(f.Param)
	}
	in := make([][]byte, len(f.Args))
	for i, a := range f.Args {
		data, err := a.Bytes(contents)
		if err != nil {
			return nil, err
		}
		if len(data) != a.Type.Bytes() {
			return nil, fmt.Errorf("%d bytes are given for a tensor of type %s", len(data), a.Type)
		}
		in[i] = data
	}
	size := f.Type.DType.Size()
	d := f.Args[0].Type.Dims
	strides := ir.Strides(d)
	switch f.Op {
	case Permute:
		s := make([]int, len(d))
		for i, p := range f.Ints {
			s[i] = strides[p]
		}
		return pickBytes(in[0], size, f.Type.Dims, s, 0), nil
	case Expanded:
		for i := range strides {
			if d[i] != f.Type.Dims[i] {
				strides[i] = 0
			}
		}
		return pickBytes(in[0], size, f.Type.Dims, strides, 0), nil
	case Sliced:
		return pickBytes(in[0], size, f.Type.Dims, strides, f.Ints[1]*strides[f.Ints[0]]), nil
	case Joined:
		return f.joinBytes(in), nil
	case Picked:
		row := size * ir.Product(d[1:])
		out := make([]byte, 0, f.Type.Bytes())
		for _, r := range f.Ints {
			out = append(out, in[0][r*row:(r+1)*row]...)
		}
		return out, nil
	case function:
		return f.mapBytes(in[0]), nil
	}
	return in[0], nil
}

func (f *Form) joinBytes(in [][]byte) []byte {
	dim, size := f.Ints[0], f.Type.DType.Size()
	out := make([]byte, 0, f.Type.Bytes())
	for o := range ir.Product(f.Type.Dims[:dim]) {
		for i, a := range f.Args {
			row := size * ir.Product(a.Type.Dims[dim:])
			out = append(out, in[i][o*row:(o+1)*row]...)
		}
	}
	return out
}

// mapBytes applies the element-wise function.
func (f *Form) mapBytes(data []byte) []byte {
	a := (&ir.Tensor{Type: f.Type, Data: data}).Array()
	if f.Func == "*c" {
		fold.Each(a.F, func(x float64) float64 { return x * f.Scale })
		return fold.Settle(a).Tensor().Data
	}
	if f.Func == "Softplus" {
		fold.Each(a.F, func(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) })
		return fold.Settle(a).Tensor().Data
	}
	return fold.Funcs[f.Func](&model.Node{Op: f.Func}, []*ir.Array{a})[0].Tensor().Data
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
