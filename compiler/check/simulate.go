package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// lastPass makes the programs that are simulated: after it all collectives, messages and schedules are there, in the
// order in which ranks issue them. Later passes choose kernels and places in memory, of which the interpreter has none.
const lastPass = "overlap"

// memory are the results of a simulated run.
type memory struct {
	first  map[string]*ir.Array // of the first step, by name
	losses []float64
	empty  []float64 // 1 for a step in which nothing counts
}

func (m *memory) array(name string) ([]float64, []int, error) {
	if name == "loss" {
		return m.losses, []int{len(m.losses)}, nil
	}
	if name == emptySteps {
		return m.empty, []int{len(m.empty)}, nil
	}
	a := m.first[name]
	if a == nil {
		return nil, nil, fmt.Errorf("the simulated program gives no %q", name)
	}
	x := a.F
	for _, v := range a.I {
		x = append(x, float64(v))
	}
	return x, a.Type.Dims, nil
}

// simulateAll interprets a program for each curve.
func simulateAll(ctx context.Context, o *Options, base *compiler.Options, ref *npz.File, chosen []curve) ([]results, *compiler.Result, error) {
	inputs, err := inputNames(base)
	if err != nil {
		return nil, nil, err
	}
	out, errs := make([]results, len(chosen)), make([]error, len(chosen))
	var first *compiler.Result
	var wg sync.WaitGroup
	for i, c := range chosen {
		one := *base
		one.Pass.Optimizer = c.opt
		wg.Go(func() {
			errs[i] = compiler.LowerTo(&one, lastPass, func(res *compiler.Result) (err error) {
				if i == 0 {
					first = res
				}
				out[i], err = simulate(ctx, res, inputs, ref, o.steps(ref, c.name))
				return err
			})
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, nil, err
		}
	}
	return out, first, nil
}

// inputNames are the model's inputs in order: in0, in1, … of a reference.
func inputNames(o *compiler.Options) ([]string, error) {
	m, err := onnx.Load(o.Model, o.Import)
	if err != nil {
		return nil, compiler.Input(err)
	}
	defer m.Close()
	var names []string
	for _, in := range m.Inputs() {
		names = append(names, in.Name)
	}
	return names, nil
}

// simulate does steps updates on the batch of ref.
func simulate(ctx context.Context, res *compiler.Result, inputs []string, ref *npz.File, steps int) (*memory, error) {
	programs := Programs(res.Context)
	w := whole{inputs, res.Context.BatchDims, ref}
	batch, err := w.batch(programs)
	if err != nil {
		return nil, err
	}
	sim, err := interp.Simulate(programs, nil)
	if err != nil {
		return nil, err
	}
	m := &memory{}
	if res.Context.Opt.Loss == pass.NoLoss {
		if err := sim.Call(abi.FuncForward, batch); err != nil {
			return nil, fmt.Errorf("simulating @forward: %w", err)
		}
		m.first, err = w.named(programs, sim)
		return m, err
	}
	for k := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := sim.Step(batch); err != nil {
			return nil, fmt.Errorf("simulating step %d: %w", k, err)
		}
		loss, empty, err := meanLoss(sim)
		if err != nil {
			return nil, fmt.Errorf("simulating step %d: %w", k, err)
		}
		m.losses, m.empty = append(m.losses, loss), append(m.empty, empty)
		if k > 0 {
			continue
		}
		if m.first, err = w.named(programs, sim); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Programs are what the interpreter needs of a compilation.
func Programs(c *pass.Context) []interp.Program {
	var list []interp.Program
	for _, p := range c.Programs() {
		list = append(list, interp.Program{Module: p.Module, Actions: p.Actions, Slots: p.Slots})
	}
	return list
}

// meanLoss is that of the last step, and 1 when nothing counts in it, so that it is none.
func meanLoss(sim *interp.Simulation) (loss, empty float64, err error) {
	sum, err := sim.Result(abi.LossSum, false)
	if err != nil {
		return 0, 0, err
	}
	count, err := sim.Result(abi.Count, false)
	switch {
	case err != nil:
		return 0, 0, err
	case sum == nil:
		return 0, 0, errors.New("no rank gives the loss")
	case count == nil:
		return sum.F[0], 0, nil
	}
	n := 0.0
	if len(count.I) > 0 {
		n = float64(count.I[0])
	} else {
		n = count.F[0]
	}
	if n == 0 && sum.F[0] == 0 {
		empty = 1
	}
	return sum.F[0] / n, empty, nil
}

// whole reads and gives arrays of all ranks and micro-batches, with samples where the model has them.
type whole struct {
	inputs    []string
	batchDims map[string]int // see pass.Context
	ref       *npz.File
}

// named puts all named results of the last step together.
func (w *whole) named(programs []interp.Program, sim *interp.Simulation) (map[string]*ir.Array, error) {
	out := map[string]*ir.Array{}
	for _, p := range programs {
		for _, f := range p.Module.Funcs {
			for _, r := range f.Results {
				if r.Name == "" || out[r.Name] != nil {
					continue
				}
				x, err := sim.Result(r.Name, false)
				if err != nil {
					return nil, err
				}
				if x != nil {
					out[r.Name] = moved(x, 0, w.batchDims[r.Name])
				}
			}
		}
	}
	return out, nil
}

// batch is what the programs take from the data, by name; samples weigh 1.
func (w *whole) batch(programs []interp.Program) (map[string]*ir.Array, error) {
	out := map[string]*ir.Array{}
	for _, p := range programs {
		for _, f := range p.Module.Funcs {
			for _, v := range f.Params {
				name := abi.WholeData.Trim(v.Name)
				if v.Role != ir.Whole {
					name = v.Name
				}
				if out[name] != nil || !v.Role.FromData() {
					continue
				}
				x, err := w.input(p.Module.Mesh, v, name)
				if err != nil {
					return nil, err
				}
				out[name] = x
			}
		}
	}
	return out, nil
}

// input is the array of the reference for v of a rank's program, which is the input of that name.
func (w *whole) input(m mesh.Mesh, v *ir.Value, name string) (*ir.Array, error) {
	dims := interp.WholeDims(m, v)
	out := ir.NewArray(ir.T(v.Type.DType, dims...))
	names := []string{name}
	role := v.Role
	if role == ir.Whole { // of the model's inputs, or what the loss adds
		role = ir.Input
		if !slices.Contains(w.inputs, name) {
			role = ir.Weight
			if v.Type.DType.IsInt() || has(w.ref, name) || len(dims) > 1 {
				role = ir.Target
			}
		}
	}
	switch role {
	case ir.Weight:
		for i := range out.F {
			out.F[i] = 1
		}
		return out, nil
	case ir.Target:
		names = append(names, data.TargetNames...)
	default:
		names = append(names, "in"+strconv.Itoa(slices.Index(w.inputs, name)))
	}
	i := slices.IndexFunc(names, func(n string) bool { return has(w.ref, n) })
	if i < 0 {
		return nil, compiler.Input(fmt.Errorf("%s: there is no array for input %q", w.ref.Path(), name))
	}
	x, shape, err := read(w.ref, names[i])
	if err != nil {
		return nil, compiler.Input(err)
	}
	if d := w.batchDims[name]; d > 0 && len(shape) == len(dims) && slices.Equal(slices.Delete(slices.Clone(shape), d, d+1), dims[1:]) {
		x, shape = npz.MoveDim(x, shape, d, 0)
	}
	if !slices.Equal(squeeze(shape), squeeze(dims)) {
		return nil, compiler.Input(fmt.Errorf("%s: the shape of array %q is %v, but that of input %q for the whole batch is %v", w.ref.Path(), names[i], shape, name, dims))
	}
	if out.F != nil {
		out.F = x
	}
	for k := range out.I {
		if out.I[k] = int64(x[k]); float64(out.I[k]) != x[k] {
			return nil, compiler.Input(fmt.Errorf("%s: array %q: element %d is %v, which input %q, of type %s, cannot hold", w.ref.Path(), names[i], k, x[k], name, v.Type.DType))
		}
	}
	return out, nil
}

// moved is x with a dim brought to another place.
func moved(x *ir.Array, from, to int) *ir.Array {
	if from == to || max(from, to) >= len(x.Type.Dims) {
		return x
	}
	out := &ir.Array{Type: x.Type}
	out.F, out.Type.Dims = npz.MoveDim(x.F, x.Type.Dims, from, to)
	out.I, _ = npz.MoveDim(x.I, x.Type.Dims, from, to)
	return out
}

func squeeze(dims []int) []int {
	return slices.DeleteFunc(slices.Clone(dims), func(d int) bool { return d == 1 })
}
