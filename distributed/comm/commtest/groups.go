package commtest

import (
	"fmt"
	"sync"

	"github.com/gtc-compiler/gtc/distributed/comm"
)

// subGroups makes the mesh dp=2, tp=2 of the first four ranks, with reversed
// ranks in dp, groups of one and a group within a group.
func subGroups(c comm.Communicator) error {
	me := c.Rank()
	var tp, dp comm.Communicator
	for i := range 2 {
		a, err := c.Sub("tp", []int{2 * i, 2*i + 1})
		if err != nil {
			return err
		}
		b, err := c.Sub("dp", []int{i + 2, i})
		if err != nil {
			return err
		}
		if (a != nil) != (me < 4 && me/2 == i) || (b != nil) != (me < 4 && me%2 == i) {
			return fmt.Errorf("rank %d: wrong members in groups %d", me, i)
		}
		if a != nil {
			tp = a
		}
		if b != nil {
			dp = b
		}
	}
	alone, err := c.Sub("alone", []int{me})
	if err != nil {
		return err
	}
	if me < 4 {
		if tp.Rank() != me%2 || dp.Rank() != 1-me/2 {
			return fmt.Errorf("rank %d is %d in tp and %d in dp", me, tp.Rank(), dp.Rank())
		}
		if err := inSubGroups(tp, dp, alone); err != nil {
			return err
		}
	}
	return Moves(c, 33, comm.F16)
}

func inSubGroups(tp, dp, alone comm.Communicator) error {
	// dp on a queue while tp runs here. Both are of two ranks, whose sums are
	// the same in every order.
	q := comm.NewQueue(dp)
	buf := Fill(dp.Rank(), 50_000, comm.F32)
	want := Reduced([][]byte{Fill(0, 50_000, comm.F32), Fill(1, 50_000, comm.F32)}, comm.F32, comm.Sum)
	seq := q.AllReduce(Site("grad"), buf, comm.F32, comm.Sum)
	if err := Reductions(tp, 1000, comm.F32, comm.Sum); err != nil {
		return err
	}
	if err := Moves(alone, 100, comm.F32); err != nil {
		return err
	}
	if err := q.Wait(seq); err != nil {
		return err
	}
	if err := q.Close(); err != nil {
		return err
	}
	if err := Expect("queued all_reduce", buf, want); err != nil {
		return err
	}
	// A sub-group of a sub-group, and the same name once more.
	again, err := tp.Sub("tp", []int{1, 0})
	if err != nil {
		return err
	}
	if err := Messages(again, 10, comm.I32); err != nil {
		return err
	}
	return again.Close()
}

// concurrentGroups has every rank in three groups at once: all ranks, a ring of
// neighbours to the left and one to the right. Each has a goroutine of its own.
func concurrentGroups(c comm.Communicator) error {
	n, me := c.Size(), c.Rank()
	groups := []comm.Communicator{c}
	sizes := []int{1} // equal for all members of a group
	for left := range n {
		g, err := c.Sub("pair", []int{left, (left + 1) % n})
		if err != nil {
			return err
		}
		if g != nil {
			groups, sizes = append(groups, g), append(sizes, left+2)
		}
	}
	if len(groups) != 3 {
		return fmt.Errorf("rank %d is in %d groups, want 3", me, len(groups))
	}
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() {
			for round := range 20 {
				if errs[i] = Moves(g, 50+997*(round%3)*sizes[i], comm.I32); errs[i] != nil {
					return
				}
				if errs[i] = Reductions(g, 300*sizes[i], comm.I64, comm.Sum); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return err
		}
		if i > 0 {
			if err := groups[i].Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// beside sends messages round the ring, of sizes that take one piece and
// several, while the same ranks are in collectives of the same group.
func beside(c comm.Communicator) error {
	n, me := c.Size(), c.Rank()
	to, from := (me+1)%n, (me+n-1)%n
	sizes := []int{1, 3, 40_001, 0, 200_003, 5}
	const rounds = 4
	var errs [3]error
	var wg sync.WaitGroup
	wg.Go(func() {
		for range rounds {
			for _, size := range sizes {
				if errs[0] = c.Send(Site("h"), Input(me, size, comm.BF16), comm.BF16, to); errs[0] != nil {
					return
				}
			}
		}
	})
	wg.Go(func() {
		for range rounds {
			for _, size := range sizes {
				buf := Aligned(2 * size)
				if errs[1] = c.Recv(Site("h"), buf, comm.BF16, from); errs[1] != nil {
					return
				}
				if errs[1] = Expect(fmt.Sprint("message of ", size), buf, Input(from, size, comm.BF16)); errs[1] != nil {
					return
				}
			}
		}
	})
	wg.Go(func() {
		for i := range 3 * rounds {
			if errs[2] = Reductions(c, 1000+7000*(i%3), comm.I32, comm.Sum); errs[2] != nil {
				return
			}
			if errs[2] = Moves(c, 30_000, comm.U8); errs[2] != nil {
				return
			}
		}
	})
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// crossing has every pair send to each other at the same time, receiving from
// all in the other order than they send, each sender on a goroutine of its own
// as in a rank program.
func crossing(c comm.Communicator) error {
	n, me := c.Size(), c.Rank()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := 1; i < n; i++ {
		to := (me + i) % n
		wg.Go(func() {
			for k := range 5 {
				if errs[to] = c.Send(Site("x"), Input(100*me+k, 30_001, comm.F32), comm.F32, to); errs[to] != nil {
					return
				}
			}
		})
	}
	var first error
	for i := 1; i < n && first == nil; i++ {
		from := (me + n - i) % n
		for k := 0; k < 5 && first == nil; k++ {
			buf := Aligned(4 * 30_001)
			if first = c.Recv(Site("x"), buf, comm.F32, from); first == nil {
				first = Expect("crossing message", buf, Input(100*from+k, 30_001, comm.F32))
			}
		}
	}
	wg.Wait()
	for _, err := range append(errs, first) {
		if err != nil {
			return err
		}
	}
	return nil
}
