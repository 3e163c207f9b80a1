package pass

import (
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/target"
	"github.com/gtc-compiler/gtc/target/cpu"
	"github.com/gtc-compiler/gtc/target/cuda"
	"github.com/gtc-compiler/gtc/target/ref"
)

// Targets are those that programs are compiled for, the default first. A new one is a package below target and a row here.
var Targets = []target.Target{
	cpu.Target,
	cuda.Target,
	ref.Target,
}

// Names of the targets that tests and tools speak of.
const (
	CPU  = cpu.Name
	CUDA = cuda.Name
	Host = cuda.Host // a chip of target cuda
)

// TargetOf is the target of that name, the default for "".
func TargetOf(name string) (target.Target, error) {
	var names []string
	for _, t := range Targets {
		names = append(names, t.Traits().Name)
		if name == "" || name == t.Traits().Name {
			return t, nil
		}
	}
	last := len(names) - 1
	return nil, fmt.Errorf("--target must be %s or %s, not %q", strings.Join(names[:last], ", "), names[last], name)
}

// On is the target that programs are compiled for.
func (o *Options) On() target.Target {
	t, err := TargetOf(o.Target)
	if err != nil {
		panic("BUG: " + err.Error()) // passes.Run and the command have looked
	}
	return t
}

// Traits are those of the target.
func (c *Context) Traits() *target.Traits { return c.Opt.Traits() }

// Traits are those of the target.
func (o *Options) Traits() *target.Traits { return o.On().Traits() }

// Compute is the type in which the target multiplies matrices of f32: f32, or tf32 where that was asked for and exists.
func (o *Options) Compute() string {
	if o.Precision == "tf32" && o.On().Traits().TF32 {
		return "tf32"
	}
	return "f32"
}

// Call is op's call of its template on the target.
func (o *Options) Call(op *ir.Op, impl kir.Impl) target.Call {
	c := target.CallOf(op, impl)
	c.Compute = o.Compute()
	return c
}

// Native reports whether the target has a form of the template for the types that op calls it with; where it has not, the
// op is computed in f32, between casts.
func (o *Options) Native(op *ir.Op, impl kir.Impl) bool { return o.On().Native(o.Call(op, impl)) }
