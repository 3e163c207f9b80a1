package passes_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/internal/mutations"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// sample is a model with options that give passes something to do.
type sample struct {
	name  string
	model func(t testing.TB) *ir.Module
	opt   pass.Options
}

// fromFile imports a model of testdata, or of the shared models.
func fromFile(path string, batch int) func(t testing.TB) *ir.Module {
	path, _ = filepath.Abs(path) // tests go elsewhere
	return func(t testing.TB) *ir.Module {
		m, err := onnx.Load(path, onnx.Options{Batch: batch})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		mod, err := m.Import()
		if err != nil {
			t.Fatal(err)
		}
		return mod
	}
}

// of is a model that a function makes.
func of(m func() *ir.Module) func(t testing.TB) *ir.Module {
	return func(testing.TB) *ir.Module { return m() }
}

// timeMajor is a projection of x[time, batch, channels] with a bias, added up over time: rows of its products are of samples
// that do not lie together.
func timeMajor() *ir.Module {
	f := &ir.Func{Name: "forward"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "time"}
	x := b.Param("x", ir.T(dtype.F32, 4, 3, 6), ir.Input)
	w := b.Param("w", ir.T(dtype.F32, 6, 5), ir.Param)
	v := b.Param("v", ir.T(dtype.F32, 5, 6), ir.Param)
	bias := b.Param("b", ir.T(dtype.F32, 5), ir.Param)
	h := ops.Reshape(b, ops.Transpose(b, x, []int{1, 0, 2}), []int{12, 6})
	h = ops.Relu(b, ops.Add(b, ops.MatMul(b, h, w), ops.BroadcastTo(b, bias, []int{12, 5})))
	h = ops.Reshape(b, ops.MatMul(b, h, v), []int{3, 4, 6})
	b.Result("out0", ops.ReduceMean(b, h, 0))
	return &ir.Module{Funcs: []*ir.Func{f}}
}

// stacked is attention whose queries, keys and values are one product, so that --tp has to take it apart.
func stacked() *ir.Module {
	const n, t, d = 4, 3, 8
	f := &ir.Func{Name: "forward"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "attention"}
	x := b.Param("x", ir.T(dtype.F32, n, t, d), ir.Input)
	w := b.Param("qkv", ir.T(dtype.F32, d, 3*d), ir.Param)
	out := b.Param("o", ir.T(dtype.F32, d, d), ir.Param)
	all := ops.MatMul(b, ops.Reshape(b, x, []int{n * t, d}), w)
	var part [3]*ir.Value
	for i := range part {
		part[i] = ops.Transpose(b, ops.Reshape(b, ops.SliceDim(b, all, 1, i*d, d), []int{n, t, d / 2, 2}), []int{0, 2, 1, 3})
	}
	y := ops.MatMul(b, ops.Softmax(b, ops.MatMulT(b, part[0], part[1], false, true), 3), part[2])
	y = ops.Reshape(b, ops.Transpose(b, y, []int{0, 2, 1, 3}), []int{n * t, d})
	b.Result("out0", ops.Reshape(b, ops.MatMul(b, y, out), []int{n, t, d}))
	return &ir.Module{Funcs: []*ir.Func{f}}
}

// turned is two layers, of which the second has its weight transposed back and forth, as no product reads it before normalize.
func turned() *ir.Module {
	f := &ir.Func{Name: "forward"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "turned"}
	x := b.Param("x", ir.T(dtype.F32, 4, 6), ir.Input)
	w := b.Param("w", ir.T(dtype.F32, 5, 6), ir.Param)
	v := b.Param("v", ir.T(dtype.F32, 5, 3), ir.Param)
	h := ops.Tanh(b, ops.MatMulT(b, x, w, false, true))
	b.Result("out0", ops.MatMul(b, h, ops.Transpose(b, ops.Transpose(b, v, []int{1, 0}), []int{1, 0})))
	return &ir.Module{Funcs: []*ir.Func{f}}
}

// orderSamples are small models, each with options, so that every pass of the table changes one of them at least
// (TestFactsHold), and the quickest of the shared models where they are there.
func orderSamples(t testing.TB) []sample {
	sgd, adamw := pass.Optimizer{LR: 0.1}, pass.Optimizer{Name: "adamw", LR: 0.01, WeightDecay: 0.1}
	list := []sample{
		{"gates on ranks and micro-batches", of(func() *ir.Module { return gates(3) }), pass.Options{Loss: "mse", DP: 2, Microbatches: 2, Optimizer: adamw, ClipNorm: 1}},
		{"blocks in bf16 on a GPU", of(func() *ir.Module { return deep(2) }), pass.Options{Loss: "mse", Target: pass.CUDA, Arch: []string{pass.Host}, Precision: "bf16", DP: 2, Optimizer: adamw}},
		{"blocks in fp16", of(func() *ir.Module { return deep(1) }), pass.Options{Loss: "mse", Precision: "fp16", Optimizer: sgd}},
		{"attention on tensor-parallel ranks", of(stacked), pass.Options{Loss: "mse", TP: 2, DP: 2, Zero: 3, Forward: true, Optimizer: adamw}},
		{"time first", of(timeMajor), pass.Options{Loss: "mse", DP: 2, Microbatches: 2, BatchDim: []string{"x=0"}, Optimizer: sgd}},
		{"reproducible", of(func() *ir.Module { return regression(8) }), pass.Options{Loss: "mse", DP: 2, Microbatches: 4, Reproducible: true, ClipNorm: 1, Optimizer: sgd}},
		{"reproducible stages", of(func() *ir.Module { return deep(2) }), pass.Options{Loss: "mse", PP: 2, Microbatches: 2, Reproducible: true, Optimizer: sgd}},
		{"compressed", of(func() *ir.Module { return regression(8) }), pass.Options{Loss: "mse", DP: 2, Microbatches: 2, GradComm: pass.GradComm{Compress: "powersgd", Rank: 2}, Optimizer: sgd}},
		{"local steps", of(func() *ir.Module { return regression(8) }), pass.Options{Loss: "mse", DP: 2, GradComm: pass.GradComm{Period: 3}, Optimizer: sgd}},
		{"halved messages on a GPU", of(func() *ir.Module { return regression(8) }), pass.Options{Loss: "mse", DP: 2, Zero: 2, Target: pass.CUDA, Arch: []string{pass.Host}, GradComm: pass.GradComm{DType: "bf16"}, Optimizer: sgd}},
		{"adapters", of(turned), pass.Options{Loss: "mse", LoRA: pass.LoRA{Rank: 2, Targets: []string{"*"}}, Forward: true, Optimizer: adamw}},
	}
	for seed := uint64(1); seed <= 6; seed++ {
		r := rand.New(rand.NewPCG(seed, 1))
		_, loss := randomForward(r)
		opt := randomLayout(r)
		opt.Loss, opt.StopAfter = loss, ""
		list = append(list, sample{fmt.Sprint("random ", seed), of(func() *ir.Module {
			m, _ := randomForward(rand.New(rand.NewPCG(seed, 1)))
			return m
		}), *opt})
	}
	for _, name := range []string{"lstm"} {
		list = append(list, sample{name, fromFile("testdata/roles/"+name+".onnx", 0), pass.Options{Loss: "mse", Optimizer: adamw}})
	}
	if _, err := os.Stat("../../shared/models/mlp.onnx"); err == nil && !testing.Short() {
		list = append(list, sample{"mlp", fromFile("../../shared/models/mlp.onnx", 16), pass.Options{Loss: "cross_entropy", DP: 2, Zero: 1, Microbatches: 2, Forward: true, Optimizer: adamw}})
		list = append(list, sample{"GPT", fromFile("../../shared/models/gpt_loss_inside.onnx", 4), pass.Options{Loss: "graph", TP: 2, PP: 2, Microbatches: 2, Optimizer: adamw}})
	} else {
		t.Log("mlp and GPT are NOT among the samples: shared/ is absent beside the checkout, or -short is given")
	}
	return list
}

// through takes a model through a table.
func (s *sample) through(t testing.TB, table []pass.Pass) (*pass.Context, error) {
	opt := s.opt
	opt.IgnoreIndex = -100
	c := &pass.Context{Module: s.model(t), Opt: &opt}
	return c, passes.Run(c, table)
}

// programText is everything that code is made of, but for the names of values: they are numbered in order.
func programText(t testing.TB, c *pass.Context) string {
	var b strings.Builder
	for i, p := range c.Programs() {
		for _, f := range p.Module.Funcs {
			n := 0
			for _, op := range f.Ops {
				for _, v := range op.Out {
					n++
					v.Name = fmt.Sprint("v", n)
				}
			}
		}
		facts, err := json.MarshalIndent([]any{p.Plan, p.Actions, p.Slots, c.FileDims, c.CrossSample, c.Noise, c.BatchDims, c.SingleValueStatistics, c.Loss}, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "# stage %d\n%s%s\n", i, p.Module, facts)
	}
	return b.String()
}

// simulated are the ranks of a compilation and random data for them.
func simulated(c *pass.Context) (programs []interp.Program, args map[string]*ir.Array) {
	args = map[string]*ir.Array{}
	for _, p := range c.Programs() {
		programs = append(programs, interp.Program{Module: p.Module, Actions: p.Actions, Slots: p.Slots})
		for _, f := range p.Module.Funcs {
			for name, x := range interp.Random(f, 1) {
				v := f.Param(name)
				whole := ir.NewArray(ir.T(v.Type.DType, interp.WholeDims(p.Module.Mesh, v)...))
				for i := range whole.F {
					whole.F[i] = x.F[i%len(x.F)]
				}
				for i := range whole.I {
					whole.I[i] = x.I[i%len(x.I)]
				}
				args[name] = whole
			}
		}
	}
	return programs, args
}

// results are what two steps of the ranks give and keep, on random data, and what @eval and @forward give.
func results(c *pass.Context) (map[string][]float64, error) { return shuffled(c, 0) }

// shuffled is results with what the program leaves open done as the seed has it, unless that is 0.
func shuffled(c *pass.Context, seed uint64) (map[string][]float64, error) {
	programs, args := simulated(c)
	s, err := interp.Simulate(programs, args)
	if err != nil {
		return nil, err
	}
	s.Shuffle = seed
	for range 2 {
		if err := s.Step(args); err != nil {
			return nil, err
		}
	}
	all := map[string][]float64{}
	note := func(function string) {
		for rank := range programs[0].Module.Mesh.Ranks() {
			for _, name := range s.Names() {
				if x := s.Kept(rank, name); x != nil {
					all[fmt.Sprintf("rank %d keeps %s behind @%s", rank, name, function)] = numbers(x)
				}
			}
			for i, call := range s.Calls(rank) {
				for name, x := range call.Out.Named {
					all[fmt.Sprintf("rank %d gives %s in call %d of @%s", rank, name, i, function)] = numbers(x)
				}
			}
		}
	}
	note("step")
	for _, name := range []string{"eval", "forward"} {
		if slices.ContainsFunc(programs, func(p interp.Program) bool { return p.Module.Func(name) != nil }) {
			if err := s.Call(name, args); err != nil {
				return nil, err
			}
			note(name)
		}
	}
	return all, nil
}

func numbers(x *ir.Array) []float64 {
	list := slices.Clone(x.F)
	for _, v := range x.I {
		list = append(list, float64(v))
	}
	return list
}

// difference says how a program of sample s differs from the one that the table makes as it is, of which text and numbers are
// given: "" is the same text up to names of values, and the same bits of every result where the text is another.
func (s *sample) difference(t testing.TB, table []pass.Pass, text string, want map[string][]float64) string {
	c, err := s.through(t, table)
	if err != nil {
		return err.Error()
	}
	if programText(t, c) == text {
		return ""
	}
	if lacks := lacking(c, passes.Finished); len(lacks) > 0 {
		return lacks[0]
	}
	got, err := results(c)
	if err != nil {
		return err.Error()
	}
	for name, x := range want {
		same := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
		if !slices.EqualFunc(x, got[name], same) {
			return fmt.Sprintf("another program: %s is %v, not %v", name, got[name][:min(4, len(got[name]))], x[:min(4, len(x))])
		}
	}
	t.Logf("%s: another program with the same results, to the bit", s.name)
	return ""
}

// unseen are swaps that Check refuses though no sample is computed wrong by them, with the reason.
var unseen = map[string]string{
	"unstack before trainstep": "it is the products of all functions that are taken apart, and trainstep makes the functions; of a GPT sums come in another order",
	"epilogue before overlap":  "overlap counts ops to find reductions that are near one another: other buckets, of the same numbers",
}

// TestMutationsOfOrder swaps every two neighbours of the table. What Check lets through gives the same programs: the same
// text up to names of values, or the same bits of all results (a sum in another order would show). What it refuses gives, of
// one of the samples, another program, or none: no row states more than it must.
func TestMutationsOfOrder(t *testing.T) {
	list := mutations.Of(t, len(passes.Table)-1)
	samples := orderSamples(t)
	t.Chdir(t.TempDir()) // where passes that break leave what they were given
	text, numbers := make([]string, len(samples)), make([]map[string][]float64, len(samples))
	for i, s := range samples {
		c, err := s.through(t, passes.Table)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		text[i] = programText(t, c)
		if numbers[i], err = results(c); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
	for i := range passes.Table[1:] {
		table := slices.Clone(passes.Table)
		table[i], table[i+1] = table[i+1], table[i]
		pair := table[i].Name + " before " + table[i+1].Name
		mutation := "passes swapped: " + pair
		refused := passes.Check(table, pass.Typed, passes.Finished)
		for k := range table {
			table[k].Needs = 0 // so that the driver runs them
		}
		found := ""
		for k, s := range samples {
			d := s.difference(t, table, text[k], numbers[k])
			if d != "" && refused == nil {
				t.Errorf("%s is let through: %s: %s", pair, s.name, d)
			}
			if found == "" && d != "" {
				if found = s.name + ": " + d; refused != nil {
					break
				}
			}
		}
		switch {
		case refused == nil && found == "":
			list.Harmless(mutation, fmt.Sprintf("all %d samples have the same text up to names of values, or the same results to the bit", len(samples)))
		case refused == nil:
			list.Missed(mutation)
		case found == "" && unseen[pair] == "":
			t.Errorf("%s: refused without need: %v", pair, refused)
		default:
			list.Caught(mutation, "Check", fmt.Sprintf("%v; it would give: %s", refused, cmp.Or(found, unseen[pair])))
		}
	}
}
