package optimizer

import (
	"math"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
)

// tableStep looks four rows of a table up, of which row 3 gets no gradient, and trains another parameter as well.
const tableStep = `
func @step(%p: f32[40,3] param, %q: f32[3] param, %idx: i64[2,2], %dy: f32[2,2,3], %dq: f32[3], %count: f32[], %loss_sum: f32[]) {
  %dp = scatter_add %idx, %dy {size=40} : f32[40,3]
  return loss_sum=%loss_sum, count=%count, "grad/p"=%dp, "grad/q"=%dq
}`

// twiceStep looks rows of one table up in two places.
const twiceStep = `
func @step(%p: f32[40,3] param, %q: f32[3] param, %idx: i64[2,2], %dy: f32[2,2,3], %dq: f32[3], %count: f32[], %loss_sum: f32[]) {
  %one = const {value=i64[1](0)} : i64[1]
  %dz = const {value=f32[1,3](0.5 -1.0 2.0)} : f32[1,3]
  %d1 = scatter_add %idx, %dy {size=40} : f32[40,3]
  %d2 = scatter_add %one, %dz {size=40} : f32[40,3]
  %dp = add %d1, %d2 : f32[40,3]
  return loss_sum=%loss_sum, count=%count, "grad/p"=%dp, "grad/q"=%dq
}`

// lookedUp are the look-ups of three steps: rows that come again in the step, and in others, and rows counted from the end.
var lookedUp = [][]int64{{3, 5, 3, -1}, {5, 5, 0, 7}, {-37, 0, 1, 39}}

// trainTable runs three steps and returns the function and the table; the gradients are sums over 2 elements.
func trainTable(t *testing.T, text string, o pass.Options) (*ir.Func, map[string]*ir.Array, []pass.Remark) {
	t.Helper()
	c, err := passtest.Context("optimizer", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Opt = &o
	if err := Run(c); err != nil {
		t.Fatal(err)
	}
	if err := c.Module.Verify(); err != nil {
		t.Fatal(err)
	}
	f := c.Module.Func("step")
	ramp := func(n int, of func(i float64) float64, dims ...int) *ir.Array {
		a := &ir.Array{Type: ir.T(1, dims...), F: make([]float64, n)}
		for i := range a.F {
			a.F[i] = of(float64(i))
		}
		return a
	}
	args := map[string]*ir.Array{"count": ramp(1, func(float64) float64 { return 2 }), "loss_sum": ramp(1, func(float64) float64 { return 0 }),
		"p": ramp(120, func(i float64) float64 { return (i - 60) / 50 }, 40, 3), "q": ramp(3, func(i float64) float64 { return i }, 3)}
	for s, idx := range lookedUp {
		args["idx"] = &ir.Array{Type: ir.T(f.Param("idx").Type.DType, 2, 2), I: idx}
		args["dy"] = ramp(12, func(i float64) float64 { return (i*float64(s+1) - 5.5) / 10 }, 2, 2, 3)
		args["dq"] = ramp(3, func(i float64) float64 { return i - float64(s) }, 3)
		out, err := interp.Run(f, args)
		if err != nil {
			t.Fatal(err)
		}
		for name, a := range out.Updates {
			args[name] = a
		}
	}
	return f, args, c.Remarks
}

// biggest is the size of the largest result of an op that is not a table with new rows, which takes the place of the old one.
func biggest(f *ir.Func) int {
	n := 0
	for _, op := range f.Ops {
		if a, ok := op.Attrs.(ops.ScatterAttrs); ok && a.Reduce == "same" && op.In[0].Op == nil {
			continue
		}
		for _, v := range op.Out {
			n = max(n, v.Type.Elems())
		}
	}
	return n
}

// TestSparseIsDense: the update of the rows that are looked up gives what the update of all rows gives, and makes nothing of the
// table's size. ZeRO, which changes nothing else here, asks for the dense one.
func TestSparseIsDense(t *testing.T) {
	for name, o := range map[string]pass.Options{
		"sgd":             {Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1}},
		"adagrad":         {Optimizer: pass.Optimizer{Name: "adagrad", LR: 0.1}},
		"rowwise_adagrad": {Optimizer: pass.Optimizer{Name: "rowwise_adagrad", LR: 0.1}},
		"sparse_adam":     {Optimizer: pass.Optimizer{Name: "sparse_adam", LR: 0.1}},
		"clipped":         {ClipNorm: 0.2, Optimizer: pass.Optimizer{Name: "adagrad", LR: 0.1}},
		"decay elsewhere": {Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1, WeightDecay: 0.1, NoDecay: []string{"p"}}},
	} {
		for _, text := range []string{tableStep, twiceStep} {
			f, sparse, remarks := trainTable(t, text, o)
			if n := biggest(f); n >= 120 {
				t.Errorf("%s: a value of the step has %d elements, as many as the table; %v", name, n, remarks)
			}
			o.Zero = 1
			f, dense, _ := trainTable(t, text, o)
			o.Zero = 0
			if biggest(f) < 120 {
				t.Errorf("%s: the dense update is sparse, too: nothing is compared", name)
			}
			for _, p := range f.Params {
				if p.Role == ir.Param || p.Role == ir.State && p.Type.DType.IsFloat() {
					near(t, name+": "+p.Name, sparse[p.Name].F, dense[p.Name].F)
				}
			}
		}
	}
}

// TestSparseAdamAgainstTorch compares three updates with those of torch.optim.SparseAdam 2.15 in float64.
func TestSparseAdamAgainstTorch(t *testing.T) {
	_, args, _ := trainTable(t, tableStep, pass.Options{Optimizer: pass.Optimizer{Name: "sparse_adam", LR: 0.1}})
	for row, want := range map[int][]float64{
		0: {-1.355352183, -1.338915173, -1.319929252}, 1: {-1.203881328, -1.183881334, -1.163881338},
		3: {-0.834038243, -0.814911869, -0.857136724}, 5: {-0.70348216, -0.682965549, -0.822393002},
		7: {-0.854413645, -0.83441365, -0.814413654}, 39: {0.967710143, 0.986782396, 1.006082534}, 2: {-1.08, -1.06, -1.04},
	} {
		near(t, "row", args["p"].F[3*row:3*row+3], want)
	}
}

// TestRowwiseAdagrad compares with FBGEMM's formula, written out: sum += mean(g²), p -= lr * g / (sqrt(sum) + eps).
func TestRowwiseAdagrad(t *testing.T) {
	_, args, _ := trainTable(t, tableStep, pass.Options{Optimizer: pass.Optimizer{Name: "rowwise_adagrad", LR: 0.1}})
	p, sum := make([]float64, 120), make([]float64, 40)
	for i := range p {
		p[i] = (float64(i) - 60) / 50
	}
	for s, idx := range lookedUp {
		g := map[int][]float64{}
		for i, at := range idx {
			r := (int(at) + 40) % 40
			if g[r] == nil {
				g[r] = make([]float64, 3)
			}
			for w := range 3 {
				g[r][w] += (float64(3*i+w)*float64(s+1) - 5.5) / 10 / 2
			}
		}
		for r, row := range g {
			sum[r] += (row[0]*row[0] + row[1]*row[1] + row[2]*row[2]) / 3
			for w := range row {
				p[3*r+w] -= 0.1 * row[w] / (math.Sqrt(sum[r]) + 1e-10)
			}
		}
	}
	near(t, "p", args["p"].F, p)
	near(t, "row_sum", args["optim/row_sum/p"].F, sum)
}

// TestDenseReasons: where the update of rows would not be that of the table, or a layout has no place for it, the remark says why.
func TestDenseReasons(t *testing.T) {
	sgd := pass.Optimizer{Name: "sgd", LR: 0.1}
	for why, o := range map[string]pass.Options{
		"momentum moves":     {Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1, Momentum: 0.9}},
		"weight decay moves": {Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1, WeightDecay: 0.1}},
		"adam moves":         {Optimizer: pass.Optimizer{Name: "adam", LR: 0.1}},
		"without eps":        {Optimizer: pass.Optimizer{Name: "adagrad", LR: 0.1, Zero: []string{"eps"}}},
		"--tp":               {TP: 2, Optimizer: sgd},
		"--zero":             {DP: 2, Zero: 1, Optimizer: sgd},
		"--reproducible":     {Reproducible: true, Optimizer: sgd},
	} {
		f, _, remarks := trainTable(t, tableStep, o)
		if biggest(f) < 120 {
			t.Errorf("%s: the update is sparse", why)
		}
		found := false
		for _, r := range remarks {
			found = found || r.Value == "p" && strings.Contains(r.Text, why)
		}
		if !found {
			t.Errorf("no remark says %q: %v", why, remarks)
		}
	}
	for _, name := range []string{"sparse_adam", "rowwise_adagrad"} {
		c, err := passtest.Context("optimizer", tableStep, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Opt = &pass.Options{Optimizer: pass.Optimizer{Name: name, LR: 0.1, WeightDecay: 0.1}}
		if err := Run(c); err == nil || !strings.Contains(err.Error(), "excludes --weight-decay") {
			t.Errorf("%s with weight decay: %v", name, err)
		}
	}
}

// TestSparseAdamLeavesFillingAlone: rows that only samples without weight, or the padding index, look up are not touched, though their
// moments are not zero, whether the update is sparse or dense.
func TestSparseAdamLeavesFillingAlone(t *testing.T) {
	const text = `
func @step(%p: f32[40,3] param, %x: i64[2,2], %dy: f32[2,2,3], %count: f32[], %loss_sum: f32[], %sample_weight: f32[2] weight, %optim/m/p: f32[40,3] state) {
  %y = gather %p, %x {noGrad=8} : f32[2,2,3]
  %dp = scatter_add %x, %dy {size=40} : f32[40,3]
  return loss_sum=%loss_sum, count=%count, "grad/p"=%dp, out0=%y
}`
	for _, zero := range []int{0, 1} {
		c, err := passtest.Context("optimizer", strings.Replace(text, ", %optim/m/p: f32[40,3] state", "", 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Opt = &pass.Options{Zero: zero, Optimizer: pass.Optimizer{Name: "sparse_adam", LR: 0.1}}
		if err := Run(c); err != nil {
			t.Fatal(err)
		}
		f := c.Module.Func("step")
		ones := &ir.Array{Type: ir.T(1, 40, 3), F: make([]float64, 120)}
		for i := range ones.F {
			ones.F[i] = 1
		}
		out, err := interp.Run(f, map[string]*ir.Array{"p": ones, "optim/m/p": ones, "optim/v/p": ones,
			"x": {Type: ir.T(f.Param("x").Type.DType, 2, 2), I: []int64{5, 7, 9, 5}}, "dy": {Type: ir.T(1, 2, 2, 3), F: make([]float64, 12)},
			"count": {Type: ir.T(1), F: []float64{1}}, "loss_sum": {Type: ir.T(1), F: []float64{0}}, "sample_weight": {Type: ir.T(1, 2), F: []float64{1, 0}}})
		if err != nil {
			t.Fatal(err)
		}
		for r := range 40 {
			moved := out.Updates["p"].F[3*r] != 1 && out.Updates["optim/m/p"].F[3*r] != 1
			if moved != (r == 5) {
				t.Errorf("zero %d: row %d moved: %v", zero, r, moved)
			}
		}
	}
}
