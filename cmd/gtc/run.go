package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/compiler/folder"
	"github.com/gtc-compiler/gtc/distributed/launch"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/gtc-compiler/gtc/runtime/train"
	"github.com/spf13/cobra"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "run GTC-OUT [flags of the ranks]", Short: "Start all ranks of a compiled folder on this machine",
		Long: `Start all ranks of a compiled folder on this machine and wait for them. All flags go to the rank programs; to start
ranks on several machines, run GTC-OUT/bin/ranks under torchrun --no-python, mpirun or srun with the same flags.

Flags of the ranks:
` + rankFlags(),
		Example:            "  gtc run gtc-out --data train.npz --eval-data test.npz --epochs 5 --save-every 500 --resume",
		DisableFlagParsing: true, DisableFlagsInUseLine: true,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveFilterDirs
			}
			if strings.HasPrefix(start, "-") {
				return rankFlagNames(), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	run := command(func(cmd *cobra.Command, args []string) error {
		f, err := folder.Open(args[0])
		if err != nil {
			return err
		}
		bins, err := f.Binaries()
		if err != nil {
			return err
		}
		args = args[1:]
		if n := f.Manifest.Options["threads"]; n != "" && n != "0" && os.Getenv("OMP_NUM_THREADS") == "" && !gives(args, "threads") {
			args = append([]string{"--threads", n}, args...)
		}
		// launch.Local takes the signals itself and passes them on to the ranks, which save and end.
		err = launch.Local(context.WithoutCancel(cmd.Context()), launch.Options{Bins: bins, Args: args, Stdout: printable.Under(cmd.OutOrStdout()),
			Stderr: printable.Under(cmd.ErrOrStderr())})
		if err != nil && len(bins) == 1 {
			return &silentError{launch.ExitCode(err)} // the one rank has said why
		}
		return err
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if slices.ContainsFunc(args, func(a string) bool { return a == "--help" || a == "-help" || a == "-h" }) {
			return cmd.Help()
		}
		if len(args) == 0 || strings.HasPrefix(args[0], "-") {
			return fmt.Errorf("the compiled folder is missing, which comes first: gtc run GTC-OUT [flags]")
		}
		return run(cmd, args)
	}
	return cmd
}

// gives reports whether args set the flag.
func gives(args []string, name string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		a, _, _ = strings.Cut(strings.TrimPrefix(a, "-"), "=")
		return a == "-"+name || a == name
	})
}

// rankFlags describes the flags of rank programs, from their own definitions.
func rankFlags() string {
	var b strings.Builder
	train.Flags().VisitAll(func(f *flag.Flag) {
		name, usage := flag.UnquoteUsage(f)
		left := "  --" + f.Name
		if name != "" {
			left += " " + name
		}
		fmt.Fprintf(&b, "%-28s %s", left, usage)
		if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "false" && f.DefValue != "0s" && !strings.Contains(usage, "default") {
			fmt.Fprintf(&b, " (default %s)", f.DefValue)
		}
		b.WriteByte('\n')
	})
	return b.String()
}

func rankFlagNames() []string {
	var names []string
	train.Flags().VisitAll(func(f *flag.Flag) { names = append(names, "--"+f.Name) })
	return names
}
