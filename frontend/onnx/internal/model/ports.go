package model

import (
	"fmt"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// Input is an input of the graph as the file declares it.
type Input struct {
	Name string
	// Open has an entry for each dimension: the name that Options.Dims binds, or "" for one that is fixed.
	Open []string
	// BatchDim is the dimension that the samples are taken to lie along when Options.Batch is bound.
	BatchDim int
	// Type is the declared type: inputs of a sequence or optional type need Options.Contents.
	Type *onnxpb.TypeProto
}

// Inputs lists the graph's inputs in order, without initializers and those that Options.Values binds.
func (m *File) Inputs() []Input {
	var out []Input
	for _, in := range m.InputInfos {
		if _, bound := m.Options.Values[in.GetName()]; bound {
			continue
		}
		i := Input{Name: in.GetName(), Type: in.Type, BatchDim: m.BatchDim(in)}
		for k, d := range in.Type.GetTensorType().GetShape().GetDim() {
			i.Open = append(i.Open, OpenName(in.GetName(), k, d))
		}
		out = append(out, i)
	}
	return out
}

// ReadTensor decodes a file that holds one serialized TensorProto, the form in which the ONNX project stores the inputs
// and outputs of its test cases. External data is refused. The tensor may keep pointing into data.
func ReadTensor(data []byte) (*ir.Tensor, error) {
	p := &onnxpb.TensorProto{}
	if err := p.Unmarshal(data); err != nil {
		return nil, fmt.Errorf("not a tensor: %w", err)
	}
	t, err := (&File{}).NewTensor(p)
	if err != nil {
		return nil, err
	}
	return t.IR()
}
