package train

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
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/gtc-compiler/gtc/runtime/trace"
)

// Main is the main function of a rank: it trains, evaluates or checks p as the command line says and ends the
// process with one of the Exit codes.
func Main(p *Program, rank int) {
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
func Ranks(programs []*Program) {
	rank, program, err := whoAmI(programs, os.Args[0], os.Getenv)
	if err != nil {
		fmt.Fprintln(printable.Writer{W: os.Stderr}, "gtc:", err)
		os.Exit(ExitUsage)
	}
	Main(programs[program], rank)
}

// surroundings are what a run takes from the process that it is in.
type surroundings struct {
	out, err io.Writer
	getenv   func(string) string
	connect  func(comm.Options) (comm.Communicator, error)
	signals  <-chan os.Signal
	dir      string // compiled folder, unless --dir is given
}

// session is one run of a rank program.
type session struct {
	job
	cfg   *config
	env   *surroundings
	m     *machine
	watch *watcher
	rep   *reporter

	threads int
	step    int64       // updates done
	resumed bool        // they and all state are a checkpoint's
	absent  *abi.Tensor // one that only a checkpoint can fill; nil when the folder holds all weights
	locked  *os.File    // of the folder of checkpoints, while this run saves there
	stop    stopper
}

// run is Main without the process: it returns the exit code.
func run(p *Program, rank int, args []string, env *surroundings) int {
	cfg, err := parseFlags(args, env.out)
	if errors.Is(err, flag.ErrHelp) {
		return ExitOK
	}
	if err == nil {
		err = start(p, rank, cfg, env)
	}
	code := exitCode(err)
	if err != nil && code < ExitSignal {
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
func complain(p *Program, rank int, err error, env *surroundings) {
	launched := slices.ContainsFunc(rankVariables, func(name string) bool { return env.getenv(name) != "" })
	told, itself := toldElsewhere(err)
	if launched && rank != 0 && (common(err) || told) || itself && env.getenv(prefixed) != "" {
		return
	}
	name := "gtc"
	var size struct{ Ranks int }
	if json.Unmarshal(p.Plan, &size); size.Ranks > 1 && !(launched && common(err)) && (rank == 0 || env.getenv(prefixed) == "") {
		name = fmt.Sprintf("gtc: rank %d", rank)
	}
	fmt.Fprintf(env.err, "%s: %v\n", name, err)
}

// start joins the other ranks, does the work, and tells them when it cannot be done.
func start(p *Program, rank int, cfg *config, env *surroundings) (err error) {
	s := &session{cfg: cfg, env: env}
	defer s.stop.watch(env.signals)()
	defer s.unlock()
	if s.plan, err = readPlan(p, rank); err != nil {
		return err
	}
	if cfg.dir == "" {
		cfg.dir = env.dir
	}
	if s.watch, err = newWatcher(env.getenv, rank, env.err); err != nil {
		return err
	}
	s.err, s.debug = env.err, s.watch.debug > 0
	local, err := s.join(&joining{device: p.Device != nil, agreed: cfg.plan(), dir: cfg.dir, timeout: cfg.timeout, getenv: env.getenv, connect: env.connect})
	if err != nil {
		return err
	}
	defer func() {
		if s.world == nil {
			return
		}
		var ce *comm.Error
		if err != nil && exitCode(err) < ExitSignal && !errors.As(err, &ce) {
			s.world.Abort(cause(err))
		}
		s.world.Close()
	}()
	if s.threads, err = cpu.Threads(cfg.threads, local, env.getenv); err != nil {
		return usage(err)
	}
	cpu.SetThreads(s.threads)
	if p.SetThreads != nil {
		p.SetThreads(s.threads)
	}
	where, end, err := openMemory(p, s.plan, s.number, func(format string, args ...any) {
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
		s.m.close()
		s.watch.report(s.m)
		if e := s.watch.trace.Close(); err == nil && e != nil {
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
	if s.plan.Ranks > 1 {
		ext := filepath.Ext(path)
		path = strings.TrimSuffix(path, ext) + ".rank" + strconv.Itoa(s.plan.rank) + ext
	}
	if s.watch.trace, err = trace.Create(path, s.plan.rank); err != nil {
		return alone(usagef("--trace: %w", err))
	}
	s.wrap = s.watch.timed
	return nil
}

// build makes the machine, with a communicator for each mesh axis, and loads the weights.
func (s *session) build(p *Program, where memory) error {
	net, err := s.network()
	if err == nil && where.local == nil {
		err = s.onDevices(&net, where.dev)
	}
	if err != nil {
		return err
	}
	if s.m, err = newMachine(p, s.plan, where, net); err != nil {
		return err
	}
	if s.watch.calls() {
		s.m.watch = s.watch
	}
	s.describe()
	if err := s.loadWeights(); err != nil {
		s.m.close()
		return err
	}
	return nil
}

// work does what the flags ask for.
func (s *session) work() error {
	c := s.cfg
	s.rep = newReporter(&reporting{plan: s.plan, device: s.m.dev, out: s.env.out, err: s.env.err, json: c.json, bench: c.bench,
		progress: c.progress, every: c.logEvery, bitsOfLosses: s.watch.debug > 0 || s.watch.hash > 0})
	if err := s.initFrom(); err != nil {
		return err
	}
	switch {
	case s.cfg.dumpForward != "":
		return s.dumpForward()
	case s.cfg.fixedBatch != "":
		return s.fixedBatch()
	case s.cfg.evalOnly && s.m.funcs[FuncEval] != nil:
		return s.evalOnly()
	case s.m.funcs[FuncStep] == nil:
		return usagef("this program only infers (gtc compile --loss none): use --inputs IN.npz --dump-forward OUT.npz")
	}
	if s.m.local != nil {
		s.m.local.Populate() // a step that meets a row of a table for the first time does not wait for the system
	}
	return s.train()
}
