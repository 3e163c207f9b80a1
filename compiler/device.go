package compiler

import (
	"context"
	"maps"
	"os"

	"github.com/gtc-compiler/gtc/codegen/rank"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/target"
	"github.com/gtc-compiler/gtc/target/launch"
)

// kernelCompiler is what compiles kernels for the target's device; nil where programs have their kernels in them.
func kernelCompiler(o *Options) (launch.Compiler, error) {
	device, ok := o.Pass.On().(target.Device)
	if !ok {
		return nil, nil
	}
	c, err := device.Compiler(launch.Options{Chips: o.Pass.Arch, Toolkit: o.CUDA, Cache: launch.DefaultCache(os.Getenv)})
	return c, Input(err)
}

// compileKernels adds the images of src's kernels to its files, and gives what the plan says of them. Without c there are none.
func compileKernels(ctx context.Context, c launch.Compiler, src *rank.Source, strict bool) (*abi.GPU, error) {
	if c == nil {
		return nil, nil
	}
	built, err := c.Build(ctx, src.Functions, strict)
	if err != nil {
		return nil, err
	}
	maps.Copy(src.Files, built.Files)
	device := &abi.GPU{Arch: c.Chips(), Compiler: c.Name(), Kernels: built.Figures}
	for _, im := range c.Images() {
		device.Images = append(device.Images, im.Arch)
	}
	return device, nil
}
