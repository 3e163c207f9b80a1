package parallel

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/passes/pass"
)

// within holds a measurement to a formula.
func within(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if math.Abs(got-want) > tol*want {
		t.Errorf("%s: %.0f, the formula says %.0f: %.1f %% apart, more than %.1f %%", what, got, want, 100*math.Abs(got-want)/want, 100*tol)
	}
}

// TestModelStates holds parameters, gradients and the state of Adam to the arithmetic of ZeRO (Rajbhandari et al. 2020,
// arXiv:1910.02054, section 5), which counts 2 bytes for a parameter, 2 for its gradient and K = 12 for the optimizer in
// mixed precision. In single precision they are 4, 4 and K = 8, the two moments. Of N ranks each holds
//
//	stage 0: 4Ψ + 4Ψ + 8Ψ    1: 4Ψ + 4Ψ + 8Ψ/N    2: 4Ψ + (4Ψ + 8Ψ)/N    3: (4Ψ + 4Ψ + 8Ψ)/N
//
// Gradients are counted as the sums over micro-batches, which last from one call to the next.
func TestModelStates(t *testing.T) {
	psi := float64(small.Parameters())
	var b strings.Builder
	fmt.Fprintf(&b, "| stage | formula | N = 1 | N = 2 | N = 4 | N = 8 |\n|---|---|---|---|---|---|\n")
	for stage, formula := range []string{"4Ψ + 4Ψ + 8Ψ", "4Ψ + 4Ψ + 8Ψ/N", "4Ψ + (4Ψ + 8Ψ)/N", "(4Ψ + 4Ψ + 8Ψ)/N"} {
		fmt.Fprintf(&b, "| %d | %s |", stage, formula)
		for _, n := range []int{1, 2, 4, 8} {
			if n == 1 && stage > 0 {
				fmt.Fprint(&b, " |")
				continue
			}
			params, grads, moments := keptBytes(planned(t, small, smallBatch, options(n, 1, 1, 2, stage)))
			want := [3]float64{4 * psi, 4 * psi, 8 * psi}
			for i := range want {
				if i+stage > 2 { // moments from stage 1 on, gradients from 2, parameters from 3
					want[i] /= float64(n)
				}
			}
			what := fmt.Sprintf("stage %d of %d ranks", stage, n)
			within(t, what+": parameters", float64(params), want[0], 0.02)
			within(t, what+": gradients", float64(grads), want[1], 0.02)
			within(t, what+": moments", float64(moments), want[2], 0.02)
			sum := float64(params + grads + moments)
			fmt.Fprintf(&b, " %.0f (%+.2f %%) |", sum, 100*(sum/(want[0]+want[1]+want[2])-1))
		}
		fmt.Fprintln(&b)
	}
	document(t, "states", b.String())
}

// TestActivations holds what a layer keeps from forward to backward to Megatron's formula (Korthikanti et al. 2022,
// arXiv:2205.05198, table 2), of s tokens, b samples, width h, a heads, t ranks. It counts bytes in half precision:
//
//	sbh·34 + 5abs²    tp: sbh·(10 + 24/t) + 5abs²/t    tp and sp: (sbh·34 + 5abs²)/t
//
// Of the 34 two are masks of dropout (and one of that in attention), which this model does not have, and 32 are 16 tensors
// of sbh elements: inputs and outputs of two norms (4), queries, keys, values (3), what attention gives (1), and input
// and output of GELU (8). Scores, the 5abs², are not kept: attention is one kernel, which keeps one number for each row
// of them instead. In single precision, in elements:
//
//	sbh·16 + abs    tp: sbh·(4 + 12/t) + abs/t    tp and sp: (sbh·16 + abs)/t
//
// It is measured as what two more layers take for twice the samples, so that what does not grow with both is left out.
func TestActivations(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: compiling in many layouts takes half a minute")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| layout | formula | elements of a layer and sample by the formula | by the plan |\n|---|---|---|---|\n")
	s, h, a := float64(small.Seq), float64(small.Width), float64(small.Heads)
	sequence := func(tp int) func(o *pass.Options) {
		return func(o *pass.Options) { o.TP, o.SP, o.Microbatches = tp, true, 2 }
	}
	for _, l := range []struct {
		name, formula string
		set           func(o *pass.Options)
		want          float64
	}{
		{"one rank", "sh·16 + as", options(1, 1, 1, 2, 0), s*h*16 + a*s},
		{"tp 2", "sh·(4 + 12/2) + as/2", options(1, 2, 1, 2, 0), s*h*10 + a*s/2},
		{"tp 4", "sh·(4 + 12/4) + as/4", options(1, 4, 1, 2, 0), s*h*7 + a*s/4},
		{"tp 2, sp", "(sh·16 + as)/2", sequence(2), (s*h*16 + a*s) / 2},
		{"tp 4, sp", "(sh·16 + as)/4", sequence(4), (s*h*16 + a*s) / 4},
	} {
		held := func(layers, batch int) int {
			c := small
			c.Layers = layers
			return live(planned(t, c, batch, l.set).Module.Func("micro"))
		}
		samples := smallBatch / 2 // more, in a micro-batch
		bytes := held(4, 2*smallBatch) - held(2, 2*smallBatch) - held(4, smallBatch) + held(2, smallBatch)
		got := float64(bytes) / 2 / 4 / float64(samples)
		within(t, l.name, got, l.want, 0.05)
		fmt.Fprintf(&b, "| %s | %s | %.0f | %.0f (%+.2f %%) |\n", l.name, l.formula, l.want, got, 100*(got/l.want-1))
	}
	document(t, "activations", b.String())
}

// traffic is the sum over the collectives of @step over an axis of what a rank sends: of n ranks a ring all_reduce sends
// 2(n-1)/n of its bytes, reduce_scatter and all_gather (n-1)/n of those of the whole tensor. Single numbers (the loss,
// its count, norms) are left out.
func traffic(c *pass.Context, over string) (bytes float64, kinds map[string]int) {
	n := float64(c.Module.Mesh.Size(over))
	kinds = map[string]int{}
	for _, op := range c.Module.Func("step").Ops {
		if axis(op) != over {
			continue
		}
		sent := 0.0
		for i, v := range op.In {
			if v.Type.Elems() <= 2 {
				continue
			}
			switch op.Def.Name {
			case "all_reduce":
				sent += 2 * (n - 1) / n * float64(v.Type.Bytes())
			case "reduce_scatter", "all_to_all":
				sent += (n - 1) / n * float64(v.Type.Bytes())
			case "all_gather":
				sent += (n - 1) / n * float64(op.Out[i].Type.Bytes())
			}
		}
		if sent > 0 {
			kinds[op.Def.Name]++
		}
		bytes += sent
	}
	return bytes, kinds
}

// TestTraffic: what a rank sends in a step is what the formulas say, exactly. Data parallelism reduces every gradient
// once, 2(n-1)/n·4Ψ. ZeRO 1 and 2 scatter the sums and gather the parameters, which is the same. ZeRO 3 gathers the
// parameters twice and scatters the gradients, 3(n-1)/n·4Ψ, half as much again; but what backward does not read (biases,
// embeddings) it gathers once.
func TestTraffic(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "| layout | formula | bytes a rank sends in a step | of data parallelism |\n|---|---|---|---|\n")
	psi := float64(small.Parameters())
	for _, n := range []int{2, 4, 8} {
		part := float64(n-1) / float64(n)
		all := 2 * part * 4 * psi
		for stage := range 4 {
			formula, want := "2(n-1)/n·4Ψ", all
			if stage == 3 {
				formula, want = "3(n-1)/n·4Ψ less (n-1)/n·4Ψ' of what backward does not read", 3*part*4*psi-part*4*unread()
			}
			c := planned(t, small, smallBatch, options(n, 1, 1, 1, stage))
			got, kinds := traffic(c, "dp")
			name := fmt.Sprintf("dp %d, zero %d", n, stage)
			if math.Abs(got-want) > 0.5 {
				t.Errorf("%s: a rank sends %.1f bytes, the formula says %.1f: %v", name, got, want, kinds)
			}
			fmt.Fprintf(&b, "| %s | %s | %.0f | %.3f |\n", name, formula, got, got/all)
		}
	}
	document(t, "traffic", b.String())
}

// unread is the number of elements of the parameters that backward does not read: biases, positions and embeddings.
func unread() float64 {
	d := small.Width
	biases := small.Layers*(3*d+d+4*d+d+2*d) + d // of four products and two norms, and the last norm
	return float64(biases + (small.Vocab+small.Seq)*d)
}

// TestMegatron: tensor parallelism takes four all_reduces of sbh elements a layer (Shoeybi et al. 2019,
// arXiv:1909.08053): two in forward, two in backward. With sequence parallelism each is a reduce_scatter and an
// all_gather, of the same bytes together; backward gathers the two inputs of column-parallel products anew, of which each
// rank kept its part (Korthikanti et al. 2022, section 4.2.2), and the gradients of the two norms, 4h numbers, are
// partial sums over the tokens, which are reduced once a step.
func TestMegatron(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "| layout | collectives of a layer | bytes a rank sends | of 4 all_reduces |\n|---|---|---|---|\n")
	for _, l := range []struct {
		name string
		tp   int
		sp   bool
	}{{"tp 2", 2, false}, {"tp 4", 4, false}, {"tp 2, sp", 2, true}, {"tp 4, sp", 4, true}} {
		count := func(layers int) (float64, map[string]int) {
			c := small
			c.Layers = layers
			return traffic(planned(t, c, smallBatch, func(o *pass.Options) { o.TP, o.SP = l.tp, l.sp }), "tp")
		}
		few, kinds := count(2)
		many, more := count(4)
		each := (many - few) / 2
		n := float64(l.tp)
		four := 4 * 2 * (n - 1) / n * float64(4*small.Seq*smallBatch*small.Width)
		var list []string
		for _, kind := range []string{"all_reduce", "reduce_scatter", "all_gather", "all_to_all"} {
			if d := more[kind] - kinds[kind]; d != 0 {
				list = append(list, fmt.Sprintf("%g %s", float64(d)/2, kind))
			}
		}
		want, bytes := "4 all_reduce", four
		if l.sp {
			want = "4 reduce_scatter, 6 all_gather"
			bytes = four*10/8 + 2*(n-1)/n*float64(4*4*small.Width)
		}
		if got := strings.Join(list, ", "); got != want || each != bytes {
			t.Errorf("%s: a layer has %v of %.0f bytes, want %s of %.0f", l.name, got, each, want, bytes)
		}
		fmt.Fprintf(&b, "| %s | %s | %.0f | %.3f |\n", l.name, strings.Join(list, ", "), each, each/four)
	}
	document(t, "megatron", b.String())
}
