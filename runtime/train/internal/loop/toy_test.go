package loop

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/npz"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// toy is a linear regression y = x·w with a running mean of x as its buffer, trained by SGD with momentum: the
// smallest program with everything that the run-time must handle. Its kernels are Go functions.
type toy struct {
	dp, micro, batch, dim int
	whose                 bool // evaluation sums are each rank's own
	refuse                int64
	poison                int   // step at which the update makes a NaN, 0 never
	wild                  []int // steps with a loss that is no number, which a dynamic loss scale skips; nil: there is no scale
	rank                  int
	lr                    string                     // the option; "" is 0.05
	sum                   string                     // of the model; "" is "feed"
	crossSample, noise    map[string]string          // of the plan
	singleValue           *abi.SingleValueStatistics // of the plan
	hook                  func(rank int, step int64) // before the gradient of step 1, 2, …

	arena map[string]int
	size  int
}

// place gives a tensor the next place in the arena.
func (t *toy) place(name, role, dtype, init string, dims ...int) abi.Tensor {
	x := abi.Tensor{Name: name, Role: abi.Role(role), DType: dtype, Dims: append([]int{}, dims...), Init: init, Offset: t.size}
	x.Bytes = program.ElemSize(dtype) * program.Elems(dims)
	t.arena[name] = t.size
	t.size += (x.Bytes + 63) &^ 63
	return x
}

func (t *toy) f32(b unsafe.Pointer, name string, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(b, t.arena[name])), n)
}

func (t *toy) program(tb testing.TB) *program.Program {
	tb.Helper()
	t.arena = map[string]int{}
	rows := t.batch / t.dp / t.micro
	d := t.dim
	tensors := []abi.Tensor{
		t.place("x", "input", "f32", "", rows, d), t.place("target", "target", "f32", "", rows),
		t.place("sample_weight", "weight", "f32", "", rows),
		t.place("w", "param", "f32", "w", d), t.place("mean", "buffer", "f32", "", d),
		t.place("optim/momentum/w", "state", "f32", "", d), t.place("step", "state", "i64", ""),
		t.place("accum/w", "state", "f32", "", d+2),
	}
	if t.wild != nil {
		tensors = append(tensors, t.place("loss_scale", "state", "f32", ""), t.place("loss_scale_skipped", "state", "i64", ""))
	}
	if t.dp > 1 {
		for i := range 2 {
			tensors[i].ShardAxes = make([]string, len(tensors[i].Dims))
			tensors[i].ShardAxes[0] = "dp"
			tensors[i].Global = append([]int{t.batch / t.micro}, tensors[i].Dims[1:]...)
		}
	}
	bucket := t.place("bucket", "", "f32", "", d+2)
	out := t.place("out0", "", "f32", "", rows)
	sums := t.place("sums", "", "f32", "", 3)
	lr := t.place("lr", "", "f32", "")
	scalar := func(name string, at int) abi.Tensor {
		return abi.Tensor{Name: name, DType: "f32", Dims: []int{}, Offset: at, Bytes: 4}
	}
	if t.dp > 1 {
		out.Global, out.ShardAxes = []int{t.batch / t.micro}, []string{"dp"}
	}
	grad := bucket
	grad.Name, grad.Dims, grad.Bytes = "grad/w", []int{d}, 4*d
	inputs := []string{"x", "target", "sample_weight"}
	prog := abi.Program{Package: "toy", Hash: "toy", ArenaBytes: t.size, Tensors: tensors, Funcs: []abi.Func{
		{Name: abi.FuncStep, Inputs: inputs, Results: []abi.Tensor{scalar("loss_sum", bucket.Offset+4*d), scalar("count", bucket.Offset+4*d+4), lr, grad}},
		{Name: abi.FuncEval, Inputs: inputs, Results: []abi.Tensor{scalar("loss_sum", sums.Offset), scalar("count", sums.Offset+4), scalar("correct", sums.Offset+8)}},
		{Name: abi.FuncForward, Inputs: inputs[:1], Results: []abi.Tensor{out}},
	}}
	if t.wild != nil {
		r := &prog.Funcs[0].Results
		*r = append(*r, scalar("loss_scale", t.arena["loss_scale"]), scalar("skipped", t.place("skipped", "", "f32", "").Offset))
		prog.ArenaBytes = t.size
	}
	man := abi.Manifest{Version: abi.Version, Model: "toy.onnx", ModelSum: or(t.sum, "feed"), Ranks: t.dp, RankProgram: make([]int, t.dp),
		Mesh: []abi.Axis{{Name: "dp", Size: t.dp}}, Options: map[string]string{"lr": "0.05", "dp": fmt.Sprint(t.dp)},
		Train: abi.Train{Batch: t.batch, RankBatch: rows, DP: t.dp, Microbatches: t.micro, Optimizer: "sgd", LR: 0.05, Weighted: true, Tokens: 1, Metric: "accuracy",
			CrossSample: t.crossSample, Noise: t.noise, SingleValueStatistics: t.singleValue}}
	p := &program.Program{Funcs: map[string][]program.Call{abi.FuncStep: t.stepCalls(rows, bucket), abi.FuncEval: t.evalCalls(rows, sums), abi.FuncForward: {
		{Name: "out0 = Dot", Loc: "toy.py:1", Run: func(b unsafe.Pointer, _ []int) int64 { t.forward(b, rows); return -1 },
			Out: []program.Span{{Offset: out.Offset, Bytes: out.Bytes, DType: "f32", Name: "out0"}}}}}}
	if t.micro > 1 {
		prog.Funcs = append(prog.Funcs, abi.Func{Name: abi.FuncMicro, Inputs: inputs})
		p.Funcs[abi.FuncMicro] = []program.Call{{Name: "accum = Grad", Loc: "toy.py:2", Run: func(b unsafe.Pointer, _ []int) int64 { t.grads(b, rows, "accum/w"); return -1 }}}
	}
	man.Programs = []abi.Program{prog}
	if t.lr == "default" {
		delete(man.Options, "lr")
		man.Train.LR = 0.001
	} else if t.lr != "" {
		man.Options["lr"] = t.lr
	}
	var err error
	if p.Plan, err = json.Marshal(man); err != nil {
		tb.Fatal(err)
	}
	return p
}

// forward is out0 = x·w.
func (t *toy) forward(b unsafe.Pointer, rows int) {
	x, w, y := t.f32(b, "x", rows*t.dim), t.f32(b, "w", t.dim), t.f32(b, "out0", rows)
	for i := range rows {
		y[i] = 0
		for k, v := range w {
			y[i] += v * x[i*t.dim+k]
		}
	}
}

// grads adds the summed gradient, loss and count of the batch to a bucket.
func (t *toy) grads(b unsafe.Pointer, rows int, bucket string) {
	t.forward(b, rows)
	x, y, target := t.f32(b, "x", rows*t.dim), t.f32(b, "out0", rows), t.f32(b, "target", rows)
	weight, g := t.f32(b, "sample_weight", rows), t.f32(b, bucket, t.dim+2)
	for i := range rows {
		e := y[i] - target[i]
		for k := range t.dim {
			g[k] += weight[i] * 2 * e * x[i*t.dim+k]
		}
		g[t.dim] += weight[i] * e * e
		g[t.dim+1] += weight[i]
	}
}

func (t *toy) stepCalls(rows int, bucket abi.Tensor) []program.Call {
	grad := program.Call{Name: "bucket = Grad", Loc: "toy.py:2", Out: []program.Span{{Offset: bucket.Offset, Bytes: bucket.Bytes, DType: "f32", Name: "bucket"}}}
	grad.Run = func(b unsafe.Pointer, _ []int) int64 {
		if t.hook != nil {
			t.hook(t.rank, 1+*(*int64)(unsafe.Add(b, t.arena["step"])))
		}
		copy(t.f32(b, "bucket", t.dim+2), t.f32(b, "accum/w", t.dim+2))
		clear(t.f32(b, "accum/w", t.dim+2))
		t.grads(b, rows, "bucket")
		return t.refuse - 1
	}
	update := program.Call{Name: "w.next = k1_sgd", Loc: "toy.py:3", Out: []program.Span{{Offset: t.arena["w"], Bytes: 4 * t.dim, DType: "f32", Name: "w.next"}}}
	update.Run = func(b unsafe.Pointer, _ []int) int64 { t.update(b, rows); return -1 }
	calls := []program.Call{grad}
	if t.dp > 1 {
		calls = append(calls, program.Call{Name: "bucket = all_reduce", Loc: "toy.py:2", Out: grad.Out, Comm: &program.Comm{Kind: "all_reduce", Axis: "dp", Op: "sum",
			DType: "f32", Offset: bucket.Offset, Bytes: bucket.Bytes, Tensor: "d_w", Loc: "toy.py:2"}})
		update.Wait = []int{1}
	}
	return append(calls, update)
}

func (t *toy) update(b unsafe.Pointer, rows int) {
	g, w := t.f32(b, "bucket", t.dim+2), t.f32(b, "w", t.dim)
	m, mean, x := t.f32(b, "optim/momentum/w", t.dim), t.f32(b, "mean", t.dim), t.f32(b, "x", rows*t.dim)
	step := (*int64)(unsafe.Add(b, t.arena["step"]))
	if t.wild != nil {
		skip := slices.Contains(t.wild, int(*step)+1)
		if t.scaled(b, skip); skip {
			g[t.dim] = float32(math.Inf(1))
			*step++
			return
		}
	}
	for k := range w {
		m[k] = 0.9*m[k] + g[k]/g[t.dim+1]
		w[k] -= 0.05 * m[k]
		mean[k] += 0.1 * (x[k] - mean[k])
	}
	*step++
	if t.poison > 0 && *step == int64(t.poison) {
		w[1] = float32(math.NaN())
	}
	t.f32(b, "lr", 1)[0] = 0.05
}

// scaled keeps the loss scale, which begins with 4.
func (t *toy) scaled(b unsafe.Pointer, skip bool) {
	scale, n := t.f32(b, "loss_scale", 1), (*int64)(unsafe.Add(b, t.arena["loss_scale_skipped"]))
	if scale[0] == 0 {
		scale[0] = 4
	}
	if skip {
		scale[0] /= 2
		*n++
	}
	t.f32(b, "skipped", 1)[0] = float32(*n)
}

func (t *toy) evalCalls(rows int, sums abi.Tensor) []program.Call {
	calls := []program.Call{{Name: "sums = Sums", Loc: "toy.py:4", Run: func(b unsafe.Pointer, _ []int) int64 {
		t.forward(b, rows)
		y, target, weight, s := t.f32(b, "out0", rows), t.f32(b, "target", rows), t.f32(b, "sample_weight", rows), t.f32(b, "sums", 3)
		clear(s)
		for i := range rows {
			e := y[i] - target[i]
			s[0] += weight[i] * e * e
			s[1] += weight[i]
			if e*e < 0.25 {
				s[2] += weight[i]
			}
		}
		return -1
	}}}
	if t.dp > 1 && !t.whose {
		calls = append(calls, program.Call{Name: "sums = all_reduce", Comm: &program.Comm{Kind: "all_reduce", Axis: "dp", Op: "sum", DType: "f32",
			Offset: sums.Offset, Bytes: 12, Tensor: "sums"}})
	}
	return calls
}

// folder writes the compiled folder's weights, and data of n samples, and returns the folder and the data's path.
func (t *toy) folder(tb testing.TB, n int) (dir, data string) {
	tb.Helper()
	dir = tb.TempDir()
	w := make([]byte, 0, 4*t.dim)
	var x, y []byte
	rnd := uint32(1)
	next := func() float32 {
		rnd = rnd*1664525 + 1013904223
		return float32(rnd>>8)/(1<<24) - 0.5
	}
	for range t.dim {
		w = binary.LittleEndian.AppendUint32(w, math.Float32bits(next()))
	}
	for range n {
		sum := float32(0)
		for k := range t.dim {
			v := next()
			sum += v * float32(k+1)
			x = binary.LittleEndian.AppendUint32(x, math.Float32bits(v))
		}
		y = binary.LittleEndian.AppendUint32(y, math.Float32bits(sum+0.1*next()))
	}
	if err := safetensors.WriteFile(filepath.Join(dir, weightsFile), []safetensors.Tensor{{Name: "w", DType: "f32", Shape: []int{t.dim}, Data: w}}, nil); err != nil {
		tb.Fatal(err)
	}
	data = filepath.Join(dir, "data.npz")
	if err := npz.WriteFile(data, []npz.Array{{Name: "x", DType: "f32", Shape: []int{n, t.dim}, Data: x}, {Name: "target", DType: "f32", Shape: []int{n}, Data: y}}); err != nil {
		tb.Fatal(err)
	}
	return dir, data
}

// outcome is what the ranks of a job left.
type outcome struct {
	code     []int
	out, err string // of all ranks, rank 0 first
}

// exits reports whether the job ended with code, as its launcher has it: where all ranks find the same error, those that are slower may
// learn of it from the first instead.
func (o outcome) exits(code int) bool {
	for _, c := range o.code {
		if c != code && c != ranks.ExitPeer {
			return false
		}
	}
	return slices.Contains(o.code, code)
}

// job runs all ranks of t in this process, with the same arguments.
func (t *toy) job(tb testing.TB, dir string, env map[string]string, signals []chan os.Signal, args ...string) outcome {
	tb.Helper()
	return runRanks(t.dp, func(r int) *program.Program {
		one := *t // each rank has its own arena, and its own counters
		one.rank = r
		return one.program(tb)
	}, dir, env, signals, args...)
}

// runRanks runs ranks in this process, with the same arguments.
func runRanks(ranks int, program func(rank int) *program.Program, dir string, env map[string]string, signals []chan os.Signal, args ...string) outcome {
	world := comm.InProcess(ranks)
	outs, errs, codes := make([]bytes.Buffer, ranks), make([]bytes.Buffer, ranks), make(chan [2]int, ranks)
	for r := range ranks {
		p := program(r)
		s := &surroundings{out: &outs[r], err: &errs[r], dir: dir, getenv: func(k string) string { return env[k] },
			connect: func(comm.Options) (comm.Communicator, error) { return world[r], nil }}
		if signals != nil {
			s.signals = signals[r]
		}
		go func() { codes <- [2]int{r, run(p, r, args, s)} }()
	}
	o := outcome{code: make([]int, ranks)}
	for range ranks {
		c := <-codes
		o.code[c[0]] = c[1]
	}
	for r := range ranks {
		o.out += outs[r].String()
		o.err += errs[r].String()
	}
	return o
}

// ok is job, which must succeed.
func (t *toy) ok(tb testing.TB, dir string, args ...string) outcome {
	tb.Helper()
	o := t.job(tb, dir, nil, nil, args...)
	for r, c := range o.code {
		if c != 0 {
			tb.Fatalf("rank %d exits with %d\n%s\n%s", r, c, o.out, o.err)
		}
	}
	return o
}

// events are the JSON lines of a kind.
func events(tb testing.TB, out, kind string) []map[string]any {
	tb.Helper()
	var list []map[string]any
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		e := map[string]any{}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			tb.Fatalf("%v in line %q", err, line)
		}
		if e["event"] == kind {
			list = append(list, e)
		}
	}
	return list
}
