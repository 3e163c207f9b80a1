package rank

import (
	"fmt"

	"github.com/dave/jennifer/jen"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/target/launch"
)

// Import paths of the run-time that programs for a device use besides.
const (
	modulePath = "github.com/gtc-compiler/gtc/"
	abiPath    = modulePath + "runtime/abi"
	devicePath = modulePath + "runtime/device"
)

// work says what the device does.
func (d *device) work(c *call, out *abi.Call) map[string]jen.Code {
	out.Launches, out.Product, out.Convolution = c.launches, c.product, c.convolution
	return nil
}

// printDevice declares the kernels' names and their compiled forms.
func (d *device) printDevice(f *jen.File) {
	var images []jen.Code
	standIn, driver := "", 0
	var files []launch.Image
	if d.compiler != nil {
		files, standIn, driver = d.compiler.Images(), d.compiler.StandIn(), d.compiler.Driver()
	}
	for i, im := range files {
		name := fmt.Sprintf("image%d", i)
		f.Commentf("// %s has the kernels for %s.\n//\n//go:embed %s", name, im.Arch, im.File)
		f.Var().Id(name).Index().Byte()
		images = append(images, jen.Values(keyed("Arch", im.Arch), jen.Id("Data").Op(":").Id(name)))
	}
	if standIn != "" {
		f.Commentf("// standIn takes the place of the GPU and its driver.\n//\n//go:embed %s", standIn)
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
	if standIn != "" {
		code = append(code, jen.Id("StandIn").Op(":").Id("standIn"))
	}
	if driver > 0 {
		code = append(code, keyed("Driver", driver))
	}
	f.Comment("gpu is what launches refer to: kernels by their number, and what they were compiled to.")
	f.Var().Id("gpu").Op("=").Op("&").Qual(trainPath, "Device").Values(lines([]jen.Code{
		jen.Id("Code").Op(":").Qual(devicePath, "Code").Values(lines(code)...),
		jen.Id("Open").Op(":").Qual(modulePath+d.on.Runtime().Open, "Open"),
	})...)
}
