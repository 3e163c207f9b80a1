// Package pass holds what every pass sees: the module, the options, the facts that passes need and make,
// and the remarks they leave. It names no pass.
package pass

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Prop is a set of facts about the module, made by one pass, needed by later ones, and cleared by those behind which it may no
// longer hold.
type Prop uint32

// The facts, in the order in which the pipeline makes them.
const (
	Typed     Prop = 1 << iota // the importer's promise: verified, one function, @forward
	Core                       // shapes folded, core ops only
	HasLoss                    // @step computes loss_sum and count, @eval the loss and its metrics
	HasGrad                    // @step gives the gradients of loss_sum
	HasUpdate                  // @step updates parameters and optimizer state
	Cast                       // precision decided
	Staged                     // pipeline stages cut
	Sharded                    // every value has a sharding
	Local                      // per-rank shapes, explicit collectives
	Ordered                    // the op order is the execution order, collectives bucketed
	Grouped                    // every op belongs to a kernel group
	Scheduled                  // every function has its calls: order, streams, waits
	Planned                    // every value has an arena offset
)

var propNames = [...]string{"Typed", "Core", "HasLoss", "HasGrad", "HasUpdate", "Cast", "Staged", "Sharded",
	"Local", "Ordered", "Grouped", "Scheduled", "Planned"}

// String names the facts, such as "Core+HasLoss".
func (p Prop) String() string {
	var names []string
	for ; p != 0; p &= p - 1 {
		names = append(names, propNames[bits.TrailingZeros32(uint32(p))])
	}
	return strings.Join(names, "+")
}

// Pass is one row of the pipeline table.
type Pass struct {
	Name   string               // as --disable, --stop-after and remarks have it
	Run    func(*Context) error // changes Context.Module
	Needs  Prop                 // facts that must hold before it
	Makes  Prop                 // facts that hold after it
	Clears Prop                 // facts that may not hold after it, whether they held before or not
	After  []string             // passes that must run before it although no fact says so, because of what options let them do
	Before []string             // passes that must run after it for the same reason
	Why    string               // why it has this place in the order, for "gtc opt" and the documents
}

// Context is what a pass works on. As JSON it is the facts that are not in the modules' text: what one pass tells another.
type Context struct {
	Module  *ir.Module `json:"-"`
	Opt     *Options   `json:"-"`
	Pass    string     `json:"-"` // name of the running pass, set by the driver
	Remarks []Remark   `json:"-"`
	Times   []Time     `json:"-"` // one per row that the driver came to
	Plan    Plan       // made by memplan

	// Adapters are those that weights have been given, in the order of the parameters. Made by lora.
	Adapters []Adapter `json:",omitempty"`

	// FileDims has, by name of a parameter, its dims in files (weights, checkpoints) where the program keeps the same bytes under
	// other dims, as unstack makes it. Optimizer state has the dims of its parameter, in files as in programs.
	FileDims map[string][]int

	// Loss is what the model is trained on: Options.Loss, or graph where that leaves it open and the model's only output is a scalar.
	// Made by trainstep.
	Loss string

	// Stages are the programs of the pipeline's stages, made by the stage pass out of Module; later passes run on each
	// of them. Nil without a pipeline: then Module is the one program. See Programs.
	Stages []*Context `json:"-"`
	// Actions is what the ranks of this program do in a step, in order; nil: @micro for each micro-batch but the last,
	// then @step.
	Actions []abi.Action
	// CrossSample tells, by function, which node makes a sample depend on others in a way that samples which fill up a batch would
	// count; functions in which none does are not in it.
	CrossSample map[string]string
	// Noise tells, by function that infers (eval, forward), which nodes draw random numbers in it; functions without are not in it.
	Noise map[string]string
	// Larger gives the model as passes have left it before trainstep, for a batch so many times as large; nil where no other batch
	// is possible.
	Larger func(times int) (*ir.Func, error) `json:"-"`
	// Sized gives the model for a batch of that many samples as it was imported, before any pass; nil where Larger is.
	Sized func(batch int) (*ir.Func, error) `json:"-"`
	// Large are the values that stay ops on constants because those have too many elements, by name: see Unfolded.
	Large map[string]bool `json:"-"`
	// Like is the context of the same model with another batch, which has been through the passes at hand; nil for none.
	Like *Context `json:"-"`
	// SingleValueStatistics is the first node that normalises by samples which have one value for each channel; nil for none.
	SingleValueStatistics *abi.SingleValueStatistics
	// BatchDims is the dim along which the model has the samples of an input, of the target, or of an output out0, out1, …, where
	// it is not the leading one, as it is in the program. Made by trainstep.
	BatchDims map[string]int
	// BatchHint are flags that a refusal of samples which meet may name: with them none would. Made by trainstep.
	BatchHint string
	Slots     int // copies of the stash: micro-batches in flight at once; 0 without a stash

	// Watch, unless nil, is called by the driver behind each row of the table that it ran; its error ends the run.
	Watch func(p Pass) error `json:"-"`
	// Asked counts the rewrites that passes asked May for. The driver has all programs of a compilation share one.
	Asked *Asked `json:"-"`
}

// SetFileDims notes the dims of a parameter in files; the first call for a name counts.
func (c *Context) SetFileDims(name string, dims []int) {
	if c.FileDims == nil {
		c.FileDims = map[string][]int{}
	}
	if c.FileDims[name] == nil {
		c.FileDims[name] = dims
	}
}

// SetCrossSample notes where samples meet in a function.
func (c *Context) SetCrossSample(function, text string) {
	if c.CrossSample == nil {
		c.CrossSample = map[string]string{}
	}
	c.CrossSample[function] = text
}

// Unfolded reports whether v stays an op on constants: where these are large, or where they were in the context that c is like. Passes
// do the same to the same model, so that its values have the same names.
func (c *Context) Unfolded(v *ir.Value, large bool) bool {
	if c.Like != nil {
		return c.Like.Large[v.Name]
	}
	if large {
		if c.Large == nil {
			c.Large = map[string]bool{}
		}
		c.Large[v.Name] = true
	}
	return large
}

// SetNoise notes which nodes draw random numbers in a function that infers.
func (c *Context) SetNoise(function, nodes string) {
	if c.Noise == nil {
		c.Noise = map[string]string{}
	}
	c.Noise[function] = nodes
}

// Programs are the contexts whose modules ranks run, by coordinate on the axis pp: the stages', or c itself.
func (c *Context) Programs() []*Context {
	if len(c.Stages) > 0 {
		return c.Stages
	}
	return []*Context{c}
}

// Time is how long one row of the pipeline took.
type Time struct {
	Pass    string
	Took    time.Duration // of the pass itself, without the verification of its result
	Skipped bool          // the row was disabled
}

// Plan is what memplan decides beyond the offsets of values.
type Plan struct {
	ArenaBytes int               // size of the one arena, bytes
	StashStart int               // offset in the arena of the first slot of the stash
	StashBytes int               // size of one slot, bytes; Context.Slots of them follow each other
	Workspace  int               // offset in the arena of the scratch area that templates share
	WorkBytes  int               // its size, bytes
	HostBytes  int               // size of host storage, bytes; 0 where nothing is offloaded
	Segments   map[string]int    // bytes by kind: params, buffers, state, grads, activations, inputs, workspace
	Copies     map[string][]Copy // per function: copies to make when it ends, for updates that could not be made in place
}

// Copy moves Bytes from one arena offset to another.
type Copy = abi.Copy

// Remark is "did, or did not do, X to value V because Y".
type Remark struct {
	Pass  string // that made it
	Value string // name of the value that it is about; "" when it is about none
	Text  string // a sentence whose subject is the value
}

// String prints as in tests: "fuse: %t joins softmax".
func (r Remark) String() string {
	if r.Value == "" {
		return r.Pass + ": " + r.Text
	}
	return fmt.Sprintf("%s: %%%s %s", r.Pass, r.Value, r.Text)
}

// Remark records one; v may be nil.
func (c *Context) Remark(v *ir.Value, format string, args ...any) {
	r := Remark{Pass: c.Pass, Text: fmt.Sprintf(format, args...)}
	if v != nil {
		r.Value = v.Name
	}
	c.Remarks = append(c.Remarks, r)
}

// Loc derives the location of an op made by the running pass for one at l.
func (c *Context) Loc(l ir.Loc) ir.Loc { return l.Derive(c.Pass) }
