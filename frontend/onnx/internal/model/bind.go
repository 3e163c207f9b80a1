package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// BindDims collects the sizes of symbolic dimensions from Options.
func (m *File) BindDims() (map[string]int, error) {
	dims := maps.Clone(m.Options.Dims)
	if dims == nil {
		dims = map[string]int{}
	}
	known := map[string]bool{}
	used, instead := false, "" // whether some input has Batch, and which other size has its dimension
	for _, in := range m.InputInfos {
		shape := in.Type.GetTensorType().GetShape()
		for i, d := range shape.GetDim() {
			name := OpenName(in.GetName(), i, d)
			if name == "" {
				continue
			}
			known[name] = true
			if i != m.BatchDim(in) || m.Options.Batch == 0 {
				continue
			}
			if size, given := m.Options.Dims[name]; given {
				instead = fmt.Sprintf("%s=%d", name, size)
			} else {
				dims[name], used = m.Options.Batch, true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Options.Dims)) {
		size := m.Options.Dims[name]
		if size < 0 || size > MaxDim {
			return nil, fmt.Errorf("--dim %s=%d is not possible: a size must be 0 or more", name, size)
		}
		if !known[name] {
			return nil, fmt.Errorf("--dim %s: no input has a dimension of that name; there are: %s", name,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	if !used && instead != "" {
		return nil, fmt.Errorf("--batch %d has no effect beside --dim %s, which binds the dimension of the batch; leave one of them out", m.Options.Batch, instead)
	}
	return dims, nil
}

// Resized are the options by which the model has another batch, the one that size makes of its own; false where its size is fixed in the file,
// or given in another way than by Batch or the name of a dimension in Dims.
func (m *File) Resized(size func(batch int) int) (Options, bool) {
	o := m.Options
	if o.Batch > 0 {
		o.Batch = size(o.Batch)
		return o, true
	}
	for _, in := range m.InputInfos {
		if dims, d := in.Type.GetTensorType().GetShape().GetDim(), m.BatchDim(in); d >= 0 && d < len(dims) {
			name := OpenName(in.GetName(), d, dims[d])
			batch, bound := o.Dims[name]
			if bound {
				o.Dims = maps.Clone(o.Dims)
				o.Dims[name] = size(batch)
			}
			return o, bound
		}
	}
	return o, false
}

// OpenName is the name that --dim binds dimension i of an input by: the file's, or INPUT[i] where it has none (those that
// exporters spell as a question mark or so are not one name), is negative, or 0, which some converters write for an unknown
// size. It is "" for a dimension of fixed size.
func OpenName(input string, i int, d *onnxpb.TensorShapeProto_Dimension) string {
	if v, ok := d.GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue); ok && v.DimValue > 0 {
		return ""
	}
	switch name := d.GetDimParam(); name {
	case "", "?", "-1", "None", "*":
		return fmt.Sprintf("%s[%d]", input, i)
	default:
		return name
	}
}

// InputType is the type of a graph input with its dimensions bound.
func (m *File) InputType(in *onnxpb.ValueInfoProto, dims map[string]int) (ir.Type, error) {
	tt := in.Type.GetTensorType()
	if tt == nil {
		return ir.Type{}, fmt.Errorf("input %q is a %s: a program takes tensors only; export the model with one input for "+
			"each tensor", in.GetName(), TypeName(in.Type, 0))
	}
	d, err := DTypeOf(tt.GetElemType())
	if err != nil {
		return ir.Type{}, fmt.Errorf("input %q: %w", in.GetName(), err)
	}
	if tt.Shape == nil {
		if !d.IsFloat() {
			return ir.Type{}, fmt.Errorf("input %q has no shape in the file: give its dimensions, as in --dim %[1]s=4 (--dim %[1]s=scalar for none), "+
				"or, where it decides a shape or a number of steps, its contents, as in --value %[1]s=3", in.GetName())
		}
		return ir.Type{}, fmt.Errorf("input %q has no shape in the file: give its dimensions, as in --dim %[1]s=4x16 (--dim %[1]s=scalar for none), "+
			"or export with a known number of dimensions", in.GetName())
	}
	t := ir.Type{DType: d}
	for i := range tt.Shape.Dim {
		size, err := m.dimSize(in, i, dims)
		if err != nil {
			return t, err
		}
		t.Dims = append(t.Dims, size)
	}
	if _, err := Elements(t.Dims); err != nil {
		return t, fmt.Errorf("input %q: %w", in.GetName(), err)
	}
	return t, nil
}

func (m *File) dimSize(in *onnxpb.ValueInfoProto, i int, dims map[string]int) (int, error) {
	input, dim, samples := in.GetName(), in.Type.GetTensorType().GetShape().Dim[i], i == m.BatchDim(in)
	name := OpenName(input, i, dim)
	if v, ok := dim.GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue); ok && name == "" {
		if samples && m.Options.Batch > 0 && int64(m.Options.Batch) != v.DimValue {
			which := "a fixed leading dimension"
			if i > 0 {
				which = fmt.Sprintf("its samples along dimension %d, which is fixed, and has a size", i)
			}
			return 0, fmt.Errorf("input %q has %s of %d, not %d (--batch); export with a dynamic "+
				"batch dimension to choose it (--batch-dim %s=N where it is another)", input, which, v.DimValue, m.Options.Batch, input)
		}
		return int(min(v.DimValue, MaxDim+1)), nil
	}
	if size, ok := dims[name]; ok {
		return size, nil
	}
	if samples && m.Options.Batch > 0 {
		return m.Options.Batch, nil
	}
	if v, ok := dim.GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue); ok && v.DimValue == 0 {
		m.Warn("dimension %d of input %q has size 0 in the file, and is taken for empty (--dim %[3]s=N if it is meant to be open)",
			i, input, name)
		return 0, nil
	}
	hint := fmt.Sprintf("give --dim %s=N", name)
	if samples {
		hint += " or --batch N"
	}
	return 0, fmt.Errorf("dimension %d of input %q, %q, is open: %s", i, input, name, hint)
}
