package main

import (
	"maps"
	"slices"
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
	for _, table := range []map[string][]string{ruleFlags, scheduleFlags} {
		for name, flags := range table {
			for _, f := range flags {
				if cmd.Flags().Lookup(f) == nil {
					t.Errorf("%s is said to read --%s, which is no flag", name, f)
				}
			}
		}
	}
}
