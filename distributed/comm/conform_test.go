package comm_test

import (
	"fmt"
	"os"
	"testing"

	. "github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/comm/commtest"
)

// TestConformance runs the suite over every transport. GTC_LONG=1 adds the
// buffers of 100 MB.
func TestConformance(t *testing.T) {
	for _, kind := range kinds {
		for _, n := range []int{1, 2, 3, 4, 6} {
			t.Run(name(kind, n), func(t *testing.T) {
				cs := open(t, kind, n, Options{})
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
			})
		}
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
