package main

import (
	"errors"
	"fmt"

	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/spf13/pflag"
)

// targetFlags are those of what the programs run on.
func (m *modelFlags) targetFlags(fs *pflag.FlagSet) {
	fs.StringVar(&m.target, "target", pass.CPU, "what the ranks run on: `TARGET` is cpu, or cuda: NVIDIA GPUs, one for each rank")
	fs.StringSliceVar(&m.opt.Pass.Arch, "arch", nil, "`CHIPS` of --target cuda, such as sm_80 (A100), sm_90 (H100, H200; later ones run what is compiled for the last); the default is sm_80,sm_90. host runs the kernels on this processor, for tests")
	fs.StringVar(&m.opt.CUDA, "cuda-path", "", "`FOLDER` of the CUDA toolkit, or of NVRTC's library, that compiles the kernels; else it is CUDA_HOME, CUDA_PATH, the Python environment's, or where the system has it")
}

// targetOptions checks them.
func (m *modelFlags) targetOptions() error {
	p := &m.opt.Pass
	switch m.target {
	case "", pass.CPU:
		if m.set.Changed("arch") || m.set.Changed("cuda-path") {
			return errors.New("--arch and --cuda-path are read by --target cuda")
		}
		return nil
	case pass.CUDA:
	default:
		return fmt.Errorf("--target %q: it is cpu or cuda", m.target)
	}
	p.Target = m.target
	if len(p.Arch) == 0 {
		p.Arch = pass.DefaultArchs()
	}
	return pass.CheckArchs(p.Arch)
}
