package onnx

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// bindDims collects the sizes of symbolic dimensions from Options.
func (m *Model) bindDims() (map[string]int, error) {
	dims := maps.Clone(m.opts.Dims)
	if dims == nil {
		dims = map[string]int{}
	}
	known := map[string]bool{}
	for _, in := range m.inputs {
		shape := in.Type.GetTensorType().GetShape()
		for i, d := range shape.GetDim() {
			name := d.GetDimParam()
			known[name] = true
			if _, bound := dims[name]; i == 0 && m.opts.Batch > 0 && name != "" && !bound {
				dims[name] = m.opts.Batch
			}
		}
	}
	for name, size := range m.opts.Dims {
		if size < 1 || size > maxDim {
			return nil, fmt.Errorf("--dim %s=%d: want a positive size", name, size)
		}
		if !known[name] {
			delete(known, "")
			return nil, fmt.Errorf("--dim %s: no input has a dimension of that name; there are: %s", name,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return dims, nil
}

// inputType is the type of a graph input with its dimensions bound.
func (m *Model) inputType(in *onnxpb.ValueInfoProto, dims map[string]int) (ir.Type, error) {
	tt := in.Type.GetTensorType()
	if tt == nil {
		return ir.Type{}, fmt.Errorf("input %q is a %s: a program takes tensors only; export the model with one input for "+
			"each tensor", in.GetName(), typeName(in.Type, 0))
	}
	d, err := convertType(tt.GetElemType())
	if err != nil {
		return ir.Type{}, fmt.Errorf("input %q: %w", in.GetName(), err)
	}
	if tt.Shape == nil {
		return ir.Type{}, fmt.Errorf("input %q has no shape; export with a known number of dimensions", in.GetName())
	}
	t := ir.Type{DType: d}
	for i, dim := range tt.Shape.Dim {
		size, err := m.dimSize(in.GetName(), i, dim, dims)
		if err != nil {
			return t, err
		}
		t.Dims = append(t.Dims, size)
	}
	if _, err := product(t.Dims); err != nil {
		return t, fmt.Errorf("input %q: %w", in.GetName(), err)
	}
	return t, nil
}

func (m *Model) dimSize(input string, i int, dim *onnxpb.TensorShapeProto_Dimension, dims map[string]int) (int, error) {
	if v, ok := dim.GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue); ok && v.DimValue > 0 {
		if i == 0 && m.opts.Batch > 0 && int64(m.opts.Batch) != v.DimValue {
			return 0, fmt.Errorf("input %q has a fixed leading dimension of %d, not %d (--batch); export with a dynamic "+
				"batch dimension to choose it", input, v.DimValue, m.opts.Batch)
		}
		return int(min(v.DimValue, maxDim+1)), nil
	}
	name := dim.GetDimParam()
	if size, ok := dims[name]; ok && name != "" {
		return size, nil
	}
	if i == 0 && m.opts.Batch > 0 {
		return m.opts.Batch, nil
	}
	hint := fmt.Sprintf("give --dim %s=N", name)
	if name == "" {
		name, hint = "?", "the file gives it no name to bind it by"
	}
	if i == 0 {
		hint += " or --batch N"
	}
	return 0, fmt.Errorf("dimension %d of input %q, %q, is open: %s", i, input, name, hint)
}
