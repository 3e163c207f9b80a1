package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// BatchDim is the dimension that the samples of an input are taken to lie along as far as the file and the options tell: that of
// Options.BatchDims, or one that alone is called after a batch, or where the leading one cannot have Options.Batch the only one that can;
// else the leading one.
func (m *File) BatchDim(in *onnxpb.ValueInfoProto) int {
	dims := in.Type.GetTensorType().GetShape().GetDim()
	if d, given := m.Options.BatchDims[in.GetName()]; given {
		if d < 0 {
			d += len(dims)
		}
		return d
	}
	var named, fit []int
	for i, dim := range dims {
		name := OpenName(in.GetName(), i, dim)
		if calledBatch(dim) {
			named = append(named, i)
		}
		if size, bound := m.Options.Dims[name]; m.Options.Batch > 0 && (name == "" && dim.GetDimValue() == int64(m.Options.Batch) ||
			name != "" && (!bound || size == m.Options.Batch)) {
			fit = append(fit, i)
		}
	}
	switch {
	case len(named) == 1:
		return named[0]
	case len(fit) == 1 && len(named) == 0:
		return fit[0]
	}
	return 0
}

// BatchDims are the dimensions along which inputs have their samples as far as the file and the options tell, each as "x=1", or as "x=1?"
// where --batch alone speaks for it; leading ones that are neither given nor called after a batch are not in it.
func (m *File) BatchDims() []string {
	var list []string
	known := map[string]bool{}
	for _, in := range m.InputInfos {
		name := in.GetName()
		known[name] = true
		d, given := m.Options.BatchDims[name]
		if !given {
			d = m.BatchDim(in)
		}
		switch dims := in.Type.GetTensorType().GetShape().GetDim(); {
		case given || d < len(dims) && calledBatch(dims[d]):
			list = append(list, fmt.Sprintf("%s=%d", name, d))
		case d > 0:
			list = append(list, fmt.Sprintf("%s=%d?", name, d))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Options.BatchDims)) {
		if !known[name] {
			list = append(list, fmt.Sprintf("%s=%d", name, m.Options.BatchDims[name])) // to be refused
		}
	}
	return list
}

func calledBatch(d *onnxpb.TensorShapeProto_Dimension) bool {
	return strings.Contains(strings.ToLower(d.GetDimParam()), "batch")
}
