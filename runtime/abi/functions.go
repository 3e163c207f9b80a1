package abi

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/schedule"
)

// Names of the functions of a program. A pipeline has others in place of micro: see ChunkFunc.
const (
	FuncMicro   = "micro"   // one micro-batch, accumulating
	FuncStep    = "step"    // the last micro-batch, the collectives and the update
	FuncEval    = "eval"    // loss_sum, count and correct of a batch, nothing updated
	FuncForward = "forward" // the model's outputs
	FuncLocal   = "local"   // step of local SGD, when step is that of plain data parallelism
	FuncAverage = "average" // makes parameters the mean over the data-parallel ranks
)

// chunkFuncs begin the names of functions of a pipeline's stage by what they do, and are followed by a dot and the chunk.
var chunkFuncs = map[schedule.Kind]string{schedule.F: "fwd", schedule.B: "bwd", schedule.W: "wgrad"}

// ChunkFunc is the function that does what an action of kind k does with a chunk: fwd.0, bwd.0 or wgrad.0 of chunk 0.
func ChunkFunc(k schedule.Kind, chunk int) string { return chunkFuncs[k] + "." + strconv.Itoa(chunk) }

// ParseChunkFunc takes the name of such a function apart; false when it is another's.
func ParseChunkFunc(name string) (k schedule.Kind, chunk int, ok bool) {
	what, number, _ := strings.Cut(name, ".")
	chunk, err := strconv.Atoi(number)
	for kind, begin := range chunkFuncs {
		if what == begin && err == nil && ChunkFunc(kind, chunk) == name && chunk >= 0 {
			return kind, chunk, true
		}
	}
	return 0, 0, false
}

const mergeFunc = "merge."

// MergeFunc is the function that adds up the sums of micro-batches in a tree, behind function f of a micro-batch that completes that
// many levels of it.
func MergeFunc(f string, levels int) string { return fmt.Sprintf("%s%s.%d", mergeFunc, f, levels) }

// IsMergeFunc reports whether a function is such a one.
func IsMergeFunc(name string) bool { return strings.HasPrefix(name, mergeFunc) }
