package rank

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"

	gpuprint "github.com/gtc-compiler/gtc/codegen/cuda"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Target says what programs run on. The zero Target is this kind of processor.
type Target struct {
	Options *pass.Options // of a GPU's programs
	Images  []Image       // what their kernels are compiled to
	StandIn string        // file of the driver's stand-in, which the image host needs; "": a real one
	Driver  int           // the CUDA that the driver must support for them, such as 13000; 0: any
}

// Image is a file of compiled kernels beside the program.
type Image struct{ Arch, File string }

// Kernel is a kernel of a program for a GPU.
type Kernel struct {
	Name    string   // of the function
	Text    string   // CUDA C++
	Include []string // headers of kernels/cuda that Text needs besides gtc.cuh
	Family  string   // see kernels/cuda
	Loc     string   // of the first op that calls it
}

// gpu prints programs whose kernels are launched on a GPU.
type gpu struct {
	g      *generator
	target Target
	number map[string]int // headers and text without name -> the kernel's number
	list   []Kernel
}

// maxParams is how many bytes of parameters every chip and version of CUDA allows a kernel.
const maxParams = 4096

// launches are those of plan's kernels on the pointers args. Equal kernels are one, whoever launches them.
func (d *gpu) launches(kernels []cuda.Kernel, args []arg, loc string) ([]abi.Launch, error) {
	var list []abi.Launch
	for _, k := range kernels {
		if n := 8 * len(k.Args); n > maxParams {
			return nil, fmt.Errorf("BUG: kernel %s of %s has %d bytes of parameters, CUDA allows %d", k.Name, loc, n, maxParams)
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
func (d *gpu) pointer(r cuda.Ref, args []arg) int {
	switch {
	case r.Arg == cuda.Workspace:
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
func (d *gpu) kernel(k cuda.Kernel, loc string) int {
	key := strings.Join(k.Include, " ") + "\n" + k.Text
	n, ok := d.number[key]
	if !ok {
		n = len(d.list)
		d.number[key] = n
		sum := sha256.Sum256([]byte(key))
		name := fmt.Sprintf("%s_%x", k.Name, sum[:4])
		d.list = append(d.list, Kernel{Name: name, Text: named(k.Text, name), Include: k.Include, Family: k.Family, Loc: loc})
	}
	return n
}

// named puts the name into the text of a kernel, which has NAME in its place.
func named(text, name string) string { return strings.Replace(text, "NAME(", name+"(", 1) }

// template makes cl, a call of a template with its pointers and integers, one of the template's kernels for GPUs.
func (d *gpu) template(op *ir.Op, impl kir.Impl, cl *call) error {
	c := cuda.Call(d.target.Options.Call(op, impl))
	c.Ints = cl.ints
	for _, a := range cl.args {
		c.Align = append(c.Align, alignment(a))
	}
	plan, err := cuda.Lower(c)
	if err != nil {
		return ir.Errorf(op.Loc, "%v", err)
	}
	number := func(n int) int { return d.pointer(cuda.Ref{Arg: n}, cl.args) }
	launches, err := d.launches(plan.Kernels, cl.args, cl.loc)
	if err != nil {
		return err
	}
	switch {
	case plan.Product != nil && d.target.Options.Reproducible: // a library sums in an order of its own
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

// kernelsText is kernels.cu: all kernels, for people and compilers.
func (d *gpu) kernelsText() []byte {
	var b strings.Builder
	b.WriteString("// " + header + "\n//\n// Kernels of this package's programs. Sizes are constants: calls that differ in nothing else share a kernel.\n")
	for _, name := range Includes(d.list) {
		fmt.Fprintf(&b, "#include %q\n", name)
	}
	for _, k := range d.list {
		fmt.Fprintf(&b, "\n// %s: %s\n%s", k.Family, strings.Join(strings.Fields(k.Loc), " "), k.Text)
		if !strings.HasSuffix(k.Text, "\n") {
			b.WriteByte('\n')
		}
	}
	return []byte(b.String())
}

// Includes are the headers of kernels/cuda that the kernels need, each once, gtc.cuh first.
func Includes(kernels []Kernel) []string {
	var list []string
	for _, k := range kernels {
		list = append(list, k.Include...)
	}
	slices.Sort(list)
	list = slices.DeleteFunc(slices.Compact(list), func(name string) bool { return name == "gtc.cuh" })
	return append([]string{"gtc.cuh"}, list...)
}

// fused prints the launches of generated kernels.
func (d *gpu) fused(cl *call) error {
	var kernels []cuda.Kernel
	var work int
	var err error
	switch {
	case len(cl.kernels) == 1:
		kernels, work, err = gpuprint.Kernels(cl.describe, cl.kernels[0].Kernel)
	case cl.inOrder:
		kernels, err = gpuprint.InOrder("numbers", cl.kernels)
		cl.args = nil
	default:
		kernels, work, err = gpuprint.MultiTensor(cl.describe, cl.kernels)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", cl.loc, err)
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
func (d *gpu) files(_ string, src *Source, _ []Program) error {
	src.Files["kernels.cu"], src.GPU, src.Kernels = d.kernelsText(), d.list, len(d.list)
	return nil
}

// declare declares the device and what is compiled for it, and links its collectives.
func (d *gpu) declare(f *jen.File, _ []Program) {
	f.Anon(ncclPath)
	d.printDevice(f)
}

// field is the program's device.
func (d *gpu) field() jen.Code { return jen.Id("Device").Op(":").Id("gpu") }
