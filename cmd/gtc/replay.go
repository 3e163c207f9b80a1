package main

import (
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/spf13/cobra"
)

func replayCommand() *cobra.Command {
	var verbose bool
	cmd := &cobra.Command{
		Use: "replay FOLDER", Short: "Run the passes again on the modules of a dump folder, and compare with what they made",
		Long: `Run the passes again on the modules of a folder that --dump wrote, with the options that it was written with, each pass on just
what it was given then, and compare what it makes with what it made. So another gtc, or this one after a change, is shown the passes that do
otherwise, and none that only see the consequences. The model is not needed. Of a compilation that failed, the pass with which it did is the last
that is run.

Exit codes: 0 all passes make the same, 1 some do not, 2 the folder cannot be read.`,
		Example: "  gtc compile model.onnx --loss mse --batch 4 --dump before\n  gtc replay before",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "print the differences in full, not only how they begin")
	completions(cmd)
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		list, err := passes.ReplayDump(args[0], passes.Table)
		if err != nil {
			return compiler.Input(err)
		}
		out, other := cmd.OutOrStdout(), 0
		for _, r := range list {
			switch {
			case r.Err != nil:
				other++
				fmt.Fprintf(out, "%-12s fails: %v\n", r.Pass, r.Err)
			case r.Diff != "":
				other++
				fmt.Fprintf(out, "%-12s differs\n%s", r.Pass, begin(r.Diff, verbose))
			default:
				fmt.Fprintf(out, "%-12s the same\n", r.Pass)
			}
		}
		if other > 0 {
			return &silentError{exitFailed}
		}
		return nil
	})
	return cmd
}

// begin is the first lines of a difference, or all.
func begin(diff string, all bool) string {
	const most = 20
	lines := strings.SplitAfter(diff, "\n")
	if all || len(lines) <= most {
		return diff
	}
	return strings.Join(lines[:most], "") + fmt.Sprintf("(and %d lines more: -v)\n", len(lines)-most)
}
