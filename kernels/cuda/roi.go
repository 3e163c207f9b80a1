package cuda

import (
	"fmt"
	"math"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	types := func(t []dtype.DType) bool {
		return len(t) == 4 && (t[0] == dtype.F32 || t[0] == dtype.F64) && t[1] == t[0] && t[2] == dtype.I64 && t[3] == t[0]
	}
	templates["RoiAlignFwd"] = template{types, func(c Call) (*Plan, error) { return roiForward(c), nil }}
	templates["RoiAlignBwd"] = template{types, func(c Call) (*Plan, error) { return roiBackward(c), nil }}
}

const roiThreads = 128

// roiDims is the type name of the sizes of a call, without bytes, which the element type says.
func roiDims(c Call) string {
	n := c.Ints
	return fmt.Sprintf("gtc::roi_dims<%s, %d, %d, %d, %d, %d, %d, %d, %d, %t, %du>", cType(c.Types, 0), n[1], n[2], n[3], n[4], n[5], n[6], n[7],
		n[8], n[9] == 1, math.Float32bits(float32(c.Floats[0])))
}

func roiKernel(name string, c Call, threads int, params []param) Kernel {
	k := kernelOf(name, "roi", name, roiThreads, params, roiDims(c), roiThreads)
	k.Include, k.Grid = []string{"roi.cuh"}, [3]int{divUp(threads, roiThreads), 1, 1}
	return k
}

// roiForward leaves what a region of no sample would make as it was.
func roiForward(c Call) *Plan {
	n := c.Ints
	total := n[5] * n[2] * n[6] * n[7]
	if total == 0 {
		return &Plan{}
	}
	return &Plan{Kernels: []Kernel{roiKernel("roi_align", c, total, append(operands(c.Types, 3, "x", "rois", "idx", "y"), status))}}
}

// roiBackward first makes the weights of all regions along both directions and then gathers: no two threads add to one
// element. Regions of no sample add nothing.
func roiBackward(c Call) *Plan {
	n := c.Ints
	height, width, regions, rows, columns := n[3], n[4], n[5], n[6], n[7]
	p := operands(c.Types, 3, "dy", "rois", "idx", "dx")
	if n[1]*n[2]*height*width == 0 {
		return &Plan{}
	}
	size, typ := c.Types[0].Size(), cType(c.Types, 0)
	down := Ref{Arg: Workspace, Offset: 0}
	across := Ref{Arg: Workspace, Offset: divUp(size*regions*rows*height, 64) * 64}
	plan := &Plan{Workspace: across.Offset + divUp(size*regions*columns*width, 64)*64}
	if all := regions * (rows*height + columns*width); all > 0 {
		plan.Kernels = append(plan.Kernels, roiKernel("roi_weights", c, all, []param{p[1], p[2], {typ, "down", down}, {typ, "across", across}, status}))
	}
	plan.Kernels = append(plan.Kernels, roiKernel("roi_align_back", c, n[1]*n[2]*height*width,
		[]param{p[0], p[1], p[2], {"const " + typ, "down", down}, {"const " + typ, "across", across}, p[3]}))
	return plan
}
