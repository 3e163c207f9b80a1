package main

import (
	"encoding/json"
	"errors"
	"fmt"

	gtc "github.com/gtc-compiler/gtc"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/check"
	"github.com/spf13/cobra"
)

func checkCommand() *cobra.Command {
	var m modelFlags
	var o check.Options
	var asJSON, verbose bool
	cmd := &cobra.Command{
		Use: "check MODEL.onnx --reference REF.npz", Short: "Compile and run a model on a reference's batch and compare",
		Long: `Compile a model, run its ranks on the one batch of a reference, and compare. The reference holds in0… (the graph's
inputs in order, but for those that --value binds), target, out0…, loss, grad/NAME for each parameter, and
curve/sgd (lr 0.05, momentum 0.9) and curve/adamw (lr 1e-3, betas 0.9 and 0.999, eps 1e-8, weight decay 0.01): the loss
before each of some updates on that batch. What it does not hold is not compared. Errors are relative, in the Euclidean norm; a gradient far below the
others is compared absolutely, a table of which the file has no more than some rows by these. Batch statistics are those of
the global batch (--sync-bn). Dropout lets everything through, since no reference has the same random numbers; a warning
names the nodes that draw others.

Open dimensions of the model are those of the reference's arrays. Without --loss it is graph when out0 is one number,
mse when target is like out0, else cross_entropy. With --loss none the outputs alone are compared, in inference form.

--simulate needs no C compiler and starts no process: the ranks' programs, as they are before kernels and places in memory
are chosen, are interpreted side by side in float64, with their collectives, messages and schedules. It says whether a
layout (--dp, --tp, --pp, --zero, …) computes what one rank does; values of half precision (--precision) are rounded. It
says nothing about kernels or transports; for those, check without it.

With --json an error that is no number is the string "NaN", that of arrays of other sizes "other size".

Exit codes: 0 all within the tolerance, 1 not, 2 it could not run.`,
		Example: "  gtc check model.onnx --reference model.npz --dp 2 --microbatches 2\n" +
			"  gtc check model.onnx --reference model.npz --dp 2 --tp 2 --simulate",
		Args: cobra.ExactArgs(1), ValidArgsFunction: files("onnx"),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&o.Reference, "reference", "", "`REF.npz`, the results to compare with")
	fs.Float64Var(&o.Tol, "tol", 0, fmt.Sprintf("largest relative error that passes; 0 is %g, or %g with a --precision other than fp32", check.DefaultTol, check.HalfTol))
	fs.BoolVar(&asJSON, "json", false, "print one JSON object")
	m.importFlags(fs)
	m.parallelFlags(fs)
	fs.Var(&scheduleFlag{pipe: &m.opt.Pass.Pipeline}, "schedule", "order of the work of a pipeline (--pp): `NAME` is gpipe, 1f1b (the default), interleaved, zb-h1 or varuna")
	fs.IntVar(&o.Threads, "threads", 0, "threads of each rank; 0 is its share of the processors")
	fs.StringVar(&o.Keep, "keep", "", "leave the compiled programs and their results in `FOLDER`")
	fs.BoolVar(&o.NoRun, "no-run", false, "compile into --keep for another machine, and run nothing")
	fs.StringVar(&o.Built, "built", "", "run the programs that a check with the same flags has left in `FOLDER` (--keep), and compile nothing")
	fs.IntVar(&o.Steps, "steps", 0, "compare only the first `N` updates of each curve; 0 is all")
	fs.BoolVar(&o.Simulate, "simulate", false, "interpret all ranks in this process in float64: nothing is built and no kernel runs")
	fs.BoolVarP(&verbose, "verbose", "v", false, "list every gradient")
	m.passFlags(fs)
	cmd.MarkFlagRequired("reference")
	cmd.MarkFlagFilename("reference", "npz")
	completions(cmd)
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		opt, err := m.options(args[0])
		if err != nil {
			return err
		}
		if err := checkable(&o); err != nil {
			return compiler.Input(err)
		}
		o.Compile = *opt
		o.Compile.Building = building(cmd.ErrOrStderr())
		rep, err := gtc.Check(cmd.Context(), args[0], o)
		if err != nil {
			if cmd.Context().Err() != nil {
				return err
			}
			printError(cmd.ErrOrStderr(), cmd, &ran{err})
			return &silentError{exitUsage}
		}
		if o.NoRun {
			fmt.Fprintf(cmd.OutOrStdout(), "%s is ready for gtc check --built\n", o.Keep)
			return nil
		}
		printWarnings(cmd.ErrOrStderr(), rep.Warnings)
		if asJSON {
			text, err := json.Marshal(rep)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
		} else {
			rep.Print(cmd.OutOrStdout(), verbose)
		}
		if !rep.OK {
			return &silentError{exitFailed}
		}
		return nil
	})
	return cmd
}

// checkable refuses flags of gtc check that exclude one another.
func checkable(o *check.Options) error {
	for _, c := range []struct {
		wrong bool
		why   string
	}{
		{o.Steps < 0, "--steps cannot be negative"},
		{o.Simulate && o.Keep != "", "--keep has no effect with --simulate, which builds nothing"},
		{o.Simulate && o.Threads != 0, "--threads has no effect with --simulate, which runs no kernel"},
		{o.NoRun && o.Keep == "", "--no-run needs --keep, the folder to compile into"},
		{o.Built != "" && o.Keep != "", "--built and --keep exclude each other: the one runs a folder, the other makes it"},
		{o.Built != "" && o.Simulate, "--built and --simulate exclude each other: a simulation runs no folder"},
	} {
		if c.wrong {
			return errors.New(c.why)
		}
	}
	return nil
}
