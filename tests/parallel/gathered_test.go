package parallel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/bench/compile/gpt"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// gathered is the most bytes of whole parameters that f holds at once: what it gathers and reads later.
func gathered(f *ir.Func) int {
	last := lastReads(f)
	held, most := map[*ir.Value]bool{}, 0
	for i, op := range f.Ops {
		if op.Def.Name == "all_gather" && strings.HasPrefix(op.Why, "ZeRO-3: gathers") {
			for _, v := range op.Out {
				held[v] = true
			}
		}
		sum := 0
		for v := range held {
			sum += v.Type.Bytes()
		}
		most = max(most, sum)
		for v := range held {
			if last[v] <= i {
				delete(held, v)
			}
		}
	}
	return most
}

// TestGathered: under ZeRO 3 a rank holds few whole parameters at a time, that which it computes with and the next, so
// that its arena is that of ZeRO 2 less (1-1/N)·4Ψ and not more than two layers above that. Layers are small beside the
// model in the second: a bound by the model's size would let several of them wait.
func TestGathered(t *testing.T) {
	deep := small
	deep.Layers, deep.Vocab = 8, 64
	var b strings.Builder
	fmt.Fprintf(&b, "| layers | N | arena, ZeRO 2 | arena, ZeRO 3 | ZeRO 2 less (1-1/N)·4Ψ | two layers | gathered at most |\n|---|---|---|---|---|---|---|\n")
	for _, c := range []gpt.Config{small, deep} {
		psi, h := c.Parameters(), c.Width
		layers := 2 * 4 * (12*h*h + 13*h)
		enough := 2*4*max(4*h*h, c.Vocab*h) + 4*13*h // twice the largest, and the biases and norms of a layer
		for _, n := range []int{2, 4, 8} {
			for _, micros := range []int{1, 2} {
				two, three := planned(t, c, smallBatch, options(n, 1, 1, micros, 2)), planned(t, c, smallBatch, options(n, 1, 1, micros, 3))
				want := two.Plan.ArenaBytes - 4*psi*(n-1)/n
				name := fmt.Sprintf("%d layers, dp %d, %d micro-batches", c.Layers, n, micros)
				if got := three.Plan.ArenaBytes; got > want+layers {
					t.Errorf("%s: the arena of ZeRO 3 takes %d bytes, that of ZeRO 2 less parameters %d and two layers %d", name, got, want, layers)
				}
				most := held(three)
				if most > enough || most == 0 {
					t.Errorf("%s: a rank holds %d bytes of whole parameters at once; twice the largest and a layer's small ones are %d", name, most, enough)
				}
				if micros == 1 {
					fmt.Fprintf(&b, "| %d | %d | %d | %d | %d | %d | %d |\n", c.Layers, n, two.Plan.ArenaBytes, three.Plan.ArenaBytes, want, layers, most)
				}
			}
		}
	}
	document(t, "gathered", b.String())
}

// held is the most of gathered over the functions of c's program.
func held(c *pass.Context) int {
	most := 0
	for _, f := range c.Module.Funcs {
		most = max(most, gathered(f))
	}
	return most
}
