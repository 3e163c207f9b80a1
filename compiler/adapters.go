package compiler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// forAdapters tells pass lora what it has to know of an imported model's file.
func forAdapters(o *pass.Options, m *onnx.Model) {
	if o.LoRA.Rank == 0 {
		return
	}
	o.LoRA.Trained = m.Asked()
	o.LoRA.Taken = slices.DeleteFunc(m.Names(), func(name string) bool { return !strings.HasPrefix(name, pass.AdapterPrefix) })
}

// parameters are the model's as pass lora leaves them, and after them the adapters in their order.
func parameters(model []*onnx.Parameter, o *pass.LoRA, adapters []pass.Adapter) []*onnx.Parameter {
	if len(adapters) == 0 {
		return model
	}
	var out []*onnx.Parameter
	named := map[string]*onnx.Parameter{}
	for _, p := range model {
		own := *p
		if p.Role == onnx.RoleParameter && !slices.Contains(o.Trained, p.Name) {
			own.Role, own.Reason = onnx.RoleBuffer, p.Reason+"; frozen, only adapters are trained (--lora)"
		}
		out, named[p.Name] = append(out, &own), &own
	}
	for i := range adapters {
		a := &adapters[i]
		named[a.Weight].Reason += fmt.Sprintf("; adapted with rank %d, scale %g", a.Rank(), a.Scale)
		for _, f := range []pass.Factor{a.A, a.B} {
			out = append(out, &onnx.Parameter{Name: f.Name, Type: f.Type, DType: f.Type.DType.String(), Dims: f.Type.Dims, Role: onnx.RoleParameter,
				Reason: "adapter of " + a.Weight + " (--lora)", Used: true, Data: func() ([]byte, error) { return f.Init.Data, nil }})
		}
	}
	return out
}

// Adapt imports the model and gives it the adapters that o asks for, and nothing else: for who needs what training has of parameters. They
// are the model's and then the adapters. Errors name the file.
func Adapt(m *onnx.Model, o *Options) ([]*onnx.Parameter, []pass.Adapter, error) {
	mod, err := m.Import()
	if err != nil {
		return nil, nil, Input(err)
	}
	params, adapters, err := adapt(m, mod, &o.Pass)
	if err != nil {
		return nil, nil, Input(m.Located(err))
	}
	return params, adapters, nil
}

// adapt runs pass lora on an imported module.
func adapt(m *onnx.Model, mod *ir.Module, o *pass.Options) ([]*onnx.Parameter, []pass.Adapter, error) {
	if o.LoRA.Rank == 0 {
		return m.Parameters(), nil, nil
	}
	c := &pass.Context{Module: mod, Opt: &pass.Options{LoRA: o.LoRA, StopAfter: "lora"}}
	forAdapters(c.Opt, m)
	if err := passes.Run(c, passes.Table); err != nil {
		return nil, nil, err
	}
	return parameters(m.Parameters(), &c.Opt.LoRA, c.Adapters), c.Adapters, nil
}

// Inspect tells what gtc makes of the model. Open dimensions that o does not bind count as 1, with a warning.
func Inspect(o *Options) (*onnx.Info, error) {
	m, err := onnx.Load(o.Model, o.Import)
	if err != nil {
		return nil, Input(err)
	}
	defer m.Close()
	info, err := m.InspectChanged(func(view *onnx.Model, mod *ir.Module) ([]*onnx.Parameter, error) {
		params, _, err := adapt(view, mod, &o.Pass)
		return params, err
	})
	return info, Input(err)
}
