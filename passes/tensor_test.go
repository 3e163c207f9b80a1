package passes_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// tensorCase is a model in one layout.
type tensorCase struct {
	file       string
	dp, tp, mb int
	sp         bool
}

// TestTensorParallel runs the rank programs of models split over tp on simulated ranks against the whole program.
// GTC_TEST_MODEL chooses models by prefix, or "all".
func TestTensorParallel(t *testing.T) {
	cases := []tensorCase{{"mlp.onnx", 1, 2, 1, false}, {"mlp.onnx", 2, 2, 2, false}, {"gpt_loss_inside.onnx", 1, 2, 1, false}}
	if !testing.Short() {
		cases = append(cases, tensorCase{"gpt2_tiny.dynamo.onnx", 2, 2, 2, false}, tensorCase{"gpt2_tiny.dynamo.onnx", 1, 2, 1, true},
			tensorCase{"llama_tiny.dynamo.onnx", 1, 4, 1, false}, tensorCase{"llama_tiny.opt.onnx", 1, 2, 1, true}, tensorCase{"bert_tiny.onnx", 1, 3, 1, false})
	}
	if only := os.Getenv("GTC_TEST_MODEL"); only != "" {
		cases = nil
		files, _ := filepath.Glob(filepath.Join(fixtures.Path(t, "models"), "*.onnx"))
		for _, file := range files {
			base := filepath.Base(file)
			if only != "all" && !strings.HasPrefix(base, only) {
				continue
			}
			for _, c := range []tensorCase{{"", 1, 2, 1, false}, {"", 1, 4, 1, false}, {"", 2, 2, 2, false}, {"", 1, 2, 1, true}, {"", 1, 3, 1, false}} {
				c.file = base
				cases = append(cases, c)
			}
		}
	}
	for _, k := range cases {
		t.Run(fmt.Sprintf("%s/dp%d tp%d mb%d sp=%v", k.file, k.dp, k.tp, k.mb, k.sp), func(t *testing.T) {
			opt := &pass.Options{DP: k.dp, TP: k.tp, Microbatches: k.mb, SP: k.sp, SyncBN: true, ClipNorm: 1, Optimizer: pass.Optimizer{Name: "adamw", LR: 0.1}}
			batch := 4
			if n := batches[name(k.file)]; n != 0 && strings.HasSuffix(k.file, ".opt.onnx") {
				batch = n // fixed in the file
			}
			c, whole := compileRanks(t, filepath.Join(fixtures.Path(t, "models"), k.file), batch, opt)
			if testing.Verbose() {
				for _, r := range c.Remarks {
					if strings.Contains("shard spmd", r.Pass) {
						t.Log(r)
					}
				}
				counts := map[mesh.Collective]int{}
				for _, op := range c.Module.Func("step").Ops {
					if kind := op.Def.Rules.Collective; kind != "" {
						counts[kind]++
					}
				}
				t.Log(counts)
			}
			for _, f := range whole.Funcs {
				if err := interp.EquivalentSteps(c.Module, f, 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestMegatron counts the messages of GPT-2 over tp=2. Each layer takes four sums of an activation, two of them in
// backward, as in Megatron-LM (arXiv:1909.08053, section 3), the embedding and the head one each; cross entropy takes its
// maximum, its denominator and the target's score. With sequence parallelism (arXiv:2205.05198, section 4.2.2) each of
// those sums is a reduce_scatter, and each product that needs all tokens gathers them, those of the first of a pair once
// more in backward; the gradients of what is computed on parts of the tokens, and of what all ranks have, are summed. No weight is ever gathered.
func TestMegatron(t *testing.T) {
	const layers, sums = 2, 4*2 + 2
	for _, sp := range []bool{false, true} {
		opt := &pass.Options{TP: 2, SP: sp, Optimizer: pass.Optimizer{Name: "adamw", LR: 0.1}}
		c, _ := compileRanks(t, filepath.Join(fixtures.Path(t, "models"), "gpt2_tiny.dynamo.onnx"), 4, opt)
		got := map[string]int{}
		for _, op := range c.Module.Func("step").Ops {
			kind := op.Def.Rules.Collective
			if kind == "" || kind == "shard_slice" {
				continue
			}
			for _, v := range op.In {
				got[fmt.Sprintf("%s of %d", kind, v.Type.Elems())]++
			}
		}
		activation, rows := 4*32*64, 4*32
		want := map[string]int{fmt.Sprintf("all_reduce of %d", activation): sums, fmt.Sprintf("all_reduce of %d", rows): 3}
		if sp {
			want = map[string]int{
				fmt.Sprintf("reduce_scatter of %d", activation): sums,
				fmt.Sprintf("all_gather of %d", activation/2):   2*layers + 1 + 2*layers + 2*layers + 1, // forward and head, backward's gradients, again
				fmt.Sprintf("all_reduce of %d", rows):           3,
				"all_reduce of 64":                              4*layers + 2, // gains and biases of norms
				fmt.Sprintf("all_gather of %d", 32*64/2):        1,            // the gradient of the positions
				fmt.Sprintf("reduce_scatter of %d", 256*64):     1,            // that of the embedding, of which a rank has rows
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("sp=%v: messages are %v, want %v", sp, got, want)
		}
	}
}

// TestRandomShardings splits parameters and values of random networks over tp in random dims, whatever it costs: small
// networks are not worth it, so that the search would leave most whole. GTC_TEST_SEEDS=FROM-TO chooses others.
func TestRandomShardings(t *testing.T) {
	from, to := 1, 12
	if text := os.Getenv("GTC_TEST_SEEDS"); text != "" {
		if _, err := fmt.Sscanf(text, "%d-%d", &from, &to); err != nil {
			t.Fatal(err)
		}
	}
	for seed := from; seed <= to; seed++ {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		m, loss := randomForward(r)
		o := randomLayout(r)
		o.Loss, o.TP = loss, 2+2*r.IntN(2)
		o.DP, o.SP = min(o.DP, 2), r.IntN(3) == 0
		if o.DP == 1 {
			o.Zero = 0
		}
		names := map[string]bool{}
		split := func(v *ir.Value) {
			d := r.IntN(max(len(v.Type.Dims), 1))
			if names[v.Name] || len(v.Type.Dims) == 0 || v.Type.Dims[d]%o.TP != 0 || r.IntN(2) == 0 {
				return
			}
			names[v.Name] = true
			axes := slices.Repeat([]string{"_"}, len(v.Type.Dims))
			axes[d] = "tp"
			o.Shard = append(o.Shard, v.Name+"="+strings.Join(axes, ","))
		}
		for _, p := range m.Funcs[0].Params {
			if p.Role == ir.Param || p.Role == ir.Buffer {
				split(p)
			}
		}
		if r.IntN(3) == 0 {
			op := m.Funcs[0].Ops[r.IntN(len(m.Funcs[0].Ops))]
			split(op.Out[0])
		}
		text := m.String()
		err := against(m, o)
		var told *ir.Error
		if errors.As(err, &told) && !strings.Contains(err.Error(), "BUG") {
			t.Logf("seed %d: refused: %v", seed, err)
		} else if err != nil {
			t.Errorf("seed %d: dp%d tp%d pp%d mb%d zero%d sp=%v %v %s: %v\n%s", seed, o.DP, o.TP, o.PP, o.Microbatches, o.Zero, o.SP, o.Shard, o.Optimizer.Name, err, text)
		}
	}
}
