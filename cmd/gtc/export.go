package main

import (
	"fmt"
	"io"
	"strings"

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

In PyTorch: model.load_state_dict(safetensors.torch.load_file(FILE)). Tied weights are there under each of their names,
buffers that nothing updates too, as far as the model's file tells their names. Where PyTorch's exporter merged, reordered or
renamed parameters (the default dynamo export does so to GRU and LSTM, and folds batch normalisation), or left out those on
which no result depends, a warning names them: the call then needs strict=False, which passes over them.

Adapters (compile --lora): ONNX has them merged into the weights, so has safetensors with --merge-lora; --format peft writes a folder with
adapter_config.json and adapter_model.safetensors, for peft.PeftModel.from_pretrained(model, FOLDER).`,
		Example: "  gtc export gtc-out -o trained.onnx --inference\n  gtc export gtc-out --format peft -o adapter\n  gtc export gtc-out/checkpoints/step-000500 -o trained.safetensors",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&o.Out, "out", "o", "", "`FILE` to write; model.onnx, model.safetensors or the folder adapter when not given")
	fs.StringVar(&o.Format, "format", "", "onnx, safetensors, or peft: the adapters as a folder that peft reads; without it the name of the file says")
	fs.BoolVar(&o.Inference, "inference", false, "ONNX: batch normalisation and dropout in their inference form")
	fs.BoolVar(&o.MergeLoRA, "merge-lora", false, "safetensors: the model's parameters with adapters (compile --lora) merged, not the adapters by peft's names; ONNX always has them merged")
	fs.StringVar(&o.Checkpoint, "checkpoint", "", "`FOLDER` of the checkpoint to take instead of the newest")
	fs.BoolVar(&o.Initial, "initial", false, "take the initial weights although there are checkpoints")
	completions(cmd)
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		o.Source = args[0]
		if o.Out == "" {
			switch o.Format {
			case export.Safetensors:
				o.Out = "model.safetensors"
			case export.PEFT:
				o.Out = "adapter"
			default:
				o.Out = "model.onnx"
			}
		}
		rep, err := export.Run(&o)
		if err != nil {
			return err
		}
		printNames(cmd.ErrOrStderr(), rep)
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %d tensors, %s, of step %d, from %s\n", o.Out, rep.Tensors, size(rep.Bytes), rep.Step, rep.From)
		return nil
	})
	return cmd
}

// printNames warns of what load_state_dict will not put where it was.
func printNames(w io.Writer, rep *export.Report) {
	list := func(names []string) string {
		if n := len(names) - 10; n > 0 {
			names = append(names[:10:10], fmt.Sprintf("and %d more", n))
		}
		return strings.Join(names, ", ")
	}
	if rep.Adapters {
		fmt.Fprintln(w, "note: adapters by peft's names; --merge-lora writes the module's state dict, --format peft what PeftModel.from_pretrained reads")
	}
	if len(rep.Foreign) > 0 {
		fmt.Fprintf(w, "warning: %d of the %d tensors have names or layouts that are not PyTorch's, because the exporter merged, reordered or "+
			"renamed them; load_state_dict(strict=False) passes over them and leaves the module's own values: %s\n",
			len(rep.Foreign), rep.Tensors, list(rep.Foreign))
	}
	if len(rep.Missing) > 0 {
		fmt.Fprintf(w, "warning: parameters of the PyTorch module that have no tensor: %s. The exporter folded, merged or dropped them; the "+
			"module then computes something else with this state dict\n", list(rep.Missing))
	}
	if len(rep.Absent) > 0 {
		fmt.Fprintf(w, "warning: the model's file does not hold %s of the PyTorch module, because no result depends on them or the exporter "+
			"folded them: load_state_dict needs strict=False, gtc.load_state does not\n", list(rep.Absent))
	}
	if len(rep.Scoped) > 0 {
		fmt.Fprintf(w, "note: TorchScript records one name of tied tensors; these are by the modules that read them: %s\n", list(rep.Scoped))
	}
	if len(rep.Random) > 0 {
		fmt.Fprintf(w, "warning: the written model draws random numbers for inference, too: %s. Only Dropout nodes are left out\n", list(rep.Random))
	}
	if len(rep.Foreign)+len(rep.Missing) > 0 {
		fmt.Fprintln(w, "  note: -o FILE.onnx is exact in every case; to train under PyTorch's names export the model with "+
			"torch.onnx.export(..., dynamo=True, optimize=False)")
	}
}
