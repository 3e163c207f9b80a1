package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/gpus"
	"github.com/spf13/cobra"
)

func devicesCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "devices", Short: "List the GPUs of this machine: memory, load, temperature, links",
		Long: `devices asks the NVIDIA driver which GPUs this machine has, how much of their memory is used, how busy and how warm they
are, and how they are connected. A number that the driver does not tell is shown as -, in JSON as -1. Without a driver or
a GPU it ends with exit code 2.`,
		Args: cobra.NoArgs,
		RunE: command(func(cmd *cobra.Command, _ []string) error {
			report, err := gpus.Read(gpus.Open())
			if errors.Is(err, gpus.ErrNone) {
				return compiler.Input(err)
			}
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(report)
			}
			return printDevices(cmd.OutOrStdout(), report)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printDevices(w io.Writer, report *gpus.Report) error {
	fmt.Fprintf(w, "driver %s, CUDA %s\n", report.Driver, report.CUDA)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "GPU\tname\tarch\tmemory used\tof GiB\tbusy\tdegrees C\tECC errors\tPCIe\tNVLink")
	for _, g := range report.GPUs {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Number, g.Name, g.Arch, inGiB(g.Used), inGiB(g.Total), orDash(g.Busy, "%d %%"), orDash(g.Temperature, "%d"),
			orDash(int(g.Faults), "%d"), orDash(g.PCIe.Generation, "gen %d")+orDash(g.PCIe.Width, " x%d"), linkText(g.Links))
	}
	return t.Flush()
}

// orDash is n in a format, or a dash when it is not known.
func orDash(n int, format string) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprintf(format, n)
}

func inGiB(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatFloat(float64(n)/(1<<30), 'f', 1, 64)
}

// linkText is "4 to GPU 1, 2 to a switch".
func linkText(links []gpus.Link) string {
	var parts []string
	for _, l := range links {
		to := fmt.Sprint("GPU ", l.To)
		if l.Kind != "gpu" {
			to = "a " + l.Kind
		}
		if l.Kind == "other" {
			to = "another device"
		}
		parts = append(parts, fmt.Sprintf("%d to %s", l.Count, to))
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}
