package export

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/folder"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// adapted is an imported model with the adapters that its folder was compiled with.
type adapted struct {
	*onnx.Model
	params   []*onnx.Parameter // the model's and the adapters'
	adapters []pass.Adapter
}

// imported is the model that the folder keeps, nil when it keeps none.
func imported(f *folder.Folder) (*adapted, error) {
	opt, err := f.Options()
	if err != nil {
		return nil, nil
	}
	m, err := onnx.Load(opt.Model, opt.Import)
	if err != nil {
		return nil, compiler.Input(err)
	}
	params, adapters, err := compiler.Adapt(m, opt)
	if err != nil {
		m.Close()
		return nil, err
	}
	return &adapted{m, params, adapters}, nil
}

// contents lists tensors by name.
func contents(tensors []safetensors.Tensor) map[string][]byte {
	weights := map[string][]byte{}
	for _, t := range tensors {
		weights[t.Name] = t.Data
	}
	return weights
}

// adapterOf is the adapter of a weight; nil for none.
func (m *adapted) adapterOf(p *onnx.Parameter) *pass.Adapter {
	for i := range m.adapters {
		if m.adapters[i].Weight == p.Name {
			return &m.adapters[i]
		}
	}
	return nil
}

// isAdapter reports whether the tensor of that name is a part of an adapter.
func (m *adapted) isAdapter(name string) bool {
	return slices.ContainsFunc(m.adapters, func(a pass.Adapter) bool { return a.A.Name == name || a.B.Name == name })
}

// mergedDict gives the parameters of the model that the folder keeps, with the adapters among tensors added to the weights below them.
func mergedDict(f *folder.Folder, tensors []safetensors.Tensor) ([]safetensors.Tensor, error) {
	if _, err := f.Options(); err != nil {
		return nil, err
	}
	m, err := imported(f)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	out, err := m.merged(contents(tensors))
	return out, compiler.Input(err)
}

// merged gives the parameters of the model with the adapters in weights added to the weights below them.
func (m *adapted) merged(weights map[string][]byte) ([]safetensors.Tensor, error) {
	if err := m.merge(weights); err != nil {
		return nil, err
	}
	var out []safetensors.Tensor
	for _, p := range m.Parameters() {
		if p.Role == onnx.RoleConstant {
			continue
		}
		data, err := held(p, weights)
		if err != nil {
			return nil, m.Located(err)
		}
		out = append(out, safetensors.Tensor{Name: p.Name, DType: p.Type.DType.Safetensors(), Shape: p.Dims, Data: slices.Clone(data)})
	}
	return out, nil
}

// merge adds the adapters in weights to the weights that they adapt, and takes them out. What weights does not have is as it was before training.
func (m *adapted) merge(weights map[string][]byte) error {
	for _, p := range m.Parameters() {
		a := m.adapterOf(p)
		if a == nil {
			continue
		}
		base, err := held(p, weights)
		if err != nil {
			return m.Located(err)
		}
		left, err := factor(&a.B, weights)
		if err != nil {
			return m.Located(err)
		}
		right, err := factor(&a.A, weights)
		if err != nil {
			return m.Located(err)
		}
		weights[p.Name] = sum(&ir.Tensor{Type: p.Type, Data: slices.Clone(base)}, a, left, right)
		delete(weights, a.A.Name)
		delete(weights, a.B.Name)
	}
	return nil
}

// held is what p holds now.
func held(p *onnx.Parameter, weights map[string][]byte) ([]byte, error) {
	data, ok := weights[p.Name]
	if !ok {
		return p.Data()
	}
	if len(data) != p.Type.Bytes() {
		return nil, fmt.Errorf("parameter %q is %s, but %d bytes are given for it", p.Name, p.Type, len(data))
	}
	return data, nil
}

// parameterOf is one of the matrices of an adapter, as a parameter.
func parameterOf(f *pass.Factor) *onnx.Parameter {
	return &onnx.Parameter{Name: f.Name, Type: f.Type, Data: func() ([]byte, error) { return f.Init.Data, nil }}
}

// factor is what one of the matrices of an adapter holds now, as numbers.
func factor(f *pass.Factor, weights map[string][]byte) ([]float64, error) {
	data, err := held(parameterOf(f), weights)
	if err != nil {
		return nil, err
	}
	return (&ir.Tensor{Type: f.Type, Data: data}).Array().F, nil
}

// sum is the weight with its adapter, left [out, rank] times right [rank, in], rounded to its type.
func sum(weight *ir.Tensor, a *pass.Adapter, left, right []float64) []byte {
	rank := a.Rank()
	outs, ins := len(left)/rank, len(right)/rank
	w := weight.Array()
	for i := range outs {
		for k := range rank {
			x := a.Scale * left[i*rank+k]
			for j := range ins {
				at := i*ins + j
				if a.Transposed() {
					at = j*outs + i
				}
				w.F[at] += x * right[k*ins+j]
			}
		}
	}
	for i, x := range w.F {
		w.F[i] = w.Type.DType.Round(x)
	}
	return w.Tensor().Data
}
