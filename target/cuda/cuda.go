// Package cuda is the target cuda: NVIDIA GPUs, with the templates of kernels/cuda and fused kernels in CUDA C++.
package cuda

import (
	print "github.com/gtc-compiler/gtc/codegen/cuda"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/target"
)

// Name is the target's.
const Name = "cuda"

// Target compiles for GPUs.
var Target target.Target = gpu{}

type gpu struct{}

// A launch takes some microseconds whatever it does, memory is short, and caches hold little of a tensor. 4 Gflop are some 10 us
// of an H100's tensor cores: a product of as many is soon done by any kernel. The chips are A100 and H100; what is compiled for
// the last runs on later ones, too. Layouts are chosen by the ratios of processors, which are right in order: nobody has measured others.
var traits = target.Traits{Name: Name, Title: "CUDA", About: "NVIDIA GPUs, one for each rank", Device: true,
	Chips: []string{"sm_80", "sm_90"}, Comm: []string{"nccl"}, TF32: true, AttentionDropout: true, Epilogues: true, JoinReaders: true,
	MultiTensor: true, InPlace: true, OwnProduct: 4 << 30, Cost: target.OneHost}

// Traits are the target's.
func (gpu) Traits() *target.Traits { return &traits }

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
