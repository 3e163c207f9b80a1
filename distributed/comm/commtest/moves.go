package commtest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/comm"
)

// concat joins blocks.
func concat(blocks ...[]byte) []byte { return bytes.Join(blocks, nil) }

func blockOf(b []byte, n, r int) []byte {
	size := len(b) / n
	return b[r*size : (r+1)*size]
}

// Expect compares bytes and says where they differ first.
func Expect(what string, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%s: %d bytes differ from byte %d on: %x, want %x", what, len(want), i,
				got[i:min(i+8, len(got))], want[i:min(i+8, len(want))])
		}
	}
	return fmt.Errorf("%s: lengths differ", what)
}

// Reductions runs all_reduce, reduce and reduce_scatter of elems elements for
// each rank and compares the results bit for bit.
func Reductions(c comm.Communicator, elems int, dt comm.DType, op comm.ReduceOp) error {
	return reductions(c, elems, dt, op, Expect)
}

// reductions is Reductions with the comparison of sums.
func reductions(c comm.Communicator, elems int, dt comm.DType, op comm.ReduceOp, same func(what string, got, want []byte) error) error {
	n, me := c.Size(), c.Rank()
	in := make([][]byte, n)
	for r := range n {
		in[r] = Input(r, elems*n, dt)
	}
	want := memoized(fmt.Sprint("red", n, elems, dt, op), func() []byte { return Reduced(in, dt, op) })
	what := fmt.Sprintf("%d x %s %s", elems, dt, op)
	buf := slices.Clone(in[me])
	if err := c.AllReduce(Site(what), buf, dt, op); err != nil {
		return err
	}
	if err := same("all_reduce "+what, buf, want); err != nil {
		return err
	}
	root := elems % n
	copy(buf, in[me])
	if err := c.Reduce(Site(what), buf, dt, op, root); err != nil {
		return err
	}
	expected := in[me]
	if me == root {
		expected = want
	}
	if err := same("reduce "+what, buf, expected); err != nil {
		return err
	}
	out := Aligned(elems * dt.Size())
	if err := c.ReduceScatter(Site(what), out, in[me], dt, op); err != nil {
		return err
	}
	if err := same("reduce_scatter "+what, out, blockOf(want, n, me)); err != nil {
		return err
	}
	src := slices.Clone(in[me])
	if err := c.ReduceScatter(Site(what), blockOf(src, n, me), src, dt, op); err != nil {
		return err
	}
	return same("reduce_scatter in place "+what, blockOf(src, n, me), blockOf(want, n, me))
}

// Moves runs the operations that only move data.
func Moves(c comm.Communicator, elems int, dt comm.DType) error {
	n, me := c.Size(), c.Rank()
	one, all := make([][]byte, n), make([][]byte, n)
	for r := range n {
		one[r], all[r] = Input(r, elems, dt), Input(r, elems*n, dt)
	}
	size := elems * dt.Size()
	root := (elems + 1) % n
	what := Site(fmt.Sprintf("%d x %s", elems, dt))
	buf := slices.Clone(one[me])
	if err := c.Broadcast(what, buf, dt, root); err != nil {
		return err
	}
	if err := Expect("broadcast "+what.Tensor, buf, one[root]); err != nil {
		return err
	}
	joined := concat(one...)
	out := make([]byte, n*size)
	if err := c.AllGather(what, out, one[me], dt); err != nil {
		return err
	}
	if err := Expect("all_gather "+what.Tensor, out, joined); err != nil {
		return err
	}
	clear(out)
	copy(blockOf(out, n, me), one[me])
	if err := c.AllGather(what, out, blockOf(out, n, me), dt); err != nil {
		return err
	}
	if err := Expect("all_gather in place "+what.Tensor, out, joined); err != nil {
		return err
	}
	if err := c.AllToAll(what, out, all[me], dt); err != nil {
		return err
	}
	var crossed []byte
	for r := range n {
		crossed = append(crossed, blockOf(all[r], n, me)...)
	}
	if err := Expect("all_to_all "+what.Tensor, out, crossed); err != nil {
		return err
	}
	return checkRooted(c, what, one, all, dt, root)
}

func checkRooted(c comm.Communicator, what *comm.Site, one, all [][]byte, dt comm.DType, root int) error {
	n, me := c.Size(), c.Rank()
	var out []byte
	if me == root {
		out = make([]byte, len(all[0]))
	}
	if err := c.Gather(what, out, one[me], dt, root); err != nil {
		return err
	}
	if me == root {
		if err := Expect("gather "+what.Tensor, out, concat(one...)); err != nil {
			return err
		}
	}
	var src []byte
	if me == root {
		src = all[root]
	}
	buf := make([]byte, len(one[0]))
	if err := c.Scatter(what, buf, src, dt, root); err != nil {
		return err
	}
	if err := Expect("scatter "+what.Tensor, buf, blockOf(all[root], n, me)); err != nil {
		return err
	}
	return c.Barrier(nil)
}

// Messages passes data round the ring, then between the ends.
func Messages(c comm.Communicator, elems int, dt comm.DType) error {
	n, me := c.Size(), c.Rank()
	if n == 1 {
		return nil
	}
	to, from := (me+1)%n, (me+n-1)%n
	what := Site(fmt.Sprintf("%d x %s", elems, dt))
	sent := make(chan error, 1)
	go func() {
		err := c.Send(what, Input(me, elems, dt), dt, to)
		if err == nil {
			err = c.Send(what, Input(me+100, elems, dt), dt, to)
		}
		sent <- err
	}()
	for _, seed := range []int{from, from + 100} {
		buf := make([]byte, elems*dt.Size())
		if err := c.Recv(what, buf, dt, from); err != nil {
			return err
		}
		if err := Expect("recv "+what.Tensor, buf, Input(seed, elems, dt)); err != nil {
			return err
		}
	}
	return <-sent
}
