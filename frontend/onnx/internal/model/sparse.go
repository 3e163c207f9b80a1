package model

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// maxDensified is the size in bytes up to which the sparse tensors of a file are stored densely: a file of a few bytes may claim any.
const maxDensified = 1 << 30

// densify makes an initializer of each sparse one, with a remark. They are constants unless --train names them.
func (m *File) densify() error {
	m.Sparse = map[string]bool{}
	if err := m.densifyNodes(m.Proto.Graph.Node, 0); err != nil {
		return err
	}
	for _, f := range m.Proto.Functions {
		if err := m.densifyNodes(f.Node, 0); err != nil {
			return err
		}
	}
	for _, p := range m.Proto.Graph.SparseInitializer {
		dense, err := m.dense(p)
		if err != nil {
			return fmt.Errorf("sparse initializer %q: %w", p.GetValues().GetName(), err)
		}
		if err := m.addInitializer(dense); err != nil {
			return err
		}
		m.Sparse[dense.GetName()] = true
		m.Warn("%q is a sparse initializer: it is stored densely, and is a constant unless --train names it, which trains all its elements",
			dense.GetName())
	}
	m.Proto.Graph.SparseInitializer = nil // Export writes them densely
	return nil
}

// densifyNodes does so with sparse Constant nodes, and with the sparse initializers of subgraphs, which stay constants.
func (m *File) densifyNodes(nodes []*onnxpb.NodeProto, depth int) error {
	if depth > MaxInline {
		return fmt.Errorf("graphs nest deeper than %d", MaxInline)
	}
	for _, n := range nodes {
		for i, a := range n.Attribute {
			if a.SparseTensor != nil && a.GetName() == "sparse_value" && n.GetOpType() == "Constant" && len(n.Output) == 1 {
				dense, err := m.dense(a.SparseTensor)
				if err != nil {
					return fmt.Errorf("sparse constant %q: %w", n.Output[0], err)
				}
				name, kind := "value", onnxpb.AttributeProto_TENSOR
				n.Attribute[i] = &onnxpb.AttributeProto{Name: &name, Type: &kind, T: dense}
				m.Sparse[n.Output[0]] = true
				m.Warn("%q is a sparse constant: it is stored densely", n.Output[0])
			}
			for _, g := range append(slices.Clone(a.Graphs), a.G) {
				if g == nil {
					continue
				}
				for _, p := range g.SparseInitializer {
					dense, err := m.dense(p)
					if err != nil {
						return fmt.Errorf("sparse initializer %q of a subgraph of node %q: %w", p.GetValues().GetName(), n.GetName(), err)
					}
					g.Initializer = append(g.Initializer, dense)
					m.Warn("%q is a sparse initializer of a subgraph: it is stored densely", dense.GetName())
				}
				g.SparseInitializer = nil
				if err := m.densifyNodes(g.Node, depth+1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// dense is p with all its elements. Indices are linear [n] or coordinates [n,rank], ascending (ONNX SparseTensorProto).
func (m *File) dense(p *onnxpb.SparseTensorProto) (*onnxpb.TensorProto, error) {
	if p.Values == nil || p.Indices == nil {
		return nil, fmt.Errorf("it has no values or no indices")
	}
	values, err := m.NewTensor(p.Values)
	if err != nil {
		return nil, err
	}
	indices, err := m.NewTensor(p.Indices)
	if err != nil {
		return nil, err
	}
	data, err := values.Bytes()
	if err != nil {
		return nil, err
	}
	at, err := indices.Bytes()
	if err != nil {
		return nil, err
	}
	dims := make([]int, len(p.Dims))
	for i, d := range p.Dims {
		dims[i] = int(d)
	}
	elems, err := Elements(dims)
	if err != nil {
		return nil, err
	}
	n, width := values.Type.Elems(), values.Type.DType.Bits()/8
	columns := 1
	if len(indices.Type.Dims) == 2 {
		columns = len(dims)
	}
	switch {
	case width == 0:
		return nil, fmt.Errorf("values of type %s are not supported", values.Type.DType)
	case len(values.Type.Dims) != 1:
		return nil, fmt.Errorf("values are %s, but must have one dimension", values.Type)
	case indices.Type.DType != dtype.I64:
		return nil, fmt.Errorf("indices are %s, but must be int64", indices.Type)
	case len(indices.Type.Dims) < 1 || len(indices.Type.Dims) > 2 || indices.Type.Dims[0] != n || len(indices.Type.Dims) == 2 && indices.Type.Dims[1] != columns:
		return nil, fmt.Errorf("indices are %s, but must be [%d] or [%d,%d]", indices.Type, n, n, len(dims))
	case elems > (maxDensified-m.densified)/width:
		return nil, fmt.Errorf("dims %v take more than %d bytes when stored densely, those of all sparse tensors together", dims, maxDensified)
	}
	m.densified += elems * width
	out, last := make([]byte, elems*width), -1
	for i := range n {
		linear := 0
		for j := range columns {
			v, size := int(int64(binary.LittleEndian.Uint64(at[(i*columns+j)*8:]))), elems
			if len(indices.Type.Dims) == 2 {
				size = dims[j]
			}
			if v < 0 || v >= size {
				return nil, fmt.Errorf("index %d of value %d is outside 0 to %d", v, i, size-1)
			}
			linear = linear*size + v
		}
		if linear <= last {
			return nil, fmt.Errorf("the index of value %d does not follow that of the value before: indices must ascend, each given once", i)
		}
		last = linear
		copy(out[linear*width:], data[i*width:(i+1)*width])
	}
	raw := onnxpb.Bytes(out)
	return &onnxpb.TensorProto{Name: p.Values.Name, DataType: p.Values.DataType, Dims: p.Dims, RawData: &raw}, nil
}
