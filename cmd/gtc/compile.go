package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	gtc "github.com/gtc-compiler/gtc"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/spf13/cobra"
)

func compileCommand() *cobra.Command {
	var m modelFlags
	var noBuild, verbose bool
	cmd := &cobra.Command{
		Use: "compile MODEL.onnx", Short: "Compile a model into a folder with one training program per rank",
		Long: `Compile a model into a folder: a complete Go module with the generated programs, the run-time's source, the initial
weights and the plan (gtc.json). "go build ./..." works in it, offline. bin/rank-N are the programs: links
to one, bin/ranks, which is the rank that RANK says, or the name it was started by.`,
		Example: "  gtc compile model.onnx --batch 64 --dp 2 --loss cross_entropy --optimizer adamw --lr 1e-3 --clip-norm 1",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: files("onnx"),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&m.opt.Out, "out", "o", "gtc-out", "output `FOLDER`; one that gtc made before is replaced, its checkpoints stay")
	m.importFlags(fs)
	m.abstractFlag(fs)
	m.parallelFlags(fs)
	m.optimizerFlags(fs)
	fs.IntVar(&m.opt.Pass.Threads, "threads", 0, "threads of each rank when gtc run starts it; 0 is its share of the processors")
	fs.BoolVar(&m.opt.Pass.Forward, "forward", false, "keep the plain forward pass in the program, for gtc run --dump-forward")
	fs.StringVar(&m.opt.Comm, "comm", "", "`LIBRARY` by which the ranks talk: local (shared memory, TCP between hosts), mpi (an installed MPI; start the ranks with mpirun) or, with --target cuda, nccl; the default is local, for GPUs nccl where that is found and serves")
	fs.BoolVar(&noBuild, "no-build", false, "write the folder without building the programs")
	m.passFlags(fs)
	fs.BoolVarP(&verbose, "verbose", "v", false, "print what each pass did and did not do, and the time it took")
	completions(cmd)
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		o, err := m.options(args[0])
		if err != nil {
			return err
		}
		o.Build, o.Source, o.Building = !noBuild, true, building(cmd.ErrOrStderr())
		res, err := gtc.Compile(cmd.Context(), o.Model, *o)
		if res != nil {
			printWarnings(cmd.ErrOrStderr(), res.Warnings)
			switch {
			case res.Context == nil:
			case verbose:
				printPasses(cmd.ErrOrStderr(), res)
				if m := res.Manifest; m != nil && m.GPU != nil {
					printKernels(cmd.ErrOrStderr(), m.GPU)
				}
			default:
				printWarnings(cmd.ErrOrStderr(), warned(res.Context))
			}
		}
		if err != nil {
			return err
		}
		printPlan(cmd.OutOrStdout(), o, res)
		return nil
	})
	return cmd
}

func printWarnings(w io.Writer, warnings []string) {
	for _, s := range warnings {
		fmt.Fprintln(w, "warning:", s)
	}
}

// warned are the remarks of passes that are warnings: those are told without --verbose, too.
func warned(c *pass.Context) []string {
	var list []string
	for _, r := range c.Remarks {
		if text, ok := strings.CutPrefix(r.Text, "warning: "); ok && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

// printPasses lists the passes with their times and remarks.
func printPasses(w io.Writer, res *compiler.Result) {
	for _, t := range res.Context.Times {
		took := t.Took.Round(10 * time.Microsecond).String()
		if t.Skipped {
			took = "off"
		}
		fmt.Fprintf(w, "%-12s %10s\n", t.Pass, took)
	}
	for _, r := range res.Context.Remarks {
		fmt.Fprintln(w, r)
	}
}

// building gives a compilation what says why it takes long: soon where someone watches, else not before it stands out.
func building(w io.Writer) func() func() {
	after := 15 * time.Second
	if f, ok := printable.Under(w).(*os.File); ok {
		if st, err := f.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
			after = 3 * time.Second
		}
	}
	return func() func() {
		t := time.AfterFunc(after, func() {
			fmt.Fprintln(w, "building (the first time compiles the run-time too, about a minute)")
		})
		return func() { t.Stop() }
	}
}

// along says where samples lie in inputs that have them elsewhere than along the leading dimension.
func along(m *abi.Manifest) string {
	var list []string
	for i := range m.Programs[0].Tensors {
		t := &m.Programs[0].Tensors[i]
		if d := m.Train.BatchDims[t.Name]; d > 0 && t.Role == abi.RoleInput {
			list = append(list, fmt.Sprintf("dimension %d of %s", d, printable.Line(t.Name)))
		}
	}
	if list == nil {
		return ""
	}
	return ", along " + strings.Join(list, " and ")
}

// printPlan says what was compiled.
func printPlan(w io.Writer, o *compiler.Options, res *compiler.Result) {
	m := res.Manifest
	p, t := &m.Programs[0], &m.Train
	stages := len(m.Programs)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-8s %s\n", name, fmt.Sprintf(format, args...))
	}
	tensors, elems, bytes := parameters(m)
	line("model", "%s: %d parameters of %s elements, %s", m.Model, tensors, grouped(elems), size(bytes))
	if o.Pass.TP > 1 {
		n, share := inParts(m, "tp")
		line("tensor", "%d of %d parameters, %.0f %% of the elements, are in parts over tp=%d (--verbose says which and why)", n, tensors, 100*share, o.Pass.TP)
	}
	infers := t.Loss == pass.NoLoss
	if !infers {
		line("batch", "%d = %d × %d × %d (ranks, micro-batches, samples each)%s", t.Batch, t.DP, t.Microbatches, t.RankBatch, along(m))
		line("training", "loss %s, %s with lr %g, schedule %s, %s", t.Loss, t.Optimizer, t.LR, schedule(o), arithmetic(&o.Pass))
	}
	for i := range m.Programs {
		p := &m.Programs[i]
		of := ""
		if stages > 1 {
			line("stage", "%d of %d, at most %s at once", i, stages, inFlight(p.Slots, o.Pass.Pipeline))
			of = " of the stage"
		}
		line("arena", "%s a rank%s: %s", size(p.ArenaBytes), of, segments(p.Segments))
		for _, f := range p.Funcs {
			line("@"+f.Name, "%d ops, %.3g GFLOP", f.Ops, float64(f.Flops)/1e9)
		}
	}
	if stages > 1 {
		worst := worstStage(m)
		line("memory", "%s a rank at most, on stage %d", size(m.Programs[worst].ArenaBytes), worst)
	}
	says := "no collectives"
	if m.Ranks > 1 {
		says = res.Proof.Counts() // as gtc verify counts them
	}
	line("program", "%d kernels; %s", p.Kernels, says)
	if m.GPU != nil {
		printGPU(line, m)
	}
	if r := res.Proof; m.Ranks > 1 {
		line("proven", "%d ranks: each collective and message has its counterpart on every rank, and no ranks wait for one another forever", r.Ranks)
	}
	if !o.Build {
		how := "go build"
		if o.Comm == "mpi" {
			how = "CC=mpicc go build -tags mpi"
		}
		line("written", "%s in %.1f s; not built: %s -o bin/ ./cmd/... in it does that", o.Out, (res.LowerTime + res.BuildTime).Seconds(), how)
		return
	}
	line("built", "%s/bin in %.1f s (passes %.1f s, code and build %.1f s)", o.Out, (res.LowerTime + res.BuildTime).Seconds(),
		res.LowerTime.Seconds(), res.BuildTime.Seconds())
	if infers {
		line("infer", "gtc run %s --inputs IN.npz --dump-forward OUT.npz", o.Out)
		return
	}
	if o.Comm == "mpi" {
		line("train", "mpirun -n %d %s/bin/ranks --data DATA", m.Ranks, o.Out)
		return
	}
	line("train", "gtc run %s --data DATA", o.Out)
}

// parameters counts those of the model, which ranks may have parts of, and their elements and bytes.
func parameters(m *abi.Manifest) (tensors, elems, bytes int) {
	seen := map[string]bool{}
	for i := range m.Programs {
		for k := range m.Programs[i].Tensors {
			x := &m.Programs[i].Tensors[k]
			if x.Role != abi.RoleParam || seen[x.Name] {
				continue
			}
			seen[x.Name] = true
			dims := x.Dims
			if x.Global != nil {
				dims = x.Global
			}
			n := ir.Product(dims)
			tensors, elems, bytes = tensors+1, elems+n, bytes+x.Bytes/max(ir.Product(x.Dims), 1)*n
		}
	}
	return tensors, elems, bytes
}

// inParts counts the parameters that axis splits, and says what share of all elements they have.
func inParts(m *abi.Manifest, axis string) (tensors int, share float64) {
	seen := map[string]bool{}
	all, split := 0, 0
	for i := range m.Programs {
		for k := range m.Programs[i].Tensors {
			x := &m.Programs[i].Tensors[k]
			if x.Role != abi.RoleParam || seen[x.Name] {
				continue
			}
			seen[x.Name] = true
			n := ir.Product(x.Dims)
			if x.Global != nil {
				n = ir.Product(x.Global)
			}
			all += n
			if slices.ContainsFunc(x.ShardAxes, func(list string) bool { return slices.Contains(strings.Split(list, ","), axis) }) {
				tensors, split = tensors+1, split+n
			}
		}
	}
	return tensors, float64(split) / float64(max(all, 1))
}

func schedule(o *compiler.Options) string {
	s := &o.Pass.Schedule
	if s.Warmup > 0 {
		return fmt.Sprintf("%s after %d steps of warm-up", s.Name, s.Warmup)
	}
	return s.Name
}

// segments lists the parts of the arena, largest first.
func segments(m map[string]int) string {
	var names []string
	for n, b := range m {
		if b > 0 {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if m[a] != m[b] {
			return m[b] - m[a]
		}
		return strings.Compare(a, b)
	})
	for i, n := range names {
		names[i] = n + " " + size(m[n])
	}
	return strings.Join(names, ", ")
}

// inFlight says what a stage holds n of: micro-batches, or, where it has several chunks of the model, each with its own.
func inFlight(n int, schedule string) string {
	one, more := "micro-batch", "micro-batches"
	if schedule == "interleaved" {
		one, more = "micro-batch of a chunk", "micro-batches of its chunks"
	}
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// worstStage is the index of the program that takes the most memory.
func worstStage(m *abi.Manifest) int {
	worst := 0
	for i := range m.Programs {
		if m.Programs[i].ArenaBytes > m.Programs[worst].ArenaBytes {
			worst = i
		}
	}
	return worst
}

// size prints bytes for people.
func size(n int) string {
	x, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if x < 1024 {
			break
		}
		x, unit = x/1024, u
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", x, unit)
}

// grouped prints a count with commas.
func grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// arithmetic says in which type the program computes, and how it scales the loss.
func arithmetic(p *pass.Options) string {
	switch {
	case p.Precision == "", p.Precision == "tf32" && p.Compute() != "tf32": // the CPU has no tf32; a warning says so
		return "fp32"
	case p.Precision != "fp16":
		return p.Precision
	case p.LossScale == 0:
		return "fp16 with a dynamic loss scale"
	}
	return fmt.Sprintf("fp16 with loss scale %g", p.LossScale)
}
