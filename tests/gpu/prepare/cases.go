package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/gtc-compiler/gtc/kernels/cuda/cudatest"
	"github.com/gtc-compiler/gtc/kernels/cuda/cudatest/carry"
	"github.com/gtc-compiler/gtc/target/launch"
)

// tested are the packages whose tests run kernels of the CUDA target.
var tested = []string{"./kernels/cuda", "./ir/ops", "./codegen/cuda", "./codegen/codegentest"}

// cases runs those tests, keeps what they run, and compiles the kernels for the chips.
func (k *kit) cases(ctx context.Context) error {
	raw, err := os.MkdirTemp("", "gtc-cases-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(raw)
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-timeout=30m", "-run=CUDA|Cuda|Gemm|Product|Attn|Attention|Conv|Template|Kernel|Fuzz|Random|MultiTensor|Scatter|Pool|Xent|Transpose|Take"}, tested...)...)
	cmd.Env = append(os.Environ(), cudatest.Keep+"="+raw)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the tests of kernels: %w\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(raw, "*.cases"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no kernels were kept: is there a C++ compiler? (%v)", err)
	}
	to := filepath.Join(k.dir, "kernels")
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	for _, path := range files {
		start := time.Now()
		g, err := carry.Read(path)
		if err != nil {
			return err
		}
		if err := k.compile(ctx, g); err != nil {
			return fmt.Errorf("%s: %w", g.Name, err)
		}
		if err := carry.Write(filepath.Join(to, filepath.Base(path)), g); err != nil {
			return err
		}
		k.say("%s: %d cases, %d kernels, %.0f s", g.Name, len(g.Cases), len(g.Kernels), time.Since(start).Seconds())
	}
	return k.binary(ctx, "kernels", "./tests/gpu/kernels")
}

// compile makes the images of a group. A kernel that one chip has no memory for is compiled all the same: its launch tells.
func (k *kit) compile(ctx context.Context, g *carry.Group) error {
	var list []launch.Function
	for _, x := range g.Kernels {
		list = append(list, launch.Function{Name: x.Name, Text: x.Text, Include: x.Include, Family: x.Family, Loc: g.Name})
	}
	res, err := k.images.Build(ctx, list, false)
	if err != nil {
		return err
	}
	g.Images, g.Driver = map[string][]byte{}, k.images.Driver()
	for _, im := range k.images.Images() {
		if len(im.Arch) > 3 && im.Arch[:3] == "com" {
			continue // PTX for later chips is not what is tried here
		}
		g.Images[im.Arch] = res.Files[im.File]
	}
	if s := k.images.StandIn(); s != "" {
		g.StandIn = res.Files[s]
	}
	return nil
}
