// Package comm is how the ranks of one job exchange tensors. Its own backend,
// `local`, has ranks of one host share memory, and ranks of different hosts use
// TCP; it needs the standard library only, because it is vendored into every
// compiled program. Others (mpi and nccl below this folder) are a [Driver].
//
// Three properties hold for every backend and are what the tests check:
//
//   - Results are the same bits on every rank, in every run and over every
//     transport: each element is summed in a pairwise tree over the ranks in
//     their order, ((0+1)+(2+3))+4 for five.
//   - A dead, hung or mismatching peer becomes an [*Error] on every surviving
//     rank, naming the rank, the collective, the tensor and its source line.
//     No call waits longer than [Options].Timeout without progress.
//   - A call allocates nothing in steady state.
//
// After the first error a job is over: every later call returns that error.
package comm

import (
	"io"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm/internal/elem"
)

// Site is the place in the user's program that a collective serves. It is
// static data of the generated program and must not change while in use.
// Members of a group must agree on Tensor; Loc and Collective are for people.
type Site struct {
	Collective string // how errors call it; empty means the name of the operation
	Tensor     string // name of the value that is exchanged
	Loc        string // source line, such as "model.py:41"; may be empty
}

// Communicator is one rank's view of a group of ranks.
//
// Buffers are byte views of memory that the caller owns; they must be aligned
// to the element size and hold a whole number of elements. A call returns when
// the caller may reuse all its buffers. At most one goroutine at a time may be
// in a collective of one communicator; a Send, a Recv and a collective may be
// in progress together, as may calls on different communicators.
//
// Every member must make the same collective calls in the same order with the
// same operation, dtype, size, root and Site.Tensor; a difference is detected
// and reported on all ranks.
//
// Errors are *Error values. Bad arguments end the job as a dead peer does,
// since the other ranks cannot go on either.
type Communicator interface {
	// Rank is this process's place in the group, from 0.
	Rank() int
	// Size is the number of ranks in the group.
	Size() int
	// Sub makes a communicator of the given ranks of this group, whose order
	// gives their new rank. Every listed rank must call it, with the same
	// arguments and in the same order as its other Sub calls; other ranks may
	// call it too and get nil, nil. The result may be used at the same time as
	// its parent.
	Sub(name string, ranks []int) (Communicator, error)
	// Close leaves the group. Closing the communicator that Connect returned
	// ends this rank's part in the job without making it look dead, and closes
	// those made by Sub.
	Close() error
	// Abort ends the job: every rank's present or next call fails and shows
	// reason and this rank's number.
	Abort(reason string)

	// AllReduce combines buf over the ranks, element by element, in place.
	AllReduce(s *Site, buf []byte, dt DType, op ReduceOp) error
	// Reduce combines buf over the ranks into root's buf; the others' bufs
	// are left as they are.
	Reduce(s *Site, buf []byte, dt DType, op ReduceOp, root int) error
	// Broadcast copies root's buf to every rank's.
	Broadcast(s *Site, buf []byte, dt DType, root int) error
	// AllGather sets block r of dst (Size() blocks) to rank r's src. src may be
	// this rank's own block of dst.
	AllGather(s *Site, dst, src []byte, dt DType) error
	// ReduceScatter combines src (Size() blocks) over the ranks and leaves
	// block Rank() of the result in dst, which may be that block of src.
	ReduceScatter(s *Site, dst, src []byte, dt DType, op ReduceOp) error
	// AllToAll sends block r of src to rank r and sets block r of dst to what
	// rank r sent. dst and src must not overlap.
	AllToAll(s *Site, dst, src []byte, dt DType) error
	// Gather sets block r of root's dst to rank r's src; other ranks' dst is
	// not used. src may be root's own block of dst.
	Gather(s *Site, dst, src []byte, dt DType, root int) error
	// Scatter sets each rank r's dst to block r of root's src; other ranks'
	// src is not used. dst may be root's own block of src.
	Scatter(s *Site, dst, src []byte, dt DType, root int) error
	// Send passes buf to rank to, whose Recv calls take messages from one
	// sender in order. It may return before or after the peer receives.
	Send(s *Site, buf []byte, dt DType, to int) error
	// Recv fills buf with the next message of rank from, which must have the
	// same size, dtype and tensor name.
	Recv(s *Site, buf []byte, dt DType, from int) error
	// Barrier returns when every rank has called it.
	Barrier(s *Site) error
}

// Transport names accepted by Options.Transport and GTC_COMM.
const (
	TransportAuto = "auto" // shared memory within a host, TCP between hosts
	TransportShm  = "shm"  // shared memory, or an error where it cannot be had
	TransportTCP  = "tcp"  // TCP even within a host
)

// ExitPeerLost is the exit code of a program that stopped only because another
// rank died, hung, left or aborted; the launcher looks for a better culprit.
const ExitPeerLost = 3

// Options says how a rank finds and trusts its peers. FromEnv fills it from the
// environment; zero durations take the defaults.
type Options struct {
	Rank, World, LocalRank int

	Addr string // host of rank 0, default 127.0.0.1; must be loopback unless Token is set
	Port int    // TCP port of rank 0
	// ListenFD, when positive, is an already listening socket for Addr:Port
	// that rank 0 takes over from its launcher, so that no port can be lost.
	ListenFD int
	// Token is the job's shared secret, proved by HMAC and never sent. It is
	// required for any address but loopback.
	Token string

	Timeout        time.Duration // longest wait without progress; default 30 s
	ConnectTimeout time.Duration // longest wait for all ranks to appear; default 60 s
	Transport      string        // "", auto, shm, tcp or the name of a Backend; rank 0's choice holds for all
	Algorithm      string        // "", auto, direct, halving or ring, over TCP; rank 0's choice holds for all
	Log            io.Writer     // gets a line for each way in which a group does an operation; nil: no lines
	Plan           string        // hash of the compiled plan; must be equal on all ranks
	ShmDir         string        // folder for shared memory; default /dev/shm, else os.TempDir
}

const (
	defaultTimeout        = 30 * time.Second
	defaultConnectTimeout = 60 * time.Second
	// maxWorld bounds what a hello message may claim.
	maxWorld = 1 << elem.MaxDepth
)

func (o *Options) fill() {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = defaultConnectTimeout
	}
	if o.World <= 0 {
		o.World = 1
	}
	if o.Addr == "" {
		o.Addr = "127.0.0.1"
	}
	if o.Transport == "" {
		o.Transport = TransportAuto
	}
	if o.Algorithm == "" {
		o.Algorithm = AlgorithmAuto
	}
}
