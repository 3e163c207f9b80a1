package comm_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	. "github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/comm/commtest"
)

// TestConformance runs the suite over every transport. GTC_LONG=1 adds the
// buffers of 100 MB.
func TestConformance(t *testing.T) {
	for _, kind := range kinds {
		for _, n := range []int{1, 2, 3, 4, 6} {
			t.Run(name(kind, n), func(t *testing.T) { conform(t, kind, n, Options{}) })
		}
	}
}

// TestAlgorithms runs the suite over TCP by each algorithm, where by itself
// another one, or only large data, would be chosen.
func TestAlgorithms(t *testing.T) {
	for algorithm, sizes := range map[string][]int{"halving": {3, 4, 8}, "ring": {3, 6}} {
		for _, n := range sizes {
			t.Run(name(algorithm, n), func(t *testing.T) {
				var log syncBuffer
				conform(t, "tcp", n, Options{Algorithm: algorithm, Log: &log})
				if n != 4 && n != 6 {
					return
				}
				for _, want := range []string{"all_reduce", "all_gather"} {
					line := regexp.MustCompile(`comm: rank \d, group "world" of \d ranks: ` + want + ` of \d+ bytes by ` + algorithm + `, over tcp\n`)
					if algorithm == "halving" && want == "all_gather" {
						continue // there it has nothing to add up
					}
					if !line.MatchString(log.String()) {
						t.Errorf("the log does not tell of %s:\n%s", want, log.String())
					}
				}
			})
		}
	}
}

// syncBuffer is a log of several ranks.
type syncBuffer struct {
	mu sync.Mutex
	strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Builder.Write(p)
}

// TestChoice is what is chosen without a wish: by ranks, size and type.
func TestChoice(t *testing.T) {
	for _, tc := range []struct {
		n, size int
		dt      DType
		want    string
	}{
		{2, 64 << 20, F32, "direct"},
		{4, 64 << 20, F32, "direct"},
		{8, 64, F32, "direct"},
		{8, 4096, F32, "halving"},
		{8, 64 << 20, F32, "halving"},
		{8, 64 << 20, BF16, "ring"}, // rounded once, after the whole sum
		{8, 4096, BF16, "direct"},
		{12, 64 << 20, F64, "ring"},
		{12, 64 << 10, F64, "direct"},
	} {
		if got := Choose(AlgorithmAuto, tc.n, tc.size, tc.dt); got != tc.want {
			t.Errorf("all_reduce of %d bytes %s between %d ranks is by %s, want %s", tc.size, tc.dt, tc.n, got, tc.want)
		}
	}
}

// conform runs the suite between n ranks of this process.
func conform(t *testing.T, kind string, n int, opt Options) {
	cs := open(t, kind, n, opt)
	for _, tc := range commtest.Cases(commtest.Tree) {
		if tc.Ranks > n || tc.Long && (os.Getenv("GTC_LONG") == "" || n > 4) {
			continue
		}
		must(t, cs, func(c Communicator) error {
			if err := tc.Run(c); err != nil {
				return fmt.Errorf("%s: %w", tc.Name, err)
			}
			return nil
		})
	}
	closeAll(t, cs)
}

// TestSameBits runs one sum over every transport several times.
func TestSameBits(t *testing.T) {
	const n, elems = 4, 40_000
	var want []byte
	for _, kind := range append(kinds, kinds...) {
		cs := open(t, kind, n, Options{})
		out := make([][]byte, n)
		must(t, cs, func(c Communicator) error {
			out[c.Rank()] = commtest.Fill(c.Rank(), elems, F32)
			return c.AllReduce(site("x"), out[c.Rank()], F32, Sum)
		})
		closeAll(t, cs)
		if want == nil {
			want = out[0]
		}
		for r := range n {
			if err := commtest.Expect(fmt.Sprintf("%s rank %d", kind, r), out[r], want); err != nil {
				t.Error(err)
			}
		}
	}
}
