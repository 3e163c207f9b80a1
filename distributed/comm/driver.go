package comm

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm/internal/elem"
)

// Driver moves the bytes of one group by another library. The communicator
// around it checks arguments, keeps the list of recent calls and makes *Error
// values; calls reach the driver as Communicator allows: one collective, one
// Send to each rank and one Recv from each rank may be in progress together.
//
// What it need not do is compare the ranks' calls with each other: that all
// ranks make the same ones is proved when they are compiled, and Connect
// compares the plans.
type Driver interface {
	// Do carries out a call. Its error may be a *Fault; any other is taken for
	// the death of this rank.
	Do(c *Call) error
	// Sub makes the driver of some ranks of this group, this one among them.
	// All of them call it, and no others.
	Sub(ranks []int) (Driver, error)
	// Abort makes calls in progress return soon with an error, and the other
	// ranks end, at the latest when this process does.
	Abort(reason string)
	// Close ends a group in good order; of the first group, the job.
	Close() error
}

// Call is one operation that a Driver carries out; see Communicator for what
// the buffers are. It is only valid during Do.
type Call struct {
	Op       Op
	DType    DType
	Reduce   ReduceOp
	Root     int // of rooted operations, as rank of the group; the peer of Send and Recv
	Dst, Src []byte
}

// Fault is a Driver's error of which the kind and the rank at fault are known.
type Fault struct {
	Kind   Kind
	Rank   int  // in the group
	World  bool // Rank is that in the job instead
	Detail string
}

// Error is the detail.
func (f *Fault) Error() string { return f.Detail }

// Backend is a library that a package brings in.
type Backend struct {
	Name string // as in Options.Transport and GTC_COMM
	// Here reports whether this process was started by the library's launcher,
	// so that TransportAuto means it.
	Here func() bool
	// Open joins the job. The result is the group of all ranks, in which this
	// one must have the rank that the options say.
	Open func(Options) (Driver, error)
}

var backends []Backend

// Register makes a backend known; packages call it from init.
func Register(b Backend) { backends = append(backends, b) }

// backend is the one that o asks for, or nil for local.
func (o *Options) backend() *Backend {
	for i := range backends {
		b := &backends[i]
		if o.Transport == b.Name || o.Transport == TransportAuto && b.Here != nil && b.Here() {
			return b
		}
	}
	return nil
}

var localTransports = []string{TransportAuto, TransportShm, TransportTCP}

func (o *Options) knownTransport() bool {
	return slices.Contains(localTransports, o.Transport) || o.backend() != nil
}

func (o *Options) unknownTransport() error {
	if o.Transport == "mpi" {
		return errors.New("this program was built without MPI: compile with --comm mpi, or build with CC=mpicc go build -tags mpi (GTC_COMM=mpi)")
	}
	names := slices.Clone(localTransports)
	for _, b := range backends {
		names = append(names, b.Name)
	}
	return fmt.Errorf("transport %q (GTC_COMM) is not one of %s", o.Transport, strings.Join(names, ", "))
}

// planSize is how much of each rank's plan hash is compared.
const planSize = 64

// drive is Connect by way of b.
func (w *world) drive(b *Backend) error {
	d, err := b.Open(w.opt)
	if err != nil {
		return err
	}
	w.driver = true
	w.root.be = newDriven(w.root, d)
	mine, all := make([]byte, planSize), make([]byte, planSize*w.size)
	copy(mine, w.opt.Plan)
	if err := d.Do(&Call{Op: OpAllGather, DType: U8, Dst: all, Src: mine}); err != nil {
		return err
	}
	for r := range w.size {
		if plan := all[r*planSize:][:planSize]; !bytes.Equal(plan, mine) {
			return fmt.Errorf("programs differ: rank %d runs plan %q, rank %d runs plan %q: all ranks must come from one gtc compile and get the same flags",
				r, bytes.TrimRight(plan, "\x00"), w.rank, w.opt.Plan)
		}
	}
	if w.opt.Log != nil {
		fmt.Fprintf(w.opt.Log, "comm: rank %d of %d: collectives by %s\n", w.rank, w.size, b.Name)
	}
	return nil
}

// formDriven gives s, of which ranks are the members as ranks of g, its driver.
func (g *group) formDriven(s *group, ranks []int, site *Site) error {
	d, err := g.be.(*driven).d.Sub(ranks)
	if err != nil {
		f := g.w.fail(g.be.(*driven).failure(err))
		return g.w.errorFor(&call{op: OpBarrier, site: site}, f)
	}
	s.be = newDriven(s, d)
	return nil
}

// driven is the backend of a group that has a Driver.
type driven struct {
	g            *group
	d            Driver
	c            Call
	sends, recvs []Call // by peer
}

func newDriven(g *group, d Driver) *driven {
	n := len(g.ranks)
	return &driven{g: g, d: d, sends: make([]Call, n), recvs: make([]Call, n)}
}

func (b *driven) collective(c *call) *failure { return b.do(c, &b.c) }
func (b *driven) send(c *call) *failure       { return b.do(c, &b.sends[c.root]) }
func (b *driven) recv(c *call) *failure       { return b.do(c, &b.recvs[c.root]) }

func (b *driven) do(c *call, out *Call) *failure {
	w := b.g.w
	*out = Call{Op: c.op, DType: c.dt, Reduce: c.red, Root: c.root, Dst: c.dst, Src: c.src}
	err := b.d.Do(out)
	out.Dst, out.Src = nil, nil
	if err == nil {
		return nil
	}
	if f := w.failed.Load(); f != nil {
		return f // an abort made it fail
	}
	return b.failure(err)
}

func (b *driven) failure(err error) *failure {
	var f *Fault
	if errors.As(err, &f) && f.World {
		return &failure{kind: f.Kind, rank: f.Rank, detail: f.Detail}
	}
	if errors.As(err, &f) && f.Rank >= 0 && f.Rank < len(b.g.ranks) {
		return &failure{kind: f.Kind, rank: b.g.ranks[f.Rank], detail: f.Detail}
	}
	return &failure{kind: KindAborted, rank: b.g.w.rank, detail: err.Error()}
}

// kill is called once the job has failed. The other ranks learn of it by it.
func (b *driven) kill() {
	if f := b.g.w.failed.Load(); f != nil && b.g == b.g.w.root {
		b.d.Abort(fmt.Sprintf("rank %d %s: %s", f.rank, f.kind, f.detail))
	}
}

func (b *driven) close() { b.d.Close() }

// Failed is the error by which c's job has ended, or nil while it is well. A
// driver that stands on another communicator asks it while it waits.
func Failed(c Communicator) error {
	g, ok := c.(*group)
	if !ok {
		return nil
	}
	if f := g.w.failed.Load(); f != nil {
		return g.w.errorFor(&call{op: OpBarrier, site: noSite}, f)
	}
	return nil
}

// Combine sets dst to the combination of srcs as all collectives add: element
// by element, in the tree over srcs that AllReduce makes over ranks. dst and
// srcs have one length, dst may be one of the srcs, and all are aligned.
func Combine(dst []byte, srcs [][]byte, dt DType, op ReduceOp) { elem.Reduce(dst, srcs, dt, op) }

// HungFault is the Fault of a wait that made no progress.
func HungFault(rank int, waited time.Duration) *Fault {
	return &Fault{Kind: KindHung, Rank: rank, Detail: fmt.Sprintf("no progress for %v", waited.Round(10*time.Millisecond))}
}
