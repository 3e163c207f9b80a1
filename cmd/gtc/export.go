package main

import (
	"fmt"

	"github.com/gtc-compiler/gtc/compiler/export"
	"github.com/spf13/cobra"
)

func exportCommand() *cobra.Command {
	var o export.Options
	cmd := &cobra.Command{
		Use: "export GTC-OUT|CHECKPOINT", Short: "Write trained parameters as an ONNX model or a PyTorch state dict",
		Long: `Write trained parameters as an ONNX model (the one that was compiled, with new weights) or as safetensors by PyTorch
names. From a compiled folder the newest checkpoint is taken, or the initial weights when there is none. A checkpoint
outside its compiled folder can only become safetensors.

In PyTorch: model.load_state_dict(safetensors.torch.load_file(FILE), strict=False); strict=False because tied weights
appear once and counters that ONNX does not have (num_batches_tracked) not at all.`,
		Example: "  gtc export gtc-out -o trained.onnx --inference\n  gtc export gtc-out/checkpoints/step-000500 -o trained.safetensors",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&o.Out, "out", "o", "", "`FILE` to write; model.onnx or model.safetensors when not given")
	fs.StringVar(&o.Format, "format", "", "onnx or safetensors; the name of the file says, else onnx")
	fs.BoolVar(&o.Inference, "inference", false, "ONNX: batch normalisation and dropout in their inference form")
	fs.StringVar(&o.Checkpoint, "checkpoint", "", "`FOLDER` of the checkpoint to take instead of the newest")
	fs.BoolVar(&o.Initial, "initial", false, "take the initial weights although there are checkpoints")
	completions(cmd)
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		o.Source = args[0]
		if o.Out == "" {
			if o.Out = "model.onnx"; o.Format == export.Safetensors {
				o.Out = "model.safetensors"
			}
		}
		rep, err := export.Run(&o)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %d tensors, %s, of step %d, from %s\n", o.Out, rep.Tensors, size(rep.Bytes), rep.Step, rep.From)
		return nil
	})
	return cmd
}
