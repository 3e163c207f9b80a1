// Command bench times the CPU kernel templates at the sizes of the first two benchmark models, a character GPT (batch
// 12, context 64, width 128) and an MNIST CNN (batch 64), and prints the best time and rate of each. The best of many
// short runs is shown because it is what a busy machine disturbs least.
//
//	go run ./kernels/cpu/bench [-threads 2] [-only gemm]
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"github.com/gtc-compiler/gtc/kernels/cpu"
)

// row is one line of the table: run does the work once; flops is 0 where a rate says nothing.
type row struct {
	name  string
	flops float64
	run   func()
}

func main() {
	threads := flag.Int("threads", 2, "threads per kernel")
	only := flag.String("only", "", "run only rows whose name contains this")
	cpuTime := flag.Bool("cpu", false, "measure the thread's processor time, which other programs disturb less (Linux, -threads 1)")
	budget := flag.Duration("time", 300*time.Millisecond, "time spent on each row")
	tiles := flag.Bool("tiles", false, "use the tile unit (AMX) for matrix products where there is one")
	flag.Parse()
	if *tiles && !cpu.UseTileUnit(true) {
		fmt.Println("no tile unit here; using the vector unit")
	}
	runtime.LockOSThread()
	cpu.SetThreads(*threads)
	clock := wall
	if *cpuTime {
		clock = processor
	}
	for _, rows := range [][]row{gemmRows(), attentionRows(), convRows(), otherRows()} {
		for _, r := range rows {
			if !strings.Contains(r.name, *only) {
				continue
			}
			t := best(r.run, *budget, clock)
			if fmt.Printf("%-40s %9.1f us", r.name, t*1e6); r.flops > 0 {
				fmt.Printf(" %8.1f GFLOP/s", r.flops/t*1e-9)
			}
			fmt.Println()
		}
	}
}

var begin = time.Now()

func wall() time.Duration { return time.Since(begin) }

// best gives the shortest seconds per call over batches of calls that take about a millisecond each.
func best(f func(), budget time.Duration, clock func() time.Duration) float64 {
	f()
	start := clock()
	f()
	n := int(time.Millisecond/max(clock()-start, time.Microsecond)) + 1
	shortest := time.Duration(1 << 62)
	for end := wall() + budget; wall() < end; {
		t := clock()
		for range n {
			f()
		}
		shortest = min(shortest, clock()-t)
	}
	return shortest.Seconds() / float64(n)
}

// buffer makes n aligned float32 normals.
func buffer(n int) unsafe.Pointer {
	s := make([]float32, n+16)
	off := int(-uintptr(unsafe.Pointer(&s[0]))&63) / 4
	for i := range s {
		s[i] = float32(rand.NormFloat64())
	}
	return unsafe.Pointer(&s[off])
}

func indices(n, below int) unsafe.Pointer {
	s := make([]int64, n)
	for i := range s {
		s[i] = int64(rand.IntN(below))
	}
	return unsafe.Pointer(&s[0])
}

func gemmRows() []row {
	var rows []row
	for _, s := range [][5]int{
		{768, 128, 128, 0, 0}, {768, 384, 128, 0, 0}, {768, 512, 128, 0, 0}, {768, 128, 512, 0, 0}, {768, 65, 128, 0, 0},
		{768, 128, 65, 0, 1}, {768, 128, 512, 0, 1}, {768, 512, 128, 0, 1}, {128, 512, 768, 1, 0}, {512, 128, 768, 1, 0},
		{128, 65, 768, 1, 0}, {128, 128, 768, 1, 0}, {64, 10, 9216, 0, 1}, {64, 128, 9216, 0, 1}, {64, 9216, 128, 0, 0},
		{128, 9216, 64, 1, 0}, {512, 512, 512, 0, 0}, {1024, 1024, 1024, 0, 0},
	} {
		m, n, k, ta, tb := s[0], s[1], s[2], s[3], s[4]
		a, b, c, ws := buffer(m*k), buffer(k*n), buffer(m*n), buffer(cpu.GemmWorkspace(1, m, n, k, ta, tb, 0, 0, 0, 0, 0)/4)
		rows = append(rows, row{fmt.Sprintf("gemm m%d n%d k%d t%d%d", m, n, k, ta, tb), 2 * float64(m) * float64(n) * float64(k), func() {
			cpu.Gemm(a, b, nil, c, ws, 1, m, n, k, ta, tb, 0, 0, 0, 0, 0)
		}})
	}
	return rows
}

func attentionRows() []row {
	const b, h, s, d = 12, 4, 64, 32
	x, out, dout, grad, lse := buffer(3*b*h*s*d), buffer(b*h*s*d), buffer(b*h*s*d), buffer(3*b*h*s*d), buffer(b*h*s)
	at := func(p unsafe.Pointer, i int) unsafe.Pointer { return unsafe.Add(p, 4*i*h*d) }
	const sb, sh, ss, ob, os = s * 3 * h * d, d, 3 * h * d, s * h * d, h * d
	fwd := func() {
		cpu.AttnFwd(x, at(x, 1), at(x, 2), nil, out, lse, nil, b, h, h, s, s, d, d, sb, sh, ss, sb, sh, ss, sb, sh, ss, ob, sh, os, 1, 0, 0, 0, 0, 0.17)
	}
	bwd := func() {
		cpu.AttnBwd(x, at(x, 1), at(x, 2), nil, out, lse, dout, grad, at(grad, 1), at(grad, 2), nil, b, h, h, s, s, d, d, sb, sh, ss,
			sb, sh, ss, sb, sh, ss, ob, sh, os, 1, 0, 0, 0, 0, ob, sh, os, sb, sh, ss, sb, sh, ss, sb, sh, ss, 0.17)
	}
	work := float64(2 * b * h * s * s * d)
	return []row{{"attention fwd 12x4x64x32", 2 * work, fwd}, {"attention bwd 12x4x64x32", 5 * work, bwd}}
}

func convRows() []row {
	var rows []row
	for _, s := range [][7]int{
		{64, 1, 28, 32, 3, 1, 1}, {64, 32, 26, 64, 3, 1, 1}, {8, 64, 56, 64, 3, 1, 1}, {8, 64, 56, 128, 3, 2, 1}, {8, 64, 56, 256, 1, 1, 1},
		{8, 64, 56, 64, 3, 1, 64},
	} {
		n, c, h, o, k, st, g := s[0], s[1], s[2], s[3], s[4], s[5], s[6]
		oh := (h-k)/st + 1
		x, w, y := buffer(n*c*h*h), buffer(o*c/g*k*k), buffer(n*o*oh*oh)
		ws := buffer(max(cpu.ConvFwdWorkspace(n, c, h, h, o, k, k, oh, oh, 0, 0, st, st, 1, 1, g),
			cpu.ConvBwdDataWorkspace(n, c, h, h, o, k, k, oh, oh, 0, 0, st, st, 1, 1, g),
			cpu.ConvBwdWeightWorkspace(n, c, h, h, o, k, k, oh, oh, 0, 0, st, st, 1, 1, g)) / 4)
		name, work := fmt.Sprintf("conv %d->%d/%d %dx%d k%d s%d", c, o, g, h, h, k, st), 2*float64(n*o*oh*oh)*float64(c/g*k*k)
		rows = append(rows,
			row{name + " fwd", work, func() { cpu.ConvFwd(x, w, nil, y, ws, n, c, h, h, o, k, k, oh, oh, 0, 0, st, st, 1, 1, g) }},
			row{name + " bwd data", work, func() { cpu.ConvBwdData(y, w, x, ws, n, c, h, h, o, k, k, oh, oh, 0, 0, st, st, 1, 1, g) }},
			row{name + " bwd weight", work, func() { cpu.ConvBwdWeight(x, y, w, ws, n, c, h, h, o, k, k, oh, oh, 0, 0, st, st, 1, 1, g) }})
	}
	return rows
}

func otherRows() []row {
	const rows, classes, width = 768, 65, 128
	logits, loss, target, grad := buffer(rows*classes), buffer(rows), indices(rows, classes), buffer(rows*classes)
	table, idx, emb := buffer(classes*width), indices(rows, classes), buffer(rows*width)
	img, pooled, where := buffer(64*64*24*24), buffer(64*64*12*12), buffer(64*64*12*12)
	wide, turned := buffer(768*512), buffer(768*512)
	return []row{
		{"xent fwd+bwd 768x65", 0, func() { cpu.XentFwdBwd(logits, target, nil, loss, grad, nil, rows, classes, -100) }},
		{"gather 768x128", 0, func() { cpu.GatherRows(table, idx, emb, nil, classes, width, rows) }},
		{"scatter-add 768x128", 0, func() { cpu.ScatterAddRows(idx, emb, table, nil, classes, width, rows, 1) }},
		{"maxpool fwd 64x64x24x24", 0, func() { cpu.MaxPoolFwd(img, pooled, where, nil, 64, 64, 24, 24, 2, 2, 12, 12, 0, 0, 2, 2, 1, 1) }},
		{"maxpool bwd 64x64x24x24", 0, func() { cpu.MaxPoolBwd(pooled, where, img, nil, 64, 64, 24, 24, 2, 2, 12, 12, 0, 0, 2, 2, 1, 1) }},
		{"transpose 12x64x4x32 to 0213", 0, func() { cpu.Transpose(emb, turned, nil, 4, 12, 64, 4, 32, 0, 0, 0, 2, 1, 3, 0, 0, 4) }},
		{"transpose 768x512", 0, func() { cpu.Transpose(wide, turned, nil, 2, 768, 512, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 4) }},
		{"exp 98304", 0, func() { cpu.MapMath(wide, nil, turned, cpu.MathExp, 98304) }},
		{"tanh 98304", 0, func() { cpu.MapMath(wide, nil, turned, cpu.MathTanh, 98304) }},
		{"erf 98304", 0, func() { cpu.MapMath(wide, nil, turned, cpu.MathErf, 98304) }},
	}
}
