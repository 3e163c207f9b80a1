// Package abi is the contract between the compiler and the run-time: what a rank program is made of,
// where its tensors lie, and the gtc.json that describes a compiled folder. Plain data, no imports from
// either tower.
package abi

import "github.com/gtc-compiler/gtc/distributed/mesh"

// Version is the format version of gtc.json and of generated programs. They must agree exactly.
const Version = 2

// Align is the alignment in bytes of every tensor in the arena.
const Align = 64

// OutputPrefix and a number, from 0 on, name the results of a program that are outputs of the model.
const OutputPrefix = "out"

// Weights is the file beside gtc.json with the initial contents of tensors that have an Init.
const Weights = "weights.safetensors"

// ProgramVariable, in the environment of a folder that was compiled with several optimizers, chooses one of them, counted
// from 0: each has Ranks programs, or as many as there are stages, one after the other in Programs.
const ProgramVariable = "GTC_PROGRAM"

// Manifest is gtc.json: the whole plan of a compiled folder.
type Manifest struct {
	Version     int               `json:"version"`
	Gtc         string            `json:"gtc"`   // version of the compiler
	Model       string            `json:"model"` // base name of the ONNX file
	ModelSum    string            `json:"model_sha256"`
	Target      string            `json:"target"`        // as --target has it
	GPU         *GPU              `json:"gpu,omitempty"` // of target cuda
	Mesh        []Axis            `json:"mesh"`
	Ranks       int               `json:"ranks"`
	RankProgram []int             `json:"rank_program"` // rank -> index into Programs
	Programs    []Program         `json:"programs"`
	Train       Train             `json:"train"`
	Outputs     []string          `json:"outputs,omitempty"`  // names in the ONNX file of results out0, out1, …
	Abstract    bool              `json:"abstract,omitempty"` // compiled with --abstract-weights: the weights may lack tensors that have an Init
	Options     map[string]string `json:"options"`            // compile flags as given, for the record
	Files       map[string]string `json:"files,omitempty"`    // hashes of the programs' sources by path; not of the plan in it
}

// Axis is a mesh axis.
type Axis = mesh.Axis

// Train is what the training loop must know of the compiled step.
type Train struct {
	Batch        int     `json:"batch"`      // global batch, samples per optimizer step
	RankBatch    int     `json:"rank_batch"` // samples per rank and micro-batch: Batch = RankBatch*DP*Microbatches
	DP           int     `json:"dp"`
	Microbatches int     `json:"microbatches"`
	Loss         string  `json:"loss"`
	Optimizer    string  `json:"optimizer"`
	LR           float64 `json:"lr"`
	Weighted     bool    `json:"weighted"` // the step takes per-sample weights: 0 for what fills up a batch that is not full
	Tokens       int     `json:"tokens"`   // target elements per sample (sequence length), 1 for plain classification
	Metric       string  `json:"metric"`   // accuracy, perplexity or ""

	// CrossSample tells, by function (step, eval, forward), which node makes a sample depend on others so that what fills up a
	// batch would count, whatever its weight; batches that are not full are then left out. Functions without one are not in it.
	CrossSample map[string]string `json:"cross_sample,omitempty"`

	// Noise tells, by function that infers (eval, forward), which nodes draw random numbers in it. Functions without are not in it.
	Noise map[string]string `json:"noise,omitempty"`
	// SingleValueStatistics is a node that normalises by the statistics of samples which have one value for each channel; nil for none.
	SingleValueStatistics *SingleValueStatistics `json:"single_value_statistics,omitempty"`

	// BatchDims is the dim along which the model has the samples of an input, of the target, or of an output out0, out1, …, where
	// it is not the leading one. In programs it is.
	BatchDims map[string]int `json:"batch_dims,omitempty"`

	// Together says that @eval reads data of role whole: a batch is then evaluated in one call for each micro-batch, which add
	// up; otherwise a call is a batch of its own.
	Together bool `json:"together,omitempty"`

	// Local SGD: every LocalPeriod steps (0: never) @average makes parameters the mean over dp, once LocalAfter steps with
	// all gradients reduced are done; steps after those end with @local instead of @step.
	LocalPeriod int `json:"local_period,omitempty"`
	LocalAfter  int `json:"local_after,omitempty"`
	// Data lists what the model reads from the data, in its order, with the types and dims of a rank's micro-batch, where a
	// function of a program reads but some of it; empty where @step reads all.
	Data []Tensor `json:"data,omitempty"`
}

// SingleValueStatistics is a node of @step that takes statistics of Samples at a time: of one sample alone there is no variance.
type SingleValueStatistics struct {
	Node    string `json:"node"`
	Samples int    `json:"samples"`
}

// Program is one distinct rank program.
type Program struct {
	Package     string         `json:"package"` // Go package name, such as prog0
	Hash        string         `json:"hash"`    // over everything that must agree among ranks
	ArenaBytes  int            `json:"arena_bytes"`
	Segments    map[string]int `json:"segments"` // bytes by kind
	Tensors     []Tensor       `json:"tensors"`  // everything with a fixed place: inputs, params, buffers, state, results, consts
	Funcs       []Func         `json:"funcs"`
	Kernels     int            `json:"kernels"` // distinct generated kernels
	Collectives []Collective   `json:"collectives"`

	// Actions is what a step does, in order; empty: micro for each micro-batch but the last, then step.
	Actions []Action `json:"actions,omitempty"`
	// The stash holds what lives from the forward to the backward action of a micro-batch in flight: Slots copies of
	// StashBytes each from StashStart on. Tensors of role stash, and calls on them, name the place in slot 0.
	Slots      int `json:"slots,omitempty"`
	StashStart int `json:"stash_start,omitempty"`
	StashBytes int `json:"stash_bytes,omitempty"`
}

// Action is one entry of a rank's schedule: a function on a micro-batch.
type Action struct {
	Func  string `json:"func"`  // such as fwd.0, bwd.0, wgrad.0 (of chunk 0), step
	Micro int    `json:"micro"` // the micro-batch whose data it reads
	Slot  int    `json:"slot"`  // the copy of the stash that it works on
}

// Tensor is a tensor with a fixed place in the arena.
type Tensor struct {
	Name      string   `json:"name"` // ONNX name of inputs and parameters; optim/<rule>/<param> for optimizer state
	Role      Role     `json:"role"`
	DType     string   `json:"dtype"`
	Dims      []int    `json:"dims"`                 // of this rank's part
	Global    []int    `json:"global,omitempty"`     // whole tensor, when sharded
	Start     []int    `json:"start,omitempty"`      // this part's origin in the whole, when sharded (per rank: see ShardAxes)
	ShardAxes []string `json:"shard_axes,omitempty"` // per dim: mesh axes that split it, outermost first, joined by commas; "" for none
	Shape     []int    `json:"shape,omitempty"`      // of the whole in files (weights, checkpoints), where the program keeps the same bytes in other dims: some of them taken apart
	Offset    int      `json:"offset"`               // bytes from the start of the arena
	Bytes     int      `json:"bytes"`
	Init      string   `json:"init,omitempty"` // name in weights.safetensors; "" starts as zeros
	Loc       string   `json:"loc,omitempty"`
	// Ahead, of an input, is by how many places the model's own loss compares what it gives with a later one: 1 for labels that
	// it shifts, which are the tokens of the window itself.
	Ahead int `json:"ahead,omitempty"`
	// Frozen says that a buffer never changes and that checkpoints leave it out: the weights below adapters.
	Frozen bool `json:"frozen,omitempty"`
	// PerRank are the mesh axes along which each rank has contents of its own: a checkpoint holds the tensor with a dim in front,
	// an entry for each. Merge says what ranks of another number begin with; none and sum may be missing in a checkpoint.
	PerRank []string `json:"per_rank,omitempty"`
	Merge   string   `json:"merge,omitempty"`
}

// What becomes of a tensor with PerRank when another number of ranks goes on.
const (
	MergeNone = "none" // they begin with zeros
	MergeSum  = "sum"  // the sum over the ranks stays
	MergeMean = "mean" // all begin with the mean over the ranks
)

// Func is one entry point of a program: micro (all micro-batches but the last), step (the last one and the
// update), eval, forward; local and average of local SGD; in a pipeline fwd.V and bwd.V of each chunk V, wgrad.V under zb-h1,
// and step (the update).
type Func struct {
	Name    string   `json:"name"`
	Inputs  []string `json:"inputs"`  // names of Tensors it reads from the data, in the model's order
	Results []Tensor `json:"results"` // named scalars and outputs, with their place: loss_sum, count, correct, out0, …
	Flops   int64    `json:"flops"`
	Ops     int      `json:"ops"`
}

// Collective is one mesh operation, in program order.
type Collective struct {
	Func    string          `json:"func"`
	Kind    mesh.Collective `json:"kind"` // none that is not sent
	Axis    string          `json:"axis"`
	Peer    int             `json:"peer,omitempty"` // coordinate on Axis of the other side of a send or recv
	Op      string          `json:"op"`             // sum, max, …
	DType   string          `json:"dtype"`
	Bytes   int             `json:"bytes"`
	Tensors []string        `json:"tensors"`
	Loc     string          `json:"loc"`
	Why     string          `json:"why,omitempty"`
}
