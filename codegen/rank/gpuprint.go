package rank

import (
	"fmt"

	"github.com/dave/jennifer/jen"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Import paths of the run-time that programs for a GPU use besides.
const (
	abiPath    = "github.com/gtc-compiler/gtc/runtime/abi"
	devicePath = "github.com/gtc-compiler/gtc/runtime/device"
	cudaPath   = "github.com/gtc-compiler/gtc/runtime/device/cuda"
	ncclPath   = "github.com/gtc-compiler/gtc/distributed/comm/nccl"
)

// work says what the GPU does.
func (d *gpu) work(c *call) []jen.Code {
	switch {
	case c.product != nil:
		return []jen.Code{jen.Id("Product").Op(":").Op("&").Qual(abiPath, "Product").Values(product(c.product)...)}
	case c.convolution != nil:
		return []jen.Code{jen.Id("Convolution").Op(":").Op("&").Qual(abiPath, "Convolution").Values(convolution(c.convolution)...)}
	}
	return []jen.Code{jen.Id("Launches").Op(":").Add(launchList(c.launches))}
}

func launchList(list []abi.Launch) jen.Code {
	return jen.Index().Qual(abiPath, "Launch").ValuesFunc(func(v *jen.Group) {
		for _, l := range list {
			fields := []jen.Code{keyed("Kernel", l.Kernel), jen.Id("Grid").Op(":").Add(dims(l.Grid)), jen.Id("Block").Op(":").Add(dims(l.Block))}
			if l.Shared > 0 {
				fields = append(fields, keyed("Shared", l.Shared))
			}
			fields = append(fields, jen.Id("Args").Op(":").Add(numbers(l.Args)))
			if len(l.Table) > 0 {
				fields = append(fields, jen.Id("Table").Op(":").Index().Uint64().ValuesFunc(func(v *jen.Group) {
					for _, x := range l.Table {
						v.Id(fmt.Sprint(x))
					}
				}))
			}
			if len(l.Refs) > 0 {
				fields = append(fields, jen.Id("Refs").Op(":").Add(numbers(l.Refs)))
			}
			v.Values(fields...)
		}
	})
}

func dims(d [3]int) jen.Code {
	return jen.Index(jen.Lit(3)).Int().Values(jen.Lit(d[0]), jen.Lit(d[1]), jen.Lit(d[2]))
}

func numbers(list []int) jen.Code {
	return jen.Index().Int().ValuesFunc(func(v *jen.Group) {
		for _, n := range list {
			v.Lit(n)
		}
	})
}

// some are the fields that are not zero, in order.
func some(fields ...any) []jen.Code {
	var list []jen.Code
	for i := 0; i < len(fields); i += 2 {
		switch x := fields[i+1]; x {
		case 0, "", false, 0.0:
		default:
			list = append(list, keyed(fields[i].(string), x))
		}
	}
	return list
}

func product(p *abi.Product) []jen.Code {
	fields := some("M", p.M, "N", p.N, "K", p.K, "Batch", p.Batch, "TransA", p.TransA, "TransB", p.TransB, "LDA", p.LDA, "LDB", p.LDB, "LDC", p.LDC,
		"StrideA", p.StrideA, "StrideB", p.StrideB, "StrideC", p.StrideC, "TypeA", p.TypeA, "TypeB", p.TypeB, "TypeC", p.TypeC,
		"TypeBias", p.TypeBias, "Compute", p.Compute, "Alpha", p.Alpha, "Accumulate", p.Accumulate, "Epilogue", p.Epilogue, "A", p.A, "B", p.B, "C", p.C,
		"Bias", p.Bias, "Add", p.Add, "Aux", p.Aux, "Workspace", p.Workspace, "WorkBytes", p.WorkBytes, "OwnSums", p.OwnSums)
	return append(fields, jen.Id("Own").Op(":").Add(launchList(p.Own)))
}

func convolution(p *abi.Convolution) []jen.Code {
	ints := jen.Index(jen.Lit(len(p.Ints))).Int().ValuesFunc(func(v *jen.Group) {
		for _, n := range p.Ints {
			v.Lit(n)
		}
	})
	fields := append(some("Kind", p.Kind), jen.Id("Ints").Op(":").Add(ints))
	fields = append(fields, some("Type", p.Type, "Compute", p.Compute, "A", p.A, "B", p.B, "C", p.C, "Bias", p.Bias, "Workspace", p.Workspace,
		"WorkBytes", p.WorkBytes)...)
	return append(fields, jen.Id("Own").Op(":").Add(launchList(p.Own)))
}

// printDevice declares the kernels' names and their compiled forms.
func (d *gpu) printDevice(f *jen.File) {
	var images []jen.Code
	for i, im := range d.target.Images {
		name := fmt.Sprintf("image%d", i)
		f.Commentf("// %s has the kernels for %s.\n//\n//go:embed %s", name, im.Arch, im.File)
		f.Var().Id(name).Index().Byte()
		images = append(images, jen.Values(keyed("Arch", im.Arch), jen.Id("Data").Op(":").Id(name)))
	}
	if d.target.StandIn != "" {
		f.Commentf("// standIn takes the place of the GPU and its driver.\n//\n//go:embed %s", d.target.StandIn)
		f.Var().Id("standIn").Index().Byte()
	}
	var names []jen.Code
	for _, k := range d.list {
		names = append(names, jen.Lit(k.Name))
	}
	code := []jen.Code{
		jen.Id("Kernels").Op(":").Index().String().Values(lines(names)...),
		jen.Id("Images").Op(":").Index().Qual(devicePath, "Image").Values(lines(images)...),
	}
	if d.target.StandIn != "" {
		code = append(code, jen.Id("StandIn").Op(":").Id("standIn"))
	}
	if d.target.Driver > 0 {
		code = append(code, keyed("Driver", d.target.Driver))
	}
	f.Comment("gpu is what launches refer to: kernels by their number, and what they were compiled to.")
	f.Var().Id("gpu").Op("=").Op("&").Qual(trainPath, "Device").Values(lines([]jen.Code{
		jen.Id("Code").Op(":").Qual(devicePath, "Code").Values(lines(code)...),
		jen.Id("Open").Op(":").Qual(cudaPath, "Open"),
	})...)
}
