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
func (d *gpu) work(c *call, out *abi.Call) map[string]jen.Code {
	out.Launches, out.Product, out.Convolution = c.launches, c.product, c.convolution
	return nil
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
