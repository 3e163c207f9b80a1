package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	gtc "github.com/gtc-compiler/gtc"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/passes/optimizer"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/spf13/cobra"
)

func inspectCommand() *cobra.Command {
	var m modelFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "inspect MODEL.onnx", Short: "Show what gtc makes of a model: inputs, operators, parameters with their roles",
		Long: `Show what gtc makes of a model: inputs, outputs, operators, and each float initializer with the role that it has in
training and why; of tables, how many rows a batch looks up. --train, --freeze, --tie and --untie show their effect here as in gtc compile.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: files("onnx"),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&asJSON, "json", false, "print one JSON object")
	m.importFlags(fs)
	m.abstractFlag(fs)
	completions(cmd)
	for _, name := range []string{"loss", "ignore-index", "huber-delta"} {
		fs.MarkHidden(name)
	}
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		m.opt.Pass.DP, m.opt.Pass.TP, m.opt.Pass.Microbatches = 1, 1, 1
		o, err := m.options(args[0])
		if err != nil {
			return err
		}
		info, err := gtc.Inspect(o.Model, *o)
		if err != nil {
			return err
		}
		if asJSON {
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", " ")
			return enc.Encode(info)
		}
		printInfo(cmd.OutOrStdout(), info)
		return nil
	})
	return cmd
}

func printInfo(w io.Writer, info *onnx.Info) {
	by := printable.Line(info.Producer)
	if by == "" {
		by = "a producer that it does not name"
	}
	fmt.Fprintf(w, "%s: opset %d, IR version %d, by %s\n", info.Model, info.Opset, info.IRVersion, by)
	for _, p := range info.Inputs {
		fmt.Fprintf(w, "input    %s %s%v\n", printable.Line(p.Name), p.DType, p.Dims)
	}
	for _, p := range info.Outputs {
		fmt.Fprintf(w, "output   %s %s%v\n", printable.Line(p.Name), p.DType, p.Dims)
	}
	fmt.Fprintf(w, "forward  %.3g GFLOP, %s read and written\n", float64(info.FLOPs)/1e9, size(int(info.Bytes)))
	fmt.Fprintf(w, "trained  %s elements, %s\n", grouped(int(info.Trained)), size(int(info.TrainedBytes)))
	fmt.Fprintf(w, "operators of the file: %s\n", countList(info.Operators))
	fmt.Fprintf(w, "ops after import: %s\n\n", countList(info.Ops))
	for _, p := range info.Parameters {
		fmt.Fprintf(w, "%-9s %s %s%v\n", p.Role, printable.Line(p.Name), p.DType, p.Dims)
		held := ""
		if p.Initializer != p.Name && p.Initializer != "" {
			held = fmt.Sprintf(" (held by %q", p.Initializer)
			if p.Transposed {
				held += ", transposed"
			}
			held += ")"
		}
		fmt.Fprintf(w, "          %s%s\n", p.Reason, held)
		printLookups(w, p)
	}
	for i, t := range info.Training {
		fmt.Fprintf(w, "training_info %d: initialization: %s\n", i, orNothing(countList(t.Initialization)))
		fmt.Fprintf(w, "                 algorithm: %s\n", orNothing(countList(t.Algorithm)))
		for _, u := range t.Updates {
			fmt.Fprintf(w, "                 %q <- %q\n", u.Initializer, u.Output)
		}
	}
	for _, s := range info.Warnings {
		fmt.Fprintln(w, "warning:", printable.Line(s))
	}
}

// printLookups says of a table whether its gradient can stay sparse.
func printLookups(w io.Writer, p *onnx.Parameter) {
	switch {
	case p.Lookups == 0:
	case optimizer.Few(p.Lookups, p.Dims[0]):
		fmt.Fprintf(w, "          a batch looks up %s of its %s rows: its gradient is sparse with sgd without momentum, adagrad, rowwise_adagrad and sparse_adam, "+
			"all without weight decay\n", grouped(p.Lookups), grouped(p.Dims[0]))
	default:
		fmt.Fprintf(w, "          a batch looks up %s of its %s rows, too many for a sparse gradient to pay\n", grouped(p.Lookups), grouped(p.Dims[0]))
	}
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

func countList(list []onnx.Count) string {
	var parts []string
	for _, c := range list {
		parts = append(parts, fmt.Sprintf("%d %s", c.Count, printable.Line(c.Name)))
	}
	return strings.Join(parts, ", ")
}
