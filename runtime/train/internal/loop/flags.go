package loop

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// config is what the flags of a rank program say.
type config struct {
	data, evalData []string
	opt            data.Options // --map, --transform, --tokens
	window         string       // --window
	random         bool         // windows start anywhere
	shuffle        bool
	dropLast       bool
	seed           uint64
	seedGiven      bool

	steps, epochs int64 // -1 when not given
	evalEvery     int64 // steps; 0 only at the end
	evalOnly      bool
	allowNaN      bool
	onEmpty       string // skip or fail

	resume        string // "", auto, or a folder
	resetData     bool   // with resume: begin the data anew
	initFrom      string // checkpoint or file of weights to begin with
	randomWeights bool   // for what --abstract-weights left out
	ckptDir       string // auto, or a folder; "" saves nothing
	saveEvery     int64  // steps; 0 only at the end
	keep          int    // checkpoints; 0 keeps all

	logEvery int64 // steps
	json     bool
	progress string // auto, line or plain
	bench    bool
	trace    string // file; "" for none

	threads int           // 0 for the environment's, or a share of the processors
	timeout time.Duration // 0 for the environment's, or the default
	dir     string        // compiled folder; "" for the one that the program is in

	dumpForward, inputs string // files; both or neither
	fixedBatch, results string // files; both or neither
	lr                  string // refused: it is compiled in
}

// listFlag collects the values of a flag that may be repeated or hold commas.
type listFlag []string

func (l *listFlag) String() string { return strings.Join(*l, ",") }
func (l *listFlag) Set(s string) error {
	for _, p := range strings.Split(s, ",") {
		if p == "" {
			return errors.New("an empty path")
		}
		*l = append(*l, p)
	}
	return nil
}

// onOff is a flag that may stand alone or with a value: --resume, --resume=PATH.
type onOff struct{ value *string }

func (o onOff) String() string {
	if o.value == nil {
		return ""
	}
	return *o.value
}
func (o onOff) IsBoolFlag() bool { return true }
func (o onOff) Set(s string) error {
	switch s {
	case "true":
		s = "auto"
	case "false":
		s = ""
	}
	*o.value = s
	return nil
}

// number is an int64 flag that must be at least min; a negative value is one not given yet.
type number struct {
	v   *int64
	min int64
}

func (n number) String() string {
	if n.v == nil || *n.v < 0 {
		return "0"
	}
	return strconv.FormatInt(*n.v, 10)
}
func (n number) Set(s string) error {
	v, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil {
		return errors.New("not a whole number")
	}
	if v < n.min {
		return fmt.Errorf("must be at least %d", n.min)
	}
	*n.v = v
	return nil
}

// choice is a flag that is one of some words.
type choice struct {
	value *string
	words []string
}

func (c choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}
func (c choice) Set(s string) error {
	if !slices.Contains(c.words, s) {
		return fmt.Errorf("must be %s", strings.Join(c.words, " or "))
	}
	*c.value = s
	return nil
}

const intro = `Trains (or evaluates) the compiled model as one rank. "gtc run DIR ..." starts all ranks of a job with the
same flags; a launcher that sets RANK and WORLD_SIZE (torchrun, mpirun, srun) does as well.

`

// Flags are the flags of a rank program, for whoever lists them: gtc run's help and documentation.
func Flags() *flag.FlagSet { return newFlags(new(config)) }

// newFlags are the flags of a rank program, which fill c.
func newFlags(c *config) *flag.FlagSet {
	*c = config{progress: "auto", onEmpty: "skip", steps: -1, epochs: -1, logEvery: 10, shuffle: true, keep: 2, ckptDir: "auto"}
	c.opt.Map, c.opt.Transforms = map[string]string{}, map[string]data.Transform{}
	fs := flag.NewFlagSet("rank", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	c.dataFlags(fs)
	c.runFlags(fs)
	return fs
}

// dataFlags say what to train and evaluate on, in which order.
func (c *config) dataFlags(fs *flag.FlagSet) {
	fs.Var((*listFlag)(&c.data), "data", "training data: `PATH[,PATH]` of .npz, .npy, .safetensors or token files; patterns are expanded")
	fs.Var((*listFlag)(&c.evalData), "eval-data", "evaluation data, at the end and with --eval-every: `PATH[,PATH]`")
	fs.Var(number{&c.evalEvery, 0}, "eval-every", "evaluate every `N` steps; 0 only at the end")
	fs.BoolVar(&c.evalOnly, "eval-only", false, "evaluate the newest checkpoint in --checkpoint-dir (or --resume=PATH, or --init-from, or the initial weights) and stop")
	fs.Var(number{&c.steps, 0}, "steps", "train until `N` steps were done, those before --resume included; 0 trains nothing")
	fs.Var(number{&c.epochs, 0}, "epochs", "train for `N` passes over the data; 1 when --steps is not given either, 0 trains nothing")
	fs.Func("seed", "`NUMBER` that decides the order of the samples, and what dropout and other noise draw; default 0. A resumed run goes on with its checkpoint's", func(s string) (err error) {
		c.seed, err = strconv.ParseUint(s, 0, 64)
		c.seedGiven = true
		return err
	})
	fs.Func("map", "read an input from an array of another name: `INPUT=ARRAY`, may be repeated", func(s string) error {
		name, key, ok := strings.Cut(s, "=")
		if !ok || name == "" || key == "" {
			return errors.New("must be INPUT=ARRAY")
		}
		c.opt.Map[name] = key
		return nil
	})
	fs.Func("transform", "scale an input: `INPUT=scale=1/255,mean=M,std=S` (lists A:B:C for channels) or INPUT=identity", func(s string) error {
		name, spec, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return errors.New("must be INPUT=scale=1/255,mean=M,std=S, or INPUT=identity")
		}
		t, err := data.ParseTransform(spec)
		c.opt.Transforms[name] = t
		return err
	})
	fs.StringVar(&c.opt.Tokens, "tokens", "", "the data are flat tokens of this `TYPE`: u8, u16 or u32")
	fs.StringVar(&c.window, "window", "random", "windows of token files: random (start anywhere) or sequential (side by side, shuffled)")
	fs.BoolVar(&c.shuffle, "shuffle", true, "a new order of the samples in each epoch")
	fs.BoolVar(&c.dropLast, "drop-last", false, "leave out an epoch's last batch when it is not full, instead of padding it")
}

// runFlags say how to run: checkpoints, output, threads, and the modes other than training.
func (c *config) runFlags(fs *flag.FlagSet) {
	fs.Var(onOff{&c.resume}, "resume", "go on from the newest checkpoint in --checkpoint-dir if there is one, or from --resume=`PATH`")
	fs.StringVar(&c.initFrom, "init-from", "", "begin with the weights of `PATH`, a checkpoint or a .safetensors file, at step 0 with a new optimizer; --resume goes over it once there is a checkpoint")
	fs.BoolVar(&c.resetData, "reset-data", false, "with --resume: keep weights, optimizer state and step, but begin the data anew, which may be others, in other batches, with another --seed")
	fs.StringVar(&c.ckptDir, "checkpoint-dir", "auto", "`FOLDER` of checkpoints; auto is DIR/checkpoints, none saves nothing")
	fs.Var(number{&c.saveEvery, 0}, "save-every", "save every `N` steps; 0 only at the end and when stopped by a signal")
	fs.IntVar(&c.keep, "keep", 2, "newest checkpoints to keep; 0 keeps all")

	fs.BoolVar(&c.allowNaN, "allow-nan", false, "go on, and save, when the loss is no longer a finite number, instead of stopping")
	fs.Var(choice{&c.onEmpty, []string{"skip", "fail"}}, "on-empty", "at a step in which nothing counts for the loss, because every target is ignored or every mask is zero: `skip|fail`; skip updates nothing and counts the step")
	fs.Var(number{&c.logEvery, 1}, "log-every", "print progress every `N` steps")
	fs.BoolVar(&c.json, "json", false, "print progress as JSON lines")
	fs.StringVar(&c.progress, "progress", "auto", "auto, line (one line, rewritten) or plain (a line every --log-every steps)")
	fs.BoolVar(&c.randomWeights, "random-weights", false, "begin with random numbers where --abstract-weights left the contents of weights out, to measure speed")
	fs.BoolVar(&c.bench, "bench", false, "print {\"step\",\"loss\",\"seconds\"} for every step, save nothing")
	fs.IntVar(&c.threads, "threads", 0, "threads of this rank; 0 is OMP_NUM_THREADS, else its share of the processors")
	fs.DurationVar(&c.timeout, "timeout", 0, "longest wait for another rank without progress, such as 30s (the default)")
	fs.StringVar(&c.dir, "dir", "", "compiled `FOLDER`; default two levels above this program")
	fs.StringVar(&c.trace, "trace", "", "write a trace of all calls for chrome://tracing to `FILE`")
	fs.StringVar(&c.lr, "lr", "", "not here: the learning rate is compiled in, by gtc compile --lr")

	fs.StringVar(&c.dumpForward, "dump-forward", "", "run the model on the samples of --inputs, any number of them, and write its outputs, by their names in the model, to `FILE.npz`; of the initial weights, or with --resume of the newest checkpoint")
	fs.StringVar(&c.inputs, "inputs", "", "`FILE.npz` with one array per input (of its name, or in0, in1, ...), for --dump-forward")
	fs.StringVar(&c.fixedBatch, "fixed-batch", "", "do --steps updates on the one batch in `FILE.npz`, for gtc check")
	fs.StringVar(&c.results, "results", "", "write the loss of each --fixed-batch step and the first step's results to `FILE.npz`")
}

// parseFlags reads the command line. flag.ErrHelp after --help.
func parseFlags(args []string, out io.Writer) (*config, error) {
	c := &config{}
	fs := newFlags(c)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(out, intro)
			fs.SetOutput(out)
			fs.PrintDefaults()
			return nil, err
		}
		if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
			if slices.Contains(compiledIn, strings.ReplaceAll(name, "_", "-")) {
				return nil, ranks.Usagef("--%s is compiled in: give it to gtc compile", name)
			}
			return nil, ranks.Usagef("unknown flag --%s%s (--help lists the flags)", name, meant(fs, name))
		}
		return nil, ranks.Usagef("%w (--help lists the flags)", err)
	}
	if c.lr != "" {
		return nil, ranks.Usagef("--lr is compiled in, and so is its schedule: give them to gtc compile")
	}
	if fs.NArg() > 0 {
		return nil, ranks.Usagef("%q is not a flag: a path to resume from is written --resume=PATH", fs.Arg(0))
	}
	return c, ranks.Usage(c.check())
}

// compiledIn are flags of gtc compile that one may look for here.
var compiledIn = []string{"arch", "batch", "betas", "clip-norm", "comm", "dp", "freeze", "grad-dtype", "lora", "loss", "loss-scale", "microbatches",
	"momentum", "optimizer", "pp", "precision", "reproducible", "schedule", "target", "tp", "train", "warmup", "weight-decay", "zero"}

// meant proposes the flag that is spelled most like name; "" when none is close.
func meant(fs *flag.FlagSet, name string) string {
	best, least := "", len(name)/3+2
	fs.VisitAll(func(f *flag.Flag) {
		if d := edits(name, f.Name); d < least {
			best, least = f.Name, d
		}
	})
	if best == "" {
		return ""
	}
	return " (did you mean --" + best + "?)"
}

// edits is the Levenshtein distance of two words: how many letters to insert, remove or change.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// check finds combinations of flags that make no sense.
func (c *config) check() error {
	c.random = c.window == "random"
	switch {
	case c.window != "random" && c.window != "sequential":
		return fmt.Errorf("--window must be random or sequential, not %q", c.window)
	case c.progress != "auto" && c.progress != "line" && c.progress != "plain":
		return fmt.Errorf("--progress must be auto, line or plain, not %q", c.progress)
	case c.steps >= 0 && c.epochs >= 0:
		return errors.New("--steps and --epochs exclude each other")
	case c.opt.Tokens != "" && c.opt.Tokens != "u8" && c.opt.Tokens != "u16" && c.opt.Tokens != "u32":
		return fmt.Errorf("--tokens must be u8, u16 or u32, not %q", c.opt.Tokens)
	case c.keep < 0 || c.threads < 0 || c.timeout < 0:
		return errors.New("--keep, --threads and --timeout cannot be negative")
	case c.resetData && c.resume == "":
		return errors.New("--reset-data needs --resume: it begins the data of a resumed run anew")
	case c.initFrom != "" && c.resume != "" && c.resume != "auto":
		return errors.New("--init-from and --resume=PATH exclude each other: both say what to begin with")
	case c.dumpForward != "" && c.inputs == "":
		return errors.New("--dump-forward needs --inputs, the samples to run the model on")
	case c.dumpForward == "" && c.inputs != "":
		return errors.New("--inputs needs --dump-forward, the file for the outputs")
	case c.fixedBatch != "" && c.results == "":
		return errors.New("--fixed-batch needs --results, the file for what the steps give")
	case c.fixedBatch == "" && c.results != "":
		return errors.New("--results needs --fixed-batch, the batch to train on")
	case c.fixedBatch != "" && c.epochs >= 0:
		return errors.New("--epochs has no effect with --fixed-batch, which does --steps")
	case c.fixedBatch != "" && len(c.opt.Map)+len(c.opt.Transforms) > 0:
		return errors.New("--map and --transform have no effect with --fixed-batch, which takes its arrays as they are")
	case c.fixedBatch != "" && c.steps == 0:
		return errors.New("--fixed-batch needs --steps of at least 1")
	case c.evalOnly && len(c.data)+len(c.evalData) == 0:
		return errors.New("--eval-only needs --eval-data")
	case c.evalEvery > 0 && len(c.evalData) == 0:
		return errors.New("--eval-every needs --eval-data")
	case len(c.data) == 0 && !c.evalOnly && c.dumpForward == "" && c.fixedBatch == "":
		return errors.New("there is nothing to train on: give --data PATH")
	}
	if c.ckptDir == "none" || c.bench {
		c.ckptDir = ""
	}
	if c.evalOnly && c.resume == "" && c.initFrom == "" && c.ckptDir != "" {
		c.resume = "auto"
	}
	if c.saveEvery > 0 && c.ckptDir == "" {
		return errors.New("--save-every needs a --checkpoint-dir")
	}
	return nil
}

// plan is what all ranks of a job must agree on, so that they make the same calls.
func (c *config) plan() string {
	return fmt.Sprint(c.steps, c.epochs, c.seed, c.random, c.shuffle, c.dropLast, c.evalEvery, c.evalOnly, c.saveEvery, c.ckptDir != "",
		c.resume != "", c.initFrom != "", c.resetData, len(c.evalData), c.bench, c.allowNaN, c.dumpForward != "", c.fixedBatch != "")
}
