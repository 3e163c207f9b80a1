package compiler

import (
	"context"
	"os"

	"github.com/gtc-compiler/gtc/codegen/image"
	"github.com/gtc-compiler/gtc/codegen/rank"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// generateGPU makes code of the results for a GPU, kernels compiled.
func generateGPU(ctx context.Context, o *Options, results ...*Result) (*rank.Source, *abi.Manifest, error) {
	b, err := image.New(image.Options{Archs: o.Pass.Arch, CUDAPath: o.CUDA, Cache: image.DefaultCache(os.Getenv)})
	if err != nil {
		return nil, nil, Input(err)
	}
	src, err := rank.Generate("prog0", rank.Target{Options: results[0].Context.Opt, Images: b.Images(), StandIn: b.StandIn(), Driver: b.Driver()}, programs(results...)...)
	if err != nil {
		return nil, nil, err
	}
	built, err := b.Build(ctx, src.GPU, o.Pass.Reproducible)
	if err != nil {
		return nil, nil, err
	}
	for name, data := range built.Files {
		src.Files[name] = data
	}
	m, err := manifest(o, src, results...)
	if err != nil {
		return nil, nil, err
	}
	m.GPU = &abi.GPU{Arch: b.Archs(), Compiler: b.Compiler(), Kernels: built.Figures}
	for _, im := range b.Images() {
		m.GPU.Images = append(m.GPU.Images, im.Arch)
	}
	if b.Warning != "" {
		results[0].Warnings = append(results[0].Warnings, b.Warning)
	}
	return src, m, nil
}
