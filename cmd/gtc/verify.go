package main

import (
	"encoding/json"
	"fmt"

	"github.com/gtc-compiler/gtc/compiler/folder"
	"github.com/spf13/cobra"
)

func verifyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "verify GTC-OUT", Short: "Prove again, on a compiled folder, that its ranks fit together",
		Long: `Prove again, on a compiled folder, what gtc compile proved before it wrote it: each collective and each message has its
counterpart on every rank, with the same kind, type, size and tensors, in the same order, and no ranks wait for one another
forever. The generated sources are compared with the plan, gtc.json, and both with the plan's hash, so that a change made
by hand is found and named. Nothing is run or built.

Exit codes: 0 proven, 1 a fault was found, 2 the folder cannot be read.`,
		Example: "  gtc verify gtc-out",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	completions(cmd)
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		f, err := folder.Open(args[0])
		if err != nil {
			return err
		}
		v, err := f.Verify()
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if asJSON {
			enc := json.NewEncoder(out)
			enc.SetIndent("", " ")
			if err := enc.Encode(v); err != nil {
				return err
			}
		} else {
			for _, fault := range v.Faults {
				fmt.Fprintln(out, "fault:", fault)
			}
			if v.OK {
				fmt.Fprintf(out, "proven: %s\n", v.Proof)
			}
		}
		if !v.OK {
			return &silentError{exitFailed}
		}
		return nil
	})
	return cmd
}
