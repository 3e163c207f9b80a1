package loop

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/distributed/schedule"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/npz"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// pipe is a pipeline of four parts: h[v+1] = h[v]*w[v], element by element, where h[0] = x*tied and the output is h[4]*tied.
// It is small, and has what pipelines must handle: messages both ways, a stash with slots, chunks, weight gradients of their
// own, a parameter that two stages have, results and inputs that only some have.
type pipe struct {
	name              string // of the schedule
	pp, dp, micro     int
	chunks            int
	rows              int // of a rank's micro-batch
	table             *schedule.Table
	at                map[string]int
	size              int
	stashAt, stashEnd int
	tensors           []abi.Tensor
}

const (
	pipeDim   = 3
	pipeParts = 4
	pipeBatch = 24
)

func newPipe(tb testing.TB, name string, pp, dp, micro int) *pipe {
	tb.Helper()
	p := &pipe{name: name, pp: pp, dp: dp, micro: micro, chunks: pipeParts / pp, rows: pipeBatch / dp / micro}
	var err error
	if name != "interleaved" { // parts of a stage follow one another
		p.table, err = schedule.Make(name, pp, 1, micro)
	} else {
		p.table, err = schedule.Make(name, pp, p.chunks, micro)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// parts lists what chunk c of a stage is: one part of the model, or all of the stage's.
func (p *pipe) parts(stage, chunk int) []int {
	if p.name == "interleaved" {
		return []int{chunk*p.pp + stage}
	}
	var list []int
	for i := range p.chunks {
		list = append(list, stage*p.chunks+i)
	}
	return list
}

func (p *pipe) stageOf(part int) int {
	if p.name == "interleaved" {
		return part % p.pp
	}
	return part / p.chunks
}

func (p *pipe) place(name, role string, dims ...int) {
	x := abi.Tensor{Name: name, Role: abi.Role(role), DType: "f32", Dims: append([]int{}, dims...), Offset: p.size, Bytes: 4 * program.Elems(dims)}
	if role == "param" {
		x.Init = name
	}
	p.at[name] = p.size
	p.size += (x.Bytes + 63) &^ 63
	if role != "" {
		p.tensors = append(p.tensors, x)
	}
}

// program is that of the ranks of a stage.
func (p *pipe) program(stage int) (abi.Program, map[string][]program.Call) {
	p.at, p.size, p.tensors = map[string]int{}, 0, nil
	prog := abi.Program{Package: "pipe", Hash: "pipe", Slots: p.table.Slots(stage)}
	chunks := p.table.Chunks
	p.places(stage, chunks)
	funcs := map[string][]program.Call{abi.FuncEval: {p.kernel("sums = 0", func(t [][]float32) { clear(t[0]) }, "sums")}}
	reads := map[string][]string{}
	for c := range chunks {
		parts := p.parts(stage, c)
		fwd, bwd, w := fmt.Sprint("fwd.", c), fmt.Sprint("bwd.", c), fmt.Sprint("wgrad.", c)
		funcs[fwd] = p.forward(parts, "", 0)
		funcs[bwd] = p.backward(parts)
		if p.table.Split {
			funcs[w] = p.gradients(parts)
		} else {
			funcs[bwd] = append(funcs[bwd], p.gradients(parts)...)
		}
		funcs[abi.FuncEval] = append(funcs[abi.FuncEval], p.forward(parts, "eval", len(funcs[abi.FuncEval]))...)
		if parts[0] == 0 {
			reads[fwd] = append(reads[fwd], "x")
		}
		if parts[len(parts)-1] == pipeParts-1 {
			reads[fwd] = append(reads[fwd], "target", "sample_weight")
		}
		reads[abi.FuncEval] = append(reads[abi.FuncEval], reads[fwd]...)
	}
	for _, a := range p.table.Rank(stage) {
		kind := map[schedule.Kind]string{'F': "fwd", 'B': "bwd", 'W': "wgrad"}[a.Kind]
		prog.Actions = append(prog.Actions, abi.Action{Func: fmt.Sprint(kind, ".", a.Chunk), Micro: a.Micro, Slot: a.Slot})
	}
	prog.Actions = append(prog.Actions, abi.Action{Func: abi.FuncStep, Micro: p.micro - 1})
	funcs[abi.FuncStep] = p.update(stage)
	for _, axis := range []string{"pp", "dp"} {
		funcs[abi.FuncEval] = append(funcs[abi.FuncEval], program.Call{Name: "sums = all_reduce", Wait: waits(funcs[abi.FuncEval]), Loc: "pipe.py:3", Comm: &program.Comm{Kind: "all_reduce",
			Axis: axis, Op: "sum", DType: "f32", Offset: p.at["sums"], Bytes: 8, Tensor: "sums", Loc: "pipe.py:3"}})
	}
	for _, name := range []string{"fwd.0", "fwd.1", "fwd.2", "fwd.3", "bwd.0", "bwd.1", "bwd.2", "bwd.3", "wgrad.0", abi.FuncStep, abi.FuncEval} {
		if funcs[name] == nil {
			continue
		}
		f := abi.Func{Name: name, Inputs: reads[name]}
		if name == abi.FuncStep || name == abi.FuncEval {
			f.Results = p.results(stage, name)
		}
		if v := "out"; strings.HasPrefix(name, "fwd") && slices.Contains(reads[name], "target") {
			f.Results = []abi.Tensor{{Name: "out0", DType: "f32", Dims: []int{p.rows, pipeDim}, Offset: p.at[v], Bytes: 4 * p.rows * pipeDim, ShardAxes: []string{"dp,mb", ""}}}
		}
		prog.Funcs = append(prog.Funcs, f)
		for _, c := range funcs[name] {
			if c.Comm != nil {
				prog.Collectives = append(prog.Collectives, abi.Collective{Func: name, Kind: c.Comm.Kind, Axis: c.Comm.Axis, Peer: c.Comm.Peer, Tensors: []string{c.Comm.Tensor}})
			}
		}
	}
	prog.Tensors, prog.ArenaBytes, prog.StashStart, prog.StashBytes = p.tensors, p.size, p.stashAt, p.stashEnd-p.stashAt
	return prog, funcs
}

// places lays out the arena of a stage.
func (p *pipe) places(stage, chunks int) {
	n, d := p.rows, pipeDim
	first, last := p.stageOf(0) == stage, p.stageOf(pipeParts-1) == stage
	if first {
		p.place("x", "input", n, d)
	}
	if last {
		p.place("target", "target", n, d)
		p.place("sample_weight", "weight", n)
	}
	if first || last {
		p.place("tied", "param", d)
		p.place("optim/tied", "state", d)
	}
	for v := range pipeParts {
		if p.stageOf(v) == stage {
			p.place(fmt.Sprint("w", v), "param", d)
			p.place(fmt.Sprint("accum/w", v), "state", d)
			p.place(fmt.Sprint("grad", v), "", d)
		}
	}
	p.place("totals", "", d+2) // gradient of tied, loss_sum, count
	p.place("accum/totals", "state", d+2)
	p.place("sums", "", 2)
	p.place("out", "", n, d)
	for c := range chunks {
		p.place(fmt.Sprint("eval/h", p.parts(stage, c)[0]), "", n, d)
	}
	p.stashAt = p.size
	for c := range chunks {
		for _, v := range p.parts(stage, c) {
			p.place(fmt.Sprint("h", v), "stash", n, d)
			p.place(fmt.Sprint("d", v+1), "stash", n, d)
		}
		end := p.parts(stage, c)
		p.place(fmt.Sprint("h", end[len(end)-1]+1), "stash", n, d) // what is sent forward
		p.place(fmt.Sprint("d", end[0]), "stash", n, d)            // and back
	}
	p.stashEnd = p.size
	p.size += (p.table.Slots(stage) - 1) * (p.stashEnd - p.stashAt)
}

func (p *pipe) results(stage int, fn string) []abi.Tensor {
	scalar := func(name string, at int) abi.Tensor {
		return abi.Tensor{Name: name, DType: "f32", Dims: []int{}, Offset: at, Bytes: 4}
	}
	if fn == abi.FuncEval {
		return []abi.Tensor{scalar("loss_sum", p.at["sums"]), scalar("count", p.at["sums"]+4)}
	}
	list := []abi.Tensor{scalar("loss_sum", p.at["totals"]+4*pipeDim), scalar("count", p.at["totals"]+4*pipeDim+4)}
	for v := range pipeParts {
		if p.stageOf(v) == stage {
			list = append(list, abi.Tensor{Name: fmt.Sprint("grad/w", v), DType: "f32", Dims: []int{pipeDim}, Offset: p.at[fmt.Sprint("grad", v)], Bytes: 4 * pipeDim})
		}
	}
	return list
}

// kernel is a call on the tensors of those names.
func (p *pipe) kernel(name string, run func(t [][]float32), tensors ...string) program.Call {
	sizes := map[string]int{"sums": 2, "totals": pipeDim + 2, "accum/totals": pipeDim + 2, "sample_weight": p.rows}
	c := program.Call{Name: name, Loc: "pipe.py:1", Ptrs: len(tensors)}
	var lens []int
	for _, t := range tensors {
		n := sizes[t]
		switch {
		case n > 0:
		case strings.Contains(t, "w") || strings.Contains(t, "tied") || strings.HasPrefix(t, "grad"):
			n = pipeDim
		default:
			n = p.rows * pipeDim
		}
		at, ok := p.at[t]
		if !ok {
			panic("no tensor " + t)
		}
		c.At, lens = append(c.At, at), append(lens, n)
	}
	c.Out = []program.Span{{Offset: c.At[0], Bytes: 4 * lens[0], DType: "f32", Name: tensors[0]}}
	c.At = append(c.At, 0) // a size that is no offset, whatever its value
	c.Run = func(b unsafe.Pointer, at []int) int64 {
		views := make([][]float32, len(lens))
		for i, n := range lens {
			views[i] = unsafe.Slice((*float32)(unsafe.Add(b, at[i])), n)
		}
		run(views)
		return -1
	}
	return c
}

func (p *pipe) message(kind, tensor, tag string, peer int) program.Call {
	c := program.Call{Name: tensor + " = " + kind, Loc: "pipe.py:2", Comm: &program.Comm{Kind: mesh.Collective(kind), Axis: "pp", Peer: peer, DType: "f32", Bytes: 4 * p.rows * pipeDim, Tensor: tag, Loc: "pipe.py:2"}}
	if kind == "send" {
		c.Comm.Source, c.Comm.Stays = p.at[tensor], !strings.HasPrefix(tag, "eval")
	} else {
		c.Comm.Offset = p.at[tensor]
		c.Out = []program.Span{{Offset: p.at[tensor], Bytes: c.Comm.Bytes, DType: "f32", Name: tensor}}
	}
	return c
}

// waits lists the last call, when it is a collective.
func waits(calls []program.Call) []int {
	if n := len(calls) - 1; calls[n].Comm != nil && calls[n].Comm.Kind == "all_reduce" {
		return []int{n}
	}
	return nil
}

// product is out = a*b, b repeated over rows.
func product(t [][]float32) {
	for i := range t[0] {
		t[0][i] = t[1][i] * t[2][i%len(t[2])]
	}
}

// forward is the forward pass of parts; for evaluation nothing is stashed, and the sums are counted apart. It follows so
// many calls in its function.
func (p *pipe) forward(parts []int, eval string, after int) []program.Call {
	h := func(v int) string {
		if eval != "" {
			return fmt.Sprint("eval/h", parts[0])
		}
		return fmt.Sprint("h", v)
	}
	var calls []program.Call
	first, last := parts[0], parts[len(parts)-1]
	wait := []int{}
	if first == 0 {
		calls = append(calls, p.kernel("h0 = tied", product, h(0), "x", "tied"))
	} else {
		calls = append(calls, p.message("recv", h(first), fmt.Sprint(eval, "h", first), p.stageOf(first-1)))
		wait = []int{after}
	}
	for _, v := range parts {
		calls = append(calls, p.kernel(fmt.Sprint("h", v+1, " = product"), product, h(v+1), h(v), fmt.Sprint("w", v)))
		calls[len(calls)-1].Wait, wait = wait, nil
	}
	if last < pipeParts-1 {
		calls = append(calls, p.message("send", h(last+1), fmt.Sprint(eval, "h", last+1), p.stageOf(last+1)))
		return calls
	}
	calls = append(calls, p.kernel("out = tied", product, "out", h(last+1), "tied"))
	sums := "accum/totals"
	names := []string{"out", "target", "sample_weight"}
	if eval != "" {
		sums = "sums"
	} else {
		names = append(names, fmt.Sprint("d", last+1), h(last+1), "tied")
	}
	return append(calls, p.kernel("loss", func(t [][]float32) {
		s := t[0]
		for i, y := range t[1] {
			k, e := i%pipeDim, t[3][i/pipeDim]*(y-t[2][i])
			s[len(s)-2] += e * e
			if k == 0 {
				s[len(s)-1] += t[3][i/pipeDim]
			}
			if len(t) > 4 {
				t[4][i] = 2 * e * t[6][k]
				s[k] += 2 * e * t[5][i]
			}
		}
	}, append([]string{sums}, names...)...))
}

// backward makes gradients of what parts read.
func (p *pipe) backward(parts []int) []program.Call {
	first, last := parts[0], parts[len(parts)-1]
	var calls []program.Call
	wait := []int{}
	if last < pipeParts-1 {
		calls = append(calls, p.message("recv", fmt.Sprint("d", last+1), fmt.Sprint("d", last+1), p.stageOf(last+1)))
		wait = []int{0}
	}
	for i := len(parts) - 1; i >= 0; i-- {
		v := parts[i]
		calls = append(calls, p.kernel(fmt.Sprint("d", v, " = product"), product, fmt.Sprint("d", v), fmt.Sprint("d", v+1), fmt.Sprint("w", v)))
		calls[len(calls)-1].Wait, wait = wait, nil
	}
	if first > 0 {
		calls = append(calls, p.message("send", fmt.Sprint("d", first), fmt.Sprint("d", first), p.stageOf(first-1)))
	}
	return calls
}

// gradients adds up those of weights.
func (p *pipe) gradients(parts []int) []program.Call {
	var calls []program.Call
	for _, v := range parts {
		calls = append(calls, p.kernel(fmt.Sprint("accum/w", v), func(t [][]float32) {
			for i := range t[1] {
				t[0][i%pipeDim] += t[1][i] * t[2][i]
			}
		}, fmt.Sprint("accum/w", v), fmt.Sprint("h", v), fmt.Sprint("d", v+1)))
	}
	if parts[0] == 0 { // h0 = x*tied: x*tied*d0/tied
		calls = append(calls, p.kernel("accum/totals", func(t [][]float32) {
			for i := range t[1] {
				k := i % pipeDim
				t[0][k] += t[1][i] * t[2][i] / t[3][k]
			}
		}, "accum/totals", "h0", "d0", "tied"))
	}
	return calls
}

// update is @step: totals over ranks, then SGD.
func (p *pipe) update(stage int) []program.Call {
	calls := []program.Call{p.kernel("totals", func(t [][]float32) { copy(t[0], t[1]); clear(t[1]) }, "totals", "accum/totals")}
	calls = append(calls, program.Call{Name: "totals = all_reduce", Loc: "pipe.py:3", Comm: &program.Comm{Kind: "all_reduce", Axis: "pp", Op: "sum", DType: "f32", Offset: p.at["totals"], Bytes: 4 * (pipeDim + 2), Tensor: "totals"}})
	calls = append(calls, program.Call{Name: "totals = all_reduce", Wait: []int{1}, Comm: &program.Comm{Kind: "all_reduce", Axis: "dp", Op: "sum", DType: "f32", Offset: p.at["totals"], Bytes: 4 * (pipeDim + 2), Tensor: "totals"}})
	for v := range pipeParts {
		if p.stageOf(v) != stage {
			continue
		}
		grad, acc, w := fmt.Sprint("grad", v), fmt.Sprint("accum/w", v), fmt.Sprint("w", v)
		calls = append(calls, p.kernel(grad, func(t [][]float32) { copy(t[0], t[1]); clear(t[1]) }, grad, acc))
		n := len(calls)
		calls = append(calls, program.Call{Name: grad + " = all_reduce", Comm: &program.Comm{Kind: "all_reduce", Axis: "dp", Op: "sum", DType: "f32", Offset: p.at[grad], Bytes: 4 * pipeDim, Tensor: grad}})
		calls = append(calls, p.kernel(w, func(t [][]float32) {
			for i := range t[0] {
				t[1][i] /= t[2][pipeDim+1]
				t[0][i] -= 0.05 * t[1][i]
			}
		}, w, grad, "totals"))
		calls[n+1].Wait = []int{2, n}
	}
	if _, has := p.at["tied"]; has {
		calls = append(calls, p.kernel("tied", func(t [][]float32) {
			for i := range t[0] {
				t[2][i] = 0.5*t[2][i] + t[1][i]/t[1][pipeDim+1]
				t[0][i] -= 0.05 * t[2][i]
			}
		}, "tied", "totals", "optim/tied"))
		calls[len(calls)-1].Wait = []int{2}
	}
	return calls
}

// rank is the program of a rank.
func (p *pipe) rank(tb testing.TB, rank int) *program.Program {
	man := abi.Manifest{Version: abi.Version, Model: "pipe.onnx", ModelSum: "pipe", Ranks: p.pp * p.dp, Mesh: []abi.Axis{{Name: "pp", Size: p.pp}, {Name: "dp", Size: p.dp}},
		Options: map[string]string{"lr": "0.05", "pp": fmt.Sprint(p.pp), "schedule": "constant " + p.name},
		Train:   abi.Train{Batch: pipeBatch, RankBatch: p.rows, DP: p.dp, Microbatches: p.micro, Optimizer: "sgd", LR: 0.05, Weighted: true}}
	var funcs map[string][]program.Call
	for s := range p.pp {
		prog, calls := p.program(s)
		man.Programs = append(man.Programs, prog)
		if s == rank/p.dp {
			funcs = calls
		}
	}
	for r := range man.Ranks {
		man.RankProgram = append(man.RankProgram, r/p.dp)
	}
	for _, name := range []string{"x", "target", "sample_weight"} {
		for _, prog := range man.Programs {
			if i := slices.IndexFunc(prog.Tensors, func(t abi.Tensor) bool { return t.Name == name }); i >= 0 {
				man.Train.Data = append(man.Train.Data, prog.Tensors[i])
				break
			}
		}
	}
	text, err := json.Marshal(man)
	if err != nil {
		tb.Fatal(err)
	}
	return &program.Program{Plan: text, Index: rank / p.dp, Funcs: funcs}
}

func (p *pipe) job(tb testing.TB, dir string, env map[string]string, args ...string) outcome {
	tb.Helper()
	return runRanks(p.pp*p.dp, func(r int) *program.Program {
		one := *p
		return one.rank(tb, r)
	}, dir, env, nil, args...)
}

func (p *pipe) ok(tb testing.TB, dir string, args ...string) outcome {
	tb.Helper()
	o := p.job(tb, dir, nil, args...)
	for r, c := range o.code {
		if c != 0 {
			tb.Fatalf("%s pp %d dp %d: rank %d exits with %d\n%s\n%s", p.name, p.pp, p.dp, r, c, o.out, o.err)
		}
	}
	return o
}

// folder has weights, and data of n samples.
func (p *pipe) folder(tb testing.TB, n int) (dir, path string) {
	tb.Helper()
	dir = tb.TempDir()
	rnd := uint32(7)
	fill := func(dims ...int) npz.Array {
		a := npz.Array{DType: "f32", Shape: dims, Data: make([]byte, 4*program.Elems(dims))}
		for i := range program.Elems(dims) {
			rnd = rnd*1664525 + 1013904223
			v := math.Float32bits(0.5 + float32(rnd>>8)/(1<<24))
			copy(a.Data[4*i:], []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)})
		}
		return a
	}
	var weights []safetensors.Tensor
	for _, name := range []string{"w0", "w1", "w2", "w3", "tied"} {
		a := fill(pipeDim)
		weights = append(weights, safetensors.Tensor{Name: name, DType: "f32", Shape: a.Shape, Data: a.Data})
	}
	if err := safetensors.WriteFile(filepath.Join(dir, weightsFile), weights, nil); err != nil {
		tb.Fatal(err)
	}
	x, y := fill(n, pipeDim), fill(n, pipeDim)
	x.Name, y.Name = "x", "target"
	path = filepath.Join(dir, "data.npz")
	if err := npz.WriteFile(path, []npz.Array{x, y}); err != nil {
		tb.Fatal(err)
	}
	return dir, path
}

// whole trains without ranks, stages and micro-batches, in float64: the loss before each of steps updates on the first batch
// of data, the gradients at first, and the outputs.
func (p *pipe) whole(tb testing.TB, dir, path string, steps int) (losses []float64, grads, out map[string][]float64) {
	tb.Helper()
	read := func(b []byte) []float64 {
		var v []float64
		for i := 0; i < len(b); i += 4 {
			e, _ := element(b[i:], "f32")
			v = append(v, e)
		}
		return v
	}
	file, err := safetensors.Open(filepath.Join(dir, weightsFile))
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	w := map[string][]float64{}
	for _, name := range []string{"w0", "w1", "w2", "w3", "tied"} {
		t, err := file.Tensor(name)
		if err != nil {
			tb.Fatal(err)
		}
		w[name] = read(t.Data)
	}
	arrays := readArrays(tb.(*testing.T), path)
	x, y := read(arrays["x"].Data), read(arrays["target"].Data)
	m := make([]float64, pipeDim)
	for s := range steps {
		g, o := map[string][]float64{}, []float64{}
		for name := range w {
			g[name] = make([]float64, pipeDim)
		}
		loss := 0.0
		for i := range pipeBatch * pipeDim {
			k := i % pipeDim
			t := w["tied"][k]
			a := w["w0"][k] * w["w1"][k] * w["w2"][k] * w["w3"][k]
			h := x[i] * t * a
			e := h*t - y[i]
			o = append(o, h*t)
			loss += e * e
			for v := range pipeParts {
				g[fmt.Sprint("w", v)][k] += 2 * e * h * t / w[fmt.Sprint("w", v)][k] / pipeBatch
			}
			g["tied"][k] += 4 * e * h / pipeBatch
		}
		losses = append(losses, loss/pipeBatch)
		if s == 0 {
			grads, out = g, map[string][]float64{"out0": o}
		}
		for name := range w {
			for k := range pipeDim {
				step := g[name][k]
				if name == "tied" {
					m[k] = 0.5*m[k] + step
					step = m[k]
				}
				w[name][k] -= 0.05 * step
			}
		}
	}
	return losses, grads, out
}
