package onnx

// Input is an input of the graph as the file declares it.
type Input struct {
	Name string
	// Open has an entry for each dimension: the name that Options.Dims binds, or "" for one that is fixed.
	Open []string
}

// Inputs lists the graph's inputs in order, without initializers.
func (m *Model) Inputs() []Input {
	var out []Input
	for _, in := range m.inputs {
		i := Input{Name: in.GetName()}
		for _, d := range in.Type.GetTensorType().GetShape().GetDim() {
			i.Open = append(i.Open, d.GetDimParam())
		}
		out = append(out, i)
	}
	return out
}
