package cuda

import (
	"fmt"
	"math"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// packedBytes is how much of packed tensors there is at a time, at most where one image takes less: images are done in as many parts.
var packedBytes = 128 << 20

// convTile plans a convolution by conv_tile.cuh.
type convTile struct {
	*conv
	plan      *Plan
	cg, og    int // channels of a group
	cp, op    int // and packed: multiples of 16 bytes
	images    int // of one part
	packedX   Ref // the packed tensor of c channels a group
	packedDY  Ref // of o channels
	weight    Ref
	in, out   string
	typ       dtype.DType
	tiles     []tile
	rate      float64
	mma, half bool
}

// tiled reports whether a convolution fills tiles: groups of some channels, and not too little work.
func (c *conv) tiled() bool {
	cg, og := c.c/c.g, c.o/c.g
	return (c.g == 1 || min(cg, og) >= 8) && c.n*c.o*c.oh*c.ow*cg*c.kh*c.kw >= 1<<18
}

// pointwise reports whether the convolution is a product for each image.
func (c *conv) pointwise() bool {
	return c.kh*c.kw == 1 && c.strideH == 1 && c.strideW == 1 && c.padT == 0 && c.padL == 0 && c.h == c.oh && c.w == c.ow
}

// product is a convolution, forward or by the input, that is a matrix product; nil where it is none.
func (c *conv) product() *gemm {
	if !c.pointwise() || c.g != 1 || c.kind == "wgrad" || c.kind == "fwd" && c.Types[2] != dtype.Invalid {
		return nil
	}
	last := len(c.Types) - 1
	g := &gemm{batch: c.n, m: c.o, n: c.h * c.w, k: c.c, alpha: 1, in: c.Types[0], out: c.Types[last], tf32: c.Compute == "tf32",
		a: 1, b: 0, biasAt: Nil, add: Nil, c: last, aux: Nil, sumsAt: Nil}
	if c.kind == "dgrad" {
		g.m, g.k, g.transA = c.c, c.o, true
	}
	g.strideB, g.strideC = g.k*g.n, g.m*g.n
	if g.batch == 1 {
		g.strideB, g.strideC = 0, 0
	}
	return g
}

// alloc gives out workspace.
func (t *convTile) alloc(bytes int) Ref {
	at := t.plan.Workspace
	t.plan.Workspace += divUp(bytes, 64) * 64
	return Ref{Arg: Workspace, Offset: at}
}

// tile plans the convolution in tiles.
func (c *conv) tile(p *Plan) {
	d := c.Types[0]
	t := &convTile{conv: c, plan: p, cg: c.c / c.g, og: c.o / c.g, typ: d, in: cType(c.Types, 0), out: cType(c.Types, len(c.Types)-1)}
	chunk := 16 / d.Size()
	t.cp, t.op = divUp(t.cg, chunk)*chunk, divUp(t.og, chunk)*chunk
	list := simtTiles
	t.rate = simtRate
	switch t.half = d != dtype.F32; {
	case t.half:
		list, t.rate, t.mma = mmaTiles, mmaRate, true
	case c.Compute == "tf32":
		list, t.rate, t.mma = tf32Tiles, tf32Rate, true
	}
	for _, l := range list {
		if most := 128 * 128; t.mma && l.bm*l.bn <= most || l.r == 1 && l.bm*l.bn < most { // larger ones leave no registers for places
			t.tiles = append(t.tiles, l)
		}
	}
	xBytes, yBytes := d.Size()*c.h*c.w*c.g*t.cp, d.Size()*c.oh*c.ow*c.g*t.op // of an image
	all := xBytes
	switch {
	case c.kind == "dgrad":
		all = yBytes
	case c.kind == "wgrad":
		all += yBytes
	}
	t.images = min(max(packedBytes/max(all, 1), 1), c.n)
	if c.kind != "wgrad" {
		t.weight = t.alloc(0)
	}
	switch c.kind {
	case "fwd":
		t.packedX = t.alloc(t.images * xBytes)
		t.forward()
	case "dgrad":
		t.packedDY = t.alloc(t.images * yBytes)
		t.data()
	case "wgrad":
		if !t.flat() {
			t.packedX, t.packedDY = t.alloc(t.images*xBytes), t.alloc(t.images*yBytes)
		} else {
			t.images = c.n
		}
		t.weights()
	}
}

// choose gives the tile, and the parts of K, that end soonest: see gemm.choose.
func (t *convTile) choose(m, n, k, most int) (best tile, splits int) {
	least := math.Inf(1)
	for _, l := range t.tiles {
		slabs, blocks := divUp(k, l.bk), divUp(m, l.bm)*divUp(n, l.bn)*t.g
		for _, want := range []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256} {
			if want > most || want > 1 && (divUp(slabs, want)*l.bk < 256 || 4*want*m*n*t.g > partLimit) {
				break
			}
			depth := float64(divUp(slabs, want) * l.bk)
			area, edge := float64(l.bm*l.bn), float64((l.bm+l.bn)*t.typ.Size())
			total := float64(divUp(blocks*want, chips))*(max(depth*area/(t.rate*l.speed), depth*edge/loadRate)+startUp) +
				float64(want)*4*float64(m*n*t.g)/(chips*loadRate)
			if total < least {
				least, best, splits = total, l, want
			}
		}
	}
	return best, splits
}

// width is the channels of a group, and as many as there are when packed.
type width struct{ channels, packed int }

// pack packs count images from number first on of pointer arg.
func (t *convTile) pack(arg, first, count, pixels int, w width, to Ref) {
	size := 32
	if t.half {
		size = 64
	}
	k := kernelOf("conv_pack", "conv", "conv_pack", 256, []param{{"const " + t.in, "from", Ref{Arg: arg, Offset: first * t.g * w.channels * pixels * t.typ.Size()}},
		{t.in, "to", to}}, t.in, count, pixels, t.g, w.channels, w.packed)
	t.add(k, count*divUp(pixels, size)*divUp(t.g*w.packed, size), "conv_tile.cuh")
}

func (t *convTile) add(k Kernel, blocks int, include string) {
	k.Include, k.Grid = []string{include}, [3]int{blocks, 1, 1}
	t.plan.Kernels = append(t.plan.Kernels, k)
}

// taps are the places of a window that count in one direction: first, first + step, …, count of them.
type taps struct{ first, step, count int }

// packWeight packs w for rows of so many channels of the result, and channels that are summed over, which lie so far apart.
func (t *convTile) packWeight(rows int, c width, rowStep, channelStep int, h, w taps) Ref {
	const threads = 256
	n := t.g * rows * h.count * w.count * c.packed
	to := t.alloc(n * t.typ.Size())
	which := fmt.Sprintf("gtc::conv_taps<%d, %d, %d, %d, %d, %d, %d, %d>", t.kh, t.kw, h.count, w.count, h.first, w.first, h.step, w.step)
	k := kernelOf("conv_pack_weight", "conv", "conv_pack_weight", threads, []param{{"const " + t.in, "w", Ref{Arg: 1}}, {t.in, "to", to}},
		t.in, t.g, rows, c.channels, c.packed, which, rowStep, channelStep, t.og*t.cg*t.kh*t.kw, threads)
	if n > 0 {
		t.add(k, divUp(n, threads), "conv_tile.cuh")
	}
	return to
}

// imageKernel makes the pixels of a grid of images from number first on. view and image are the type names of what is read
// and written, k the length of sums, n the columns.
type imageKernel struct {
	view, image string
	packed      Ref
	weight      Ref
	rows, k, n  int
	channels    int // of a group, packed
	first       int // image
	bytes       int // between images of the result
	area        int // pixels of a result's plane
}

func (t *convTile) imageKernel(i imageKernel) {
	l, _ := t.choose(i.rows, i.n, i.k, 1)
	tileType, threads, shared, file, call := t.tileType(l, 1)
	bias, biasRef := "float", Ref{Arg: Nil}
	if t.kind == "fwd" && t.Types[2] != dtype.Invalid {
		bias, biasRef = cType(t.Types, 2), Ref{Arg: 2}
	}
	k := Kernel{Name: "conv_" + t.kind, Family: "conv", Block: [3]int{threads, 1, 1}, Shared: shared,
		Args: []Ref{i.packed, i.weight, biasRef, {Arg: len(t.Types) - 1, Offset: i.first * i.bytes}}}
	k.Text = fmt.Sprintf(`extern "C" __global__ void __launch_bounds__(%d, %d) NAME(const %s* x, const %s* w, const %s* bias, %s* y) {
	using T = %s;
	using V = %s;
	const gtc::conv_block at = gtc::conv_block_of<%d, V::PIXELS, T::BM, T::BN, 1>(blockIdx.x);
	const gtc::%s<%s, %s, V, %s> out{y + gtc::i64(at.group) * %d, bias ? bias + at.group * %d : bias};
	%s, %d>(gtc::conv_rows<%s, %d, %d, %d>{w + gtc::i64(at.group) * %d}, gtc::conv_pixels<%s, V>{x + at.group * %d}, out, at);
}
`, threads, l.blocks, t.in, t.in, bias, t.out, tileType, i.view, i.rows, "conv_image", t.out, bias, i.image, i.rows*i.area, i.rows,
		call, i.k, t.in, i.rows, i.k, i.k, i.rows*i.k, t.in, i.channels)
	t.add(k, divUp(i.rows, l.bm)*divUp(i.n, l.bn)*t.g, file)
}

// tileType is the type name of a tile, its threads and shared memory, and the call of what makes it, up to the length of sums.
func (t *convTile) tileType(l tile, splits int) (name string, threads, shared int, file, call string) {
	kind := "Simt"
	threads, shared, file, call = l.bm/l.p*(l.bn/l.q)*l.r, l.simtShared(), "conv_simt.cuh", "gtc::conv_simt<T"
	if t.mma {
		kind, threads, shared, file, call = "Mma", 32*l.p*l.q, l.mmaShared(t.typ.Size()), "conv_mma.cuh", "gtc::conv_mma<T, "+t.in
	}
	return fmt.Sprintf("gtc::%sTile<%d, %d, %d, %d, %d, %d, %d>", kind, l.bm, l.bn, l.bk, l.p, l.q, l.r, splits), threads, shared, file, call
}

// forward plans ConvFwd.
func (t *convTile) forward() {
	taps := func(n int) taps { return taps{0, 1, n} }
	area, k := t.kh*t.kw, t.kh*t.kw*t.cp
	weight := t.packWeight(t.og, width{t.cg, t.cp}, t.cg*area, area, taps(t.kh), taps(t.kw))
	for first := 0; first < t.n; first += t.images {
		n := min(t.images, t.n-first)
		t.pack(0, first, n, t.h*t.w, width{t.cg, t.cp}, t.packedX)
		view := fmt.Sprintf("gtc::conv_view<%d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d>", n, t.oh, t.ow, t.h, t.w, t.strideH, t.strideW,
			-t.padT, -t.padL, t.kh, t.kw, t.dilH, t.dilW, t.cp, t.g*t.cp)
		t.imageKernel(imageKernel{view: view, image: fmt.Sprintf("%d, %d, %d, %d, 1, 1, 0, 0", t.og, t.o, t.oh, t.ow), packed: t.packedX, weight: weight,
			rows: t.og, k: k, n: n * t.oh * t.ow, channels: t.cp, first: first, bytes: t.Types[3].Size() * t.o * t.oh * t.ow, area: t.oh * t.ow})
	}
}

// phase is the part of a gradient by the input whose places are first, first + stride, …: places of them, each of which gets
// from the taps t what lies at place + origin - t * back of dy.
type phase struct {
	taps
	places, at, origin, back int
}

// phases splits one direction of a gradient by the input by what is left of places divided by the stride, so that no tap is in
// vain.
func phases(size, kernel, pad, stride, dil int) []phase {
	var out []phase
	for r := 0; r < min(stride, size); r++ {
		p := phase{places: divUp(size-r, stride), at: r}
		for k := 0; k < kernel; k++ {
			if (r+pad-k*dil)%stride != 0 {
				continue
			}
			if p.count == 0 {
				p.first, p.origin = k, (r+pad-k*dil)/stride
			} else if p.count == 1 {
				p.step = k - p.first
				p.back = p.step * dil / stride
			}
			p.count++
		}
		out = append(out, p)
	}
	return out
}

// data plans ConvBwdData.
func (t *convTile) data() {
	type part struct {
		h, w   phase
		weight Ref
	}
	var parts []part
	area := t.kh * t.kw
	for _, h := range phases(t.h, t.kh, t.padT, t.strideH, t.dilH) {
		for _, w := range phases(t.w, t.kw, t.padL, t.strideW, t.dilW) {
			parts = append(parts, part{h, w, t.packWeight(t.cg, width{t.og, t.op}, area, t.cg*area, h.taps, w.taps)})
		}
	}
	for first := 0; first < t.n; first += t.images {
		n := min(t.images, t.n-first)
		t.pack(0, first, n, t.oh*t.ow, width{t.og, t.op}, t.packedDY)
		for _, p := range parts {
			view := fmt.Sprintf("gtc::conv_view<%d, %d, %d, %d, %d, 1, 1, %d, %d, %d, %d, %d, %d, %d, %d>", n, p.h.places, p.w.places, t.oh, t.ow,
				p.h.origin, p.w.origin, max(p.h.count, 1), max(p.w.count, 1), -p.h.back, -p.w.back, t.op, t.g*t.op)
			image := fmt.Sprintf("%d, %d, %d, %d, %d, %d, %d, %d", t.cg, t.c, t.h, t.w, t.strideH, t.strideW, p.h.at, p.w.at)
			t.imageKernel(imageKernel{view: view, image: image, packed: t.packedDY, weight: p.weight, rows: t.cg, k: p.h.count * p.w.count * t.op,
				n: n * p.h.places * p.w.places, channels: t.op, first: first, bytes: t.Types[2].Size() * t.c * t.h * t.w, area: t.h * t.w})
		}
	}
}

// flat reports whether a gradient by the weight can read its operands as they are: the pixels of both are K, in accesses of
// 16 bytes.
func (t *convTile) flat() bool {
	chunk := 16 / t.typ.Size()
	return t.pointwise() && t.h*t.w%chunk == 0 && t.cg%4 == 0
}

// weights plans ConvBwdWeight: parts of the sums, and then their sum.
func (t *convTile) weights() {
	const threads = 256
	cp, packs := t.cp, divUp(t.n, t.images)
	if t.flat() {
		cp = t.cg
	}
	area, cols := t.kh*t.kw, t.kh*t.kw*cp
	size := t.g * t.og * cols // elements of a part
	l, splits := t.choose(t.og, cols, t.images*t.oh*t.ow, 256)
	parts := t.alloc(4 * size * splits * packs)
	tileType, block, shared, file, call := t.tileType(l, splits)
	for i := range packs {
		first := i * t.images
		n := min(t.images, t.n-first)
		pixels := n * t.oh * t.ow
		view := fmt.Sprintf("gtc::conv_view<%d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d>", n, t.oh, t.ow, t.h, t.w, t.strideH, t.strideW,
			-t.padT, -t.padL, t.kh, t.kw, t.dilH, t.dilW, t.cp, t.g*t.cp)
		left := fmt.Sprintf("gtc::conv_columns<%s, %d, %d, %d>{dy + at.group * %d}", t.in, t.op, pixels, t.g*t.op, t.op)
		right := fmt.Sprintf("gtc::conv_patches<%s, %s>{x + at.group * %d}", t.in, view, t.cp)
		x, dy := t.packedX, t.packedDY
		if t.flat() {
			plane := t.h * t.w
			left = fmt.Sprintf("gtc::conv_planes<%s, %d, %d, %d, %d>{dy + at.group * %d}", t.in, t.og, t.o, n, plane, t.og*plane)
			right = fmt.Sprintf("gtc::conv_planes<%s, %d, %d, %d, %d>{x + at.group * %d}", t.in, t.cg, t.c, n, plane, t.cg*plane)
			x, dy = Ref{Arg: 0}, Ref{Arg: 1}
		} else {
			t.pack(0, first, n, t.h*t.w, width{t.cg, t.cp}, x)
			t.pack(1, first, n, t.oh*t.ow, width{t.og, t.op}, dy)
		}
		k := Kernel{Name: "conv_wgrad", Family: "conv", Block: [3]int{block, 1, 1}, Shared: shared,
			Args: []Ref{x, dy, {Arg: parts.Arg, Offset: parts.Offset + 4*size*splits*i}}}
		k.Text = fmt.Sprintf(`extern "C" __global__ void __launch_bounds__(%d, %d) NAME(const %s* x, const %s* dy, float* parts) {
	using T = %s;
	const gtc::conv_block at = gtc::conv_block_of<%d, %d, T::BM, T::BN, T::SPLITS>(blockIdx.x);
	const gtc::conv_part<%d, %d> out{parts + (gtc::i64(at.slice) * %d + at.group) * %d};
	%s, %d>(%s, %s, out, at);
}
`, block, l.blocks, t.in, t.in, tileType, t.og, cols, t.og, cols, t.g, t.og*cols, call, pixels, left, right)
		t.add(k, divUp(t.og, l.bm)*divUp(cols, l.bn)*t.g*splits, file)
	}
	k := kernelOf("conv_sum", "conv", "conv_sum", threads, []param{{"const float", "parts", parts}, {t.out, "dw", Ref{Arg: 2}}},
		t.out, splits*packs, t.g, t.og, area, t.cg, cp, threads)
	t.add(k, divUp(size, threads), "conv_tile.cuh")
}
