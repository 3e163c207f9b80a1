package main

import (
	"fmt"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/bisect"
	"github.com/spf13/cobra"
)

func bisectCommand() *cobra.Command {
	var m modelFlags
	cmd := &cobra.Command{
		Use: "bisect MODEL.onnx [-- COMMAND ARG…]", Short: "Find the pass, and the rewrite within it, with which a program begins to be wrong",
		Long: `Find the pass, and the rewrite within it, with which a program begins to be wrong. Passes ask before every rewrite that a
right program does not need (fusing, folding, computing in place, and so on), and all but the first N can be left out (--rewrites N,
or GTC_REWRITES=N); gtc bisect finds N by halving.

Without a command, the module behind every pass is interpreted and compared with that before it, on random data, and gradients with
differences of the loss. The interpreter is slow: bind a small batch. With a command, the command is run with GTC_REWRITES set,
and its exit status says whether the program is right (0) or wrong (anything else). It should call gtc with the same flags, such as
gtc check on a reference; so faults of code generation are found, too.

Exit codes: 0 nothing is wrong, 1 a fault was found, 2 the model or the flags are.`,
		Example: "  gtc bisect model.onnx --batch 4 --loss mse --dp 2\n  gtc bisect model.onnx --batch 4 --loss mse -- gtc check model.onnx --reference REF.npz --loss mse",
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n == 1 && len(args) > 1 {
				return nil
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		ValidArgsFunction: files("onnx"),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	m.importFlags(fs)
	m.parallelFlags(fs)
	m.optimizerFlags(fs)
	m.passFlags(fs)
	completions(cmd)
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		o, err := m.options(args[0])
		if err != nil {
			return err
		}
		if o.Pass.Rewrites != nil || o.Pass.StopAfter != "" || o.Pass.DumpDir != "" {
			return compiler.Input(fmt.Errorf("gtc bisect takes no --rewrites, --stop-after or --dump: it chooses how far to go itself"))
		}
		var found *bisect.Found
		if len(args) > 1 {
			found, err = bisect.Command(cmd.Context(), bisect.Model(o), args[1:])
		} else {
			found, err = bisect.Interpret(cmd.Context(), bisect.Model(o))
		}
		if err != nil {
			return err
		}
		if found == nil {
			fmt.Fprintln(cmd.OutOrStdout(), "nothing is wrong")
			return nil
		}
		fmt.Fprintln(cmd.OutOrStdout(), found)
		return &silentError{exitFailed}
	})
	return cmd
}
