package cuda

import (
	"math"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// tile is a way to cut a product: blocks of bm x bn of C, bk of K at a time. Of gemm_simt.cuh, p and q are the rows and columns
// that a thread makes and r the teams; of gemm_mma.cuh, p and q are warps and r the buffers.
type tile struct {
	bm, bn, bk, p, q, r int
	blocks              int     // that a multiprocessor is to hold at a time, which bounds registers
	speed               float64 // part of the peak rate, with enough blocks
}

// The tiles that kernels are compiled with, and the part of the peak that they reach on full multiprocessors. These come from
// what a step loads from shared memory for each multiplication; no GPU was at hand to measure them.
var (
	simtTiles = []tile{
		{128, 128, 8, 8, 8, 1, 2, 0.80},
		{64, 128, 8, 8, 8, 1, 3, 0.70},
		{128, 64, 8, 8, 8, 1, 3, 0.70},
		{64, 64, 16, 8, 4, 1, 4, 0.60},
		{64, 64, 32, 8, 4, 2, 2, 0.62},
		{32, 64, 32, 4, 4, 2, 2, 0.50},
		{64, 32, 32, 4, 4, 2, 2, 0.50},
		{32, 32, 32, 4, 4, 4, 2, 0.50},
	}
	mmaTiles = []tile{
		{128, 256, 32, 2, 4, 3, 1, 1.00},
		{256, 128, 32, 4, 2, 3, 1, 1.00},
		{128, 128, 32, 2, 4, 4, 2, 0.90},
		{128, 64, 32, 4, 2, 4, 3, 0.75},
		{64, 128, 32, 2, 4, 4, 3, 0.75},
		{64, 64, 32, 2, 2, 4, 4, 0.60},
		{32, 64, 64, 1, 4, 4, 4, 0.40},
		{64, 32, 64, 4, 1, 4, 4, 0.40},
	}
	tf32Tiles = []tile{
		{128, 128, 16, 2, 4, 4, 1, 0.90},
		{128, 64, 16, 4, 2, 4, 2, 0.75},
		{64, 128, 16, 2, 4, 4, 2, 0.75},
		{64, 64, 16, 2, 2, 4, 4, 0.60},
		{32, 64, 32, 1, 4, 4, 4, 0.40},
		{64, 32, 32, 4, 1, 4, 4, 0.40},
	}
)

// A chip to plan for: an H100. Fewer multiprocessors lose little, since nothing is cut more finely than they need.
const (
	chips      = 132
	simtRate   = 128.0  // multiplications of f32 in a clock of a multiprocessor
	mmaRate    = 1024.0 // of half precision by mma.sync, which reaches two thirds of the rate of wgmma
	tf32Rate   = 512.0
	loadRate   = 28.0 // bytes that a multiprocessor gets from the second-level cache in a clock
	startUp    = 1500 // clocks until the first multiplication and after the last
	handOver   = 2500 // clocks for a tile's blocks to meet
	partLimit  = 64 << 20
	countLimit = 1 << 16
)

func (g *gemm) usesMMA() bool { return g.in != dtype.F32 || g.tf32 }

// tiles are the ways to cut the product, and the multiplications of a multiprocessor in a clock.
func (g *gemm) tiles() ([]tile, float64) {
	switch {
	case g.in != dtype.F32:
		return mmaTiles, mmaRate
	case g.tf32:
		return tf32Tiles, tf32Rate
	}
	return simtTiles, simtRate
}

// choose gives the tile, and the blocks that share one, that end soonest by a simple account: full rounds of blocks over the
// chip, each bound by its multiplications or its loads, and what sharing a tile costs.
func (g *gemm) choose() (best tile, splits int) {
	tiles, rate := g.tiles()
	size := float64(g.in.Size())
	least := math.Inf(1)
	for _, t := range tiles {
		if g.sums == 1 && g.in.Size() == 2 && t.bm*t.bn > 128*128 {
			continue // no register is left for sums of rows: some such kernels spill one
		}
		slabs, n := ceil(g.k, t.bk), ceil(g.m, t.bm)*ceil(g.n, t.bn)*g.batch
		for _, want := range []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64} {
			part := ceil(slabs, want)
			s := ceil(slabs, part)
			if s != want || s > 1 && (part*t.bk < 64 || n > countLimit || 4*n*s*t.bm*t.bn > partLimit) {
				continue
			}
			depth, area := float64(part*t.bk), float64(t.bm*t.bn)
			clocks := max(depth*area/(rate*t.speed), depth*float64(t.bm+t.bn)*size/loadRate)
			total := float64(ceil(n*s, chips))*clocks + startUp
			if s > 1 {
				total += handOver + 4*area*float64(s+1)/loadRate*float64(ceil(n, chips))
			}
			if total < least {
				least, best, splits = total, t, s
			}
		}
	}
	return best, splits
}

func ceil(a, b int) int { return (a + b - 1) / b }
