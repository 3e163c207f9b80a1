package cuda

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// skinny is the most rows or columns of a product that one pass over the other operand makes.
const skinny = 8

// kernel writes the kernel of a product, and says how many bytes of scratch memory it needs.
func (g *gemm) kernel() (Kernel, int, error) {
	if g.batch*g.m*g.n == 0 {
		return Kernel{}, 0, fmt.Errorf("BUG: a product of %d x %d x %d x %d has no kernel", g.batch, g.m, g.n, g.k)
	}
	if min(g.m, g.n) <= skinny && g.sums == 0 {
		return g.skinnyKernel(), 0, nil
	}
	t, splits := g.choose()
	k, work := g.tiledKernel(t, splits)
	return k, work, nil
}

// tiledKernel cuts the product into tiles, with splits blocks for each.
func (g *gemm) tiledKernel(t tile, splits int) (Kernel, int) {
	name, file, threads, shared, types := "simt", "gemm_simt.cuh", t.bm/t.p*(t.bn/t.q)*t.r, t.simtShared(), ""
	if g.usesMMA() {
		name, file, threads, shared, types = "mma", "gemm_mma.cuh", 32*t.p*t.q, t.mmaShared(g.in.Size()), ", "+gemmType(g.in)
	}
	switch {
	case g.in.Size() == 2 && !g.evenLines():
		t.blocks = 1 // slabs come through registers
	case g.sums != 0:
		t.blocks = max(1, t.blocks-1) // the sums need registers, too
	}
	kind := strings.ToUpper(name[:1]) + name[1:] + "Tile"
	call := fmt.Sprintf("gemm_%s<%s, gtc::%s<%d, %d, %d, %d, %d, %d, %d>, %s%s>", name, g.shape(), kind, t.bm, t.bn, t.bk, t.p, t.q, t.r, splits, g.end(), types)
	tiles := ceil(g.m, t.bm) * ceil(g.n, t.bn) * g.batch
	k := Kernel{Name: "gemm_" + g.in.String(), Include: []string{"gemm.cuh", file}, Grid: [3]int{tiles * splits, 1, 1}, Block: [3]int{threads, 1, 1}, Shared: shared,
		Text: g.text(call, fmt.Sprintf("%d, %d", threads, t.blocks)), Args: g.args(), Family: "gemm"}
	if splits == 1 {
		return k, 0
	}
	k.Args[7], k.Args[8] = Ref{Arg: Workspace}, Ref{Arg: Table}
	k.Table = make([]uint64, ceil(tiles, 2))
	work := tiles * splits * t.bm * t.bn
	switch g.sums {
	case 1:
		work += splits * (g.m + t.bm)
	case 2:
		work += splits * (g.n + t.bn)
	}
	return k, (4*work + 63) &^ 63
}

// skinnyKernel makes products of few rows or few columns.
func (g *gemm) skinnyKernel() Kernel {
	flip := g.m < g.n
	rows, contiguous := g.m, !g.transA
	if flip {
		rows, contiguous = g.n, g.transB
	}
	call, blocks := fmt.Sprintf("gemm_skinny_walk<%s, %s, %t>", g.shape(), g.end(), flip), ceil(rows, 32)
	if contiguous {
		warps := 8 // for a row: fewer where there are enough rows to keep a chip busy
		for warps > 1 && (rows*g.batch*warps/2 >= 8*chips*4 || g.k <= 64*warps) {
			warps /= 2
		}
		call, blocks = fmt.Sprintf("gemm_skinny_dot<%s, %s, %t, %d>", g.shape(), g.end(), flip, warps), ceil(rows, 8/warps)
	}
	return Kernel{Name: "gemv_" + g.in.String(), Include: []string{"gemm.cuh", "gemm_skinny.cuh"}, Grid: [3]int{blocks * g.batch, 1, 1}, Block: [3]int{256, 1, 1},
		Text: g.text(call, "256"), Args: g.args(), Family: "gemm"}
}

// sumsKernel makes the sums alone, where they run over the rows of an operand as stored, and says how many bytes of scratch
// memory it needs.
func (g *gemm) sumsKernel() (k Kernel, work int, ok bool) {
	width, from := g.m, g.a
	if g.sums == 2 {
		width, from = g.n, g.b
	}
	if g.sums == 0 || g.sums == 1 && !g.transA || g.sums == 2 && g.transB {
		return k, 0, false
	}
	v := 16 / g.in.Size()
	for width%v != 0 {
		v /= 2
	}
	blocks, splits := ceil(width, 32*v), 1
	for splits < 64 && blocks*splits < 2*chips && g.k/splits > 64 {
		splits *= 2
	}
	text := fmt.Sprintf("extern \"C\" __global__ void __launch_bounds__(256) NAME(const %s* x, %s* sums, float* partial, gtc::u32* count)\n{\n\tgtc::gemm_sums<%d, %d, %d, %d>(x, sums, partial, count);\n}\n",
		gemmType(g.in), gemmType(g.out), g.k, width, v, splits)
	k = Kernel{Name: "sums_" + g.in.String(), Text: text, Include: []string{"gemm.cuh", "gemm_sums.cuh"}, Grid: [3]int{blocks * splits, 1, 1}, Block: [3]int{256, 1, 1},
		Args: []Ref{{Arg: from}, {Arg: g.sumsAt}, {Arg: Nil}, {Arg: Nil}}, Family: "reduction"}
	if splits > 1 {
		k.Args[2], k.Args[3], k.Table = Ref{Arg: Workspace}, Ref{Arg: Table}, make([]uint64, ceil(blocks, 2))
	}
	return k, 4 * 4 * 256 * blocks * splits, true
}

func (t tile) simtShared() int {
	slabs, sums := 2*t.bk*(t.bm+4+t.bn+4), 0
	if t.r > 1 {
		sums = t.bm * t.bn * t.r
	}
	return 4 * max(slabs, sums)
}

func (t tile) mmaShared(size int) int {
	return max(t.r*(t.bm+t.bn)*t.bk*size, 4*t.p*t.q*16*(t.bn/t.q+8))
}

// evenLines reports whether rows of both operands start at multiples of 4 bytes in half precision.
func (g *gemm) evenLines() bool {
	a, b := g.lines()
	return (a|b|g.strideA|g.strideB)%2 == 0
}

func (g *gemm) shape() string {
	return fmt.Sprintf("gtc::GemmShape<%d, %d, %d, %t, %t, %d, %d, %d>", g.m, g.n, g.k, g.transA, g.transB, g.strideA, g.strideB, g.strideC)
}

func (g *gemm) end() string {
	return fmt.Sprintf("gtc::GemmEpilogue<%d, %t, %t, %t, %d>", g.act, g.bias != dtype.Invalid, g.add != Nil, g.writesAux, g.sums)
}

// args are a kernel's pointers: a, b, bias, add, c, aux, sums, partial, count.
func (g *gemm) args() []Ref {
	return []Ref{{Arg: g.a}, {Arg: g.b}, {Arg: g.biasAt}, {Arg: g.add}, {Arg: g.c}, {Arg: g.aux}, {Arg: g.sumsAt}, {Arg: Nil}, {Arg: Nil}}
}

// text is the CUDA C++ of a kernel that does call; bounds are its threads and the blocks of a multiprocessor.
func (g *gemm) text(call, bounds string) string {
	in, out, bias := gemmType(g.in), gemmType(g.out), gemmType(g.bias)
	return fmt.Sprintf(`extern "C" __global__ void __launch_bounds__(%s) NAME(const %s* a, const %s* b, const %s* bias, const %s* add, %s* c, %s* aux, %s* sums, float* partial, gtc::u32* count)
{
	gtc::%s(gtc::GemmPointers<%s, %s, %s>{a, b, bias, add, c, aux, sums, partial, count, %sf});
}
`, bounds, in, in, bias, out, out, out, out, call, in, bias, out, cFloat(g.alpha))
}

// cFloat writes a number as CUDA C++ does.
func cFloat(x float64) string {
	s := strconv.FormatFloat(x, 'g', -1, 32)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// gemmType is the name of an element type in CUDA C++, float where there is none.
func gemmType(d dtype.DType) string {
	switch d {
	case dtype.BF16:
		return "gtc::bf16"
	case dtype.F16:
		return "gtc::f16"
	}
	return "float"
}
