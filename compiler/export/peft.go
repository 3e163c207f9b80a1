package export

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/folder"
	"github.com/gtc-compiler/gtc/frontend/onnx"
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
	m, _, err := imported(f)
	if err != nil {
		return err
	}
	if m == nil {
		return compiler.Input(errors.New("--format peft needs the model, and the compiled folder was made without it"))
	}
	defer m.Close()
	weights := map[string][]byte{}
	for _, t := range tensors {
		weights[t.Name] = t.Data
	}
	kept, err := m.PEFT(weights, max(rep.Step, 0))
	if err != nil {
		return compiler.Input(err)
	}
	config := adapterConfig{Type: "LORA", Inference: true, Rank: kept.Rank, Alpha: kept.Alpha, Bias: "none", FanInFanOut: kept.FanInFanOut,
		Targets: targets(kept), Saved: kept.Saved}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	out := make([]safetensors.Tensor, len(kept.Tensors))
	for i, e := range kept.Tensors {
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
func targets(e *onnx.PEFT) any {
	for _, other := range e.Others {
		if slices.ContainsFunc(e.Targets, func(t string) bool { return strings.HasSuffix(other, "."+t) }) {
			var quoted []string
			for _, t := range e.Targets {
				quoted = append(quoted, regexp.QuoteMeta(t))
			}
			return strings.Join(quoted, "|")
		}
	}
	return e.Targets
}
