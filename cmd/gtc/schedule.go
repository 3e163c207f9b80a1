package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/folder"
	"github.com/gtc-compiler/gtc/compiler/timeline"
	pipeline "github.com/gtc-compiler/gtc/distributed/schedule"
	"github.com/gtc-compiler/gtc/distributed/topo"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// scheduleFlagSet are the flags of gtc schedule.
type scheduleFlagSet struct {
	stages, micros, chunks int
	name, costs, svg       string
	send                   float64
	asJSON                 bool
	machine                machineFlags
}

// machineFlags say what predictions are made for.
type machineFlags struct {
	topology string
	gflops   float64
}

func (m *machineFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&m.topology, "topo", "", "what ranks talk over, for all axes and for single ones: `LINK,AXIS=LINK`, such as nvlink,dp=ib; a link is "+
		strings.Join(topo.Names(), ", ")+" or LATENCY/BANDWIDTH, such as 20us/12.5GB (also GTC_TOPO; shm)")
}

// topo reads --topo for the ranks of plan, or GTC_TOPO, which tells of a machine and may name axes that this plan lacks.
func (m *machineFlags) topo(plan *abi.Manifest) (topo.Topology, error) {
	text, there := m.topology, axes(plan)
	if text == "" {
		text, there = os.Getenv("GTC_TOPO"), []string{"pp", "dp", "tp"}
	}
	t, err := topo.Parse(text)
	if err != nil {
		return t, compiler.Input(err)
	}
	for _, axis := range slices.Sorted(maps.Keys(t.Axis)) {
		switch {
		case slices.Contains(there, axis):
		case len(there) == 0:
			return t, compiler.Input(fmt.Errorf("topology %q: there is no axis %q, because the folder is for one rank", text, axis))
		default:
			return t, compiler.Input(fmt.Errorf("topology %q: there is no axis %q; the folder has %s", text, axis, strings.Join(there, ", ")))
		}
	}
	return t, nil
}

// axes are those of the mesh that have several ranks.
func axes(plan *abi.Manifest) []string {
	var names []string
	for _, a := range plan.Mesh {
		if a.Size > 1 {
			names = append(names, a.Name)
		}
	}
	return names
}

func scheduleCommand() *cobra.Command {
	var s scheduleFlagSet
	cmd := &cobra.Command{
		Use: "schedule [GTC-OUT]", Short: "Draw the schedule of a pipeline: what each stage computes when, and where it waits",
		Long: `Draw the schedule of a pipeline, one line a stage: F is a forward, B a backward, W a weight gradient, each with its
micro-batch, and dots are waiting. The bubble is the share of the stages' time that is waited; slots are the most
micro-batches (of one chunk) that a stage holds at once. Without a folder the flags say which schedule, and costs are 1, 1
and 1 for each stage; the schedule of a compiled folder has the times that gtc predicts for its operations and messages.`,
		Example: "  gtc schedule --pp 4 --schedule zb-h1 --microbatches 8 --svg schedule.svg\n  gtc schedule gtc-out --topo nvlink,pp=ib --gflops 400000",
		Args:    cobra.MaximumNArgs(1),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&s.stages, "pp", 4, "pipeline stages")
	fs.StringVar(&s.name, "schedule", "1f1b", "`NAME`: "+strings.Join(pipeline.Names(), ", "))
	fs.IntVar(&s.micros, "microbatches", 8, "micro-batches a step")
	fs.IntVar(&s.chunks, "chunks", 0, "model chunks a stage, of the interleaved schedule; 0 is 2 there, else 1")
	fs.StringVar(&s.costs, "costs", "1,1,1", "`F,B,W`: how long a forward, a backward for inputs and one for weights of a whole stage take")
	fs.Float64Var(&s.send, "send", 0, "how long a message between stages takes, in the same unit")
	fs.Float64Var(&s.machine.gflops, "gflops", 30, "GFLOP/s of one rank, for a folder")
	s.machine.add(fs)
	fs.StringVar(&s.svg, "svg", "", "also draw it to `FILE`")
	fs.BoolVar(&s.asJSON, "json", false, "print one JSON object instead of the drawing")
	completions(cmd)
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		d, err := s.drawing(cmd.Flags(), args)
		if err != nil {
			return err
		}
		if s.svg != "" {
			if err := writeSVG(s.svg, d); err != nil {
				return err
			}
		}
		if s.asJSON {
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", " ")
			return enc.Encode(d.Info())
		}
		w, width, colour := screen(cmd.OutOrStdout())
		d.Terminal(w, width, colour)
		return nil
	})
	return cmd
}

// drawing lays out what the flags or the folder say.
func (s *scheduleFlagSet) drawing(fs *pflag.FlagSet, args []string) (*timeline.Drawing, error) {
	if len(args) == 0 {
		for _, name := range []string{"topo", "gflops"} {
			if fs.Changed(name) {
				return nil, compiler.Input(fmt.Errorf("--%s needs a compiled folder; without one, times are those of --costs and --send", name))
			}
		}
		t, err := pipeline.Make(s.name, s.stages, s.chunks, s.micros)
		if err != nil {
			return nil, compiler.Input(err)
		}
		c, err := s.given(t)
		if err != nil {
			return nil, compiler.Input(err)
		}
		return timeline.New(t, c, "")
	}
	for _, name := range []string{"pp", "schedule", "microbatches", "chunks", "costs", "send"} {
		if fs.Changed(name) {
			return nil, compiler.Input(fmt.Errorf("--%s has no effect on a compiled folder: it was decided when the folder was compiled", name))
		}
	}
	f, err := folder.Open(args[0])
	if err != nil {
		return nil, err
	}
	t, err := s.machine.topo(f.Manifest)
	if err != nil {
		return nil, err
	}
	if !(s.machine.gflops > 0) {
		return nil, compiler.Input(fmt.Errorf("--gflops must be positive"))
	}
	d, err := timeline.Plan(f.Manifest, timeline.Machine{Topology: t, Flops: s.machine.gflops * 1e9})
	return d, compiler.Input(err)
}

// given are the costs of --costs and --send; a chunk is its share of a stage.
func (s *scheduleFlagSet) given(t *pipeline.Table) (pipeline.Costs, error) {
	var c [3]float64
	words := strings.Split(s.costs, ",")
	bad := fmt.Errorf("--costs must be three numbers of 0 or more, such as 1,1,1, not %q", s.costs)
	if len(words) != len(c) {
		return pipeline.Costs{}, bad
	}
	for i, w := range words {
		x, err := strconv.ParseFloat(strings.TrimSpace(w), 64)
		if err != nil || !(x >= 0) || x > 1e12 {
			return pipeline.Costs{}, bad
		}
		c[i] = x / float64(t.Chunks)
	}
	if !(s.send >= 0) || s.send > 1e12 {
		return pipeline.Costs{}, fmt.Errorf("--send must be 0 or more")
	}
	return pipeline.Uniform(t.Parts(), c[0], c[1], c[2], s.send), nil
}

func writeSVG(path string, d *timeline.Drawing) error {
	f, err := os.Create(path)
	if err != nil {
		return compiler.Input(err)
	}
	return errors.Join(d.SVG(f), f.Close())
}

// screen is where drawings go, how wide they may be, and whether in colours: those of a terminal are not escaped.
func screen(out io.Writer) (w io.Writer, width int, colour bool) {
	width = 160
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		width = n
	}
	f, ok := printable.Under(out).(*os.File)
	if !ok {
		return out, width, false
	}
	st, err := f.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice == 0 || os.Getenv("NO_COLOR") != "" {
		return out, width, false
	}
	return f, width, true
}
