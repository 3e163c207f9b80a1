package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// elsewhere has flags of PyTorch's launchers and trainers, of nvcc and of other compilers, by what gtc calls them.
var elsewhere = map[string][]string{
	"precision":    {"amp", "autocast", "bf16", "dtype", "fp16", "half", "mixed-precision", "torch-dtype"},
	"target":       {"accelerator", "backend", "cuda", "device", "gpu"},
	"arch":         {"compute-capability", "gencode", "generate-code", "gpu-arch", "gpu-architecture", "gpu-code", "sm"},
	"cuda-path":    {"cuda", "cuda-home", "cuda-toolkit", "nvrtc"},
	"dp":           {"data-parallel", "data-parallel-size", "devices", "gpus", "nproc-per-node", "num-gpus", "num-processes", "world-size"},
	"tp":           {"tensor-parallel", "tensor-parallel-size", "tensor-model-parallel-size"},
	"pp":           {"pipeline-parallel", "pipeline-parallel-size", "pipeline-model-parallel-size"},
	"zero":         {"fsdp", "zero-stage"},
	"batch":        {"batch-size", "global-batch-size", "train-batch-size"},
	"microbatches": {"accumulate-grad-batches", "accumulation-steps", "grad-accum", "gradient-accumulation", "gradient-accumulation-steps"},
	"clip-norm":    {"clip-grad", "clip-grad-norm", "grad-clip", "gradient-clip-val", "max-grad-norm", "max-norm"},
	"loss-scale":   {"grad-scaler", "init-scale", "initial-scale"},
	"lr":           {"learning-rate"},
	"schedule":     {"lr-scheduler", "lr-scheduler-type", "scheduler"},
	"warmup":       {"num-warmup-steps", "warmup-steps"},
	"total-steps":  {"max-steps", "num-training-steps"},
	"beta1":        {"adam-beta1"},
	"beta2":        {"adam-beta2"},
	"eps":          {"adam-epsilon", "epsilon"},
}

// meant names gtc's flags for the unknown one that err tells of, as far as the command has them; "" where none is known.
func meant(fs *pflag.FlagSet, err error) string {
	name, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return ""
	}
	name = strings.ReplaceAll(name, "_", "-")
	var found []string
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name == name || slices.Contains(elsewhere[f.Name], name) { // --weight_decay is --weight-decay
			found = append(found, "--"+f.Name)
		}
	})
	return strings.Join(found, " or ")
}
