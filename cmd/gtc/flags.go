package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	gtc "github.com/gtc-compiler/gtc"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/passes/optimizer"
	"github.com/spf13/pflag"
)

// modelFlags are the flags that say what to compile a model into; several commands share them.
type modelFlags struct {
	set  *pflag.FlagSet
	opt  compiler.Options
	dims []string

	values []string

	batchDims []string

	lora     []string
	betas    string
	bucketMB float64

	target, memory, lossScale, rewrites string

	gradRank     int
	gradFraction float64
}

// importFlags are those of the importer, and losses.
func (m *modelFlags) importFlags(fs *pflag.FlagSet) {
	m.set = fs
	i, p, otherwise := &m.opt.Import, &m.opt.Pass, gtc.Defaults().Pass
	fs.StringArrayVar(&m.dims, "dim", nil, "bind an open dimension of the model: `NAME=N`, or INPUT[k]=N where the file gives dimension k no name, or all of an input, also where the file gives none: INPUT=4x16 (INPUT=scalar for none); may be repeated")
	fs.StringArrayVar(&m.values, "value", nil, "bind an input whose contents decide shapes or numbers of steps: `NAME=3`, or NAME=2,3 where it has several; it is a constant of the program then, not an input. May be repeated")
	fs.IntVar(&i.Batch, "batch", 0, "leading dimension of every input that has an open one, or that of --batch-dim: the global batch, samples a step")
	fs.StringArrayVar(&m.batchDims, "batch-dim", nil, "the samples of the batch lie along dimension N of an input, counted from 0: `INPUT=N`, such as x=1 for [time, batch, channels]; without it the leading one, or the only one along which no samples meet. May be repeated")
	fs.Var(&roleFlag{rules: &i.Roles, train: true}, "train", "train the initializers that match `GLOB`, whatever their role; may be repeated. A later --train or --freeze goes over an earlier one: --freeze '*' --train 'lora_*'")
	fs.Var(&roleFlag{rules: &i.Roles}, "freeze", "do not train the parameters that match `GLOB`; a batch normalisation whose scale is frozen keeps its statistics")
	fs.StringArrayVar(&m.lora, "lora", nil, "train only adapters of low rank: `rank=8,alpha=16,target=GLOB`, target may be repeated, seed=N is that of their first values; without alpha it is 8")
	fs.StringArrayVar(&i.PaddingIdx, "padding-idx", nil, "`[GLOB=]ROW` of embedding tables that stays as it is (padding_idx), of all tables without GLOB")
	fs.StringArrayVar(&i.Tie, "tie", nil, "store two parameters as one: `COPY=ORIGINAL`")
	fs.StringArrayVar(&i.Untie, "untie", nil, "give each use of the parameters that match `GLOB` a copy of its own")
	fs.StringVar(&p.Loss, "loss", "", "`LOSS`: cross_entropy, mse, l1, huber, bce, bce_logits, nll, kl_div (mean over all elements, as PyTorch's default), or graph when the model's output is the loss (the default for a scalar output); none makes a program that only infers")
	fs.IntVar(&p.IgnoreIndex, "ignore-index", otherwise.IgnoreIndex, "target of cross_entropy and nll that does not count")
	fs.Float64Var(&p.HuberDelta, "huber-delta", otherwise.HuberDelta, "where the huber loss becomes linear")
}

// abstractFlag is that of the commands that need no weights.
func (m *modelFlags) abstractFlag(fs *pflag.FlagSet) {
	fs.BoolVar(&m.opt.Import.Abstract, "abstract-weights", false, "compile without the contents of weights that are not there: files of external data may be missing. The programs start from a checkpoint only (gtc run --resume=PATH)")
}

// parallelFlags are those of how the work is split.
func (m *modelFlags) parallelFlags(fs *pflag.FlagSet) {
	p, otherwise := &m.opt.Pass, gtc.Defaults().Pass
	fs.IntVar(&p.DP, "dp", otherwise.DP, "data-parallel ranks: each takes a part of the batch")
	fs.IntVar(&p.Microbatches, "microbatches", otherwise.Microbatches, "parts that each rank works through before an update (gradient accumulation)")
	fs.BoolVar(&p.SyncBN, "sync-bn", false, "batch normalisation over the global batch instead of each rank's part")
	fs.Float64Var(&m.bucketMB, "bucket-mb", 0, "`MIB` of gradients that one all_reduce takes; 0 is 25, less for small models. Gradients that --zero splits go one by one")
	fs.IntVar(&p.TP, "tp", otherwise.TP, "tensor-parallel ranks: each takes a part of the weights and of the work with them; gtc decides which (its remarks say why)")
	fs.BoolVar(&p.SP, "sp", false, "sequence parallelism: what lies between the products that --tp splits (norms, dropout, residuals) is split over its ranks by tokens")
	fs.StringArrayVar(&p.Shard, "shard", nil, "`GLOB=AXES` to split the parameters that match over: for each dimension _ or axes, such as h.*.mlp.c_fc.weight=_,tp; @FILE holds one on a line; may be repeated")
	fs.IntVar(&p.PP, "pp", otherwise.PP, "pipeline stages: each has a part of the model and works on one micro-batch after the other")
	fs.IntVar(&p.Chunks, "chunks", 0, "parts of the model that a stage has with --schedule interleaved; 0 is 2")
	fs.IntVar(&p.Zero, "zero", 0, "`STAGE` of ZeRO over the data-parallel ranks: 1 gives each a part of the optimizer state, 2 of the gradients too, 3 of the parameters too")
	m.gradCommFlags(fs)
	fs.BoolVar(&p.Reproducible, "reproducible", false, "the same bits in every layout of data-parallel ranks, micro-batches, stages and ZeRO: sums over all micro-batches follow one tree. Their number (--dp times --microbatches) is a power of two, and must be the same to compare")
	fs.StringVar(&p.Precision, "precision", otherwise.Precision, "`TYPE` of the arithmetic between parameters and gradients: fp32, bf16 (parameters, their updates, norms, losses and sums stay fp32), or fp16 (the same, with a loss scale), or tf32 (products on the GPU only)")
	fs.StringVar(&m.lossScale, "loss-scale", "", "loss scale of --precision fp16: dynamic (the default: from 65536 on, halved at a step with a gradient that is not finite, which is skipped, and doubled after 2000 steps without), or a number `N` that stays")
	m.targetFlags(fs)
	fs.StringVar(&m.memory, "memory", "", "`LIMIT` of memory a rank, such as 8GiB (not supported yet)")
}

// optimizerFlags are those of the update.
func (m *modelFlags) optimizerFlags(fs *pflag.FlagSet) {
	p, otherwise := &m.opt.Pass, gtc.Defaults().Pass
	o, s := &p.Optimizer, &p.Schedule
	names := slices.Sorted(slices.Values(optimizer.Names()))
	fs.StringVar(&o.Name, "optimizer", otherwise.Optimizer.Name, "`RULE`: "+strings.Join(names, ", "))
	fs.Float64Var(&o.LR, "lr", otherwise.Optimizer.LR, "learning rate")
	fs.Float64Var(&o.Momentum, "momentum", 0, "momentum of sgd, rmsprop and lars")
	fs.BoolVar(&o.Nesterov, "nesterov", false, "Nesterov's form of momentum (sgd)")
	fs.Float64Var(&o.Dampening, "dampening", 0, "dampening of momentum (sgd)")
	fs.Float64Var(&o.Beta1, "beta1", 0, "decay of the mean of gradients; PyTorch's default of the rule when not given")
	fs.Float64Var(&o.Beta2, "beta2", 0, "decay of the mean of squared gradients; PyTorch's default of the rule when not given")
	fs.StringVar(&m.betas, "betas", "", "both: `BETA1,BETA2`")
	fs.Float64Var(&o.Eps, "eps", 0, "added to the denominator; PyTorch's default of the rule when not given")
	fs.Float64Var(&o.WeightDecay, "weight-decay", 0, "weight decay; 0 is none, for adamw too")
	fs.StringArrayVar(&o.NoDecay, "no-decay", nil, "parameters without weight decay: `GLOB`, or 1d for all with fewer than two dimensions; may be repeated")
	fs.Float64Var(&o.Alpha, "alpha", 0, "smoothing of rmsprop; PyTorch's default when not given")
	s.Name = otherwise.Schedule.Name
	fs.Var(&scheduleFlag{rate: &s.Name, pipe: &p.Pipeline}, "schedule", "learning rate over the steps: `NAME` is constant, linear, cosine or step; of a pipeline (--pp), the order of its work: gpipe, 1f1b (the default), interleaved, zb-h1 or varuna. May be given once for each")
	fs.IntVar(&s.Warmup, "warmup", 0, "`STEPS` of linear warm-up")
	fs.IntVar(&s.Steps, "total-steps", 0, "`STEPS` after which linear and cosine reach their end")
	fs.Float64Var(&s.MinLR, "min-lr", 0, "learning rate at the end of linear and cosine")
	fs.IntVar(&s.Every, "step-every", 0, "`STEPS` between the drops of step")
	fs.Float64Var(&s.Gamma, "gamma", 0, "factor of each drop of step")
	fs.Float64Var(&p.ClipNorm, "clip-norm", 0, "bound of the norm of all gradients together; 0 is none")
	fs.BoolVar(&p.GradNorm, "grad-norm", otherwise.GradNorm, "show that norm, before clipping, with the loss, which takes up to 1 % of a step without clipping; under local SGD it is rank 0's own, and with --pp and --grad-dtype fp16 it is not known")
}

// passFlags are those for looking into the pipeline.
func (m *modelFlags) passFlags(fs *pflag.FlagSet) {
	p := &m.opt.Pass
	fs.StringVar(&p.DumpDir, "dump", "", "write the module after each pass that changed it, and the difference, to `FOLDER`, on which gtc replay runs the passes again (also GTC_DUMP)")
	fs.StringArrayVar(&p.Disable, "disable", nil, "leave out `PASS`; may be repeated")
	fs.StringVar(&p.StopAfter, "stop-after", "", "stop after `PASS`")
	fs.StringVar(&m.rewrites, "rewrites", "", "do only the first `N` of the rewrites that a right program does not need; gtc bisect finds the one that breaks it (also GTC_REWRITES)")
}

// options checks the flags and completes the options of the model at path.
func (m *modelFlags) options(path string) (*compiler.Options, error) {
	if err := m.supported(); err != nil {
		return nil, err
	}
	if err := m.targetOptions(); err != nil {
		return nil, compiler.Input(err)
	}
	if m.set.Lookup("optimizer") != nil {
		if err := m.unread(); err != nil {
			return nil, compiler.Input(err)
		}
	}
	o := &m.opt
	o.Model = path
	if err := m.inputFlags(); err != nil {
		return nil, compiler.Input(err)
	}
	if m.lossScale != "" && m.lossScale != "dynamic" {
		n, err := strconv.ParseFloat(m.lossScale, 64)
		if err != nil || !(n >= 1.0/(1<<40) && n <= 1<<40) {
			return nil, compiler.Input(fmt.Errorf("--loss-scale must be dynamic or a number from 2^-40 to 2^40, not %q", m.lossScale))
		}
		o.Pass.LossScale = n
	}
	if m.betas != "" {
		a, b, ok := strings.Cut(m.betas, ",")
		x, err := strconv.ParseFloat(a, 64)
		y, err2 := strconv.ParseFloat(b, 64)
		if !ok || err != nil || err2 != nil {
			return nil, compiler.Input(fmt.Errorf("--betas must be two numbers, such as 0.9,0.95, not %q", m.betas))
		}
		o.Pass.Optimizer.Beta1, o.Pass.Optimizer.Beta2 = x, y
	}
	m.zeros()
	if m.set.Lookup("pp") != nil {
		if err := m.gradComm(); err != nil {
			return nil, compiler.Input(err)
		}
	}
	if err := m.adapters(); err != nil {
		return nil, compiler.Input(err)
	}
	if m.set.Changed("huber-delta") && o.Pass.HuberDelta == 0 {
		return nil, compiler.Input(fmt.Errorf("--huber-delta must be positive"))
	}
	for _, name := range []string{"dp", "microbatches", "tp", "pp"} {
		if f := m.set.Lookup(name); f != nil && f.Value.String() == "0" {
			return nil, compiler.Input(fmt.Errorf("--%s must be at least 1", name))
		}
	}
	if !(m.bucketMB >= 0 && m.bucketMB <= 1<<30) {
		return nil, compiler.Input(fmt.Errorf("--bucket-mb must be a number from 0 to 2^30, not %g", m.bucketMB))
	}
	o.Pass.BucketBytes = int(m.bucketMB * (1 << 20))
	if o.Pass.DumpDir == "" {
		o.Pass.DumpDir = os.Getenv("GTC_DUMP")
	}
	if text := cmp.Or(m.rewrites, os.Getenv("GTC_REWRITES")); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, compiler.Input(fmt.Errorf("--rewrites must be 0 or more, not %s", text))
		}
		o.Pass.Rewrites = &n
	}
	o.Flags = m.given()
	return o, o.Limits()
}

// supported refuses what later versions will do.
func (m *modelFlags) supported() error {
	switch {
	case m.lossScale != "" && m.opt.Pass.Precision != "fp16":
		return compiler.Input(fmt.Errorf("--loss-scale needs --precision fp16: no other precision scales the loss"))
	case m.memory != "":
		return unsupported("--memory")
	}
	return nil
}

// ruleFlags are the optimizer's flags that not every rule reads, lossFlags those of the loss and scheduleFlags those of the schedule, by what
// reads them. Of a loss that the model computes itself, accuracy may count classes.
var (
	ruleFlags = map[string][]string{
		"sgd": {"momentum", "nesterov", "dampening"}, "lars": {"momentum"},
		"adam": {"beta1", "beta2", "betas", "eps"}, "adamw": {"beta1", "beta2", "betas", "eps"},
		"lamb": {"beta1", "beta2", "betas", "eps"}, "lion": {"beta1", "beta2", "betas"},
		"sparse_adam": {"beta1", "beta2", "betas", "eps"}, "rowwise_adagrad": {"eps"},
		"adagrad": {"eps"}, "rmsprop": {"alpha", "eps", "momentum"},
	}
	lossFlags = map[string][]string{
		"huber": {"huber-delta"}, "cross_entropy": {"ignore-index"}, "nll": {"ignore-index"},
		"mse": {}, "l1": {}, "bce": {}, "bce_logits": {}, "kl_div": {}, "none": {},
		"graph": {"ignore-index"},
	}
	scheduleFlags = map[string][]string{
		"constant": {}, "linear": {"total-steps", "min-lr"}, "cosine": {"total-steps", "min-lr"}, "step": {"step-every", "gamma"},
	}
)

// unread refuses a flag that the chosen rule or schedule would ignore: whoever gives it expects it to count. An unknown
// rule or schedule is left to the compiler, which lists the known ones.
func (m *modelFlags) unread() error {
	o, s := &m.opt.Pass.Optimizer, &m.opt.Pass.Schedule
	for _, group := range []struct {
		flag, chosen string
		readers      map[string][]string
	}{{"optimizer", o.Name, ruleFlags}, {"loss", m.opt.Pass.Loss, lossFlags}, {"schedule", s.Name, scheduleFlags}} {
		reads, known := group.readers[group.chosen]
		if !known {
			continue
		}
		readers := map[string][]string{} // by flag
		for _, name := range slices.Sorted(maps.Keys(group.readers)) {
			for _, f := range group.readers[name] {
				readers[f] = append(readers[f], name)
			}
		}
		for _, f := range slices.Sorted(maps.Keys(readers)) {
			if m.set.Changed(f) && !slices.Contains(reads, f) {
				return fmt.Errorf("--%s has no effect with --%s %s, only with %s", f, group.flag, group.chosen, strings.Join(readers[f], ", "))
			}
		}
	}
	if m.set.Changed("dampening") && o.Momentum == 0 {
		return fmt.Errorf("--dampening needs --momentum")
	}
	return nil
}

// given are the flags as the user gave them, for the record in gtc.json.
func (m *modelFlags) given() map[string]string {
	out := map[string]string{}
	m.set.Visit(func(f *pflag.Flag) {
		if f.Name == "out" || f.Name == "dump" || f.Name == "verbose" {
			return
		}
		text := f.Value.String()
		if s, ok := f.Value.(pflag.SliceValue); ok {
			text = strings.Join(s.GetSlice(), " ")
		}
		out[f.Name] = text
	})
	return maps.Clone(out)
}
