package commtest

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/gtc-compiler/gtc/distributed/comm"
)

// Case is a part of the suite. Every rank of a group runs it at the same time.
type Case struct {
	Name  string
	Ranks int  // the least number of ranks that it needs
	Long  bool // takes seconds and gigabytes: 100 MB for each rank
	Run   func(c comm.Communicator) error
}

// Order says how a backend adds.
type Order int

// Tree is the order that comm promises: results are compared bit for bit. In
// AnyOrder floating sums are compared with the rounding that another order of
// as many sums can make.
const (
	Tree Order = iota
	AnyOrder
)

var dtypes = []comm.DType{comm.F32, comm.F64, comm.F16, comm.BF16, comm.I8, comm.I16, comm.I32, comm.I64,
	comm.U8, comm.U16, comm.U32, comm.U64}

var reductionOps = []comm.ReduceOp{comm.Sum, comm.Max, comm.Min, comm.Prod, comm.Avg}

// Site names a call of the suite for errors.
func Site(tensor string) *comm.Site { return &comm.Site{Tensor: tensor, Loc: "model.py:41"} }

// Cases is the suite: every operation with every element type and reduction,
// for no, one, some and many elements, in groups, sub-groups and groups at the
// same time. Each rank must run the cases in the same order.
func Cases(order Order) []Case {
	var list []Case
	for _, dt := range dtypes {
		list = append(list, Case{Name: "small " + dt.String(), Run: func(c comm.Communicator) error { return small(c, dt, order) }})
	}
	return append(list,
		Case{Name: "several pieces", Run: func(c comm.Communicator) error { return pieces(c, order) }},
		Case{Name: "buffers beside pointers", Run: besidePointers},
		Case{Name: "sub-groups", Ranks: 4, Run: subGroups},
		Case{Name: "concurrent groups", Ranks: 3, Run: concurrentGroups},
		Case{Name: "messages beside collectives", Ranks: 2, Run: beside},
		Case{Name: "crossing messages", Ranks: 2, Run: crossing},
		Case{Name: "100 MB", Long: true, Run: huge},
	)
}

// comparison is how sums of dt by op are compared.
func comparison(c comm.Communicator, dt comm.DType, op comm.ReduceOp, order Order) func(string, []byte, []byte) error {
	if order == Tree || !Float(dt) || op == comm.Max || op == comm.Min {
		return Expect
	}
	eps := map[comm.DType]float64{comm.F32: 0x1p-23, comm.F64: 0x1p-52, comm.F16: 0x1p-10, comm.BF16: 0x1p-7}[dt]
	n := float64(c.Size())
	return func(what string, got, want []byte) error {
		for i := range len(want) / dt.Size() {
			x, y := Element(got, i, dt), Element(want, i, dt)
			// Elements of Fill are below 2^9; products only round.
			scale := math.Max(math.Abs(y), 512)
			if op == comm.Prod {
				scale = math.Max(math.Abs(y), 1e-30)
			}
			if d := math.Abs(x - y); d > n*eps*scale && x != y {
				return fmt.Errorf("%s: element %d is %g, want %g", what, i, x, y)
			}
		}
		return nil
	}
}

func small(c comm.Communicator, dt comm.DType, order Order) error {
	for _, op := range reductionOps {
		if op == comm.Avg && !Float(dt) {
			continue
		}
		for _, elems := range []int{0, 1, 3, 1025} {
			if err := reductions(c, elems, dt, op, comparison(c, dt, op, order)); err != nil {
				return err
			}
		}
	}
	for _, elems := range []int{0, 1, 7, 1000} {
		if err := Moves(c, elems, dt); err != nil {
			return err
		}
		if err := Messages(c, elems, dt); err != nil {
			return err
		}
	}
	return nil
}

// pieces has sizes that backends cut up, and that do not divide.
func pieces(c comm.Communicator, order Order) error {
	n := c.Size()
	same := comparison(c, comm.F32, comm.Sum, order)
	for _, elems := range []int{20_001, 131_072 / n, 600_011 / n} {
		if err := reductions(c, elems, comm.F32, comm.Sum, same); err != nil {
			return err
		}
		if err := Moves(c, elems, comm.F32); err != nil {
			return err
		}
		if err := Messages(c, elems, comm.F32); err != nil {
			return err
		}
	}
	return reductions(c, 70_001, comm.BF16, comm.Avg, comparison(c, comm.BF16, comm.Avg, order))
}

// besidePointers has buffers in an object that holds pointers, as the counters
// of a rank program are: libraries that are called through cgo may not mind.
func besidePointers(c comm.Communicator) error {
	type counters struct {
		name   *string
		sum    [2]float32
		others []*counters
	}
	name := "loss"
	x := &counters{name: &name, sum: [2]float32{float32(c.Rank() + 1), 1}}
	x.others = []*counters{x}
	buf := unsafe.Slice((*byte)(unsafe.Pointer(&x.sum[0])), 8)
	if err := c.AllReduce(Site("loss"), buf, comm.F32, comm.Sum); err != nil {
		return err
	}
	n := float32(c.Size())
	if want := [2]float32{n * (n + 1) / 2, n}; x.sum != want {
		return fmt.Errorf("sums beside pointers are %v, want %v", x.sum, want)
	}
	return c.Broadcast(Site("loss"), buf, comm.F32, 0)
}

// huge moves 100 MB for each rank. Sums are of small whole numbers, which are
// exact in every order.
func huge(c comm.Communicator) error {
	n, me := c.Size(), c.Rank()
	elems := 100_000_000 / 4 / n * n
	block := elems / n
	buf, all := Aligned(4*elems), Aligned(4*elems)
	x := unsafe.Slice((*float32)(unsafe.Pointer(&buf[0])), elems)
	y := unsafe.Slice((*float32)(unsafe.Pointer(&all[0])), elems)
	value := func(r, i int) float32 { return float32((r + 1) * (i%97 + 1)) }
	set := func() {
		for i := range x {
			x[i] = value(me, i)
		}
	}
	check := func(what string, got []float32, err error, want func(i int) float32) error {
		if err != nil {
			return err
		}
		for i, v := range got {
			if w := want(i); v != w {
				return fmt.Errorf("100 MB, %s: element %d is %g, want %g", what, i, v, w)
			}
		}
		return nil
	}
	total := float32(n*(n+1)) / 2
	s, part := Site("huge"), 4*block
	mine := buf[me*part:][:part]
	steps := []struct {
		what string
		run  func() error
		got  []float32
		want func(i int) float32
	}{
		{"all_reduce", func() error { return c.AllReduce(s, buf, comm.F32, comm.Sum) }, x, func(i int) float32 { return total * value(0, i) }},
		{"reduce_scatter", func() error { return c.ReduceScatter(s, mine, buf, comm.F32, comm.Sum) }, x[me*block:][:block],
			func(i int) float32 { return total * value(0, i+me*block) }},
		{"all_gather", func() error { return c.AllGather(s, all, mine, comm.F32) }, y, func(i int) float32 { return value(i/block, i) }},
		{"all_to_all", func() error { return c.AllToAll(s, all, buf, comm.F32) }, y,
			func(i int) float32 { return value(i/block, i%block+me*block) }},
		{"broadcast", func() error { return c.Broadcast(s, buf, comm.F32, n-1) }, x, func(i int) float32 { return value(n-1, i) }},
		{"send and recv", func() error { return aroundRing(c, s, buf, all) }, y, func(i int) float32 { return value((me+n-1)%n, i) }},
	}
	for _, st := range steps {
		set()
		if err := check(st.what, st.got, st.run(), st.want); err != nil {
			return err
		}
	}
	return nil
}

// aroundRing sends src to the next rank and fills dst from the one before.
func aroundRing(c comm.Communicator, s *comm.Site, src, dst []byte) error {
	n, me := c.Size(), c.Rank()
	if n == 1 {
		copy(dst, src)
		return nil
	}
	sent := make(chan error, 1)
	go func() { sent <- c.Send(s, src, comm.F32, (me+1)%n) }()
	if err := c.Recv(s, dst, comm.F32, (me+n-1)%n); err != nil {
		return err
	}
	return <-sent
}
