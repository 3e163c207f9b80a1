package pass

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cpu"
	"github.com/gtc-compiler/gtc/kernels/cuda"
)

// Targets that programs are compiled for.
const (
	CPU  = "cpu"
	CUDA = "cuda"
)

// Cuda reports whether the program is for NVIDIA GPUs.
func (o *Options) Cuda() bool { return o.Target == CUDA }

// TargetName is the target as errors name it.
func (o *Options) TargetName() string {
	if o.Cuda() {
		return "CUDA"
	}
	return "CPU"
}

// Compute is the type in which the target multiplies matrices of f32: f32, or tf32 where that was asked for and exists.
func (o *Options) Compute() string {
	if o.Cuda() && o.Precision == "tf32" {
		return "tf32"
	}
	return "f32"
}

// Native reports whether the target has a form of the template for the types that op calls it with; where it has not, the
// op is computed in f32, between casts.
func (o *Options) Native(op *ir.Op, impl kir.Impl) bool {
	if o.Cuda() {
		return cuda.Native(impl.Template, CallTypes(op, impl))
	}
	_, _, ok := CPUForm(op, impl)
	return ok
}

// CPUForm is the kernel of kernels/cpu that does what op's template does for the types that op has, and the integers that
// it takes after the template's; ok is false where there is none.
func CPUForm(op *ir.Op, impl kir.Impl) (name string, more []int, ok bool) {
	var names []string
	for _, d := range CallTypes(op, impl) {
		names = append(names, d.String())
	}
	return cpu.Form(impl.Template, names)
}

// Workspace is the scratch memory that a call of op's template needs, in bytes.
func (o *Options) Workspace(op *ir.Op, impl kir.Impl) (int, error) {
	if !o.Cuda() {
		name, more, _ := CPUForm(op, impl)
		return cpu.Workspace(name, append(slices.Clone(impl.Ints), more...))
	}
	p, err := cuda.Lower(o.Call(op, impl))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", op.Def.Name, err)
	}
	return p.Workspace, nil
}

// Call is op's call of its template on the CUDA target.
func (o *Options) Call(op *ir.Op, impl kir.Impl) cuda.Call {
	return cuda.Call{Name: impl.Template, Ints: slices.Clone(impl.Ints), Floats: impl.Floats, Types: CallTypes(op, impl), Compute: o.Compute()}
}

// CallTypes are the types of the pointers that op's template takes, in the template's order; Invalid where it gets none.
func CallTypes(op *ir.Op, impl kir.Impl) []dtype.DType {
	all := append(slices.Clone(op.In), op.Out...)
	order := impl.Order
	if order == nil {
		for i := range all {
			order = append(order, i)
		}
	}
	types := make([]dtype.DType, len(order))
	for i, n := range order {
		if n >= 0 && n < len(all) && all[n] != nil {
			types[i] = all[n].Type.DType
		}
	}
	return types
}
