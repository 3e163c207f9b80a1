package comm

import (
	"fmt"
	"io"
	"math/bits"
	"slices"
)

// algorithm is how a backend moves the data of a collective. All give the same
// bits: which ranks' values are added in which order is the tree of elem.Reduce,
// whoever adds them.
//
//	shared    all members stage pieces in shared memory, in lockstep
//	direct    everything goes from each rank to each that needs it, in one
//	          round; of small all_reduces every rank sums everything, of large
//	          ones its part, which it then sends to all
//	halving   recursive halving and doubling (Thakur, Rabenseifner, Gropp, 2005):
//	          log2 n rounds with one peer each, which halve what a rank answers
//	          for while sums double, then the same backwards. The peer of round k
//	          differs in bit k, so that sums come about as in the tree. For
//	          powers of two, and not for types that are rounded after the sum.
//	ring      each rank passes on to the next what came from the one before
//
// direct and the others move the same bytes; direct has the fewest rounds, and
// n-1 peers that send to a rank at once, which overflows the buffers of a
// network's switches when they are many and the data is large.
type algorithm uint8

const (
	algDirect algorithm = iota
	algHalving
	algRing
	algShared
	numAlgorithms
)

var algorithmNames = [numAlgorithms]string{"direct", "halving", "ring", "shared"}

func (a algorithm) String() string { return algorithmNames[a] }

// AlgorithmAuto and the others are the values of Options.Algorithm and
// GTC_COMM_ALGORITHM.
const (
	AlgorithmAuto    = "auto"
	AlgorithmDirect  = "direct"
	AlgorithmHalving = "halving"
	AlgorithmRing    = "ring"
)

var algorithmChoices = []string{AlgorithmAuto, AlgorithmDirect, AlgorithmHalving, AlgorithmRing}

const (
	// crowd is the number of ranks from which on large data no longer goes to
	// all at once.
	crowd = 8
	// crowdBytes is what counts as large then, of the whole buffer.
	crowdBytes = 256 << 10
)

// choose is the algorithm of call c between n ranks over TCP. It depends only
// on what members agree on.
func (w *world) choose(c *call, n int) algorithm {
	size := len(c.dst)
	wish := w.opt.Algorithm
	large := n >= crowd && size >= crowdBytes
	canHalve := n > 2 && bits.OnesCount(uint(n)) == 1 && c.dt != F16 && c.dt != BF16 && size >= n*64
	switch {
	case wish == AlgorithmDirect:
	case c.op == OpAllReduce && canHalve && (wish == AlgorithmHalving || wish == AlgorithmAuto && n >= crowd):
		return algHalving
	case (c.op == OpAllReduce && size > tcpSmall || c.op == OpAllGather) && n > 2 && (wish == AlgorithmRing || wish == AlgorithmAuto && large):
		return algRing
	}
	return algDirect
}

// note tells w.opt.Log, once for each kind of choice of a group, how calls are
// done.
func (g *group) note(c *call, a algorithm) {
	if g.w.opt.Log == nil || c.op == OpSend || c.op == OpRecv || g.noted[c.op][a] {
		return
	}
	g.noted[c.op][a] = true
	how := "tcp"
	switch {
	case g.w.mem != nil:
		how = "memory of one process"
	case a == algShared:
		how = "shared memory"
	}
	fmt.Fprintf(g.w.opt.Log, "comm: rank %d, group %q of %d ranks: %s of %d bytes by %s, over %s\n",
		g.w.rank, g.name, len(g.ranks), c.op, c.bytes(), a, how)
}

// logTo is where FromEnv sends GTC_DEBUG's lines.
func (o *Options) logTo(level string, to io.Writer) {
	if level >= "1" {
		o.Log = to
	}
}

func (o *Options) knownAlgorithm() bool { return slices.Contains(algorithmChoices, o.Algorithm) }
