package onnx

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/roles"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/cost"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Info is what gtc inspect tells of a model. Field names in JSON are public.
type Info struct {
	Model      string       `json:"model"`
	IRVersion  int64        `json:"ir_version"`
	Opset      int          `json:"opset"`
	Producer   string       `json:"producer"`
	Inputs     []Port       `json:"inputs"`
	Outputs    []Port       `json:"outputs"`
	Operators  []Count      `json:"operators"` // of the file, functions inlined
	Ops        []Count      `json:"ops"`       // of the imported function
	Parameters []*Parameter `json:"parameters"`
	// Trained is the number of trained elements, TrainedBytes their size.
	Trained      int64 `json:"trained"`
	TrainedBytes int64 `json:"trained_bytes"`
	// FLOPs is the floating-point operations of one forward pass, Bytes what its ops read and write.
	FLOPs    int64    `json:"flops"`
	Bytes    int64    `json:"bytes"`
	Warnings []string `json:"warnings"`
	// Training is the file's own training information, which gtc does not use.
	Training []TrainingInfo `json:"training_info,omitempty"`
}

// Port is an input or output.
type Port struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Dims  []int  `json:"dims"`
}

// Inspect imports the model and describes it. Open dimensions that no option binds count as 1, with a warning.
func (m *Model) Inspect() (*Info, error) {
	return m.InspectChanged(func(view *Model, _ *ir.Module) ([]*Parameter, error) { return view.Parameters(), nil })
}

// InspectChanged is Inspect of what change makes of the imported module. It is given the model as it was imported, open dimensions
// bound, and gives the parameters that are to be told of.
func (m *Model) InspectChanged(change func(view *Model, mod *ir.Module) ([]*Parameter, error)) (*Info, error) {
	f := *m.File
	f.Warnings = slices.Clone(m.Warnings)
	view := &Model{File: &f, roles: m.roles}
	taken := view.bindOpen()
	res, err := view.importOnce()
	if err != nil {
		return nil, taken.tell(m.Located(err))
	}
	m.roles = view.roles
	params, err := change(view, res.module)
	if err != nil {
		return nil, m.Located(err)
	}
	forward := res.module.Funcs[0]
	info := &Info{Model: m.Name, IRVersion: m.Proto.GetIrVersion(), Opset: m.Opset(), Producer: m.Proto.GetProducerName(),
		Warnings: view.Warnings, Parameters: params, Training: m.TrainingInfo()}
	for _, p := range forward.Params {
		if p.Role == ir.Input {
			info.Inputs = append(info.Inputs, port(p.Name, p.Type))
		}
	}
	for i, r := range forward.Results {
		info.Outputs = append(info.Outputs, port(res.outputs[i], r.Value.Type))
	}
	operators, kinds := map[string]int{}, map[string]int{}
	for _, n := range m.Nodes {
		operators[n.Op]++
	}
	for _, op := range forward.Ops {
		kinds[op.Def.Name]++
		info.FLOPs += cost.Flops(op)
		info.Bytes += cost.Bytes(op)
	}
	info.Operators, info.Ops = model.CountsOf(operators), model.CountsOf(kinds)
	looked := rowsRead(forward)
	for _, p := range params {
		if p.Role == RoleParameter && p.Used {
			info.Trained += int64(p.Type.Elems())
			info.TrainedBytes += int64(p.Type.Bytes())
			p.Lookups = max(looked[p.Value], 0)
		}
	}
	return info, nil
}

// rowsRead counts the rows of each parameter that f looks up; below 0 where it is read in another way as well.
func rowsRead(f *ir.Func) map[*ir.Value]int {
	out := map[*ir.Value]int{}
	const otherwise = -1 << 60
	for _, op := range f.Ops {
		for i, v := range op.In {
			if a, ok := op.Attrs.(ops.GatherAttrs); ok && i == 0 && a.Dim == 0 && len(v.Type.Dims) > 1 {
				out[v] += op.In[1].Type.Elems()
			} else {
				out[v] += otherwise
			}
		}
	}
	for _, r := range f.Results {
		out[r.Value] += otherwise
	}
	return out
}

// Outputs are the names in the file of the results out0, out1, … of the imported program; the elements of a sequence repeat its
// name. Import must have succeeded.
func (m *Model) Outputs() []string { return m.imported.outputs }

// Parameters lists the float initializers with the roles decided for them. Import or Inspect must have succeeded.
func (m *Model) Parameters() []*Parameter {
	if m.roles == nil {
		return nil
	}
	return m.roles.Params
}

// Asked lists the parameters that a flag says are to be trained. Import or Inspect must have succeeded.
func (m *Model) Asked() []string {
	var names []string
	for _, p := range m.Parameters() {
		if p.Role == RoleParameter && strings.HasPrefix(p.Reason, roles.AskedByTrain) {
			names = append(names, p.Name)
		}
	}
	return names
}

// Names lists the tensors of the file, and those that importing found in them under names of their own, sorted. Import or Inspect must
// have succeeded.
func (m *Model) Names() []string {
	all := map[string]bool{}
	for name := range m.Inits {
		all[name] = true
	}
	for name := range m.roles.Named {
		all[name] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// ModuleOf is the name of the module that holds the parameter name; "" for the outermost one.
func ModuleOf(name string) string { return model.ModuleOf(name) }

// openDims names dimensions that count as 1 because nothing binds them.
type openDims []string

// tell adds to a fault that 1 may be the wrong size: it can be the only reason why operands do not fit.
func (o openDims) tell(err error) error {
	var e *ir.Error
	if len(o) > 0 && errors.As(err, &e) {
		e.Note("open dimensions count as 1 here: %s; bind them with --batch N or --dim %s=N", strings.Join(o, ", "), o[len(o)-1])
	}
	return err
}

// bindOpen gives size 1 to dimensions that nothing binds, and returns their names.
func (m *Model) bindOpen() openDims {
	var taken openDims
	dims := maps.Clone(m.Options.Dims)
	if dims == nil {
		dims = map[string]int{}
	}
	for _, in := range m.InputInfos {
		if m.Options.Fixed[in.GetName()] != nil {
			continue
		}
		for i, d := range in.Type.GetTensorType().GetShape().GetDim() {
			name := model.OpenName(in.GetName(), i, d)
			if v, ok := d.GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue); ok && v.DimValue >= 0 {
				continue
			}
			if _, bound := dims[name]; name == "" || bound || i == m.BatchDim(in) && m.Options.Batch > 0 {
				continue
			}
			dims[name] = 1
			taken = append(taken, name)
			m.Warn("dimension %q is open; sizes and costs are for %s=1 (--dim %s=N)", name, name, name)
		}
	}
	m.Options.Dims = dims
	return taken
}

func port(name string, t ir.Type) Port {
	return Port{name, t.DType.String(), append([]int{}, t.Dims...)}
}
