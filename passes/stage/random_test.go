package stage_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

const batch, width = 8, 4

// randomModel makes @forward: a random graph over x[batch,width], with weights that are used again (tied), frozen ones,
// values that skip ahead, masks made of the data alone, dropout, and scalars.
func randomModel(r *rand.Rand) *ir.Module {
	f := &ir.Func{Name: "forward"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "random"}
	x := b.Param("x", ir.T(dtype.F32, batch, width), ir.Input)
	mask := b.Param("mask", ir.T(dtype.F32, batch, width), ir.Input)
	tokens := b.Param("tokens", ir.T(dtype.I64, batch), ir.Input)
	step := b.Param("step", ir.T(dtype.I64), ir.State)
	weights := map[string][]*ir.Value{}
	weight := func(kind string, dims ...int) *ir.Value { // new, or one that is there
		if list := weights[kind]; len(list) > 0 && r.IntN(3) == 0 {
			return list[r.IntN(len(list))]
		}
		role := ir.Param
		if r.IntN(6) == 0 {
			role = ir.Buffer
		}
		w := b.Param(fmt.Sprintf("%s%d", kind, len(weights[kind])), ir.T(dtype.F32, dims...), role)
		weights[kind] = append(weights[kind], w)
		return w
	}
	values := []*ir.Value{ops.MatMul(b, x, weight("w", width, width))}
	pick := func() *ir.Value { // mostly the last
		return values[len(values)-1-min(r.IntN(len(values)), r.IntN(len(values)))]
	}
	for i := range 5 + r.IntN(12) {
		v, dims := pick(), []int{batch, width}
		switch r.IntN(16) {
		case 0, 1, 2:
			v = ops.MatMul(b, v, weight("w", width, width))
		case 3:
			v = ops.MatMul(b, v, ops.Transpose(b, weight("w", width, width), []int{1, 0}))
		case 4:
			v = ops.Add(b, v, pick())
		case 5:
			v = ops.Mul(b, v, pick())
		case 6:
			v = ops.Add(b, v, ops.BroadcastTo(b, weight("b", width), dims))
		case 7:
			v = ops.Tanh(b, v)
		case 8:
			v = ops.Mul(b, v, ops.BroadcastTo(b, weight("s"), dims))
		case 9:
			v = ops.Where(b, ops.Gt(b, mask, ops.ScalarLike(b, mask, 0.3)), v, ops.ScalarLike(b, v, 0))
		case 10:
			v = ops.Dropout(b, v, step, 0.25, i)
		case 11:
			v = ops.Add(b, v, ops.Gather(b, weight("e", 6, width), tokens, 0))
		case 12:
			e := weight("e", 6, width)
			v = ops.MatMul(b, ops.Tanh(b, ops.MatMulT(b, v, e, false, true)), e)
		case 13:
			v, _, _ = ops.LayerNorm(b, v, weight("g", width), weight("b", width), ops.NormAttrs{Eps: 0.1, Dims: 1})
		case 14:
			if norm := r.IntN(4) == 0; norm {
				n := fmt.Sprint(i)
				mean, variance := b.Param("mean"+n, ir.T(dtype.F32, width), ir.Buffer), b.Param("var"+n, ir.T(dtype.F32, width), ir.Buffer)
				b.Loc.OpType = "BatchNormalization"
				v = b.Emit(ops.BatchNormStatDef, ops.BatchNormStatAttrs{Eps: 0.1, Momentum: 0.1}, v, weight("g", width), weight("b", width), mean, variance)
				b.Loc.OpType = ""
			}
		case 15:
			v = ops.Concat(b, 1, ops.SliceDim(b, v, 1, 2, 2), ops.SliceDim(b, pick(), 1, 0, 2))
		}
		values = append(values, v)
	}
	b.Result("out0", ops.Add(b, values[len(values)-1], ops.Tanh(b, pick())))
	m := &ir.Module{Funcs: []*ir.Func{f}}
	f.DCE()
	return m
}

// randomOptions are a layout and a way of training.
func randomOptions(r *rand.Rand) *pass.Options {
	o := &pass.Options{Loss: "mse", IgnoreIndex: -100, PP: 2 + r.IntN(3), DP: 1 + r.IntN(2), Microbatches: 1 << r.IntN(3),
		Pipeline: []string{"gpipe", "1f1b", "interleaved", "zb-h1", "varuna"}[r.IntN(5)], SyncBN: true, Check: r.IntN(3) == 0, Reproducible: r.IntN(4) == 0}
	if o.Pipeline == "interleaved" {
		o.PP, o.Microbatches = 2, 2
		o.Chunks = 2 + r.IntN(2)
	}
	if o.DP == 2 {
		o.Zero = r.IntN(4)
	}
	if r.IntN(2) == 0 {
		o.ClipNorm = 0.1
	}
	o.Optimizer = pass.Optimizer{Name: []string{"sgd", "adamw", "lamb", "lars"}[r.IntN(4)], LR: 0.01, WeightDecay: 0.01}
	if o.Optimizer.Name == "sgd" || o.Optimizer.Name == "lars" {
		o.Optimizer.Momentum = 0.9
	}
	if r.IntN(2) == 0 { // its forward makes its gradient
		o.Loss = "cross_entropy"
	}
	return o
}

// TestRandom cuts random models in random layouts; the stages together do what the whole program does, over two steps.
// GTC_TEST_SEED runs one.
func TestRandom(t *testing.T) {
	first, n := 0, 60
	if testing.Short() {
		n = 10
	}
	if s := os.Getenv("GTC_TEST_SEED"); s != "" {
		first, _ = strconv.Atoi(s)
		n = 1
	}
	few := 0
	for seed := first; seed < first+n; seed++ {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		m := randomModel(r)
		c := &pass.Context{Module: m, Opt: randomOptions(r)}
		text := fmt.Sprintf("seed %d: %+v\n%s", seed, *c.Opt, m)
		whole, err := cut(c)
		if err != nil && (strings.Contains(err.Error(), "cannot be cut into") || strings.Contains(err.Error(), "does not depend on any trained") ||
			strings.Contains(err.Error(), "make all micro-batches one")) {
			few++
			continue
		}
		if err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
		for _, s := range c.Stages {
			if err := s.Module.Verify(); err != nil {
				t.Fatalf("%s\n%v", text, err)
			}
		}
		for _, f := range whole {
			if err := interp.EquivalentPrograms(programs(c), f, interp.Random(f, uint64(seed)), 2); err != nil {
				t.Fatalf("%s\n%v", text, err)
			}
		}
	}
	if few > n/2 {
		t.Errorf("%d of %d models are too small to be cut", few, n)
	}
}
