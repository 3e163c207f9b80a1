package loop

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device/cpu"
	"github.com/gtc-compiler/gtc/runtime/internal/trace"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/gtc-compiler/gtc/runtime/train/internal/machine"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
	"github.com/gtc-compiler/gtc/runtime/train/internal/report"
)

// Main is the main function of a rank: it trains, evaluates or checks p as the command line says and ends the
// process with one of the Exit codes.
func Main(p *program.Program, rank int) {
	// OpenMP keeps a team of threads for each thread that launches kernels: there must be only one.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		exe = os.Args[0]
	}
	os.Exit(run(p, rank, os.Args[1:], &surroundings{
		out: printable.Writer{W: os.Stdout}, err: printable.Writer{W: os.Stderr}, getenv: os.Getenv, connect: comm.Connect,
		signals: signals, dir: filepath.Dir(filepath.Dir(exe)),
	}))
}

// Ranks is the main function of bin/ranks, which is any rank: the one that the launcher's variables say (see comm.FromEnv),
// else that of the name it was started by, such as bin/rank-3. programs are those of the plan. It ends the process with one
// of the Exit codes.
func Ranks(programs []*program.Program) {
	rank, program, err := ranks.WhoAmI(programs, os.Args[0], os.Getenv)
	if err != nil {
		fmt.Fprintln(printable.Writer{W: os.Stderr}, "gtc:", err)
		os.Exit(ranks.ExitUsage)
	}
	Main(programs[program], rank)
}

// surroundings are what a run takes from the process that it is in.
type surroundings struct {
	out, err io.Writer
	getenv   func(string) string
	connect  func(comm.Options) (comm.Communicator, error)
	signals  <-chan os.Signal
	dir      string // the compiled folder, unless --dir is given
}

// session is one run of a rank program.
type session struct {
	ranks.Job
	cfg   *config
	env   *surroundings
	m     *machine.Machine
	watch *report.Watcher
	rep   *report.Reporter

	threads int         // of this rank
	step    int64       // updates done
	resumed bool        // step and all state are a checkpoint's
	absent  *abi.Tensor // a weight that only a checkpoint can fill; nil when the folder holds all
	locked  *os.File    // the lock of the folder of checkpoints, while this run saves there
	stop    stopper
}

// run is Main without the process: it returns the exit code.
func run(p *program.Program, rank int, args []string, env *surroundings) int {
	cfg, err := parseFlags(args, env.out)
	if errors.Is(err, flag.ErrHelp) {
		return ranks.ExitOK
	}
	if err == nil {
		err = start(p, rank, cfg, env)
	}
	code := ranks.ExitCode(err)
	if err != nil && code < ranks.ExitSignal {
		complain(p, rank, err, env)
	}
	return code
}

// prefixed is the variable by which gtc run (launch.PrefixVariable) says that it shows what all ranks say, and, 1, that it tells the
// rank of each line.
const prefixed = "GTC_PREFIXED"

// rankVariables are those of which a launcher sets one for each rank.
var rankVariables = []string{"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}

// complain prints why the run failed. What all ranks find is told by rank 0 alone, if a launcher started them all. Why a rank gave
// up is told by that rank; rank 0 repeats it where the launcher may not show what other ranks say.
func complain(p *program.Program, rank int, err error, env *surroundings) {
	launched := slices.ContainsFunc(rankVariables, func(name string) bool { return env.getenv(name) != "" })
	told, itself := ranks.ToldElsewhere(err)
	if launched && rank != 0 && (ranks.Common(err) || told) || itself && env.getenv(prefixed) != "" {
		return
	}
	name := "gtc"
	var size struct{ Ranks int }
	if json.Unmarshal(p.Plan, &size); size.Ranks > 1 && !(launched && ranks.Common(err)) && (rank == 0 || env.getenv(prefixed) == "") {
		name = fmt.Sprintf("gtc: rank %d", rank)
	}
	fmt.Fprintf(env.err, "%s: %v\n", name, err)
	if strings.Contains(err.Error(), "BUG:") {
		fmt.Fprintln(env.err, "  note: this is a bug of gtc, not a mistake of yours: please report it, with the model and the command")
	}
}

// start joins the other ranks, does the work, and tells them when it cannot be done.
func start(p *program.Program, rank int, cfg *config, env *surroundings) (err error) {
	s := &session{cfg: cfg, env: env}
	defer s.stop.watch(env.signals)()
	defer s.unlock()
	if s.Plan, err = program.Read(p, rank); err != nil {
		return err
	}
	if cfg.dir == "" {
		cfg.dir = env.dir
	}
	if s.watch, err = report.NewWatcher(env.getenv, rank, env.err); err != nil {
		return err
	}
	s.Err, s.Debug = env.err, s.watch.Debug > 0
	local, err := s.Join(&ranks.Joining{Device: p.Device != nil, Agreed: cfg.plan(), Dir: cfg.dir, Timeout: cfg.timeout, Getenv: env.getenv, Connect: env.connect})
	if err != nil {
		return err
	}
	defer func() {
		if s.World == nil {
			return
		}
		var ce *comm.Error
		if err != nil && ranks.ExitCode(err) < ranks.ExitSignal && !errors.As(err, &ce) {
			s.World.Abort(ranks.Cause(err))
		}
		s.World.Close()
	}()
	if s.threads, err = cpu.Threads(cfg.threads, local, env.getenv); err != nil {
		return ranks.Usage(err)
	}
	cpu.SetThreads(s.threads)
	if p.SetThreads != nil {
		p.SetThreads(s.threads)
	}
	where, end, err := machine.OpenMemory(p, s.Plan, s.Number, func(format string, args ...any) {
		if rank == 0 {
			fmt.Fprintf(env.err, format+"\n", args...)
		}
	})
	if err != nil {
		return err
	}
	defer end()
	if err := s.openTrace(); err != nil {
		return err
	}
	if err := s.build(p, where); err != nil {
		return err
	}
	defer func() {
		s.m.Close()
		s.watch.Report(s.m)
		if e := s.watch.Trace.Close(); err == nil && e != nil {
			err = fmt.Errorf("--trace %s: %w", cfg.trace, e)
		}
	}()
	return s.work()
}

func (s *session) openTrace() (err error) {
	path := s.cfg.trace
	if path == "" {
		return nil
	}
	if s.Plan.Ranks > 1 {
		ext := filepath.Ext(path)
		path = strings.TrimSuffix(path, ext) + ".rank" + strconv.Itoa(s.Plan.Rank) + ext
	}
	if s.watch.Trace, err = trace.Create(path, s.Plan.Rank); err != nil {
		return ranks.Alone(ranks.Usagef("--trace: %w", err))
	}
	s.Wrap = s.watch.Timed
	return nil
}

// build makes the machine, with a communicator for each mesh axis, and loads the weights.
func (s *session) build(p *program.Program, where machine.Memory) error {
	net, err := s.Network()
	if err == nil && where.Local == nil {
		err = s.OnDevices(&net, where.Dev)
	}
	if err != nil {
		return err
	}
	if s.m, err = machine.New(p, s.Plan, where, net); err != nil {
		return err
	}
	if s.watch.Calls() {
		s.m.Watch = s.watch
	}
	s.describe()
	if err := s.loadWeights(); err != nil {
		s.m.Close()
		return err
	}
	return nil
}

// work does what the flags ask for.
func (s *session) work() error {
	c := s.cfg
	s.rep = report.New(&report.Options{Plan: s.Plan, Device: s.m.Dev, Out: s.env.out, Err: s.env.err, JSON: c.json, Bench: c.bench,
		Progress: c.progress, Every: c.logEvery, BitsOfLosses: s.watch.Debug > 0 || s.watch.Hash > 0})
	if err := s.initFrom(); err != nil {
		return err
	}
	switch {
	case s.cfg.dumpForward != "":
		return s.dumpForward()
	case s.cfg.fixedBatch != "":
		return s.fixedBatch()
	case s.cfg.evalOnly && s.m.Funcs[abi.FuncEval] != nil:
		return s.evalOnly()
	case s.m.Funcs[abi.FuncStep] == nil:
		return ranks.Usagef("this program only infers (gtc compile --loss none): use --inputs IN.npz --dump-forward OUT.npz")
	}
	if s.m.Local != nil {
		s.m.Local.Populate() // a step that meets a row of a table for the first time does not wait for the system
	}
	return s.train()
}
