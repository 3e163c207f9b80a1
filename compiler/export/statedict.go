package export

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/folder"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// keyUnused is where a state dict's metadata lists what the model's file does not hold of the module, as JSON.
const keyUnused = "gtc.unused"

// count tells of tensors.
func (r *Report) count(tensors []safetensors.Tensor) {
	r.Tensors, r.Bytes = len(tensors), 0
	for _, t := range tensors {
		r.Bytes += len(t.Data)
	}
}

// writeStateDict writes tensors as what load_state_dict takes: beside them the other names of tied ones, each with its own
// contents (the package safetensors gives every name a tensor of its own), and what the module has and nothing updates.
func writeStateDict(f *folder.Folder, tensors []safetensors.Tensor, o *Options, rep *Report) error {
	meta := map[string]string{"format": "pt"}
	if f != nil {
		m, err := imported(f)
		if err != nil {
			return err
		}
		if m != nil { // else compiled without its source: there is nothing to compare with
			defer m.Close()
			if tensors, err = rep.complete(m, tensors, len(m.adapters) > 0 && !o.MergeLoRA); err != nil {
				return compiler.Input(err)
			}
			if len(rep.Absent) > 0 {
				text, err := json.Marshal(rep.Absent)
				if err != nil {
					return fmt.Errorf("names of what is absent: %w", err)
				}
				meta[keyUnused] = string(text)
			}
		}
	}
	rep.count(tensors)
	return safetensors.WriteFile(o.Out, tensors, meta)
}

// complete compares the names of tensors with those of the PyTorch module that the model was exported from, and adds what the
// module's state dict has beside them; nothing beside adapters, which are no state dict of the module.
func (r *Report) complete(m *adapted, tensors []safetensors.Tensor, adapters bool) ([]safetensors.Tensor, error) {
	r.Adapters = adapters
	names := slices.DeleteFunc(namesOf(tensors), m.isAdapter) // whose names are peft's
	r.Foreign, r.Missing = m.CompareTorch(names)
	if !adapters {
		beside, err := m.Beside(contents(tensors))
		if err != nil {
			return nil, err
		}
		for _, e := range beside {
			tensors = append(tensors, safetensors.Tensor{Name: e.Name, DType: e.Type.DType.Safetensors(), Shape: e.Type.Dims, Data: e.Data})
		}
		names = namesOf(tensors)
		_, r.Missing = m.CompareTorch(names)
		r.Absent, r.Scoped = m.Absent(names), m.ScopedNames()
	}
	return tensors, nil
}

func namesOf(tensors []safetensors.Tensor) []string {
	out := make([]string, len(tensors))
	for i, t := range tensors {
		out[i] = t.Name
	}
	return out
}
