package main

import (
	"slices"

	pipeline "github.com/gtc-compiler/gtc/distributed/schedule"

	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/optimizer"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/spf13/cobra"
)

// files completes the first argument with files of the given extensions.
func files(ext ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return ext, cobra.ShellCompDirectiveFilterFileExt
	}
}

// completions offers the values of the flags that take one of a few words.
func completions(cmd *cobra.Command) {
	var names []string
	for _, p := range passes.Table {
		names = append(names, p.Name)
	}
	var targets []string
	for _, t := range pass.Targets {
		targets = append(targets, t.Traits().Name)
	}
	for flag, words := range map[string][]string{
		"loss":      {"cross_entropy", "mse", "l1", "huber", "bce", "bce_logits", "nll", "kl_div", "graph", "none"},
		"optimizer": slices.Sorted(slices.Values(optimizer.Names())),
		"schedule":  slices.Concat(rates, pipeline.Names()),
		"precision": {"fp32", "bf16", "fp16", "tf32"}, "loss-scale": {"dynamic"}, "target": targets,
		"arch":    {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", pass.Host},
		"disable": names, "stop-after": names, "run": names,
		"format": {"onnx", "safetensors", "peft"},
	} {
		if cmd.Flags().Lookup(flag) != nil {
			cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	for _, flag := range []string{"dump", "keep", "out", "cuda-path"} {
		if f := cmd.Flags().Lookup(flag); f != nil && f.Value.Type() == "string" {
			cmd.MarkFlagDirname(flag)
		}
	}
}
