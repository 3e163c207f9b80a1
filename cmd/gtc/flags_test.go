package main

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/passes/optimizer"
)

// TestRuleFlags holds the table of what each rule reads to the rules that there are.
func TestRuleFlags(t *testing.T) {
	got, want := slices.Sorted(maps.Keys(ruleFlags)), slices.Sorted(slices.Values(optimizer.Names()))
	if !slices.Equal(got, want) {
		t.Fatalf("flags are known for %v, the rules are %v", got, want)
	}
	cmd := compileCommand()
	for _, table := range []map[string][]string{ruleFlags, lossFlags, scheduleFlags} {
		for name, flags := range table {
			for _, f := range flags {
				if cmd.Flags().Lookup(f) == nil {
					t.Errorf("%s is said to read --%s, which is no flag", name, f)
				}
			}
		}
	}
}

// TestElsewhere: what other tools call a flag leads to gtc's, on the commands that have it, and each of those is a flag.
func TestElsewhere(t *testing.T) {
	compile, run := compileCommand().Flags(), runCommand().Flags()
	for name := range elsewhere {
		if compile.Lookup(name) == nil {
			t.Errorf("--%s is no flag of gtc compile", name)
		}
	}
	for unknown, want := range map[string]string{
		"--dtype": "--precision", "--nproc_per_node": "--dp", "--cuda": "--target or --cuda-path", "--weight_decay": "--weight-decay", "--nothing": "",
	} {
		if got := meant(compile, compile.Parse([]string{unknown})); got != want {
			t.Errorf("%s is said to be %q, want %q", unknown, got, want)
		}
	}
	if got := meant(run, errors.New("unknown flag: --dtype")); got != "" {
		t.Errorf("gtc run is said to have %q", got)
	}
}

// TestLoRAFlag: what --lora refuses, and that it says why.
func TestLoRAFlag(t *testing.T) {
	for value, want := range map[string]string{
		"rank=8,target=*.q":               "",
		"rank=0,target=*.q":               "rank must be at least 1",
		"rank=8,alpha=0,target=*.q":       "alpha must be a finite number above 0, not 0",
		"rank=8,alpha=-1,target=*.q":      "alpha must be a finite number above 0, not -1",
		"rank=8,alpha=nan,target=*.q":     "alpha must be a finite number above 0, not nan",
		"rank=8,alpha=inf,target=*.q":     "alpha must be a finite number above 0, not inf",
		"rank=8":                          "which weights get adapters",
		"rank=8,target=*.q,something=odd": "--lora must be like rank=N,target=GLOB",
	} {
		m := modelFlags{lora: []string{value}}
		err := m.adapters()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("--lora %s: %v, want %q", value, err, want)
		}
	}
}
