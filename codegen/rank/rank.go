// Package rank writes one program as a Go package: lists of calls into generated kernels, templates of
// the target's, and collectives, all on offsets of one arena. It is the only package that imports jennifer.
package rank

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/target"
	"github.com/gtc-compiler/gtc/target/launch"
)

// Source is a generated package: file contents by name, how many distinct kernels it has, and which C function,
// template or collective makes each value that is stored.
type Source struct {
	Files   map[string][]byte
	Kernels int
	Makers  map[*ir.Value]string

	// Functions are the kernels of a program for a device, in the order of their numbers, and Launches those of each function of it,
	// in order; products and convolutions have their Own.
	Functions []launch.Function
	Launches  map[string][]abi.Launch
}

// call is one entry of a function's list before it is printed.
type call struct {
	name, loc string
	fn        string // C kernel, or template
	pkg       string // of a template that is a Go function
	status    bool
	args      []arg
	ints      []int
	floats    []float64
	comm      *abi.Comm
	wait      []int
	out       []*ir.Value

	// What a device does.
	launches    []abi.Launch
	product     *abi.Product
	convolution *abi.Convolution

	// What generated kernels do, those that are launched together.
	kernels  []target.Fused
	inOrder  bool
	describe string
}

// arg is a pointer argument: an arena offset, or nil.
type arg struct {
	null   bool
	offset int
}

type generator struct {
	m       *ir.Module
	f       *ir.Func
	groups  map[int]group.Group // of f, by number
	plan    pass.Plan
	stash   bool // some of the memory has several copies
	on      target.Target
	machine machine
}

// machine is how the kernels of a program are reached.
type machine interface {
	fused(cl *call) error                                    // prints generated kernels
	template(op *ir.Op, impl kir.Impl, cl *call) error       // makes a call of a template, with its operands and integers, one of the target's
	work(c *call, out *abi.Call) map[string]jen.Code         // says in out what a call does, and in fields by name what is code
	declare(f *jen.File, programs []Program)                 // what program.go needs besides
	field() jen.Code                                         // of a program: how it reaches its kernels
	files(pkg string, src *Source, programs []Program) error // adds the kernels
}

// Program is one planned module. Several may share a package, and with it their kernels; then Name sets what they
// declare apart: Program and Program<Name>.
type Program struct {
	Module *ir.Module
	Plan   pass.Plan
	Index  int    // among the programs of the manifest
	Strict bool   // each operation of generated kernels rounds by itself: none is contracted with the next
	Name   string // "" or a capitalised word
}

// Generate prints programs as Go package pkg.
func Generate(pkg string, t Target, programs ...Program) (*Source, error) {
	if t.Options == nil {
		t.Options = &pass.Options{}
	}
	g := &generator{on: t.Options.On()}
	switch on := g.on.(type) {
	case target.Host:
		g.machine = newHost(g, on)
	case target.Device:
		g.machine = newDevice(g, on, t)
	default:
		return nil, fmt.Errorf("BUG: target %s is neither a target.Host nor a target.Device", on.Traits().Name)
	}
	src := &Source{Files: map[string][]byte{}, Makers: map[*ir.Value]string{}, Launches: map[string][]abi.Launch{}}
	for _, p := range programs {
		g.m, g.plan, g.stash = p.Module, p.Plan, p.Plan.StashBytes > 0
		for _, f := range p.Module.Funcs {
			calls, err := g.function(f)
			if err != nil {
				return nil, err
			}
			src.makers(calls)
			src.Launches[f.Name+p.Name] = ownLaunches(calls)
			src.within(f)
			text, err := g.printCalls(pkg, f.Name, identifier(f.Name)+p.Name, calls)
			if err != nil {
				return nil, err
			}
			src.Files[f.Name+p.Name+".go"] = text
		}
	}
	src.Files["program.go"] = g.printPrograms(pkg, programs)
	return src, g.machine.files(pkg, src, programs)
}

// makers records what makes each value.
func (src *Source) makers(calls []call) {
	for _, cl := range calls {
		for _, v := range cl.out {
			if src.Makers[v] = cl.fn; cl.comm != nil {
				src.Makers[v] = string(cl.comm.Kind) + " over " + cl.comm.Axis
			}
		}
	}
}

// within records what makes the values that are parts of others, and those.
func (src *Source) within(f *ir.Func) {
	for _, op := range f.Ops {
		for _, v := range op.Out {
			if v.Within != nil {
				src.Makers[v] = group.Impl(op).Template + " within " + v.Within.Name
				src.Makers[v.Within] = group.Impl(op).Template
			}
		}
	}
}

// function lists the calls of f.
func (g *generator) function(f *ir.Func) ([]call, error) {
	if f.Calls == nil {
		return nil, fmt.Errorf("BUG: @%s has no calls", f.Name)
	}
	g.f, g.groups = f, map[int]group.Group{}
	for _, grp := range group.List(f) {
		g.groups[grp.ID] = grp
	}
	calls := make([]call, len(f.Calls))
	for i := range f.Calls {
		var err error
		if calls[i], err = g.call(&f.Calls[i]); err != nil {
			return nil, err
		}
		calls[i].wait = f.Calls[i].Wait
	}
	for i := range calls { // when hand-made kernels have their numbers
		if len(calls[i].kernels) > 0 {
			if err := g.machine.fused(&calls[i]); err != nil {
				return nil, err
			}
		}
	}
	return calls, nil
}

// call makes the entry for one call.
func (g *generator) call(c *ir.Call) (call, error) {
	op := g.groups[c.Work[0].Group].Ops[0]
	if op.Def.Rules.Collective != "" {
		cm, err := g.collective(op)
		return call{name: op.Out[0].Name + " = " + op.Def.Name, loc: op.Loc.String(), comm: cm, out: op.Out}, err
	}
	if op.Def.Rules.Transfer != ir.NoTransfer {
		return call{}, ir.Errorf(op.Loc, "%s copies between the arena and host storage, which programs cannot do yet", op)
	}
	switch impl := group.Impl(op); impl.Kind {
	case kir.Template:
		return g.templateCall(op, impl)
	case kir.None:
		return call{}, ir.Errorf(op.Loc, "the %s target has no kernel for %s", g.on.Traits().Title, op)
	}
	return g.fused(c)
}

func valueNames(vs []*ir.Value) string {
	var parts []string
	for i, v := range vs {
		if i == 3 && len(vs) > 4 {
			parts = append(parts, fmt.Sprintf("… %d more", len(vs)-3))
			break
		}
		parts = append(parts, v.Name)
	}
	return strings.Join(parts, ", ")
}

// templateCall calls a hand-made kernel: operands and results in the order it expects, workspace, attributes.
func (g *generator) templateCall(op *ir.Op, impl kir.Impl) (call, error) {
	all := append(slices.Clone(op.In), op.Out...)
	order := impl.Order
	if order == nil {
		for i := range all {
			order = append(order, i)
		}
	}
	cl := call{name: valueNames(op.Out) + " = " + impl.Template, loc: op.Loc.String(), fn: impl.Template,
		status: impl.Status, ints: slices.Clone(impl.Ints), floats: impl.Floats, out: op.Out}
	for _, i := range order {
		if i < 0 || i >= len(all) || all[i] == nil {
			cl.args = append(cl.args, arg{null: true})
			continue
		}
		cl.args = append(cl.args, arg{offset: g.stridedOperand(op, impl, i, all[i], &cl)})
	}
	cl.out = slices.DeleteFunc(slices.Clone(cl.out), func(v *ir.Value) bool { return v.Within != nil })
	return cl, g.machine.template(op, impl, &cl)
}

// stridedOperand is where a template finds operand i, or writes result i-len(op.In): through the views on it or into the
// assembly it is part of, whose strides it is told, when it takes strides for it.
func (g *generator) stridedOperand(op *ir.Op, impl kir.Impl, i int, v *ir.Value, cl *call) int {
	src, acc, ok := v, kir.Access{}, false
	if i < len(op.In) {
		src, acc, ok = group.Strided(op, impl, i)
	} else if p, within := group.Within(v); within {
		src, acc, ok = p.In, p.Access, true
	}
	if !ok {
		return v.Offset
	}
	for d, p := range impl.Strided[i] {
		if p >= 0 && acc.Dims[d] > 1 {
			cl.ints[p] = acc.Strides[d]
		}
	}
	return src.Offset + acc.Offset*src.Type.DType.Size()
}
