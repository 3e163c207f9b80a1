package cuda

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/kernels/cuda"
)

// Scalars is the Key of calls that compute numbers: learning rates, norms, counts. One thread does any of them one after the
// other, so they may depend on one another.
const Scalars = "scalars"

// scalars reports whether the call computes numbers only.
func (c Call) scalars() bool {
	if c.Kernel.Rows()*c.Kernel.RowElems() != 1 {
		return false
	}
	for _, in := range c.Kernel.Insts {
		if in.Op == "reduce" || in.Op == "acc" {
			return false
		}
	}
	return true
}

// InOrder prints calls of the Key Scalars as one launch of one thread. At gives the places that its Args are numbers of.
func InOrder(name string, calls []Call) (list []cuda.Kernel, at []int, err error) {
	k := cuda.Kernel{Name: name, Include: []string{"fused.cuh"}, Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Family: "pointwise"}
	p := &printer{name: name}
	body := p.captured(func() {
		p.indent = 1
		for _, c := range calls {
			p.k = flattened(c.Kernel).Kernel
			p.coarse = nil
			p.split()
			p.open("")
			for i, par := range p.k.Params {
				n := slices.Index(at, c.At[i])
				if n < 0 {
					n = len(at)
					at = append(at, c.At[i])
					k.Args = append(k.Args, cuda.Ref{Arg: n})
				}
				t := scalar.MemType(par.DType)
				if !par.Out {
					t = "const " + t
				}
				p.line("%s *p%d = (%s *)a%d;", t, i, t, n)
			}
			p.number()
			p.close()
		}
	})
	var params []string
	for i := range at {
		params = append(params, fmt.Sprintf("void *a%d", i))
	}
	p.indent = 0
	p.line("extern \"C\" __global__ void __launch_bounds__(32) NAME(%s)", strings.Join(params, ", "))
	p.open("")
	p.line("using namespace gtc;")
	p.line("if (threadIdx.x != 0) return;")
	p.b.WriteString(body)
	p.close()
	k.Text = p.b.String()
	return []cuda.Kernel{k}, at, p.err
}

// number prints the instructions of a kernel that has one point.
func (p *printer) number() {
	insts, uniform := p.partition()
	for _, n := range uniform {
		p.outside(n, nil, "")
	}
	w := &walk{dims: p.rowDim, v: 1, chunks: 1, j: "0"}
	p.fetch(p.loads(insts), w)
	if len(insts) > 0 {
		p.compute(insts, w, nil)
	}
}
