package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/spf13/pflag"
)

// targetFlags are those of what the programs run on.
func (m *modelFlags) targetFlags(fs *pflag.FlagSet) {
	fs.StringVar(&m.target, "target", pass.CPU, "what the ranks run on: `TARGET` is "+targetHelp())
	fs.StringSliceVar(&m.opt.Pass.Arch, "arch", nil, "`CHIPS` of --target cuda, such as sm_80 (A100), sm_90 (H100, H200; later ones run what is compiled for the last); the default is sm_80,sm_90. host runs the kernels on this processor, for tests")
	fs.StringVar(&m.opt.CUDA, "cuda-path", "", "`FOLDER` of what compiles the kernels: a CUDA toolkit, NVRTC's library, or a Python environment with the pip package nvidia-cuda-nvrtc; without it, CUDA_HOME, CUDA_PATH, the active Python environment, or where the system has it")
}

// targetOptions checks them.
func (m *modelFlags) targetOptions() error {
	p := &m.opt.Pass
	t, err := pass.TargetOf(m.target)
	if err != nil {
		return err
	}
	if m.target != pass.CPU {
		p.Target = m.target
	}
	chips := t.Traits().Chips
	switch {
	case chips == nil && (m.set.Changed("arch") || m.set.Changed("cuda-path")):
		return errors.New("--arch and --cuda-path need --target cuda")
	case chips == nil:
		return nil
	case m.set.Changed("cuda-path") && m.opt.CUDA == "":
		return errors.New("--cuda-path is empty: give the folder of a CUDA compiler")
	case m.set.Changed("cuda-path") && slices.Contains(p.Arch, pass.Host):
		return errors.New("--cuda-path has no effect with --arch host, which compiles for no GPU")
	}
	if len(p.Arch) == 0 {
		p.Arch = slices.Clone(chips)
	}
	return t.CheckChips(p.Arch)
}

// targetHelp lists the targets for the help.
func targetHelp() string {
	var list []string
	for _, t := range pass.Targets {
		text := t.Traits().Name
		if about := t.Traits().About; about != "" {
			text += ": " + about
		}
		list = append(list, text)
	}
	return strings.Join(list, ", or ")
}

// printGPU says what the kernels were compiled to, and what is wrong with them.
func printGPU(line func(name, format string, args ...any), m *abi.Manifest) {
	g := m.GPU
	switch {
	case g.Compiler != "":
		line("kernels", "for %s by %s", strings.Join(g.Images, ", "), g.Compiler)
	case slices.Contains(g.Arch, pass.Host):
		line("kernels", "for this processor, on a stand-in for the GPU")
	default:
		line("kernels", "as source, which NVRTC compiles when the program first starts")
	}
	spilling, bytes := map[string]bool{}, 0
	for _, k := range g.Kernels {
		if k.Spills > 0 {
			spilling[k.Name] = true
			bytes = max(bytes, k.Spills)
		}
	}
	if len(spilling) > 0 {
		line("spills", "%d kernels keep values in memory for want of registers, %d bytes a thread at most (--verbose lists them)", len(spilling), bytes)
	}
}

// printKernels lists what the compiler tells of each kernel.
func printKernels(w io.Writer, g *abi.GPU) {
	if len(g.Kernels) == 0 {
		return
	}
	fmt.Fprintf(w, "%-40s %-10s %-7s %9s %7s %6s %7s\n", "kernel", "family", "chip", "registers", "spills", "stack", "shared")
	for _, k := range g.Kernels {
		fmt.Fprintf(w, "%-40s %-10s %-7s %9d %7d %6d %7d\n", k.Name, k.Family, k.Arch, k.Registers, k.Spills, k.Stack, k.Shared)
	}
}
