package model

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// What the user says of inputs that the file leaves open: their dimensions (Options.Shapes), and what those hold whose contents
// decide shapes or numbers of steps (Options.Values).

// give applies Options.Shapes and Options.Values to the inputs.
func (m *File) give() error {
	if err := m.giveShapes(); err != nil {
		return err
	}
	return m.giveValues()
}

// inputCalled is the place in m.inputs of a name that flag speaks of.
func (m *File) inputCalled(flag, name string) (int, error) {
	i := slices.IndexFunc(m.InputInfos, func(in *onnxpb.ValueInfoProto) bool { return in.GetName() == name })
	if i < 0 {
		var names []string
		for _, in := range m.InputInfos {
			names = append(names, in.GetName())
		}
		return 0, fmt.Errorf("%s: the model has no input of that name; there are: %s", flag, strings.Join(names, ", "))
	}
	return i, nil
}

// giveShapes declares the dimensions that Options.Shapes has: they are those of an input without any, or bind open ones.
func (m *File) giveShapes() error {
	shapes, dims := maps.Clone(m.Options.Shapes), maps.Clone(m.Options.Dims)
	if shapes == nil {
		shapes = map[string][]int{}
	}
	if dims == nil {
		dims = map[string]int{}
	}
	for _, in := range m.InputInfos { // --dim x=4, with x an input of which the file gives nothing
		if size, ok := dims[in.GetName()]; ok && shapeless(in) && shapes[in.GetName()] == nil && !m.namesDim(in.GetName()) {
			shapes[in.GetName()] = []int{size}
			delete(dims, in.GetName())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		given := shapes[name]
		flag := fmt.Sprintf("--dim %s=%s", name, ShapeText(given))
		if _, err := Elements(given); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		i, err := m.inputCalled(flag, name)
		if err != nil {
			return err
		}
		tt := m.InputInfos[i].GetType().GetTensorType()
		if tt == nil {
			return fmt.Errorf("%s: the input is a %s", flag, TypeName(m.InputInfos[i].GetType(), 0))
		}
		if tt.Shape == nil {
			m.InputInfos[i] = withDims(m.InputInfos[i], tt.GetElemType(), len(given))
			tt = m.InputInfos[i].GetType().GetTensorType()
		}
		if len(tt.Shape.Dim) != len(given) {
			return fmt.Errorf("%s: the input has %d dimensions in the file", flag, len(tt.Shape.Dim))
		}
		for k, d := range tt.Shape.Dim {
			open := OpenName(name, k, d)
			switch had, bound := dims[open]; {
			case open == "" && d.GetDimValue() != int64(given[k]):
				return fmt.Errorf("%s: dimension %d is fixed to %d in the file", flag, k, d.GetDimValue())
			case open != "" && bound && had != given[k]:
				return fmt.Errorf("%s: dimension %d is %q, which is %d elsewhere", flag, k, open, had)
			case open != "":
				dims[open] = given[k]
			}
		}
	}
	m.Options.Dims = dims
	return nil
}

// shapeless reports whether the file says of a tensor input not even how many dimensions it has.
func shapeless(in *onnxpb.ValueInfoProto) bool {
	tt := in.GetType().GetTensorType()
	return tt != nil && tt.Shape == nil
}

// namesDim reports whether an input of the file has a dimension of that name.
func (m *File) namesDim(name string) bool {
	return slices.ContainsFunc(m.InputInfos, func(in *onnxpb.ValueInfoProto) bool {
		return slices.ContainsFunc(in.GetType().GetTensorType().GetShape().GetDim(), func(d *onnxpb.TensorShapeProto_Dimension) bool {
			return d.GetDimParam() == name
		})
	})
}

// withDims is in with rank open dimensions that the file gives no name.
func withDims(in *onnxpb.ValueInfoProto, elem int32, rank int) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{}
	for range rank {
		shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{})
	}
	tensor := &onnxpb.TypeProto_Tensor{ElemType: &elem, Shape: shape}
	return &onnxpb.ValueInfoProto{Name: in.Name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: tensor}}}
}

// ShapeText writes dims as --dim takes them: 4x16, or scalar for none.
func ShapeText(dims []int) string {
	if len(dims) == 0 {
		return "scalar"
	}
	var parts []string
	for _, d := range dims {
		parts = append(parts, strconv.Itoa(d))
	}
	return strings.Join(parts, "x")
}

// ParseShape reads what ShapeText writes.
func ParseShape(text string) ([]int, error) {
	dims := []int{}
	if text == "scalar" {
		return dims, nil
	}
	for part := range strings.SplitSeq(text, "x") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q is not a number of 0 or more", part)
		}
		dims = append(dims, n)
	}
	return dims, nil
}

// giveValues makes constants of the inputs that Options.Values binds.
func (m *File) giveValues() error {
	fixed := maps.Clone(m.Options.Fixed)
	if fixed == nil {
		fixed = map[string]*ir.Tensor{}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Options.Values)) {
		text := m.Options.Values[name]
		flag := fmt.Sprintf("--value %s=%s", name, text)
		i, err := m.inputCalled(flag, name)
		if err != nil {
			return err
		}
		if fixed[name], err = m.valueOf(m.InputInfos[i], strings.Split(text, ",")); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	m.Options.Fixed = fixed
	return nil
}

// valueOf is numbers as the tensor that input in holds: of its type and dims, an open one of which is as long as the numbers need.
func (m *File) valueOf(in *onnxpb.ValueInfoProto, numbers []string) (*ir.Tensor, error) {
	tt := in.GetType().GetTensorType()
	if tt == nil {
		return nil, fmt.Errorf("the input is a %s, not a tensor", TypeName(in.GetType(), 0))
	}
	d, err := DTypeOf(tt.GetElemType())
	if err != nil {
		return nil, err
	}
	dims := []int{}
	switch {
	case tt.Shape != nil:
		rest := len(numbers)
		open := -1
		for k, dim := range tt.Shape.Dim {
			size, bound := m.Options.Dims[OpenName(in.GetName(), k, dim)]
			if OpenName(in.GetName(), k, dim) == "" {
				size, bound = int(min(dim.GetDimValue(), MaxDim)), true
			}
			if !bound {
				size = 1
				if open < 0 {
					open = k
				}
			}
			dims, rest = append(dims, size), rest/max(size, 1)
		}
		if open >= 0 {
			dims[open] = rest
		}
	case len(numbers) > 1:
		dims = []int{len(numbers)}
	}
	if n, err := Elements(dims); err != nil || n != len(numbers) {
		return nil, fmt.Errorf("it gives %d numbers for an input of dims %v", len(numbers), dims)
	}
	a := ir.NewArray(ir.Type{DType: d, Dims: dims})
	for k, text := range numbers {
		if err := setElement(a, k, strings.TrimSpace(text)); err != nil {
			return nil, err
		}
	}
	return a.Tensor(), nil
}

// setElement sets element k of a to the number that text is.
func setElement(a *ir.Array, k int, text string) error {
	d := a.Type.DType
	switch {
	case d.IsFloat():
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		a.F[k] = x
	case d == dtype.Bool:
		x, err := strconv.ParseBool(strings.ToLower(text))
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		if x {
			a.I[k] = 1
		}
	default:
		x, err := strconv.ParseInt(text, 10, 64)
		if lo, hi := d.Range(); err != nil || float64(x) < lo || float64(x) > hi || math.IsNaN(lo) {
			return fmt.Errorf("%q is not a number of type %s", text, d)
		}
		a.I[k] = x
	}
	return nil
}
