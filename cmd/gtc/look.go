package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	gtc "github.com/gtc-compiler/gtc"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/explain"
	"github.com/gtc-compiler/gtc/compiler/folder"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func optCommand() *cobra.Command {
	var m modelFlags
	var list []string
	var crash string
	var verbose bool
	cmd := &cobra.Command{
		Use: "opt FILE.ir", Short: "Run passes on a module in text form and print what they make of it",
		Long: `Run passes on a module in text form (- is standard input) and print what they make of it: the passes of --run in
that order, or the whole pipeline. Flags may have one dash. With --repro, run the pass that a crash file names on the
module that it holds.`,
		Example: "  gtc opt -run simplify,fuse step.ir\n  gtc opt -repro gtc-crash.txtar",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: files("ir"),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringSliceVar(&list, "run", nil, "run only these `PASSES`, separated by commas, in this order")
	fs.StringVar(&crash, "repro", "", "replay a crash `FILE`")
	fs.BoolVarP(&verbose, "verbose", "v", false, "print the remarks of the passes to standard error")
	m.importFlags(fs)
	m.parallelFlags(fs)
	m.optimizerFlags(fs)
	m.passFlags(fs)
	completions(cmd)
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		o, err := m.options("")
		if err != nil {
			return err
		}
		var c *pass.Context
		switch {
		case crash != "" && len(args) == 0 && list == nil:
			text, err := os.ReadFile(crash)
			if err != nil {
				return compiler.Input(err)
			}
			if c, err = passes.Replay(text, passes.Table); err != nil {
				return err
			}
		case crash == "" && len(args) == 1:
			if c, err = optimise(cmd, args[0], list, &o.Pass); err != nil {
				return err
			}
		default:
			return compiler.Input(fmt.Errorf("give a FILE.ir or --repro FILE, and not both"))
		}
		if verbose {
			for _, r := range c.Remarks {
				fmt.Fprintln(cmd.ErrOrStderr(), r)
			}
		}
		for i, p := range c.Programs() {
			if len(c.Stages) > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "# stage %d\n", i)
			}
			fmt.Fprint(cmd.OutOrStdout(), p.Module.Print(ir.PrintOptions{Loc: true}))
		}
		return nil
	})
	return cmd
}

// optimise runs passes by name, or all, on the module in a file.
func optimise(cmd *cobra.Command, path string, list []string, o *pass.Options) (*pass.Context, error) {
	var text []byte
	var err error
	if path == "-" {
		text, err = io.ReadAll(cmd.InOrStdin())
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, compiler.Input(err)
	}
	if strings.HasPrefix(string(text), "# stage 0\n") && strings.Contains(string(text), "\n# stage 1\n") { // as --dump and gtc opt print them
		return nil, compiler.Input(fmt.Errorf("%s holds a module for each stage of a pipeline: keep one, from its line \"# stage N\" to the next", path))
	}
	m, err := ir.Parse(string(text))
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		return nil, compiler.Input(fmt.Errorf("%s: %w", path, err))
	}
	table := passes.Table
	if list != nil {
		table = nil
		for _, name := range list {
			i := slices.IndexFunc(passes.Table, func(p pass.Pass) bool { return p.Name == name })
			if i < 0 {
				return nil, compiler.Input(fmt.Errorf("there is no pass %q; the passes are %s", name, strings.Join(passNames(), ", ")))
			}
			p := passes.Table[i]
			p.Needs = 0 // whoever picks passes vouches for what they need
			table = append(table, p)
		}
	}
	c := &pass.Context{Module: m, Opt: o}
	return c, compiler.Input(passes.Run(c, table))
}

func passNames() []string {
	var names []string
	for _, p := range passes.Table {
		if !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

func opsCommand() *cobra.Command {
	var fromONNX bool
	cmd := &cobra.Command{
		Use: "ops", Short: "List the ops and their rules, or the ONNX operators that are imported",
		Long: `List gtc's own ops with the rules that each has: gradient, evaluation, sharding, kernel, and facts such as in which operands
it is linear. With --onnx, list the operators of ONNX that a model may hold, one a line; those of com.microsoft have that name before them.`,
		Example: "  gtc ops --onnx | grep Conv",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: command(func(cmd *cobra.Command, args []string) error {
			if fromONNX {
				fmt.Fprint(cmd.OutOrStdout(), onnx.SurveyText())
				return nil
			}
			fmt.Fprint(cmd.OutOrStdout(), ops.Table())
			return nil
		}),
	}
	cmd.Flags().BoolVar(&fromONNX, "onnx", false, "list the ONNX operators that gtc compile reads instead")
	return cmd
}

func explainCommand() *cobra.Command {
	var m modelFlags
	var machine machineFlags
	var plan, asJSON bool
	cmd := &cobra.Command{
		Use: "explain GTC-OUT|MODEL.onnx %VALUE", Short: "Tell where a value came from, which kernel makes it and where it lies; or what ranks say to one another",
		Long: `Tell what became of a value: the node and source line that it came from, its group and kernel, its place in the
arena, who reads it, and what the passes said of it. A compiled folder is explained as it was compiled; for a model the
flags of gtc compile say how. The gradient of %v is %d_v. Quote the % where the shell wants it.

With --plan GTC-OUT, tell every collective of a compiled folder instead: its bytes, how many ranks take part, the time that
is predicted for the links of --topo, the tensors, the model's source line, and why it is there; and for each program what
one rank sends in a training step, by axis and kind.`,
		Example: "  gtc explain gtc-out %d_fc1.weight\n  gtc explain --plan gtc-out --topo nvlink,dp=ib",
		Args: func(cmd *cobra.Command, args []string) error {
			if plan {
				return cobra.ExactArgs(1)(cmd, args)
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		ValidArgsFunction: files("onnx"),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&plan, "plan", false, "tell the collectives of a compiled folder")
	machine.add(fs)
	fs.BoolVar(&asJSON, "json", false, "with --plan: print one JSON object")
	m.importFlags(fs)
	m.abstractFlag(fs)
	m.parallelFlags(fs)
	m.optimizerFlags(fs)
	m.passFlags(fs)
	completions(cmd)
	cmd.RunE = command(func(cmd *cobra.Command, args []string) error {
		st, err := os.Stat(args[0])
		if err := unreadByExplain(cmd.Flags(), plan, err == nil && st.IsDir()); err != nil {
			return compiler.Input(err)
		}
		if plan {
			if err == nil && !st.IsDir() {
				return compiler.Input(fmt.Errorf("--plan needs a compiled folder, and %s is a file: gtc compile makes a folder of a model", args[0]))
			}
			return explainPlan(cmd.OutOrStdout(), args[0], &machine, asJSON)
		}
		o, err := m.options(args[0])
		if err != nil {
			return err
		}
		if st != nil && st.IsDir() {
			f, err := folder.Open(args[0])
			if err != nil {
				return err
			}
			if o, err = f.Options(); err != nil {
				return err
			}
		}
		res, err := compiler.Lower(o)
		if err != nil {
			return err
		}
		return explain.Value(cmd.OutOrStdout(), res, args[1])
	})
	return cmd
}

// unreadByExplain refuses the flags of gtc explain that the kind of its argument leaves without meaning.
func unreadByExplain(fs *pflag.FlagSet, plan, folder bool) (err error) {
	fs.Visit(func(f *pflag.Flag) {
		ofPlan := f.Name == "topo" || f.Name == "json"
		switch {
		case err != nil || f.Name == "plan" || f.Name == "help":
		case ofPlan && !plan:
			err = fmt.Errorf("--%s needs --plan", f.Name)
		case !ofPlan && folder:
			err = fmt.Errorf("--%s has no effect on a compiled folder: it was decided when the folder was compiled", f.Name)
		}
	})
	return err
}

// explainPlan is gtc explain --plan.
func explainPlan(w io.Writer, dir string, machine *machineFlags, asJSON bool) error {
	f, err := folder.Open(dir)
	if err != nil {
		return err
	}
	t, err := machine.topo(f.Manifest)
	if err != nil {
		return err
	}
	p := explain.PlanOf(f.Manifest, t)
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", " ")
		return enc.Encode(p)
	}
	p.Print(w)
	return nil
}

// version is gtc's and that of what it was built for and with.
func version() string {
	return fmt.Sprintf("%s %s/%s %s", gtc.Version, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: command(func(cmd *cobra.Command, args []string) error {
			fmt.Fprintln(cmd.OutOrStdout(), "gtc", version())
			return nil
		}),
	}
}

// debugTopic is "gtc help debug".
func debugTopic() *cobra.Command {
	return &cobra.Command{
		Use: "debug", Short: "Environment variables for looking into the compiler and the programs",
		Long: `Environment variables for looking into the compiler and the programs. They need no other compilation.

Of the compiler:
  GTC_DUMP=FOLDER     write the module after each pass that changed it, and the difference (as --dump)
  GTC_REWRITES=N      do only the first N of the rewrites that a right program does not need (as --rewrites)
  GTC_CACHE=FOLDER    where compiled CUDA kernels are kept, instead of the user's cache folder; off: nowhere
  GTC_HOST_CHECK=1    with --arch host: kernels that check themselves for races, bounds and barriers

Of the programs, under gtc run or alone:
  GTC_NAN=1           stop at the first call that makes a NaN, and name it; 2: at the first infinity too
  GTC_HASH=1          checksums of loss, parameters and state of each rank after each step; 2: of what every call makes
  GTC_PROFILE=1       where the time went, at exit, of rank 0; 2: of every rank
  GTC_DEBUG=1         what was loaded, and how each collective is done; 2: the memory map; 3: each function; 4: each call
  --trace FILE        every call and collective in time, for chrome://tracing

Of the job:
  RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT   as torchrun sets them; those of Slurm and Open MPI are read too
  GTC_TOKEN=SECRET    needed by every rank when MASTER_ADDR is not this machine
  GTC_PORT=N          the port to meet at, instead of MASTER_PORT
  GTC_TIMEOUT=30s     longest wait for another rank without progress, when --timeout does not say
  GTC_COMM=auto       shm or tcp: what the ranks talk through; mpi in programs of --comm mpi; nccl in those of --target cuda,
                      which take it where they can
  GTC_COMM_ALGORITHM=auto  direct, halving or ring: how they add and gather over TCP
  GTC_SHM_DIR=FOLDER  where shared memory files are made, when /dev/shm is too small
  OMP_NUM_THREADS=N   threads of a rank, when --threads does not say

Of programs of --target cuda:
  CUDA_VISIBLE_DEVICES=2,0   which GPUs there are, in which order; a rank takes the one of its number on the host (LOCAL_RANK)
  GTC_GRAPH=0         run steps kernel by kernel, not as a CUDA graph
  GTC_CUDA_LIB GTC_NCCL_LIB GTC_NVML_LIB=FILE   libcuda.so.1, libnccl.so.2 and libnvidia-ml.so.1, where the system finds none or others
  GTC_CUBLASLT GTC_CUDNN=FILE   the libraries, where the loader finds none or others; off: gtc's own kernels
  GTC_TUNE_CACHE=FOLDER   where the fastest algorithms of products are kept, instead of the user's cache folder; off: nowhere`,
	}
}
