package loop

import (
	"strconv"
	"strings"
	"testing"
)

// BenchmarkStep is a step of the toy, whose kernels cost next to nothing: what the run-time itself takes.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		name string
		dp   int
	}{{"1 rank", 1}, {"2 ranks", 2}} {
		b.Run(c.name, func(b *testing.B) {
			m := newToy()
			m.dp = c.dp
			dir, data := m.folder(b, 50)
			n := max(b.N, 10)
			o := m.job(b, dir, nil, nil, "--data", data, "--steps", strconv.Itoa(n), "--checkpoint-dir=none", "--log-every", strconv.Itoa(n))
			if strings.Contains(o.err, "gtc:") {
				b.Fatal(o.err)
			}
		})
	}
}
