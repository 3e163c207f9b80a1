package mesh

import "slices"

// Collective is an operation of the ranks along an axis, by the name that the IR, plans and messages have for it. The names are those
// of MPI and NCCL.
type Collective string

// What ranks along an axis do together. Programs have the first seven; the rest is what transports do besides.
const (
	AllReduce     Collective = "all_reduce"     // every rank gets the reduction over all
	AllGather     Collective = "all_gather"     // every rank gets the parts of all, in order
	ReduceScatter Collective = "reduce_scatter" // every rank gets its part of the reduction
	AllToAll      Collective = "all_to_all"     // every rank gets one part of each
	Send          Collective = "send"           // to one rank
	Recv          Collective = "recv"           // from one rank
	ShardSlice    Collective = "shard_slice"    // a rank takes its part of what it has: nothing is sent

	Reduce    Collective = "reduce"
	Broadcast Collective = "broadcast"
	Gather    Collective = "gather"
	Scatter   Collective = "scatter"
	Barrier   Collective = "barrier"
)

// Talks reports whether ranks send one another anything.
func (c Collective) Talks() bool { return c != "" && c != ShardSlice }

// Message reports whether one rank sends to one other: only these two take part.
func (c Collective) Message() bool { return c == Send || c == Recv }

// Reduces reports whether what ranks have is combined, by an operator.
func (c Collective) Reduces() bool { return c == AllReduce || c == ReduceScatter || c == Reduce }

// OfPrograms reports whether c is one that programs have: plans are read from files.
func (c Collective) OfPrograms() bool {
	return slices.Contains([]Collective{AllReduce, AllGather, ReduceScatter, AllToAll, Send, Recv, ShardSlice}, c)
}
