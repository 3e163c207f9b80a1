package cuda

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	for _, three := range []bool{false, true} {
		digit := ""
		if three {
			digit = "3"
		}
		templates["MaxPool"+digit+"Fwd"] = template{poolTypes(dtype.I32, 2), func(c Call) (*Plan, error) { return poolOf(c, three, false).max(c), nil }}
		templates["MaxPool"+digit+"Bwd"] = template{poolTypes(dtype.I32, 1), func(c Call) (*Plan, error) { return poolOf(c, three, false).maxBack(c), nil }}
		templates["AvgPool"+digit+"Fwd"] = template{poolTypes(dtype.Invalid, -1), func(c Call) (*Plan, error) { return poolOf(c, three, true).mean(c), nil }}
		templates["AvgPool"+digit+"Bwd"] = template{poolTypes(dtype.Invalid, -1), func(c Call) (*Plan, error) { return poolOf(c, three, true).meanBack(c), nil }}
	}
}

// poolTypes takes any type of number, the same in all operands but one, of places.
func poolTypes(places dtype.DType, at int) func(types []dtype.DType) bool {
	return func(types []dtype.DType) bool {
		want := 2
		if at >= 0 {
			want = 3
		}
		if len(types) != want || at >= 0 && types[at] != places {
			return false
		}
		for i, d := range types {
			if i != at && (d != types[0] || !slices.Contains(elemTypes[:12], d)) {
				return false
			}
		}
		return at >= 0 || isFloat(types[0]) || types[0] == dtype.F64
	}
}

// pool is a pooling over three dims: lists of depth, height and width.
type pool struct {
	planes                                    int
	size, kernel, out, low, high, stride, dil []int
	mode                                      int
}

// poolOf reads the integers of the templates for two dims, of which those of means have pads behind and a mode, or for three.
func poolOf(c Call, three, mean bool) pool {
	n := c.Ints
	if three {
		return pool{n[0], n[1:4], n[4:7], n[7:10], n[10:13], n[13:16], n[16:19], n[19:22], n[22]}
	}
	p := pool{planes: n[0] * n[1], high: []int{0, 0, 0}}
	list := func(def, at int) []int { return []int{def, n[at], n[at+1]} }
	p.size, p.kernel, p.out, p.low = list(1, 2), list(1, 4), list(1, 6), list(0, 8)
	if mean {
		p.high, p.stride, p.dil, p.mode = list(0, 10), list(1, 12), list(1, 14), n[16]
		return p
	}
	p.stride, p.dil = list(1, 10), list(1, 12)
	return p
}

// dims are the type names of the three dims.
func (p pool) dims() string {
	s := ""
	for i := range 3 {
		s += fmt.Sprintf(", gtc::pool_dim<%d, %d, %d, %d, %d, %d, %d>", p.size[i], p.kernel[i], p.out[i], p.low[i], p.high[i], p.stride[i], p.dil[i])
	}
	return s[2:]
}

const poolThreads = 256

// launch plans a kernel of one thread for each of n elements of every plane.
func (p pool) launch(c Call, name string, n []int, params []param, args ...any) *Plan {
	total := p.planes * n[0] * n[1] * n[2]
	if total == 0 {
		return &Plan{}
	}
	args = append(append([]any{cType(c.Types, 0), p.planes, p.dims()}, args...), poolThreads)
	k := kernelOf(name, "pool", name, poolThreads, params, args...)
	k.Include, k.Grid = []string{"pool.cuh"}, [3]int{divUp(total, poolThreads), 1, 1}
	return &Plan{Kernels: []Kernel{k}}
}

func (p pool) max(c Call) *Plan {
	last := len(c.Ints) == 14 // kernels/cpu's two forms differ in which of several NaNs they point at
	return p.launch(c, "max_pool", p.out, operands(c.Types, 1, "x", "y", "idx"), last)
}

func (p pool) maxBack(c Call) *Plan {
	return p.launch(c, "max_pool_back", p.size, operands(c.Types, 2, "dy", "idx", "dx"))
}

// mean shares out windows of many taps among the lanes of a warp.
func (p pool) mean(c Call) *Plan {
	name, threads := "mean_pool", 1
	if p.kernel[0]*p.kernel[1]*p.kernel[2] >= 32 {
		name, threads = "mean_pool_warp", 32
	}
	plan := p.launch(c, name, p.out, operands(c.Types, 1, "x", "y"), p.mode)
	for i := range plan.Kernels {
		plan.Kernels[i].Grid[0] = divUp(p.planes*p.out[0]*p.out[1]*p.out[2]*threads, poolThreads)
	}
	return plan
}

func (p pool) meanBack(c Call) *Plan {
	return p.launch(c, "mean_pool_back", p.size, operands(c.Types, 1, "dy", "dx"), p.mode)
}
