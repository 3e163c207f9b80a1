// Package cuda is the target cuda: NVIDIA GPUs, with the templates of kernels/cuda and fused kernels in CUDA C++.
package cuda

import (
	print "github.com/gtc-compiler/gtc/codegen/cuda"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/target"
	"github.com/gtc-compiler/gtc/target/cuda/image"
	"github.com/gtc-compiler/gtc/target/cuda/internal/chip"
	"github.com/gtc-compiler/gtc/target/launch"
)

// Name is the target's, Host a chip of it: this processor.
const (
	Name = "cuda"
	Host = chip.Host
)

// Target compiles for GPUs.
var Target target.Device = gpu{}

type gpu struct{}

// A launch takes some microseconds whatever it does, memory is short, and caches hold little of a tensor. 4 Gflop are some 10 us
// of an H100's tensor cores: a product of as many is soon done by any kernel. Layouts are chosen by the ratios of processors, which are
// right in order: nobody has measured others.
var traits = target.Traits{Name: Name, Title: "CUDA", About: "NVIDIA GPUs, one for each rank", Device: true,
	Chips: chip.Defaults(), Comm: []string{"nccl"}, TF32: true, AttentionDropout: true, Epilogues: true, JoinReaders: true,
	MultiTensor: true, InPlace: true, OwnProduct: 4 << 30, Cost: target.OneHost}

// Traits are the target's.
func (gpu) Traits() *target.Traits { return &traits }

// CheckChips refuses what is no chip of NVIDIA's that programs can run on.
func (gpu) CheckChips(names []string) error { return chip.Check(names) }

// Native reports whether the template of kernels/cuda takes the types.
func (gpu) Native(c target.Call) bool { return cuda.Native(c.Name, c.Types) }

// Workspace is that of the call's kernels, in bytes.
func (gpu) Workspace(c target.Call) (int, error) {
	p, err := cuda.Lower(cuda.Call(c))
	if err != nil {
		return 0, err
	}
	return p.Workspace, nil
}

// BatchKey is that of codegen/cuda, which prints the launches.
func (gpu) BatchKey(k *kir.Kernel, at []int) (key string, inOrder bool) {
	key = print.Call{Kernel: k, At: at}.Key()
	return key, key == print.Scalars
}

// Scratch is what the partial results of all blocks take.
func (gpu) Scratch(s *group.Space) (alone, joined int) {
	rows, elems := s.Rows()
	for v, l := range s.Level {
		d, n := v.Type.DType, v.Type.Elems()
		switch l {
		case group.Acc:
			alone += print.SumBytes(d, n, rows, elems)
			if n == 1 {
				joined += print.MultiTensorBytes(d, rows*elems)
			}
		case group.Row:
			alone += print.RowBytes(d, rows, elems)
		}
	}
	return alone, joined
}

// Plan is that of kernels/cuda.
func (gpu) Plan(c target.Call) (*launch.Plan, error) { return cuda.Lower(cuda.Call(c)) }

// Launches are those of codegen/cuda.
func (gpu) Launches(describe string, kernels []target.Fused, inOrder bool) (list []launch.Kernel, work int, err error) {
	if len(kernels) == 1 {
		return print.Kernels(describe, kernels[0].Kernel)
	}
	calls := make([]print.Call, len(kernels))
	for i, k := range kernels {
		calls[i] = print.Call(k)
	}
	if inOrder {
		list, err = print.InOrder("numbers", calls)
		return list, 0, err
	}
	return print.MultiTensor(describe, calls)
}

// Text is kernels.cu.
func (gpu) Text(kernels []launch.Function) (file, text string) {
	return "kernels.cu", image.Text(kernels)
}

// Compiler is NVRTC or nvcc, or none.
func (gpu) Compiler(o launch.Options) (launch.Compiler, error) { return image.New(o) }

// Runtime: 4,096 bytes of parameters are what every chip and version of CUDA allows.
func (gpu) Runtime() target.Runtime {
	return target.Runtime{Open: "runtime/device/cuda", Link: []string{"distributed/comm/nccl"}, Params: 4096,
		Carries: []string{"distributed/comm/nccl", "runtime/device/cuda", "runtime/dynlib", "runtime/nvrtc"}}
}
