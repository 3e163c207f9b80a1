package parallel

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gtc-compiler/gtc/bench/compile/gpt"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// plan is a training run: a model, how it is split, and how it goes.
type plan struct {
	tied, frozen, resumed bool
	pass.Options
}

// feature is something that others must combine with. Features of one kind exclude one another.
type feature struct {
	name, kind string
	set        func(p *plan)
}

func scheduled(name string) feature {
	return feature{name, "schedule", func(p *plan) { p.PP, p.Microbatches, p.Pipeline = 2, 4, name }}
}

func zeroStage(n int) feature {
	return feature{fmt.Sprintf("ZeRO %d", n), "zero", func(p *plan) { p.DP, p.Zero = 2, n }}
}

var features = []feature{
	{"tied weights", "", func(p *plan) { p.tied = true }},
	{"accumulation", "", func(p *plan) { p.Microbatches = max(2, p.Microbatches) }},
	{"clipping", "", func(p *plan) { p.ClipNorm = 0.1 }},
	{"frozen", "", func(p *plan) { p.frozen = true }},
	{"resume", "", func(p *plan) { p.resumed = true }},
	zeroStage(1), zeroStage(2), zeroStage(3),
	{"tp", "tp", func(p *plan) { p.TP = 2 }},
	{"sp", "tp", func(p *plan) { p.TP, p.SP = 2, true }},
	scheduled("gpipe"), scheduled("1f1b"), scheduled("interleaved"), scheduled("zb-h1"), scheduled("varuna"),
	{"compression", "", func(p *plan) { p.DP, p.GradComm = 2, pass.GradComm{Compress: "topk", Fraction: 1} }},
	{"reproducible", "", func(p *plan) { p.Reproducible = true }},
}

// tiny is a GPT with enough ops for two stages of two chunks.
var tiny = gpt.Config{Layers: 2, Width: 16, Heads: 2, Vocab: 32, Seq: 8, Data: small.Data}

const tinyBatch = 8

// compile takes the model through the passes; use may read its tensors.
func (p plan) compile(t *testing.T, use func(c *pass.Context) error) error {
	c := tiny
	c.Tied = p.tied
	o := &compiler.Options{Model: write(t, c), Import: onnx.Options{Batch: tinyBatch}, Pass: p.Options}
	o.Pass.Loss, o.Pass.IgnoreIndex = "cross_entropy", -100
	o.Pass.Optimizer = pass.Optimizer{Name: "adamw", LR: 0.01, WeightDecay: 0.1}
	if p.frozen {
		o.Import.Roles = []onnx.RoleRule{{Glob: "*wpe*"}, {Glob: "*h.0.mlp*"}}
	}
	return compiler.LowerTo(o, "overlap", func(res *compiler.Result) error { return use(res.Context) })
}

// tokens are the data of all plans: labels that do not all count.
func tokens(c *pass.Context) map[string]*ir.Array {
	data := map[string]*ir.Array{}
	for _, s := range c.Programs() {
		for _, f := range s.Module.Funcs {
			for _, p := range f.Params {
				switch p.Role {
				case ir.Input, ir.Target:
					x := make([]int64, tinyBatch*tiny.Seq)
					for i := range x {
						x[i] = int64(7*i+i*i) % int64(tiny.Vocab)
						if p.Role == ir.Target && (i < tiny.Seq || i%5 == 0) {
							x[i] = -100
						}
					}
					data[p.Name] = i64([]int{tinyBatch, tiny.Seq}, x...)
				case ir.Weight:
					data[p.Name] = ones(tinyBatch)
				}
			}
		}
	}
	return data
}

// outcome is what a run leaves.
type outcome struct {
	losses []float64
	state  map[string]*ir.Array
}

// run trains for three steps, from what first left when it is given.
func (p plan) run(t *testing.T, steps int, first *outcome) (out *outcome, refusal error) {
	t.Helper()
	refusal = p.compile(t, func(c *pass.Context) error {
		var kept map[string]*ir.Array
		if first != nil {
			kept = first.state
		}
		r := &trained{t: t, c: c, data: tokens(c)}
		r.start(kept)
		out = &outcome{}
		for range steps {
			r.step()
			sum, err := r.sim.Result("loss_sum", false)
			if err != nil || sum == nil {
				t.Fatalf("loss: %v %v", sum, err)
			}
			out.losses = append(out.losses, sum.F[0])
		}
		out.state = r.state()
		return nil
	})
	return out, refusal
}

// oracles are the runs of one rank, by what a plan trains.
var oracles = struct {
	sync.Mutex
	runs map[string]*outcome
}{runs: map[string]*outcome{}}

// oracle is what p leaves after steps on one rank, with nothing split.
func (p plan) oracle(t *testing.T, steps int) *outcome {
	oracles.Lock()
	defer oracles.Unlock()
	key := fmt.Sprint(p.tied, p.frozen, p.ClipNorm, steps)
	if o := oracles.runs[key]; o != nil {
		return o
	}
	one := plan{tied: p.tied, frozen: p.frozen, Options: pass.Options{ClipNorm: p.ClipNorm}}
	o, err := one.run(t, steps, nil)
	if err != nil {
		t.Fatal(err)
	}
	oracles.runs[key] = o
	return o
}

// check holds p, which two features make, to one rank. It returns the refusal of the compiler, if any.
func (p plan) check(t *testing.T) error {
	want := p.oracle(t, 3)
	steps, first := 3, (*outcome)(nil)
	if p.resumed {
		steps, first = 2, p.oracle(t, 1)
	}
	got, err := p.run(t, steps, first)
	if err != nil {
		if strings.Contains(err.Error(), "BUG") || strings.Contains(err.Error(), "panic") {
			t.Error(err)
		}
		return err
	}
	for k, loss := range got.losses {
		if w := want.losses[3-steps+k]; loss-w > 1e-6*w || w-loss > 1e-6*w {
			t.Errorf("loss of step %d is %.9f, want %.9f", 3-steps+k, loss, w)
		}
	}
	for name, w := range want.state {
		if g := got.state[name]; g == nil {
			t.Errorf("%q is missing", name)
		} else if g.Type.Dims = w.Type.Dims; len(g.F)+len(g.I) != w.Type.Elems() {
			t.Errorf("%q has %d elements, want %d", name, len(g.F)+len(g.I), w.Type.Elems())
		} else if err := interp.Differ(w, g, 1e-5); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	return nil
}

// TestFeatures compiles and simulates every pair of features and holds it to one rank: losses of three steps, weights
// and moments. Gradients are compressed so that nothing is lost (topk of all elements), or there would be nothing to hold
// it to. The outcome is the table of docs/parallel.md: ok, or the number of the refusal.
func TestFeatures(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: compiling in many layouts takes half a minute")
	}
	var refusals []string
	cells := map[[2]int]string{}
	for i, x := range features {
		for j, y := range features[:i] {
			if x.kind != "" && x.kind == y.kind {
				cells[[2]int{i, j}] = "-"
				continue
			}
			t.Run(y.name+" + "+x.name, func(t *testing.T) {
				p := plan{}
				y.set(&p)
				x.set(&p)
				cell := "ok"
				if err := p.check(t); err != nil {
					k := slices.Index(refusals, err.Error())
					if k < 0 {
						k = len(refusals)
						refusals = append(refusals, err.Error())
					}
					cell = fmt.Sprintf("[%d]", k+1)
				}
				cells[[2]int{i, j}] = cell
			})
		}
	}
	if t.Failed() {
		return
	}
	var b strings.Builder
	for _, f := range features[:len(features)-1] {
		fmt.Fprintf(&b, " | %s", f.name)
	}
	fmt.Fprintf(&b, " |\n%s|\n", strings.Repeat("|---", len(features)))
	for i, f := range features[1:] {
		fmt.Fprintf(&b, "| %s", f.name)
		for j := range len(features) - 1 {
			fmt.Fprintf(&b, " | %s", cells[[2]int{i + 1, j}])
		}
		fmt.Fprintln(&b, " |")
	}
	for k, text := range refusals {
		fmt.Fprintf(&b, "\n%d. %s\n", k+1, strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n   "))
	}
	document(t, "features", "|"+b.String())
}
