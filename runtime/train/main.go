package train

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/mesh"
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
	cfg   *config
	plan  *plan
	env   *surroundings
	world comm.Communicator // nil for a job of one rank
	m     *machine
	watch *watcher
	rep   *reporter

	threads  int
	number   int           // of the rank on its host
	comm     string        // how ranks talk, as asked for: auto, local, nccl, ...
	patience time.Duration // with ranks that make no progress
	step     int64         // updates done
	resumed  bool          // they and all state are a checkpoint's
	absent   *abi.Tensor   // one that only a checkpoint can fill; nil when the folder holds all weights
	locked   *os.File      // of the folder of checkpoints, while this run saves there
	stop     stopper
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
	local, err := s.connect(p.Device != nil)
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
	where, end, err := s.memory(p)
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
		return &alone{usagef("--trace: %w", err)}
	}
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
	s.rep = newReporter(s)
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

// connect joins the job; a job of one rank opens nothing. It returns how many ranks share this host, as far as is
// known.
func (s *session) connect(device bool) (local int, err error) {
	x := s.plan
	opt, err := comm.FromEnv()
	if err != nil {
		return 0, usage(err)
	}
	if x.Ranks == 1 {
		if opt.World > 1 {
			return 0, usagef("this program was compiled for one rank, the launcher started %d: compile with --dp %d", opt.World, opt.World)
		}
		return 1, nil
	}
	s.number, s.comm, s.patience = opt.LocalRank, opt.Transport, opt.Timeout
	if s.comm == "" || s.comm == comm.TransportAuto {
		s.comm = cmp.Or(x.Options["comm"], comm.TransportAuto)
	}
	if device && s.comm == overNCCL { // for what works on the device; the rest is small
		opt.Transport = comm.TransportAuto
	}
	byHand := opt.World <= 1 && s.env.getenv("RANK") == "" // one process for each rank, not torchrun's only one
	if byHand {
		opt.World, opt.Rank, opt.LocalRank, s.number = x.Ranks, x.rank, x.rank, x.rank
		if opt.Port == 0 {
			opt.Port = s.port()
		}
	}
	if opt.World != x.Ranks {
		return 0, usagef("this program was compiled for %d ranks, the launcher started %d (WORLD_SIZE)", x.Ranks, opt.World)
	}
	if opt.Rank != x.rank {
		return 0, &alone{usagef("this is the program of rank %d, but the launcher says that it is rank %d", x.rank, opt.Rank)}
	}
	if s.cfg.timeout > 0 {
		opt.Timeout = s.cfg.timeout
		if byHand || opt.Timeout > time.Minute { // a launcher may take its time to start all ranks
			opt.ConnectTimeout = opt.Timeout
		}
	}
	h := fnv.New64a()
	fmt.Fprint(h, x.prog.Hash, s.cfg.plan())
	opt.Plan = fmt.Sprintf("%016x", h.Sum64())
	if s.world, err = s.env.connect(opt); err != nil {
		if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(err.Error(), fmt.Sprintf("rank %d of %d: ", opt.Rank, opt.World)) {
			err = inner // the rank is told anyhow
		}
		if byHand {
			err = fmt.Errorf("%w\n  this program is one of %d ranks: \"gtc run %s\" starts them all; by hand, start bin/rank-0 to bin/rank-%d together with the same flags",
				err, x.Ranks, s.cfg.dir, x.Ranks-1)
		}
		return 0, err
	}
	local = x.Ranks
	if n, err := strconv.Atoi(s.env.getenv("LOCAL_WORLD_SIZE")); err == nil && n > 0 {
		local = n
	}
	return local, nil
}

// port is the same for all ranks of one compiled folder, so that bin/rank-0 and bin/rank-1 find each other.
func (s *session) port() int {
	if n, err := strconv.Atoi(s.env.getenv("MASTER_PORT")); err == nil && n > 0 {
		return n
	}
	dir, err := filepath.Abs(s.cfg.dir)
	if err != nil {
		dir = s.cfg.dir
	}
	h := fnv.New32a()
	io.WriteString(h, dir)
	return 20000 + int(h.Sum32()%10000)
}

// network makes a communicator for each mesh axis of more than one rank, and for each rank that messages go to.
func (s *session) network() (network, error) {
	net := network{axes: map[string]comm.Communicator{}, pairs: map[peer]comm.Communicator{}}
	for _, a := range s.plan.mesh.Axes {
		if s.world == nil || s.plan.mesh.Size(a.Name) == 1 || a.Name == mesh.TimeAxis {
			continue
		}
		// Also when the axis holds every rank: the world stays free for what the loop has to say.
		c, err := s.sub(a.Name, s.plan.mesh.Group(s.plan.rank, a.Name))
		if err != nil {
			return net, err
		}
		net.axes[a.Name] = c
	}
	pairs, err := s.plan.pairs()
	if err != nil {
		return net, err
	}
	stages, here := s.plan.mesh.Group(s.plan.rank, stageAxis), s.plan.mesh.Coord(s.plan.rank, stageAxis)
	for _, p := range pairs { // in the same order everywhere, or ranks would wait for each other
		if here != p[0] && here != p[1] {
			continue
		}
		c, err := s.sub(fmt.Sprintf("%s %d-%d", stageAxis, p[0], p[1]), []int{stages[p[0]], stages[p[1]]})
		if err != nil {
			return net, err
		}
		net.pairs[peer{stageAxis, p[0] + p[1] - here}] = c
	}
	return net, nil
}

// sub makes a communicator of ranks of the job.
func (s *session) sub(name string, ranks []int) (comm.Communicator, error) {
	c, err := s.world.Sub(name, ranks)
	if err == nil && s.watch.trace != nil {
		c = timed{c, s.watch.trace}
	}
	return c, err
}
