// Package rank writes one program as a Go package: lists of calls into generated kernels, templates of
// kernels/cpu or kernels/cuda, and collectives, all on offsets of one arena. It is the only package that imports jennifer.
package rank

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/kernel"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/target"
)

// Source is a generated package: file contents by name, how many distinct kernels it has, and which C function,
// template or collective makes each value that is stored.
type Source struct {
	Files   map[string][]byte
	Kernels int
	Makers  map[*ir.Value]string
	GPU     []Kernel // those of a program for a GPU, in the order of their numbers

	// Launches are those of each function of a program for a GPU, in order; products and convolutions have their Own.
	Launches map[string][]abi.Launch
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
	comm      *comm
	wait      []int
	out       []*ir.Value

	// What a GPU does.
	launches    []abi.Launch
	product     *abi.Product
	convolution *abi.Convolution
	kernel      *kir.Kernel // a fused kernel, until launches are printed
	describe    string      // what it does
	key         string      // of the calls that it may be launched with
	touched
}

// arg is a pointer argument: an arena offset, or nil.
type arg struct {
	null   bool
	offset int
}

// comm is a collective call.
type comm struct {
	op            *ir.Op
	axis, reduce  string
	peer          int
	stays         bool   // it is sent out of the stash
	dtype, tensor string // tensor is what both sides of it call what travels
	offset, bytes int
	source        int
	before        []pass.Copy
	outer, stride int
}

type generator struct {
	places  map[*ir.Value]group.Place // of the function at hand: what templates write into an assembly
	m       *ir.Module
	f       *ir.Func
	plan    pass.Plan
	stash   bool              // some of the memory has several copies
	kernels map[string]string // text without name -> name
	text    bytes.Buffer      // kernels.c
	names   []string          // C functions in order, with parameter counts
	params  map[string]int
	result  map[string]string // C type
	launch  launchers
	on      target.Target
	host    target.Host // nil for programs of a GPU
	gpu     *gpu        // nil for others
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
	g := &generator{kernels: map[string]string{}, params: map[string]int{}, result: map[string]string{},
		launch: launchers{names: map[string]string{}, count: map[string]int{}}}
	if t.Options == nil {
		t.Options = &pass.Options{}
	}
	g.on = t.Options.On()
	if g.host, _ = g.on.(target.Host); g.host == nil {
		g.gpu = &gpu{target: t, number: map[string]int{}}
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
			for v, p := range g.places {
				src.Makers[v] = group.Impl(v.Op).Template + " within " + p.In.Name
				src.Makers[p.In] = group.Impl(v.Op).Template
			}
			text, err := g.printCalls(pkg, f.Name, identifier(f.Name)+p.Name, calls)
			if err != nil {
				return nil, err
			}
			src.Files[f.Name+p.Name+".go"] = text
		}
	}
	src.Files["program.go"] = g.printPrograms(pkg, programs)
	if g.gpu != nil {
		src.Files["kernels.cu"], src.GPU, src.Kernels = g.gpu.kernelsText(), g.gpu.list, len(g.gpu.list)
		return src, nil
	}
	return src, g.cFiles(pkg, src, programs)
}

// cFiles adds the kernels in C and what calls them.
func (g *generator) cFiles(pkg string, src *Source, programs []Program) error {
	launch, err := g.printLaunchers(pkg)
	if err != nil {
		return err
	}
	src.Files["launch.go"] = launch
	pragma, text := "", g.text.String()
	if strict(programs) {
		pragma = "#pragma STDC FP_CONTRACT OFF\n"
	}
	src.Files["kernels.c"] = []byte("// Code generated by gtc. DO NOT EDIT.\n" + pragma + "#include \"kernels.h\"\n" + g.host.Head(text) + "\n" +
		"void gtc_kernel_threads(int n) { gtc_threads = n; }\n" + text)
	src.Files["kernels.h"] = g.header()
	src.Kernels = len(g.names)
	return nil
}

// makers records what makes each value.
func (src *Source) makers(calls []call) {
	for _, cl := range calls {
		for _, v := range cl.out {
			if src.Makers[v] = cl.fn; cl.comm != nil {
				src.Makers[v] = cl.comm.op.Def.Name + " over " + cl.comm.axis
			}
		}
	}
}

// header declares the kernels.
func (g *generator) header() []byte {
	var b bytes.Buffer
	b.WriteString("// Code generated by gtc. DO NOT EDIT.\nvoid gtc_kernel_threads(int n);\n")
	for _, n := range g.names {
		p := strings.TrimSuffix(strings.Repeat("void *, ", g.params[n]), ", ")
		fmt.Fprintf(&b, "%s %s(%s);\n", g.result[n], n, p)
	}
	return b.Bytes()
}

// function lists the calls of f.
func (g *generator) function(f *ir.Func) ([]call, error) {
	g.f = f
	outs := group.Outputs(f)
	g.places = group.Places(f)
	var calls []call
	inflight := map[*ir.Value]int{} // result of a collective -> its call
	list := group.List(f)
	landed := map[int][]*ir.Value{} // position of a group -> results of collectives that must be over
	for pos, at := range group.Landings(list) {
		landed[at] = append(landed[at], list[pos].Ops[0].Out...)
	}
	for pos, grp := range list {
		more, err := g.group(grp, outs[grp.ID])
		if err != nil {
			return nil, err
		}
		var wait []int
		for _, v := range append(grp.Inputs(), landed[pos]...) {
			if i, ok := inflight[v]; ok && !slices.Contains(wait, i) {
				wait = append(wait, i)
			}
		}
		for _, w := range wait { // once waited for, a collective is over
			for v, i := range inflight {
				if i == w {
					delete(inflight, v)
				}
			}
		}
		if len(more) == 0 { // an assembly whose parts were all made in it
			continue
		}
		slices.Sort(wait)
		more[0].wait = wait
		if more[0].comm != nil {
			for _, v := range grp.Ops[0].Out {
				inflight[v] = len(calls)
			}
		}
		if g.gpu != nil {
			for i := range more {
				more[i].touched = g.touches(grp, outs[grp.ID])
			}
		}
		calls = append(calls, more...)
	}
	if g.gpu != nil {
		return g.batched(calls)
	}
	return calls, nil
}

// group makes the calls of one group: none where all its work is done by others.
func (g *generator) group(grp group.Group, outs []*ir.Value) ([]call, error) {
	op := grp.Ops[0]
	if op.Def.Rules.Collective != "" {
		cm, err := g.collective(op)
		return []call{{name: op.Out[0].Name + " = " + op.Def.Name, loc: op.Loc.String(), comm: cm, out: op.Out}}, err
	}
	impl := group.Impl(op)
	switch impl.Kind {
	case kir.Template:
		cl, err := g.templateCall(op, impl)
		return []call{cl}, err
	case kir.Assemble:
		return g.assemble(op, impl)
	case kir.None:
		return nil, ir.Errorf(op.Loc, "the %s target has no kernel for %s", g.on.Traits().Title, op)
	}
	built, err := kernel.Build(grp, outs)
	if err != nil {
		return nil, err
	}
	last := grp.Ops[len(grp.Ops)-1]
	cl, err := g.kernelCall(built.Kernel, kernelName(grp), last.Loc.String(), built.Args)
	if err != nil {
		return nil, ir.Errorf(op.Loc, "%v", err)
	}
	cl.name = valueNames(outs) + " = " + cl.fn
	cl.loc, cl.out = last.Loc.String(), outs
	return []call{cl}, nil
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

// kernelName describes a group by its first and last ops.
func kernelName(grp group.Group) string {
	first, last := grp.Ops[0].Def.Name, grp.Ops[len(grp.Ops)-1].Def.Name
	if len(grp.Ops) == 1 {
		return first
	}
	return first + "_" + last
}

// kernelCall prints the kernel unless an equal one exists, and calls it on the args.
func (g *generator) kernelCall(k *kir.Kernel, describe, loc string, args []kernel.Arg) (call, error) {
	var cl call
	for _, a := range args {
		cl.args = append(cl.args, arg{offset: a.Value.Offset + a.Start*a.Value.Type.DType.Size()})
	}
	if g.gpu != nil {
		return g.gpuKernel(k, describe, cl.args, loc), nil
	}
	body, err := g.host.Fused(k)
	if err != nil {
		return call{}, err
	}
	if k.Work > 0 {
		cl.args = append(cl.args, arg{offset: g.plan.Workspace})
	}
	cl.fn = g.define(body, describe, len(cl.args), "void")
	return cl, nil
}

// define adds the C function body, which is called NAME there, unless there is an equal one, and gives its name.
func (g *generator) define(body, describe string, params int, result string) string {
	name, ok := g.kernels[body]
	if !ok {
		name = fmt.Sprintf("k%d_%s", len(g.names)+1, describe)
		g.kernels[body] = name
		g.names = append(g.names, name)
		g.params[name], g.result[name] = params, result
		g.text.WriteString("\n" + strings.Replace(body, " NAME(", " "+name+"(", 1))
	}
	return name
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
		cl.args = append(cl.args, arg{offset: g.looseOperand(op, impl, i, all[i], &cl)})
	}
	cl.out = slices.DeleteFunc(slices.Clone(cl.out), func(v *ir.Value) bool { _, within := g.places[v]; return within })
	if g.gpu != nil {
		return cl, g.gpuTemplate(op, impl, &cl)
	}
	return cl, g.hostTemplate(op, impl, &cl)
}

// hostTemplate makes cl, a call of a template with its pointers and integers, one of the target's functions.
func (g *generator) hostTemplate(op *ir.Op, impl kir.Impl, cl *call) error {
	c := target.CallOf(op, impl)
	c.Ints = cl.ints
	f, err := g.host.Template(c)
	if err != nil {
		return ir.Errorf(op.Loc, "%v", err)
	}
	if f.Text != "" {
		result := "void"
		if impl.Status {
			result = "long"
		}
		cl.fn, cl.ints, cl.floats = g.define(f.Text, strings.ToLower(impl.Template), len(cl.args), result), nil, nil
	} else {
		cl.pkg, cl.fn, cl.ints = f.Package, f.Name, append(cl.ints, f.More...)
		cl.args = append(cl.args, arg{offset: g.plan.Workspace})
	}
	cl.name = valueNames(op.Out) + " = " + cl.fn
	return nil
}

// looseOperand is where a template finds operand i, or writes result i-len(op.In): through the views on it or into the
// assembly it is part of, whose strides it is told, when it takes strides for it.
func (g *generator) looseOperand(op *ir.Op, impl kir.Impl, i int, v *ir.Value, cl *call) int {
	src, acc, ok := v, kir.Access{}, false
	if i < len(op.In) {
		src, acc, ok = group.Loose(op, impl, i)
	} else if p, within := g.places[v]; within {
		src, acc, ok = p.In, p.Access, true
	}
	if !ok {
		return v.Offset
	}
	for d, p := range impl.Loose[i] {
		if p >= 0 && acc.Dims[d] > 1 {
			cl.ints[p] = acc.Strides[d]
		}
	}
	return src.Offset + acc.Offset*src.Type.DType.Size()
}

// assemble copies each operand into its box, after filling the result when the boxes leave gaps.
func (g *generator) assemble(op *ir.Op, impl kir.Impl) ([]call, error) {
	out := op.Out[0]
	var calls []call
	add := func(k *kir.Kernel, name string, args ...kernel.Arg) error {
		k.Collapse()
		cl, err := g.kernelCall(k, name, op.Loc.String(), args)
		if err != nil {
			return ir.Errorf(op.Loc, "%v", err)
		}
		cl.name, cl.loc, cl.out = out.Name+" = "+cl.fn, op.Loc.String(), op.Out
		calls = append(calls, cl)
		return nil
	}
	covered := 0
	for _, v := range op.In {
		covered += v.Type.Elems()
	}
	if covered < out.Type.Elems() {
		if err := add(fillKernel(out, impl.Fill), "fill", kernel.Arg{Value: out}); err != nil {
			return nil, err
		}
	}
	for i, v := range op.In {
		if _, within := g.places[group.Alias(v)]; within {
			continue
		}
		k, args, err := boxKernel(op, i)
		if err != nil {
			return nil, err
		}
		if err := add(k, op.Def.Name, args...); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

func newKernel(dims []int) *kir.Kernel {
	k := &kir.Kernel{Dims: slices.Clone(dims), Row: make([]bool, len(dims)), Chunks: 1}
	n := 1
	for d := len(dims) - 1; d >= 0 && n < 512; d-- {
		k.Row[d] = true
		n *= dims[d]
	}
	return k
}

func fillKernel(out *ir.Value, v float64) *kir.Kernel {
	k := newKernel(out.Type.Dims)
	k.Params = []kir.Param{{DType: out.Type.DType, Elems: out.Type.Elems(), Out: true, Align: abi.Align}}
	k.Insts = []kir.Inst{
		{Op: "const", DType: out.Type.DType, Value: v},
		{Op: "store", DType: out.Type.DType, Args: []int{0}, Access: kir.Access{Strides: ir.Strides(out.Type.Dims)}, Level: kir.PerElem},
	}
	return k
}

// boxKernel copies operand i of op, read through its views, into its box of the result.
func boxKernel(op *ir.Op, i int) (*kir.Kernel, []kernel.Arg, error) {
	out, v := op.Out[0], op.In[i]
	k := newKernel(v.Type.Dims)
	var args []kernel.Arg
	dst := group.BoxAccess(op, i)
	start := dst.Offset
	dst.Offset = 0
	load := kir.Inst{DType: v.Type.DType, Level: kir.PerElem}
	if e, ok := group.Scalar(v); ok {
		load.Op, load.Value, load.Level = "const", e.Value, kir.Uniform
	} else {
		src, acc, ok := group.Resolve(v)
		if !ok {
			return nil, nil, fmt.Errorf("BUG: operand %s of %s is not affine", v.Name, op.Def.Name)
		}
		args = append(args, kernel.Arg{Value: src, Start: acc.Offset})
		acc.Offset = 0
		load.Op, load.Access = "load", acc
		k.Params = []kir.Param{{DType: src.Type.DType, Elems: src.Type.Elems(), Align: args[0].Align()}}
	}
	to := kernel.Arg{Value: out, Start: start}
	k.Params = append(k.Params, kir.Param{DType: out.Type.DType, Elems: out.Type.Elems(), Out: true, Align: to.Align()})
	k.Insts = []kir.Inst{load,
		{Op: "store", DType: out.Type.DType, Args: []int{0}, Param: len(k.Params) - 1, Access: dst, Level: kir.PerElem}}
	return k, append(args, to), nil
}
