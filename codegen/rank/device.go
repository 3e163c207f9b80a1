package rank

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/target"
	"github.com/gtc-compiler/gtc/target/launch"
)

// Target says what programs run on. The zero Target is this kind of processor.
type Target struct {
	Options  *pass.Options
	Compiler launch.Compiler // of a device's programs; nil where they are printed only
}

// device prints programs whose kernels are launched on a device.
type device struct {
	g        *generator
	on       target.Device
	options  *pass.Options
	compiler launch.Compiler
	number   map[string]int // headers and text without name -> the kernel's number
	list     []launch.Function
}

func newDevice(g *generator, on target.Device, t Target) *device {
	return &device{g: g, on: on, options: t.Options, compiler: t.Compiler, number: map[string]int{}}
}

// launches are those of plan's kernels on the pointers args. Equal kernels are one, whoever launches them.
func (d *device) launches(kernels []launch.Kernel, args []arg, loc string) ([]abi.Launch, error) {
	var list []abi.Launch
	for _, k := range kernels {
		if n, most := 8*len(k.Args), d.on.Runtime().Params; n > most {
			return nil, fmt.Errorf("BUG: kernel %s of %s has %d bytes of parameters, %s allows %d", k.Name, loc, n, d.on.Traits().Title, most)
		}
		l := abi.Launch{Kernel: d.kernel(k, loc), Grid: k.Grid, Block: k.Block, Shared: k.Shared, Table: k.Table, Refs: k.Refs}
		for _, r := range k.Args {
			l.Args = append(l.Args, d.pointer(r, args))
		}
		list = append(list, l)
	}
	return list, nil
}

// ownLaunches are those of all calls.
func ownLaunches(calls []call) []abi.Launch {
	var list []abi.Launch
	for _, c := range calls {
		list = append(list, c.launches...)
		if c.product != nil {
			list = append(list, c.product.Own...)
		}
		if c.convolution != nil {
			list = append(list, c.convolution.Own...)
		}
	}
	return list
}

// pointer is where r points: an offset in the arena, or one of abi's special arguments.
func (d *device) pointer(r launch.Ref, args []arg) int {
	switch {
	case r.Arg == launch.Workspace:
		return d.g.plan.Workspace + r.Offset
	case r.Arg < 0:
		return r.Arg
	case args[r.Arg].null:
		return abi.ArgNil
	}
	return args[r.Arg].offset + r.Offset
}

// kernel is the number of k, which is new unless its text is known. A kernel is called by what it does and a hash of its text:
// the same in each program that has it, so that compiled kernels and profiles can be compared.
func (d *device) kernel(k launch.Kernel, loc string) int {
	key := strings.Join(k.Include, " ") + "\n" + k.Text
	n, ok := d.number[key]
	if !ok {
		n = len(d.list)
		d.number[key] = n
		sum := sha256.Sum256([]byte(key))
		name := fmt.Sprintf("%s_%x", k.Name, sum[:4])
		d.list = append(d.list, launch.Function{Name: name, Text: named(k.Text, name), Include: k.Include, Family: k.Family, Loc: loc})
	}
	return n
}

// named puts the name into the text of a kernel, which has NAME in its place.
func named(text, name string) string { return strings.Replace(text, "NAME(", name+"(", 1) }

// template makes cl, a call of a template with its pointers and integers, one of the template's kernels for the device.
func (d *device) template(op *ir.Op, impl kir.Impl, cl *call) error {
	c := d.options.Call(op, impl)
	c.Ints = cl.ints
	for _, a := range cl.args {
		c.Align = append(c.Align, alignment(a))
	}
	plan, err := d.on.Plan(c)
	if err != nil {
		return ir.Errorf(op.Loc, "%v", err)
	}
	number := func(n int) int { return d.pointer(launch.Ref{Arg: n}, cl.args) }
	launches, err := d.launches(plan.Kernels, cl.args, cl.loc)
	if err != nil {
		return err
	}
	switch {
	case plan.Product != nil && d.options.Reproducible: // a library sums in an order of its own
		cl.launches = launches[:len(launches)-plan.Product.OwnSums]
	case plan.Product != nil:
		p := *plan.Product
		p.A, p.B, p.C, p.Bias, p.Add, p.Aux = number(p.A), number(p.B), number(p.C), number(p.Bias), number(p.Add), number(p.Aux)
		p.Workspace, p.WorkBytes, p.Own = d.g.plan.Workspace, d.g.plan.WorkBytes, launches
		cl.product = &p
	case plan.Convolution != nil:
		p := *plan.Convolution
		p.A, p.B, p.C, p.Bias = number(p.A), number(p.B), number(p.C), number(p.Bias)
		p.Workspace, p.WorkBytes, p.Own = d.g.plan.Workspace, d.g.plan.WorkBytes, launches
		cl.convolution = &p
	default:
		cl.launches = launches
	}
	return nil
}

// alignment is how many bytes, at most abi.Align, an address surely is a multiple of.
func alignment(a arg) int {
	if a.null || a.offset == 0 {
		return abi.Align
	}
	return min(abi.Align, a.offset&-a.offset)
}

// fused prints the launches of generated kernels.
func (d *device) fused(cl *call) error {
	kernels, work, err := d.on.Launches(cl.describe, cl.kernels, cl.inOrder)
	if err != nil {
		return fmt.Errorf("%s: %w", cl.loc, err)
	}
	if len(cl.kernels) > 1 && cl.inOrder {
		cl.args = nil
	}
	if work > d.g.plan.WorkBytes {
		return fmt.Errorf("BUG: %s needs %d bytes of workspace for %s, the plan has %d", cl.describe, work, valueNames(cl.out), d.g.plan.WorkBytes)
	}
	if cl.launches, err = d.launches(kernels, cl.args, cl.loc); err != nil {
		return err
	}
	cl.fn = d.list[cl.launches[0].Kernel].Name
	cl.name = valueNames(cl.out) + " = " + cl.fn
	return nil
}

// files adds the kernels' text.
func (d *device) files(_ string, src *Source, _ []Program) error {
	file, text := d.on.Text(d.list)
	src.Files[file], src.Functions, src.Kernels = []byte(text), d.list, len(d.list)
	return nil
}

// declare declares the device and what is compiled for it, and links its collectives.
func (d *device) declare(f *jen.File, _ []Program) {
	for _, pkg := range d.on.Runtime().Link {
		f.Anon(modulePath + pkg)
	}
	d.printDevice(f)
}

// field is the program's device.
func (d *device) field() jen.Code { return jen.Id("Device").Op(":").Id("gpu") }
