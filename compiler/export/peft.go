package export

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/folder"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// adapterConfig is adapter_config.json of the package peft, its LoraConfig; fields that it leaves out have peft's defaults.
type adapterConfig struct {
	Type        string   `json:"peft_type"`
	Task        *string  `json:"task_type"`
	Base        *string  `json:"base_model_name_or_path"`
	Inference   bool     `json:"inference_mode"`
	Rank        int      `json:"r"`
	Alpha       float64  `json:"lora_alpha"`
	Dropout     float64  `json:"lora_dropout"`
	Bias        string   `json:"bias"`
	FanInFanOut bool     `json:"fan_in_fan_out"`
	Targets     any      `json:"target_modules"` // a list of names or ends of names, or one regular expression
	Saved       []string `json:"modules_to_save"`
}

// writePEFT writes the adapters among tensors as the folder that PeftModel.from_pretrained reads.
func writePEFT(f *folder.Folder, tensors []safetensors.Tensor, o *Options, rep *Report) error {
	if o.MergeLoRA {
		return compiler.Input(errors.New("--merge-lora and --format peft exclude each other: merged adapters are gone"))
	}
	if err := hasAdapters(f, "--format peft"); err != nil {
		return err
	}
	m, err := imported(f)
	if err != nil {
		return err
	}
	if m == nil {
		return compiler.Input(errors.New("--format peft needs the model, and the compiled folder was made without it"))
	}
	defer m.Close()
	kept, err := m.peft(contents(tensors), max(rep.Step, 0))
	if err != nil {
		return compiler.Input(err)
	}
	config := adapterConfig{Type: "LORA", Inference: true, Rank: kept.rank, Alpha: kept.alpha, Bias: "none", FanInFanOut: kept.fanInFanOut,
		Targets: targets(kept), Saved: kept.saved}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	out := make([]safetensors.Tensor, len(kept.tensors))
	for i, e := range kept.tensors {
		out[i] = safetensors.Tensor{Name: e.Name, DType: e.Type.DType.Safetensors(), Shape: e.Type.Dims, Data: e.Data}
	}
	rep.count(out)
	if err := os.MkdirAll(o.Out, 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.Out, "adapter_config.json"), append(text, '\n'), 0o666); err != nil {
		return err
	}
	return safetensors.WriteFile(filepath.Join(o.Out, "adapter_model.safetensors"), out, map[string]string{"format": "pt"})
}

// targets names the adapted modules and no others: peft takes a name in a list for the end of names too, an expression for whole ones.
func targets(e *peftFile) any {
	for _, other := range e.others {
		if slices.ContainsFunc(e.targets, func(t string) bool { return strings.HasSuffix(other, "."+t) }) {
			var quoted []string
			for _, t := range e.targets {
				quoted = append(quoted, regexp.QuoteMeta(t))
			}
			return strings.Join(quoted, "|")
		}
	}
	return e.targets
}

// peftFile is what the package peft keeps of a module with adapters (its LoraConfig and adapter_model.safetensors), by its names.
type peftFile struct {
	rank        int
	alpha       float64
	targets     []string // modules with an adapter, by their whole names
	others      []string // modules whose parameters the file holds that peft, which looks for ends of names, may take for targets
	saved       []string // modules of which parameters or statistics have changed beside adapters; tensors has all of theirs
	fanInFanOut bool     // a weight lies [in, out], as that of Conv1D in transformers
	tensors     []onnx.Entry
}

// peft gives the adapters, with their contents in weights, in peft's form. It is an error that names the weight when peft would
// compute something else with them, or has no place for them. steps is how many the training took.
func (m *adapted) peft(weights map[string][]byte, steps int64) (*peftFile, error) {
	out := &peftFile{rank: m.adapters[0].Rank()}
	var errs []error
	modules := map[string]bool{}
	for _, p := range m.Parameters() {
		modules[onnx.ModuleOf(p.Name)] = true
		a := m.adapterOf(p)
		if a == nil {
			continue
		}
		if why := m.unlikePEFT(p, a); why != "" {
			errs = append(errs, fmt.Errorf("peft has no form for the adapter of %q: %s", p.Name, why))
			continue
		}
		out.targets = append(out.targets, onnx.ModuleOf(p.Name))
		out.alpha = a.Scale * float64(out.rank)
		out.fanInFanOut = out.fanInFanOut || a.InOut
		for _, f := range []pass.Factor{a.A, a.B} {
			data, err := held(parameterOf(&f), weights)
			if err != nil {
				return nil, m.Located(err)
			}
			out.tensors = append(out.tensors, onnx.Entry{Name: f.Name, Type: f.Type, Data: data})
		}
	}
	all := map[string][]byte{} // of the model without adapters
	for _, p := range m.Parameters() {
		if p.Role == onnx.RoleConstant {
			continue
		}
		if err := out.save(p, weights[p.Name], modules); err != nil {
			errs = append(errs, err)
		}
		data, err := held(p, weights)
		if err != nil {
			return nil, m.Located(err)
		}
		all[p.Name] = data
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := m.addSaved(out, all, steps); err != nil {
		return nil, err
	}
	for name := range modules {
		if !slices.Contains(out.targets, name) {
			out.others = append(out.others, name)
		}
	}
	slices.Sort(out.others)
	return out, nil
}

// addSaved gives out the whole state dicts of the modules that it saves, as peft wants them: all is what the model's file knows by
// name, but for adapters. The counters that batch normalisation has in PyTorch count the steps of this training.
func (m *adapted) addSaved(out *peftFile, all map[string][]byte, steps int64) error {
	var entries []onnx.Entry
	for _, p := range m.Parameters() {
		if data, ok := all[p.Name]; ok {
			entries = append(entries, onnx.Entry{Name: p.Name, Type: p.Type, Data: data})
		}
		if p.Statistic && strings.HasSuffix(p.Name, "running_mean") {
			counter := onnx.ModuleOf(p.Name) + ".num_batches_tracked"
			entries = append(entries, onnx.Entry{Name: counter, Type: ir.Type{DType: dtype.I64}, Data: binary.LittleEndian.AppendUint64(nil, uint64(steps))})
		}
	}
	beside, err := m.Beside(all)
	if err != nil {
		return err
	}
	for _, e := range append(entries, beside...) {
		if slices.Contains(out.saved, onnx.ModuleOf(e.Name)) {
			e.Name = "base_model.model." + e.Name
			out.tensors = append(out.tensors, e)
		}
	}
	return nil
}

// unlikePEFT says why peft's adapter of p, if it had one, would be another; "" when it is the same.
func (m *adapted) unlikePEFT(p *onnx.Parameter, a *pass.Adapter) string {
	of := onnx.ModuleOf(p.Name)
	switch {
	case !strings.HasSuffix(p.Name, ".weight"):
		return "it adapts the weights of modules, named MODULE.weight"
	case slices.Contains(m.Names(), of[:max(strings.LastIndexByte(of, '.')+1, 0)]+"in_proj_weight"):
		return "it adapts a MultiheadAttention only as a whole"
	case len(p.Aliases) > 0:
		return fmt.Sprintf("it is tied to %s, and peft gives each module an adapter of its own", strings.Join(p.Aliases, ", "))
	case a.Shared:
		return "it is looked up and multiplied with, and peft has one form for each"
	case a.Grouped:
		return "it is that of a convolution in groups, of which peft splits the adapter too"
	}
	return ""
}

// save adds p's module to those that are saved beside the adapters when data, its contents now, differ from the file's; nil for as in
// the file.
func (e *peftFile) save(p *onnx.Parameter, data []byte, modules map[string]bool) error {
	if data == nil {
		return nil
	}
	initial, err := p.Data()
	if err != nil || bytes.Equal(initial, data) {
		return err
	}
	for _, name := range append([]string{p.Name}, p.Aliases...) {
		of := onnx.ModuleOf(name)
		inside := func(other string) bool { return strings.HasPrefix(other, of+".") }
		switch {
		case slices.Contains(e.targets, of):
			return fmt.Errorf("%q has been trained beside the adapter of %s.weight: peft keeps one or the other of a module", name, of)
		case of == "":
			return fmt.Errorf("%q has been trained, and is in no module that peft could save", name)
		}
		for other := range modules {
			if inside(other) {
				return fmt.Errorf("%q has been trained, and peft would save %s as a whole, with the modules inside", name, of)
			}
		}
		if !slices.Contains(e.saved, of) {
			e.saved = append(e.saved, of)
		}
	}
	return nil
}
