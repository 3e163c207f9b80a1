package stage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestDivide holds the division to all possible ones: the costliest part, with what it sends, costs no more than slack
// above the least, every part has work, and among such cuts no other sends fewer bytes.
func TestDivide(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for try := range 300 {
		n, parts := 4+r.IntN(7), 2+r.IntN(3)
		b := &balance{before: make([]int64, n+1), cross: make([]int64, n+2)}
		for i := range n {
			b.before[i+1] = b.before[i] + int64(r.IntN(4)*1000) // some cost nothing, as views do
			b.cross[i+1] = int64(1 + r.IntN(5))
		}
		b.cross[n] = 0
		least := int64(math.MaxInt64)
		every(b, parts, func(most, _ int64) { least = min(least, most) })
		limit := least + int64(slack*float64(least))
		fewest := int64(math.MaxInt64)
		every(b, parts, func(most, bytes int64) {
			if most <= limit {
				fewest = min(fewest, bytes)
			}
		})
		what := fmt.Sprintf("case %d: costs before %v, bytes %v, %d parts", try, b.before, b.cross, parts)
		ends, err := b.divide(parts)
		if (err != nil) != (least == math.MaxInt64) {
			t.Fatalf("%s: %v", what, err)
		}
		if err != nil {
			continue
		}
		var most, bytes int64
		at := 0
		for _, e := range ends {
			c := b.before[e] - b.before[at]
			if c <= 0 {
				t.Errorf("%s: part up to %d has no work", what, e)
			}
			c += sendCost * b.cross[e]
			most, bytes, at = max(most, c), bytes+b.cross[e], e
		}
		if at != n || most > limit {
			t.Errorf("%s: cut at %v, the costliest part costs %d, at least %d", what, ends, most, least)
		}
		if bytes != fewest {
			t.Errorf("%s: cut at %v, fewest bytes are %d", what, ends, fewest)
		}
	}
}

// every visits all divisions into parts that cost something.
func every(b *balance, parts int, visit func(most, bytes int64)) {
	last := len(b.before) - 1
	var next func(at, left int, most, bytes int64)
	next = func(at, left int, most, bytes int64) {
		for e := at + 1; e <= last; e++ {
			c := b.before[e] - b.before[at]
			if c == 0 || left == 1 && e != last {
				continue
			}
			c += sendCost * b.cross[e]
			if left == 1 {
				visit(max(most, c), bytes+b.cross[e])
			} else {
				next(e, left-1, max(most, c), bytes+b.cross[e])
			}
		}
	}
	next(0, parts, 0, 0)
}
