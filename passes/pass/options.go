package pass

// NoLoss as Options.Loss makes a program that only infers: @forward, without a step.
const NoLoss = "none"

// Names of results of @step by which passes tell one another something (abi has those that the run-time reads).
const (
	GradScale = "grad_scale"       // f32[]: how much larger than those of the summed loss the gradients are
	Counts    = "something_counts" // bool[]: the global count is not zero
)

// The policy of dynamic loss scaling, that of torch.amp.GradScaler.
const (
	FirstLossScale = 65536
	LossGrowth     = 2    // after GrowthEvery good steps in a row
	LossBackoff    = 0.5  // after a step with a gradient that is not finite
	GrowthEvery    = 2000 // steps
)

// Options are the user's choices that passes read; cmd/gtc fills them from flags.
// The zero value of a field means its documented default.
type Options struct {
	// Loss is cross_entropy, mse, l1, huber, bce, bce_logits, nll, kl_div, graph, none (NoLoss), or "" (graph when the
	// model's single output is a scalar float, else an error asks for one).
	Loss        string
	BatchDim    []string // INPUT=DIM: samples lie along that dim of the input; found where it is not given
	IgnoreIndex int      // of cross_entropy and nll; default -100 (set by the caller)
	HuberDelta  float64  // default 1

	LoRA LoRA `json:",omitzero"` // adapters beside weights, trained in their place

	Optimizer Optimizer
	Schedule  Schedule
	ClipNorm  float64 // global gradient norm bound; 0 none
	GradNorm  bool    // @step tells the global gradient norm, also without ClipNorm

	DP           int  // data-parallel ranks; default 1
	TP           int  // tensor-parallel ranks; default 1
	PP           int  // pipeline stages; default 1
	Microbatches int  // gradient accumulation steps; default 1
	SyncBN       bool // BatchNorm statistics over the global batch

	Zero     int      // ZeRO stage over dp: 1 optimizer state, 2 and gradients, 3 and parameters; default 0
	SP       bool     // sequence parallelism: between tensor-parallel regions activations are split over tp, too
	Shard    []string // the user's shardings, PATTERN=AXES: h.*.mlp.c_fc.weight=_,tp
	Pipeline string   // schedule of the pipeline: gpipe, 1f1b (default), interleaved, zb-h1, varuna
	Chunks   int      // model chunks of each stage under the interleaved schedule; default 2

	Reproducible bool     // sums over samples, micro-batches and ranks follow one tree: the same bits in every layout
	GradComm     GradComm // how gradients travel between data-parallel ranks

	Target    string   // cpu (default) or cuda
	Arch      []string // of cuda: sm_80, sm_90, ... or host, which runs the kernels on the CPU for tests; default sm_80 and sm_90
	Precision string   // fp32 (default), tf32, bf16, fp16
	LossScale float64  // of fp16: a fixed loss scale; 0: dynamic, from 65536

	BucketBytes int  // gradient all-reduce bucket size; default 25 MiB as DDP's, smaller for small models
	Threads     int  // CPU threads per rank; default 1
	Forward     bool // also keep @forward in the program (gtc run --dump-forward)
	Check       bool // only @step, which also returns the model's outputs and the mean gradients (gtc check)
	NoDropout   bool // dropout lets everything through in @step, too: a reference has other random numbers (gtc check)

	Disable   []string // names of passes to skip
	StopAfter string   // name of the last pass to run
	Rewrites  *int     `json:",omitempty"` // only so many of the rewrites that a right program does not need are done (Context.May); nil: all
	DumpDir   string   // GTC_DUMP: write IR and diff of each pass that changed something
}

// GradComm is how gradients are exchanged over dp.
type GradComm struct {
	DType    string  // element type of the messages: f32 (default), bf16, f16
	Compress string  // powersgd, topk, int8, all with error feedback; "" for none
	Rank     int     // of the factors that powersgd sends; default 4
	Fraction float64 // share of the elements that topk sends, above 0 and at most 1; default 0.01
	Period   int     // local SGD: parameters are averaged every so many steps, and gradients are not exchanged; 0 is off
	After    int     // post-local SGD: the first so many steps exchange all gradients, before local SGD begins
}

// Optimizer is the update rule and its hyperparameters. Betas, eps and alpha that are zero mean the defaults of the
// PyTorch optimizer of that name, unless Zero names them.
type Optimizer struct {
	Name        string   // sgd (default), adam, adamw, lion, adagrad, rmsprop, lamb, lars, sparse_adam, rowwise_adagrad
	LR          float64  // learning rate before the schedule
	Momentum    float64  // of sgd, rmsprop and lars; 0 is none
	Dampening   float64  // of sgd's momentum
	Nesterov    bool     // of sgd: Nesterov momentum
	Beta1       float64  // decay of the first moment; at least 0 and below 1
	Beta2       float64  // decay of the second moment; at least 0 and below 1
	Eps         float64  // added to the denominator
	WeightDecay float64  // applied as the optimizer of that name does in PyTorch or its paper; 0 is none
	Alpha       float64  // rmsprop smoothing, default 0.99
	Zero        []string // those of beta1, beta2, eps and alpha that are meant to be zero
	NoDecay     []string // globs of parameters without weight decay; "1d" means all with fewer than 2 dims
}

// Schedule is the learning rate as a function of the step.
type Schedule struct {
	Name   string  // constant (default), linear, cosine, step
	Warmup int     // steps of linear warm-up from 0: lr*(step+1)/warmup
	Steps  int     // of linear and cosine: the step at which they reach MinLR, warm-up included
	MinLR  float64 // of linear and cosine: the learning rate at their end
	Every  int     // of step: the learning rate is multiplied by Gamma every so many steps
	Gamma  float64 // of step
}
