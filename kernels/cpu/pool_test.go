package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

type poolCase struct{ n, c, h, w, kh, kw, padT, padL, sh, sw, dh, dw, ceil int }

func (p poolCase) outs() (oh, ow int) {
	out := func(size, pad, k, d, s int) int {
		span := size + 2*pad - d*(k-1) - 1
		o := span/s + 1
		if p.ceil == 1 && span%s != 0 && o*s < size+pad {
			o++
		}
		return o
	}
	return out(p.h, p.padT, p.kh, p.dh, p.sh), out(p.w, p.padL, p.kw, p.dw, p.sw)
}

// window calls f with the tap's position in the padded plane for each tap of output (y, x).
func (p poolCase) window(y, x int, f func(ih, iw int)) {
	for kh := range p.kh {
		for kw := range p.kw {
			f(y*p.sh-p.padT+kh*p.dh, x*p.sw-p.padL+kw*p.dw)
		}
	}
}

func (p poolCase) inside(ih, iw int) bool { return ih >= 0 && ih < p.h && iw >= 0 && iw < p.w }

func (p poolCase) checkMax(t *testing.T) {
	oh, ow := p.outs()
	r := rand.New(rand.NewPCG(12, 13))
	x, dy := make([]float32, p.n*p.c*p.h*p.w), randn(r, p.n*p.c*oh*ow)
	for i := range x {
		x[i] = float32(r.IntN(5)) // many ties
		if r.IntN(40) == 0 {
			x[i] = float32(math.Inf(-1))
		}
	}
	want, wantIdx, dx := make([]float32, len(dy)), make([]int32, len(dy)), make([]float64, len(x))
	for i := range dy {
		plane := i / (oh * ow)
		best, at := float32(math.Inf(-1)), -1
		p.window(i/ow%oh, i%ow, func(ih, iw int) {
			if p.inside(ih, iw) && (at < 0 || x[plane*p.h*p.w+ih*p.w+iw] > best) {
				at = ih*p.w + iw
				best = x[plane*p.h*p.w+at]
			}
		})
		want[i], wantIdx[i] = best, int32(at)
		dx[plane*p.h*p.w+at] += float64(dy[i])
	}
	y, idx, gx := make([]float32, len(dy)), make([]int32, len(dy)), filled(len(x), 7)
	MaxPoolFwd(ptr(x), ptr(y), ptr(idx), nil, p.n, p.c, p.h, p.w, p.kh, p.kw, oh, ow, p.padT, p.padL, p.sh, p.sw, p.dh, p.dw)
	MaxPoolBwd(ptr(dy), ptr(idx), ptr(gx), nil, p.n, p.c, p.h, p.w, p.kh, p.kw, oh, ow, p.padT, p.padL, p.sh, p.sw, p.dh, p.dw)
	for i := range y {
		if y[i] != want[i] || idx[i] != wantIdx[i] {
			t.Errorf("%+v: output %d is %v at %d, want %v at %d", p, i, y[i], idx[i], want[i], wantIdx[i])
			return
		}
	}
	near(t, fmt.Sprintf("%+v max dx", p), gx, dx, 1e-6)
}

func (p poolCase) checkAvg(t *testing.T, include int) {
	oh, ow := p.outs()
	r := rand.New(rand.NewPCG(14, 15))
	x, dy := randn(r, p.n*p.c*p.h*p.w), randn(r, p.n*p.c*oh*ow)
	y64, dx64 := make([]float64, len(dy)), make([]float64, len(x))
	for i := range dy {
		plane, count := i/(oh*ow), 0
		p.window(i/ow%oh, i%ow, func(ih, iw int) {
			if p.inside(ih, iw) || include == 1 && ih < p.h+p.padT && iw < p.w+p.padL {
				count++
			}
		})
		p.window(i/ow%oh, i%ow, func(ih, iw int) {
			if p.inside(ih, iw) {
				y64[i] += float64(x[plane*p.h*p.w+ih*p.w+iw]) / float64(count)
				dx64[plane*p.h*p.w+ih*p.w+iw] += float64(dy[i]) / float64(count)
			}
		})
	}
	y, dx := make([]float32, len(dy)), make([]float32, len(x))
	AvgPoolFwd(ptr(x), ptr(y), nil, p.n, p.c, p.h, p.w, p.kh, p.kw, oh, ow, p.padT, p.padL, p.padT, p.padL, p.sh, p.sw, p.dh, p.dw, include)
	AvgPoolBwd(ptr(dy), ptr(dx), nil, p.n, p.c, p.h, p.w, p.kh, p.kw, oh, ow, p.padT, p.padL, p.padT, p.padL, p.sh, p.sw, p.dh, p.dw, include)
	near(t, fmt.Sprintf("%+v include %d avg y", p, include), y, y64, 1e-6)
	near(t, fmt.Sprintf("%+v include %d avg dx", p, include), dx, dx64, 1e-6)
}

func TestPoolingAgainstLoops(t *testing.T) {
	cases := []poolCase{
		{n: 2, c: 3, h: 24, w: 24, kh: 2, kw: 2, sh: 2, sw: 2, dh: 1, dw: 1},
		{n: 3, c: 2, h: 11, w: 71, kh: 2, kw: 2, sh: 2, sw: 2, dh: 1, dw: 1},
		{n: 1, c: 2, h: 9, w: 33, kh: 3, kw: 2, sh: 2, sw: 2, dh: 1, dw: 1},
		{n: 5, c: 3, h: 13, w: 11, kh: 3, kw: 3, padT: 1, padL: 1, sh: 2, sw: 2, dh: 1, dw: 1},
		{n: 1, c: 2, h: 9, w: 10, kh: 3, kw: 2, padT: 1, padL: 1, sh: 1, sw: 3, dh: 1, dw: 1},
		{n: 1, c: 2, h: 9, w: 10, kh: 2, kw: 3, padT: 1, padL: 1, sh: 1, sw: 1, dh: 2, dw: 2},
		{n: 2, c: 2, h: 7, w: 8, kh: 3, kw: 3, sh: 2, sw: 2, dh: 1, dw: 1, ceil: 1},
		{n: 2, c: 2, h: 1, w: 30, kh: 1, kw: 4, sh: 1, sw: 4, dh: 1, dw: 1, ceil: 1},
		{n: 2, c: 20, h: 6, w: 6, kh: 6, kw: 6, sh: 1, sw: 1, dh: 1, dw: 1},
	}
	onThreads(t, func(t *testing.T) {
		for _, p := range cases {
			p.checkMax(t)
			p.checkAvg(t, 0)
			p.checkAvg(t, 1)
		}
	})
}

func TestMaxPoolNaNWins(t *testing.T) {
	nan := float32(math.NaN())
	x, y, idx := []float32{1, nan, 3, 2}, make([]float32, 1), make([]int32, 1)
	MaxPoolFwd(ptr(x), ptr(y), ptr(idx), nil, 1, 1, 2, 2, 2, 2, 1, 1, 0, 0, 2, 2, 1, 1)
	if y[0] == y[0] || idx[0] != 1 {
		t.Errorf("got %v at %d, want NaN at 1", y[0], idx[0])
	}
}
