package comm_test

import (
	"fmt"
	"testing"

	. "github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/comm/commtest"
)

// BenchmarkAllReduce shows MB/s of the buffer that is reduced, per rank. The
// ranks are goroutines; see TestProcesses for processes.
func BenchmarkAllReduce(b *testing.B) {
	for _, kind := range kinds {
		for _, n := range []int{2, 4} {
			for _, size := range []int{4, 64 << 10, 4 << 20} {
				b.Run(fmt.Sprintf("%s/%d/%d", kind, n, size), func(b *testing.B) {
					benchAllReduce(b, open(b, kind, n, Options{}), size)
				})
			}
		}
	}
}

// benchAllReduce reduces size bytes b.N times and closes the ranks.
func benchAllReduce(b *testing.B, cs []Communicator, size int) {
	s := site("d_w")
	bufs := make([][]byte, len(cs))
	for r := range bufs {
		bufs[r] = commtest.Aligned(size)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	must(b, cs, func(c Communicator) error {
		for range b.N {
			if err := c.AllReduce(s, bufs[c.Rank()], F32, Sum); err != nil {
				return err
			}
		}
		return nil
	})
	b.StopTimer()
	closeAll(b, cs)
}

// BenchmarkReduce is the inner loop by itself, and copying for comparison.
func BenchmarkReduce(b *testing.B) {
	const size = 128 << 10
	x, y, z := commtest.Aligned(size), commtest.Aligned(size), commtest.Aligned(size)
	for _, dt := range []DType{F32, BF16, F16} {
		for _, op := range []ReduceOp{Sum, Max} {
			b.Run(dt.String()+"/"+op.String(), func(b *testing.B) {
				srcs := [][]byte{x, y}
				b.SetBytes(size)
				for range b.N {
					Combine(z, srcs, dt, op)
				}
			})
		}
	}
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(size)
		for range b.N {
			copy(z, x)
		}
	})
}

// BenchmarkAlgorithms compares the ways of an all_reduce over TCP.
func BenchmarkAlgorithms(b *testing.B) {
	for _, n := range []int{4, 8} {
		for _, size := range []int{1 << 10, 64 << 10, 4 << 20} {
			for _, algorithm := range []string{"direct", "halving", "ring"} {
				b.Run(fmt.Sprintf("%d/%d/%s", n, size, algorithm), func(b *testing.B) {
					benchAllReduce(b, open(b, "tcp", n, Options{Algorithm: algorithm}), size)
				})
			}
		}
	}
}
