package comm

import (
	"fmt"

	"github.com/gtc-compiler/gtc/distributed/comm/internal/elem"
	"github.com/gtc-compiler/gtc/distributed/mesh"
)

// DType is an element type of a buffer.
type DType = elem.DType

// Element types. F16 and BF16 are summed in f32 and rounded once, to nearest
// even. Types that are only moved (fp8, bool) can be passed as U8.
const (
	F32  = elem.F32
	F64  = elem.F64
	F16  = elem.F16
	BF16 = elem.BF16
	I8   = elem.I8
	I16  = elem.I16
	I32  = elem.I32
	I64  = elem.I64
	U8   = elem.U8
	U16  = elem.U16
	U32  = elem.U32
	U64  = elem.U64
)

// ReduceOp is how elements of several ranks become one.
type ReduceOp = elem.ReduceOp

// Reductions. Max and Min of floating types give NaN when any rank has one.
// Avg is the sum divided by the number of ranks, for floating types only.
const (
	Sum  = elem.Sum
	Max  = elem.Max
	Min  = elem.Min
	Prod = elem.Prod
	Avg  = elem.Avg
)

// Op is the kind of call; it travels in headers, so its values are part of
// the protocol version.
type Op uint8

// Operations, by the method of Communicator that issues them.
const (
	OpAllReduce Op = iota
	OpReduce
	OpBroadcast
	OpAllGather
	OpReduceScatter
	OpAllToAll
	OpGather
	OpScatter
	OpSend
	OpRecv
	OpBarrier
	numOpcodes
)

var opNames = [numOpcodes]mesh.Collective{
	mesh.AllReduce, mesh.Reduce, mesh.Broadcast, mesh.AllGather, mesh.ReduceScatter,
	mesh.AllToAll, mesh.Gather, mesh.Scatter, mesh.Send, mesh.Recv, mesh.Barrier,
}

// String is the operation's name, such as all_reduce.
func (o Op) String() string {
	if o >= numOpcodes {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return string(opNames[o])
}

func (o Op) reduces() bool {
	return o == OpAllReduce || o == OpReduce || o == OpReduceScatter
}

func (o Op) rooted() bool {
	return o == OpReduce || o == OpBroadcast || o == OpGather || o == OpScatter
}
