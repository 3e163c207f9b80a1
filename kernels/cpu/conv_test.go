package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

type convCase struct {
	n, c, h, w, o, kh, kw, padT, padL, padB, padR, sh, sw, dh, dw, groups int
	bias                                                                  bool
}

func (c convCase) outs() (oh, ow int) {
	oh = (c.h+c.padT+c.padB-c.dh*(c.kh-1)-1)/c.sh + 1
	ow = (c.w+c.padL+c.padR-c.dw*(c.kw-1)-1)/c.sw + 1
	return oh, ow
}

// each calls f with the flat positions of x, w and y of every multiply-add of the convolution.
func (c convCase) each(f func(x, w, y int)) {
	oh, ow := c.outs()
	cg, og := c.c/c.groups, c.o/c.groups
	for n := range c.n {
		for o := range c.o {
			for i := range cg {
				for kh := range c.kh {
					for kw := range c.kw {
						wi := ((o*cg+i)*c.kh+kh)*c.kw + kw
						for y := range oh {
							for x := range ow {
								ih, iw := y*c.sh-c.padT+kh*c.dh, x*c.sw-c.padL+kw*c.dw
								if ih < 0 || ih >= c.h || iw < 0 || iw >= c.w {
									continue
								}
								f(((n*c.c+o/og*cg+i)*c.h+ih)*c.w+iw, wi, ((n*c.o+o)*oh+y)*ow+x)
							}
						}
					}
				}
			}
		}
	}
}

func (c convCase) run(t *testing.T) {
	oh, ow := c.outs()
	r := rand.New(rand.NewPCG(5, 6))
	x, w, bias, dy := randn(r, c.n*c.c*c.h*c.w), randn(r, c.o*c.c/c.groups*c.kh*c.kw), randn(r, c.o), randn(r, c.n*c.o*oh*ow)
	ry, rdx, rdw := make([]float64, len(dy)), make([]float64, len(x)), make([]float64, len(w))
	bp := ptr(bias)
	if !c.bias {
		bp = nil
	} else {
		for i := range ry {
			ry[i] = float64(bias[i/(oh*ow)%c.o])
		}
	}
	c.each(func(xi, wi, yi int) {
		ry[yi] += float64(x[xi]) * float64(w[wi])
		rdx[xi] += float64(dy[yi]) * float64(w[wi])
		rdw[wi] += float64(dy[yi]) * float64(x[xi])
	})
	name := fmt.Sprintf("%+v ", c)
	y, dx, dw := make([]float32, len(dy)), make([]float32, len(x)), make([]float32, len(w))
	ws := workspace(ConvFwdWorkspace(c.n, c.c, c.h, c.w, c.o, c.kh, c.kw, oh, ow, c.padT, c.padL, c.sh, c.sw, c.dh, c.dw, c.groups))
	ConvFwd(ptr(x), ptr(w), bp, ptr(y), ptr(ws), c.n, c.c, c.h, c.w, c.o, c.kh, c.kw, oh, ow, c.padT, c.padL, c.sh, c.sw, c.dh, c.dw, c.groups)
	near(t, name+"y", y, ry, 1e-6)
	ws = workspace(ConvBwdDataWorkspace(c.n, c.c, c.h, c.w, c.o, c.kh, c.kw, oh, ow, c.padT, c.padL, c.sh, c.sw, c.dh, c.dw, c.groups))
	ConvBwdData(ptr(dy), ptr(w), ptr(dx), ptr(ws), c.n, c.c, c.h, c.w, c.o, c.kh, c.kw, oh, ow, c.padT, c.padL, c.sh, c.sw, c.dh, c.dw, c.groups)
	near(t, name+"dx", dx, rdx, 1e-6)
	ws = workspace(ConvBwdWeightWorkspace(c.n, c.c, c.h, c.w, c.o, c.kh, c.kw, oh, ow, c.padT, c.padL, c.sh, c.sw, c.dh, c.dw, c.groups))
	ConvBwdWeight(ptr(x), ptr(dy), ptr(dw), ptr(ws), c.n, c.c, c.h, c.w, c.o, c.kh, c.kw, oh, ow, c.padT, c.padL, c.sh, c.sw, c.dh, c.dw, c.groups)
	near(t, name+"dw", dw, rdw, 1e-6)
}

func TestConvAgainstLoops(t *testing.T) {
	cases := []convCase{
		{n: 1, c: 1, h: 1, w: 1, o: 1, kh: 1, kw: 1, sh: 1, sw: 1, dh: 1, dw: 1, groups: 1},
		{n: 3, c: 1, h: 28, w: 28, o: 32, kh: 3, kw: 3, sh: 1, sw: 1, dh: 1, dw: 1, groups: 1, bias: true},
		{n: 2, c: 32, h: 14, w: 13, o: 20, kh: 3, kw: 3, padT: 1, padL: 1, padB: 1, padR: 1, sh: 1, sw: 1, dh: 1, dw: 1, groups: 1},
		{n: 9, c: 4, h: 11, w: 9, o: 7, kh: 3, kw: 2, padT: 1, padL: 0, padB: 0, padR: 1, sh: 2, sw: 3, dh: 1, dw: 2, groups: 1, bias: true},
		{n: 2, c: 6, h: 10, w: 10, o: 8, kh: 3, kw: 3, padT: 2, padL: 2, padB: 2, padR: 2, sh: 1, sw: 1, dh: 2, dw: 2, groups: 2, bias: true},
		{n: 2, c: 13, h: 9, w: 9, o: 13, kh: 3, kw: 3, padT: 1, padL: 1, padB: 1, padR: 1, sh: 2, sw: 2, dh: 1, dw: 1, groups: 13},
		{n: 2, c: 5, h: 1, w: 40, o: 6, kh: 1, kw: 5, padL: 4, sh: 1, sw: 1, dh: 1, dw: 1, groups: 1},
		{n: 1, c: 3, h: 17, w: 17, o: 5, kh: 1, kw: 1, sh: 2, sw: 2, dh: 1, dw: 1, groups: 1},
		{n: 2, c: 3, h: 12, w: 12, o: 16, kh: 4, kw: 4, sh: 4, sw: 4, dh: 1, dw: 1, groups: 1},
		{n: 1, c: 2, h: 3, w: 3, o: 2, kh: 3, kw: 3, padT: 3, padL: 3, padB: 3, padR: 3, sh: 1, sw: 1, dh: 1, dw: 1, groups: 1},
		{n: 2, c: 20, h: 9, w: 8, o: 30, kh: 1, kw: 1, sh: 1, sw: 1, dh: 1, dw: 1, groups: 2, bias: true},
		{n: 2, c: 3, h: 12, w: 15, o: 4, kh: 5, kw: 4, padT: 3, padL: 2, padB: 1, padR: 4, sh: 2, sw: 4, dh: 3, dw: 2, groups: 1},
		{n: 1, c: 3, h: 20, w: 20, o: 8, kh: 2, kw: 2, sh: 5, sw: 5, dh: 1, dw: 1, groups: 1},
		{n: 1, c: 2, h: 8, w: 8, o: 3, kh: 3, kw: 3, padT: 5, padL: 4, padB: 4, padR: 5, sh: 3, sw: 2, dh: 2, dw: 1, groups: 1},
		{n: 1, c: 70, h: 7, w: 7, o: 30, kh: 3, kw: 3, padT: 1, padL: 1, padB: 1, padR: 1, sh: 1, sw: 1, dh: 1, dw: 1, groups: 1},
	}
	onThreads(t, func(t *testing.T) {
		for _, c := range cases {
			c.run(t)
		}
	})
}
