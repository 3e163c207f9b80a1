// Package plan describes compiled programs for gtc.json, their plan: what training does, which tensors they have and where, what their
// functions read and give; and it collects the weights that lie beside it.
package plan

import (
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/cost"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/compress"
	"github.com/gtc-compiler/gtc/passes/memplan"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// Program describes one of the programs of a compilation. Its kernels and collectives are the code's to tell.
func Program(c, compilation *pass.Context) abi.Program {
	p := abi.Program{ArenaBytes: c.Plan.ArenaBytes, HostBytes: c.Plan.HostBytes, Segments: c.Plan.Segments, Tensors: tensors(c.Module, compilation.FileDims),
		Actions: c.Actions, Slots: c.Slots, StashStart: c.Plan.StashStart, StashBytes: c.Plan.StashBytes}
	if len(compilation.Adapters) > 0 {
		freeze(c.Module, p.Tensors)
	}
	for _, f := range c.Module.Funcs {
		p.Funcs = append(p.Funcs, funcInfo(f))
	}
	return p
}

// Train is what a program of m does with a batch.
func Train(o *pass.Options, m *ir.Module, loss string) abi.Train {
	t := abi.Train{DP: m.Mesh.Size(mesh.DataAxis), Microbatches: max(1, m.Mesh.Size(mesh.TimeAxis)), Loss: loss, Optimizer: o.Optimizer.Name,
		LR: o.Optimizer.LR, Tokens: 1, LocalPeriod: o.GradComm.Period, LocalAfter: o.GradComm.After}
	f := m.Func(abi.FuncStep)
	if f == nil { // a program that only infers
		t.RankBatch = 1
		if f = m.Func(abi.FuncForward); f == nil {
			return t
		}
	}
	if e := m.Func(abi.FuncEval); e != nil {
		t.Together = slices.ContainsFunc(e.Params, func(p *ir.Value) bool { return p.Role == ir.Whole })
	}
	for _, p := range f.Params {
		switch {
		case p.Role == ir.Weight:
			t.Weighted = true
		case p.Role == ir.Target:
			if len(p.Type.Dims) > 0 && p.Type.DType.IsInt() { // a class at each position; a regression counts samples
				t.Tokens = ir.Product(p.Type.Dims[1:])
			}
		case p.Role == ir.Input && t.RankBatch <= 1 && len(p.Type.Dims) > 0 && p.Type.Dims[0] > 0:
			t.RankBatch = p.Type.Dims[0]
		}
	}
	t.Batch = t.RankBatch * t.DP * t.Microbatches
	if t.Loss == "cross_entropy" || t.Loss == "nll" {
		t.Metric = "accuracy"
		if t.Tokens > 1 {
			t.Metric = "perplexity"
		}
	}
	return t
}

// Data lists what the model reads from the data, in its order, as the first of the programs that has it sees it.
func Data(m *ir.Module, programs []*pass.Context) []abi.Tensor {
	var list []abi.Tensor
	f := m.Func(abi.FuncStep)
	if f == nil {
		return nil
	}
	for _, p := range f.Params {
		if p.Role != ir.Input && p.Role != ir.Target && p.Role != ir.Weight {
			continue
		}
		for _, c := range programs {
			if v := param(c.Module, p.Name); v != nil {
				p = v
				break
			}
		}
		t := tensor(p.Name, p)
		t.Role, t.Offset = p.Role.Named(), 0
		list = append(list, t)
	}
	return list
}

// param finds a parameter of any function.
func param(m *ir.Module, name string) *ir.Value {
	for _, f := range m.Funcs {
		if p := f.Param(name); p != nil {
			return p
		}
	}
	return nil
}

// tensors lists everything with a permanent place.
func tensors(m *ir.Module, fileDims map[string][]int) []abi.Tensor {
	var out []abi.Tensor
	seen := map[string]bool{}
	add := func(name string, role abi.Role, init string, v *ir.Value) {
		if !seen[name] {
			seen[name] = true
			t := tensor(name, v)
			t.Role, t.Init = role, init
			if v.Role == ir.Param || v.Role == ir.Buffer || v.Role == ir.State || v.Role == ir.Whole {
				t.ShardAxes = shardAxes(v)
			}
			t.PerRank, t.Merge = compress.PerRank(v)
			t.Global = whole(m.Mesh, &t)
			t.Shape = fileDims[parameterOf(name)]
			out = append(out, t)
		}
	}
	for _, f := range m.Funcs {
		for _, p := range f.Params {
			init := ""
			if p.Init != nil {
				init = p.Name
			}
			add(p.Name, p.Role.Named(), init, p)
		}
	}
	for _, f := range m.Funcs {
		for _, op := range f.Ops {
			if name, ok := literal(op); ok {
				add(name, abi.RoleConst, name, op.Out[0])
			}
		}
	}
	return out
}

// freeze marks the buffers that no function of m updates.
func freeze(m *ir.Module, tensors []abi.Tensor) {
	updated := map[string]bool{}
	for _, f := range m.Funcs {
		for _, r := range f.Results {
			if r.Updates != nil {
				updated[r.Updates.Name] = true
			}
		}
	}
	for i := range tensors {
		tensors[i].Frozen = tensors[i].Role == abi.RoleBuffer && !updated[tensors[i].Name]
	}
}

// literal names a constant that is stored with the weights.
func literal(op *ir.Op) (string, bool) {
	if op.Group != 0 || group.Impl(op).Kind != kir.Literal {
		return "", false
	}
	return abi.Constant.Of(memplan.LiteralName(op)), true
}

func tensor(name string, v *ir.Value) abi.Tensor {
	t := abi.Tensor{Name: name, DType: v.Type.DType.String(), Dims: v.Type.Dims, Offset: v.Offset, Bytes: v.Type.Bytes()}
	if t.Dims == nil {
		t.Dims = []int{}
	}
	return t
}

// shardAxes says for each dim of v which mesh axes split it, as abi.Tensor does; nil for none.
func shardAxes(v *ir.Value) []string {
	var list []string
	for d := range v.Sharding.Dims {
		if a := v.Sharding.Axes(d); len(a) > 0 {
			if list == nil {
				list = make([]string, len(v.Type.Dims))
			}
			list[d] = strings.Join(a, ",")
		}
	}
	return list
}

// whole is the dims of the tensor that t is a part of; nil when t is the whole.
func whole(m mesh.Mesh, t *abi.Tensor) []int {
	if t.ShardAxes == nil {
		return nil
	}
	dims := slices.Clone(t.Dims)
	for d := range dims {
		for _, axis := range strings.Split(t.ShardAxes[d], ",") {
			dims[d] *= m.Size(axis)
		}
	}
	return dims
}

func funcInfo(f *ir.Func) abi.Func {
	info := abi.Func{Name: f.Name, Ops: len(f.Ops)}
	for _, p := range f.Params {
		if p.Role.FromData() {
			info.Inputs = append(info.Inputs, p.Name)
		}
	}
	for _, r := range f.Results {
		if r.Updates == nil {
			t := tensor(r.Name, r.Value)
			t.Role, t.ShardAxes = abi.RoleResult, shardAxes(r.Value)
			info.Results = append(info.Results, t)
		}
	}
	for _, op := range f.Ops {
		info.Flops += cost.Flops(op)
	}
	return info
}

// parameterOf is the parameter that a tensor of that name is or belongs to: the state optim/RULE/NAME to NAME.
func parameterOf(name string) string {
	if _, param, ok := abi.CutOptim(name); ok {
		return param
	}
	return name
}

// Weights collects initial contents: parameters by name, stored constants by what they are. fileDims are as in pass.Context.
func Weights(fileDims map[string][]int, modules ...*ir.Module) []safetensors.Tensor {
	var out []safetensors.Tensor
	seen := map[string]bool{}
	add := func(name string, t *ir.Tensor) {
		if t != nil && !t.Absent() && !seen[name] {
			seen[name] = true
			shape := t.Type.Dims
			if d := fileDims[name]; d != nil {
				shape = d
			}
			out = append(out, safetensors.Tensor{Name: name, DType: t.Type.DType.Safetensors(), Shape: shape, Data: t.Data})
		}
	}
	for _, m := range modules {
		for _, f := range m.Funcs {
			for _, p := range f.Params {
				add(p.Name, p.Init)
			}
			for _, op := range f.Ops {
				if name, ok := literal(op); ok {
					add(name, op.Attrs.(ops.ConstAttrs).Value)
				}
			}
		}
	}
	return out
}
