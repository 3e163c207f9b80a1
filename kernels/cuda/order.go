package cuda

import (
	"math/bits"
	"slices"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	templates["TopK"] = template{func(types []dtype.DType) bool {
		return len(types) == 3 && slices.Contains(elemTypes, types[0]) && types[1] == types[0] && types[2] == dtype.I64
	}, topkPlan}
	templates["Scan"] = template{func(types []dtype.DType) bool {
		return len(types) == 2 && types[0] == types[1] && slices.Contains(elemTypes[:12], types[0]) && types[0] != dtype.F16 && types[0] != dtype.BF16
	}, scanPlan}
}

// topkPlan sorts lanes of up to 4,096 elements in shared memory; of longer ones it keeps the best while it reads, when these
// are at most half of that, and else sorts in the workspace.
func topkPlan(c Call) (*Plan, error) {
	const room, placeBytes = 4096, 12
	outer, n, inner, k, largest := c.Ints[0], c.Ints[1], c.Ints[2], c.Ints[3], c.Ints[4] == 1
	lanes := outer * inner
	if k*lanes == 0 {
		return &Plan{}, nil
	}
	typ, params := cType(c.Types, 0), operands(c.Types, 1, "x", "values", "at")
	plan := &Plan{}
	var kernel Kernel
	if n > room && k <= room/2 {
		kernel = kernelOf("topk", "order", "topk_filter", 256, params, typ, n, inner, k, largest, room, 256)
		kernel.Shared = room * placeBytes
	} else {
		pad := max(1<<bits.Len(uint(n-1)), 2)
		threads, shared, work := min(max(pad/2, 32), 256), n <= room, Ref{Arg: Nil}
		if !shared {
			threads, work = 1024, Ref{Arg: Workspace}
			plan.Workspace = divUp(lanes*pad*placeBytes, 64) * 64
		}
		kernel = kernelOf("topk", "order", "topk_sort", threads, append(params, param{"gtc::u64", "work", work}), typ, n, inner, k, largest, pad,
			shared, threads)
		if shared {
			kernel.Shared = pad * placeBytes
		}
	}
	kernel.Include, kernel.Grid = []string{"order.cuh"}, [3]int{lanes, 1, 1}
	plan.Kernels = []Kernel{kernel}
	return plan, nil
}

// scanPlan runs along lanes that lie side by side with a thread each, and shares out others among a block.
func scanPlan(c Call) (*Plan, error) {
	outer, n, inner := c.Ints[0], c.Ints[1], c.Ints[2]
	product, exclusive, reverse := c.Ints[4] == 1, c.Ints[5] == 1, c.Ints[6] == 1
	if outer*n*inner == 0 {
		return &Plan{}, nil
	}
	const threads = 128
	params, typ := operands(c.Types, 1, "x", "y"), cType(c.Types, 0)
	var k Kernel
	blocks := outer * inner
	if inner >= 32 || n <= 32 {
		k = kernelOf("scan", "order", "scan_lanes", threads, params, typ, outer, n, inner, product, exclusive, reverse, threads)
		blocks = divUp(blocks, threads)
	} else {
		k = kernelOf("scan", "order", "scan_block", threads, params, typ, n, inner, product, exclusive, reverse, threads)
	}
	k.Include, k.Grid = []string{"order.cuh"}, [3]int{blocks, 1, 1}
	return &Plan{Kernels: []Kernel{k}}, nil
}
