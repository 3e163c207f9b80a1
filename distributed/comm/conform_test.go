package comm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
)

// concat joins blocks.
func concat(blocks ...[]byte) []byte { return bytes.Join(blocks, nil) }

func blockOf(b []byte, n, r int) []byte {
	size := len(b) / n
	return b[r*size : (r+1)*size]
}

func expect(what string, got, want []byte) error {
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

// checkReductions runs all_reduce, reduce and reduce_scatter of elems elements.
func checkReductions(c Communicator, elems int, dt DType, op ReduceOp) error {
	n, me := c.Size(), c.Rank()
	in := make([][]byte, n)
	for r := range n {
		in[r] = input(r, elems*n, dt)
	}
	want := memoized(fmt.Sprint("red", n, elems, dt, op), func() []byte { return reduced(in, dt, op) })
	what := fmt.Sprintf("%d x %s %s", elems, dt, op)
	buf := slices.Clone(in[me])
	if err := c.AllReduce(site(what), buf, dt, op); err != nil {
		return err
	}
	if err := expect("all_reduce "+what, buf, want); err != nil {
		return err
	}
	root := elems % n
	copy(buf, in[me])
	if err := c.Reduce(site(what), buf, dt, op, root); err != nil {
		return err
	}
	expected := in[me]
	if me == root {
		expected = want
	}
	if err := expect("reduce "+what, buf, expected); err != nil {
		return err
	}
	out := alignedBytes(elems * dt.Size())
	if err := c.ReduceScatter(site(what), out, in[me], dt, op); err != nil {
		return err
	}
	if err := expect("reduce_scatter "+what, out, blockOf(want, n, me)); err != nil {
		return err
	}
	src := slices.Clone(in[me])
	if err := c.ReduceScatter(site(what), blockOf(src, n, me), src, dt, op); err != nil {
		return err
	}
	return expect("reduce_scatter in place "+what, blockOf(src, n, me), blockOf(want, n, me))
}

// checkMoves runs the operations that only move data.
func checkMoves(c Communicator, elems int, dt DType) error {
	n, me := c.Size(), c.Rank()
	one, all := make([][]byte, n), make([][]byte, n)
	for r := range n {
		one[r], all[r] = input(r, elems, dt), input(r, elems*n, dt)
	}
	size := elems * dt.Size()
	root := (elems + 1) % n
	what := site(fmt.Sprintf("%d x %s", elems, dt))
	buf := slices.Clone(one[me])
	if err := c.Broadcast(what, buf, dt, root); err != nil {
		return err
	}
	if err := expect("broadcast "+what.Tensor, buf, one[root]); err != nil {
		return err
	}
	joined := concat(one...)
	out := make([]byte, n*size)
	if err := c.AllGather(what, out, one[me], dt); err != nil {
		return err
	}
	if err := expect("all_gather "+what.Tensor, out, joined); err != nil {
		return err
	}
	clear(out)
	copy(blockOf(out, n, me), one[me])
	if err := c.AllGather(what, out, blockOf(out, n, me), dt); err != nil {
		return err
	}
	if err := expect("all_gather in place "+what.Tensor, out, joined); err != nil {
		return err
	}
	if err := c.AllToAll(what, out, all[me], dt); err != nil {
		return err
	}
	var crossed []byte
	for r := range n {
		crossed = append(crossed, blockOf(all[r], n, me)...)
	}
	if err := expect("all_to_all "+what.Tensor, out, crossed); err != nil {
		return err
	}
	return checkRooted(c, what, one, all, dt, root)
}

func checkRooted(c Communicator, what *Site, one, all [][]byte, dt DType, root int) error {
	n, me := c.Size(), c.Rank()
	var out []byte
	if me == root {
		out = make([]byte, len(all[0]))
	}
	if err := c.Gather(what, out, one[me], dt, root); err != nil {
		return err
	}
	if me == root {
		if err := expect("gather "+what.Tensor, out, concat(one...)); err != nil {
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
	if err := expect("scatter "+what.Tensor, buf, blockOf(all[root], n, me)); err != nil {
		return err
	}
	return c.Barrier(nil)
}

// checkMessages passes data round the ring, then between the ends.
func checkMessages(c Communicator, elems int, dt DType) error {
	n, me := c.Size(), c.Rank()
	if n == 1 {
		return nil
	}
	to, from := (me+1)%n, (me+n-1)%n
	what := site(fmt.Sprintf("%d x %s", elems, dt))
	sent := make(chan error, 1)
	go func() {
		err := c.Send(what, input(me, elems, dt), dt, to)
		if err == nil {
			err = c.Send(what, input(me+100, elems, dt), dt, to)
		}
		sent <- err
	}()
	for _, seed := range []int{from, from + 100} {
		buf := make([]byte, elems*dt.Size())
		if err := c.Recv(what, buf, dt, from); err != nil {
			return err
		}
		if err := expect("recv "+what.Tensor, buf, input(seed, elems, dt)); err != nil {
			return err
		}
	}
	return <-sent
}

func TestConformance(t *testing.T) {
	for _, kind := range kinds {
		for n := 1; n <= 4; n++ {
			t.Run(name(kind, n), func(t *testing.T) {
				cs := open(t, kind, n, Options{})
				must(t, cs, func(c Communicator) error {
					for dt := range numDTypes {
						for op := range numReduceOps {
							if op == Avg && !dt.float() {
								continue
							}
							for _, elems := range []int{1, 3, 1025} {
								if err := checkReductions(c, elems, dt, op); err != nil {
									return err
								}
							}
						}
						for _, elems := range []int{0, 1, 7, 1000} {
							if err := checkMoves(c, elems, dt); err != nil {
								return err
							}
							if err := checkMessages(c, elems, dt); err != nil {
								return err
							}
						}
					}
					return nil
				})
				closeAll(t, cs)
			})
		}
	}
}

// TestLarge has sizes that take several pieces and do not divide.
func TestLarge(t *testing.T) {
	for _, kind := range kinds {
		for _, n := range []int{2, 3, 4, 6} {
			t.Run(name(kind, n), func(t *testing.T) {
				cs := open(t, kind, n, Options{})
				must(t, cs, func(c Communicator) error {
					for _, elems := range []int{20_001, 131_072 / n, 600_011 / n} {
						if err := checkReductions(c, elems, F32, Sum); err != nil {
							return err
						}
						if err := checkMoves(c, elems, F32); err != nil {
							return err
						}
						if err := checkMessages(c, elems, F32); err != nil {
							return err
						}
					}
					return checkReductions(c, 70_001, BF16, Avg)
				})
				closeAll(t, cs)
			})
		}
	}
}

func TestSubGroups(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			cs := open(t, kind, 4, Options{})
			must(t, cs, func(c Communicator) error {
				// The mesh dp=2, tp=2: both sub-groups of each rank, reversed
				// ranks, and a group of one.
				me := c.Rank()
				var tp, dp Communicator
				for i := range 2 {
					a, err := c.Sub("tp", []int{2 * i, 2*i + 1})
					if err != nil {
						return err
					}
					b, err := c.Sub("dp", []int{i + 2, i})
					if err != nil {
						return err
					}
					if (a != nil) != (me/2 == i) || (b != nil) != (me%2 == i) {
						return fmt.Errorf("rank %d: wrong members in groups %d", me, i)
					}
					if a != nil {
						tp = a
					}
					if b != nil {
						dp = b
					}
				}
				if tp.Rank() != me%2 || dp.Rank() != 1-me/2 {
					return fmt.Errorf("rank %d is %d in tp and %d in dp", me, tp.Rank(), dp.Rank())
				}
				alone, err := c.Sub("alone", []int{me})
				if err != nil {
					return err
				}
				// dp on a queue while tp runs here.
				q := NewQueue(dp)
				buf := fill(dp.Rank(), 50_000, F32)
				want := reduced([][]byte{fill(0, 50_000, F32), fill(1, 50_000, F32)}, F32, Sum)
				seq := q.AllReduce(site("grad"), buf, F32, Sum)
				if err := checkReductions(tp, 1000, F32, Sum); err != nil {
					return err
				}
				if err := checkMoves(alone, 100, F32); err != nil {
					return err
				}
				if err := q.Wait(seq); err != nil {
					return err
				}
				if err := q.Close(); err != nil {
					return err
				}
				if err := expect("queued all_reduce", buf, want); err != nil {
					return err
				}
				// A sub-group of a sub-group, and the same name once more.
				again, err := tp.Sub("tp", []int{1, 0})
				if err != nil {
					return err
				}
				if err := checkMessages(again, 10, I32); err != nil {
					return err
				}
				if err := again.Close(); err != nil {
					return err
				}
				return checkReductions(c, 33, F16, Sum)
			})
			closeAll(t, cs)
		})
	}
}

// TestSameBits runs one sum over every transport several times.
func TestSameBits(t *testing.T) {
	const n, elems = 4, 40_000
	var want []byte
	for _, kind := range append(kinds, kinds...) {
		cs := open(t, kind, n, Options{})
		out := make([][]byte, n)
		must(t, cs, func(c Communicator) error {
			out[c.Rank()] = fill(c.Rank(), elems, F32)
			return c.AllReduce(site("x"), out[c.Rank()], F32, Sum)
		})
		closeAll(t, cs)
		if want == nil {
			want = out[0]
		}
		for r := range n {
			if err := expect(fmt.Sprintf("%s rank %d", kind, r), out[r], want); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		f := f16ToF32(uint16(h))
		if back := f32ToF16(f); back != uint16(h) && f == f {
			t.Fatalf("f16 %04x becomes %v and then %04x", h, f, back)
		}
		b := math.Float32frombits(uint32(h) << 16)
		if back := f32ToBF16(b); back != uint16(h) && b == b {
			t.Fatalf("bf16 %04x becomes %v and then %04x", h, b, back)
		}
	}
	// Ties go to even; beyond the largest value comes infinity; NaN stays.
	for f, want := range map[float32]uint16{
		1 + 1.0/2048: 0x3c00, 1 + 3.0/2048: 0x3c02, 65519: 0x7bff, 65520: 0x7c00, 1.0 / (1 << 25): 0, 1.5 / (1 << 24): 2,
	} {
		if got := f32ToF16(f); got != want {
			t.Errorf("f16 of %v is %04x, want %04x", f, got, want)
		}
	}
	nan := float32(math.NaN())
	if f := f16ToF32(f32ToF16(nan)); f == f {
		t.Error("NaN does not stay NaN in f16")
	}
	if got := f32ToBF16(math.Float32frombits(0x7f800001)); got&0x7f == 0 {
		t.Error("NaN becomes infinity in bf16")
	}
}

// TestBF16Blocks compares the block conversions with those of one element.
func TestBF16Blocks(t *testing.T) {
	const n = 1<<16 + 5
	in, out, bits := make([]uint16, n), make([]float32, n), make([]uint16, n)
	for i := range in {
		in[i] = uint16(i)
	}
	widen(out, in, BF16)
	for i, f := range out {
		if math.Float32bits(f) != uint32(in[i])<<16 {
			t.Fatalf("bf16 %04x becomes %08x", in[i], math.Float32bits(f))
		}
		// Every upper half with lower halves about the tie, and others.
		low := []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, uint32(i) * 40503 & 0xffff}[i%7]
		out[i] = math.Float32frombits(uint32(in[i])<<16 | low)
	}
	for range 7 {
		narrow(bits, out, BF16)
		for i, f := range out {
			if want := f32ToBF16(f); bits[i] != want {
				t.Fatalf("f32 %08x becomes bf16 %04x, want %04x", math.Float32bits(f), bits[i], want)
			}
		}
		first := out[0]
		copy(out, out[1:]) // other lanes
		out[n-1] = first
	}
}

// TestTree has sums of up to 40 sources, in place and not, against the oracle,
// and one worked out by hand: 1e8 swallows a 1 that is added to it alone.
func TestTree(t *testing.T) {
	for _, dt := range []DType{F32, F64, F16, BF16, I16} {
		for n := 1; n <= 40; n++ {
			in := make([][]byte, n)
			for r := range n {
				in[r] = input(r, 700, dt)
			}
			want := reduced(in, dt, Sum)
			out := alignedBytes(len(want))
			reduceInto(out, in, dt, Sum)
			if err := expect(fmt.Sprint(n, " ", dt), out, want); err != nil {
				t.Fatal(err)
			}
			at := n * 7 % n
			in[at] = slices.Clone(in[at])
			reduceInto(in[at], in, dt, Sum)
			if err := expect(fmt.Sprint(n, " ", dt, " in place"), in[at], want); err != nil {
				t.Fatal(err)
			}
		}
	}
	var in [][]byte
	for _, f := range []float32{1e8, 1, -1e8, 4, 3} {
		b := alignedBytes(4)
		binary.LittleEndian.PutUint32(b, math.Float32bits(f))
		in = append(in, b)
	}
	// In order it would be ((1e8+1)-1e8)+4+3 = 7; the tree has -1e8+4 = -99999996
	// rounded to -1e8 (floats there are 8 apart, ties to even), so 0+3.
	out := alignedBytes(4)
	if reduceInto(out, in, F32, Sum); element(out, 0, F32) != 3 {
		t.Errorf("sum is %v, want 3", element(out, 0, F32))
	}
}

func TestNaNWins(t *testing.T) {
	nan := alignedBytes(4)
	binary.LittleEndian.PutUint32(nan, math.Float32bits(float32(math.NaN())))
	one := alignedBytes(4)
	binary.LittleEndian.PutUint32(one, math.Float32bits(1))
	for _, op := range []ReduceOp{Sum, Max, Min, Prod, Avg} {
		for _, srcs := range [][][]byte{{nan, one}, {one, nan}} {
			out := alignedBytes(4)
			reduceInto(out, srcs, F32, op)
			if x := element(out, 0, F32); x == x {
				t.Errorf("%s of NaN and 1 is %v", op, x)
			}
		}
	}
}
