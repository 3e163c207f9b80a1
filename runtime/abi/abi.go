// Package abi is the contract between the compiler and the run-time: what a rank program is made of,
// where its tensors lie, and the gtc.json that describes a compiled folder. Plain data, no imports from
// either tower.
package abi

import "github.com/gtc-compiler/gtc/distributed/mesh"

// Version is the format version of gtc.json and of generated programs. They must agree exactly.
const Version = 2

// Align is the alignment in bytes of every tensor in the arena.
const Align = 64

// HostAlign is the alignment in bytes of every tensor in host storage: that of files which are read and written past the system's cache.
const HostAlign = 4096

// OutputPrefix and a number, from 0 on, name the results of a program that are outputs of the model.
const OutputPrefix = "out"

// Weights is the file beside gtc.json with the initial contents of tensors that have an Init.
const Weights = "weights.safetensors"

// ProgramVariable, in the environment of a folder that was compiled with several optimizers, chooses one of them, counted
// from 0: each has Ranks programs, or as many as there are stages, one after the other in Programs.
const ProgramVariable = "GTC_PROGRAM"

// Manifest is gtc.json: the whole plan of a compiled folder.
type Manifest struct {
	Version     int               `json:"version"`            // of the format: Version when it was written
	Gtc         string            `json:"gtc"`                // version of the compiler
	Model       string            `json:"model"`              // base name of the ONNX file
	ModelSum    string            `json:"model_sha256"`       // SHA-256 of that file, in hexadecimal digits
	Target      string            `json:"target"`             // cpu, cuda or ref, as --target has it
	GPU         *GPU              `json:"gpu,omitempty"`      // the kernels of target cuda; nil for the others
	Mesh        []Axis            `json:"mesh"`               // outermost first; ranks are numbered row-major over all axes but the micro-batches
	Ranks       int               `json:"ranks"`              // processes of a job
	RankProgram []int             `json:"rank_program"`       // for each rank the index of its program in Programs
	Programs    []Program         `json:"programs"`           // one for each stage of the pipeline; that many for each optimizer (ProgramVariable)
	Train       Train             `json:"train"`              // what the training loop must know
	Outputs     []string          `json:"outputs,omitempty"`  // names in the ONNX file of results out0, out1, …
	Abstract    bool              `json:"abstract,omitempty"` // compiled with --abstract-weights: the weights may lack tensors that have an Init
	Options     map[string]string `json:"options"`            // compile flags as given, for the record
	Files       map[string]string `json:"files,omitempty"`    // hashes of the programs' sources by path; not of the plan in it
}

// Axis is a mesh axis.
type Axis = mesh.Axis

// Train is what the training loop must know of the compiled step.
type Train struct {
	Batch        int     `json:"batch"`        // global batch, samples per optimizer step
	RankBatch    int     `json:"rank_batch"`   // samples per rank and micro-batch: Batch = RankBatch*DP*Microbatches
	DP           int     `json:"dp"`           // ranks that share the batch (--dp), at least 1
	Microbatches int     `json:"microbatches"` // of a step, at least 1
	Loss         string  `json:"loss"`         // as --loss names it
	Optimizer    string  `json:"optimizer"`    // as --optimizer names it
	LR           float64 `json:"lr"`           // as --lr gives it, before the schedule
	Weighted     bool    `json:"weighted"`     // the step takes per-sample weights: 0 for what fills up a batch that is not full
	Tokens       int     `json:"tokens"`       // target elements per sample (sequence length), 1 for plain classification
	Metric       string  `json:"metric"`       // accuracy, perplexity or ""

	// CrossSample tells, by function (step, eval, forward), which node makes a sample depend on others so that padding of
	// a batch that is not full would change results, whatever its weight; such batches are then left out. A function in which
	// samples are independent is not in it.
	CrossSample map[string]string `json:"cross_sample,omitempty"`

	// Noise has, for a function that infers (eval, forward), the nodes that draw random numbers in it, for messages. A function that
	// draws none is not in it.
	Noise map[string]string `json:"noise,omitempty"`
	// SingleValueStatistics is a node that normalises by the statistics of samples which have one value for each channel; nil for none.
	SingleValueStatistics *SingleValueStatistics `json:"single_value_statistics,omitempty"`

	// BatchDims has, by name of an input, of the target, or of an output (out0, out1, …), the dimension along which the ONNX model
	// has its samples, where that is not dimension 0. In programs samples always lie along dimension 0.
	BatchDims map[string]int `json:"batch_dims,omitempty"`

	// Together says that @eval needs the data of all micro-batches in each of them (role whole): it is called once for each
	// micro-batch of a batch, and the results are added up. Otherwise each call evaluates a batch by itself.
	Together bool `json:"together,omitempty"`

	// Local SGD (--local-sgd, --post-local-sgd): the first LocalAfter steps reduce all gradients. Steps after them end with @local
	// instead of @step, and every LocalPeriod steps @average makes parameters the mean over dp. A LocalPeriod of 0: no local SGD.
	LocalPeriod int `json:"local_period,omitempty"`
	LocalAfter  int `json:"local_after,omitempty"`
	// Data lists all that the model reads from the data set, in its order, with the types and dims of one rank's micro-batch. It is
	// there when a program reads only some of it, as stages of a pipeline do; empty where @step reads all.
	Data []Tensor `json:"data,omitempty"`
}

// SingleValueStatistics is a node of @step that takes statistics of Samples at a time: of one sample alone there is no variance.
type SingleValueStatistics struct {
	Node    string `json:"node"`
	Samples int    `json:"samples"`
}

// Program is one distinct rank program.
type Program struct {
	Package     string         `json:"package"`              // Go package name, such as prog0
	Hash        string         `json:"hash"`                 // over everything that must agree among ranks
	ArenaBytes  int            `json:"arena_bytes"`          // size of the one block of memory that a rank works in
	HostBytes   int            `json:"host_bytes,omitempty"` // size of the host storage that a rank offloads to; 0 for none
	Segments    map[string]int `json:"segments"`             // bytes of the arena by what they hold: params, buffers, state, activations, …
	Tensors     []Tensor       `json:"tensors"`              // everything with a fixed place: inputs, params, buffers, state, results, consts
	Funcs       []Func         `json:"funcs"`                // what can be called
	Kernels     int            `json:"kernels"`              // distinct generated kernels
	Collectives []Collective   `json:"collectives"`          // of all functions, in program order

	// Actions is what a step does, in order. Empty: @micro for each micro-batch but the last, then @step for the last.
	Actions []Action `json:"actions,omitempty"`
	// The stash, of a stage of a pipeline, keeps activations from the forward action of a micro-batch to its backward action. It has
	// Slots copies (0: there is no stash) of StashBytes bytes each, from byte StashStart of the arena on. Tensors of role stash,
	// and calls that work on them, give their offsets in the first copy, slot 0.
	Slots      int `json:"slots,omitempty"`
	StashStart int `json:"stash_start,omitempty"`
	StashBytes int `json:"stash_bytes,omitempty"`
}

// Action is one entry of a rank's schedule: a function on a micro-batch.
type Action struct {
	Func  string `json:"func"`  // a name in Funcs, such as fwd.0, bwd.0, wgrad.0 (of chunk 0), step
	Micro int    `json:"micro"` // the micro-batch of the step whose data it reads, from 0
	Slot  int    `json:"slot"`  // the copy of the stash that it works on, from 0 to Slots-1
}

// Tensor is a tensor with a fixed place in the arena.
type Tensor struct {
	Name      string   `json:"name"` // ONNX name of inputs and parameters; optim/<rule>/<param> for optimizer state
	Role      Role     `json:"role"`
	DType     string   `json:"dtype"`                // f32, bf16, f16, i64, bool, …
	Dims      []int    `json:"dims"`                 // of this rank's part
	Global    []int    `json:"global,omitempty"`     // dims of the whole tensor, when ranks hold parts; nil: Dims are the whole
	Start     []int    `json:"start,omitempty"`      // this part's origin in the whole, when sharded (per rank: see ShardAxes)
	ShardAxes []string `json:"shard_axes,omitempty"` // per dim: mesh axes that split it, outermost first, joined by commas; "" for none
	Shape     []int    `json:"shape,omitempty"`      // of the whole in files (weights, checkpoints), where the program keeps the same bytes in other dims: some of them taken apart
	Offset    int      `json:"offset"`               // bytes from the start of the arena
	Bytes     int      `json:"bytes"`                // of this rank's part
	Init      string   `json:"init,omitempty"`       // name in weights.safetensors; "" starts as zeros
	Loc       string   `json:"loc,omitempty"`        // node and source line of the model, for messages; "" when none is known
	// Ahead, of an input of labels, is by how many tokens the model's own loss shifts them: 1 where it compares the prediction at
	// token t with label t+1, so that the labels given are the tokens themselves; 0 where it shifts nothing.
	Ahead int `json:"ahead,omitempty"`
	// Frozen says that a buffer never changes and that checkpoints leave it out: the weights below adapters.
	Frozen bool `json:"frozen,omitempty"`
	// PerRank are the mesh axes along which each rank keeps contents that differ from the others', as errors of compression do:
	// a checkpoint then holds the tensor with one more dimension in front, an entry for each of these ranks. Merge (MergeNone, …)
	// says what they begin with when the number of ranks has changed; "" where there are no such axes. Of MergeNone and MergeSum
	// the tensor may be missing in a checkpoint.
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
	Flops   int64    `json:"flops"`   // floating-point operations of one call on one rank, estimated
	Ops     int      `json:"ops"`     // ops of the IR that it was compiled from
}

// Collective is one mesh operation, in program order.
type Collective struct {
	Func    string          `json:"func"`           // the function that does it
	Kind    mesh.Collective `json:"kind"`           // none that is not sent
	Axis    string          `json:"axis"`           // mesh axis whose ranks take part
	Peer    int             `json:"peer,omitempty"` // coordinate on Axis of the other side of a send or recv; 0 for other kinds
	Op      string          `json:"op"`             // how values are combined: sum, max, …; "" where they are only moved
	DType   string          `json:"dtype"`          // element type of all Tensors
	Bytes   int             `json:"bytes"`          // of its results, from the first to the end of the last; of a send, of what it sends
	Tensors []string        `json:"tensors"`        // names, in the order in which they are joined in one message
	Loc     string          `json:"loc"`            // node and source line of the model that it serves
	Why     string          `json:"why,omitempty"`  // what it is for, in words
}
