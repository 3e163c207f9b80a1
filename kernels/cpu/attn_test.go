package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// attnCase is one attention problem; fused puts q, k and v into one [B,S,3,H,D] buffer (needs equal heads and depths).
type attnCase struct {
	batch, heads, kvHeads, sq, sk, d, dv, causal, window int
	mask                                                 string // "", "all" [B,H,Sq,Sk], "keys" [Sk], "dead" masks every key of row 0
	headFirst, fused                                     bool
}

type strides struct{ b, h, s int }

func (c attnCase) strides(heads, seq, d int) strides {
	if c.fused {
		return strides{seq * 3 * heads * d, d, 3 * heads * d}
	}
	if c.headFirst {
		return strides{heads * seq * d, seq * d, d}
	}
	return strides{seq * heads * d, d, heads * d}
}

func (c attnCase) makeMask(r *rand.Rand) (m []float32, mb, mh, mq int) {
	switch c.mask {
	case "all":
		return randn(r, c.batch*c.heads*c.sq*c.sk), c.heads * c.sq * c.sk, c.sq * c.sk, c.sk
	case "keys":
		m = make([]float32, c.sk)
		for j := c.sk / 2; j < c.sk; j += 2 {
			m[j] = float32(math.Inf(-1))
		}
		return m, 0, 0, 0
	case "dead":
		m = make([]float32, c.sq*c.sk)
		for j := range c.sk {
			m[j] = float32(math.Inf(-1))
		}
		return m, 0, 0, c.sk
	}
	return nil, 0, 0, 0
}

// attnRef holds float64 results over the same buffers.
type attnRef struct{ out, lse, dq, dk, dv []float64 }

func at(x []float32, s strides, b, h, i, e int) float64 { return float64(x[b*s.b+h*s.h+i*s.s+e]) }

func (c attnCase) reference(q, k, v, mask, dout []float32, mb, mh, mq int, sq, sk, sv, so strides, scale float64) attnRef {
	r := attnRef{make([]float64, len(dout)), make([]float64, c.batch*c.heads*c.sq), make([]float64, len(q)), make([]float64, len(k)),
		make([]float64, len(v))}
	p, dp := make([]float64, c.sk), make([]float64, c.sk)
	for b := range c.batch {
		for h := range c.heads {
			kv := h / (c.heads / c.kvHeads)
			for i := range c.sq {
				top, sum := math.Inf(-1), 0.0
				for j := range c.sk {
					p[j] = 0
					for e := range c.d {
						p[j] += at(q, sq, b, h, i, e) * at(k, sk, b, kv, j, e)
					}
					p[j] *= scale
					if mask != nil {
						p[j] += float64(mask[b*mb+h*mh+i*mq+j])
					}
					if c.causal > 0 && (j >= i+c.causal || c.window > 0 && j < i+c.causal-c.window) {
						p[j] = math.Inf(-1)
					}
					top = max(top, p[j])
				}
				for j := range p {
					if p[j] = math.Exp(p[j] - top); math.IsInf(top, -1) {
						p[j] = 0
					}
					sum += p[j]
				}
				r.lse[(b*c.heads+h)*c.sq+i] = top + math.Log(sum)
				delta := 0.0
				for j := range p {
					if sum > 0 {
						p[j] /= sum
					}
					dp[j] = 0
					for e := range c.dv {
						g := at(dout, so, b, h, i, e)
						r.out[b*so.b+h*so.h+i*so.s+e] += p[j] * at(v, sv, b, kv, j, e)
						r.dv[b*sv.b+kv*sv.h+j*sv.s+e] += p[j] * g
						dp[j] += g * at(v, sv, b, kv, j, e)
					}
					delta += p[j] * dp[j]
				}
				for j := range p {
					ds := p[j] * (dp[j] - delta) * scale
					for e := range c.d {
						r.dq[b*sq.b+h*sq.h+i*sq.s+e] += ds * at(k, sk, b, kv, j, e)
						r.dk[b*sk.b+kv*sk.h+j*sk.s+e] += ds * at(q, sq, b, h, i, e)
					}
				}
			}
		}
	}
	return r
}

func checkLse(t *testing.T, name string, got []float32, want []float64) {
	t.Helper()
	for i := range got {
		if math.IsInf(want[i], -1) && math.IsInf(float64(got[i]), -1) {
			continue
		}
		if !(math.Abs(float64(got[i])-want[i]) <= 1e-5) {
			t.Errorf("%s lse[%d] = %v, want %v", name, i, got[i], want[i])
			return
		}
	}
}

func (c attnCase) run(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	sq, sk, sv := c.strides(c.heads, c.sq, c.d), c.strides(c.kvHeads, c.sk, c.d), c.strides(c.kvHeads, c.sk, c.dv)
	plain := c
	plain.fused = false
	so := plain.strides(c.heads, c.sq, c.dv)
	var q, k, v []float32
	if c.fused {
		all, hd := randn(r, c.batch*c.sq*3*c.heads*c.d), c.heads*c.d
		q, k, v = all, all[hd:], all[2*hd:]
	} else {
		q, k, v = randn(r, c.batch*c.heads*c.sq*c.d), randn(r, c.batch*c.kvHeads*c.sk*c.d), randn(r, c.batch*c.kvHeads*c.sk*c.dv)
	}
	dout := randn(r, c.batch*c.heads*c.sq*c.dv)
	mask, mb, mh, mq := c.makeMask(r)
	scale := float32(1 / math.Sqrt(float64(c.d)))
	ref := c.reference(q, k, v, mask, dout, mb, mh, mq, sq, sk, sv, so, float64(scale))
	nan := float32(math.NaN())
	out, lse := filled(len(dout), nan), filled(c.batch*c.heads*c.sq, nan)
	var mp unsafe.Pointer
	if mask != nil {
		mp = ptr(mask)
	}
	AttnFwd(ptr(q), ptr(k), ptr(v), mp, ptr(out), ptr(lse), nil, c.batch, c.heads, c.kvHeads, c.sq, c.sk, c.d, c.dv, sq.b, sq.h, sq.s,
		sk.b, sk.h, sk.s, sv.b, sv.h, sv.s, so.b, so.h, so.s, c.causal, c.window, mb, mh, mq, scale)
	name := fmt.Sprintf("%+v ", c)
	near(t, name+"out", out, ref.out, 1e-6)
	checkLse(t, name, lse, ref.lse)
	dq, dk, dv := filled(len(q), 0), filled(len(k), 0), filled(len(v), 0)
	if c.fused {
		all, hd := filled(len(q), nan), c.heads*c.d
		dq, dk, dv = all, all[hd:], all[2*hd:]
	} else {
		copy(dq, filled(len(q), nan))
		copy(dk, filled(len(k), nan))
		copy(dv, filled(len(v), nan))
	}
	AttnBwd(ptr(q), ptr(k), ptr(v), mp, ptr(out), ptr(lse), ptr(dout), ptr(dq), ptr(dk), ptr(dv), nil, c.batch, c.heads, c.kvHeads, c.sq,
		c.sk, c.d, c.dv, sq.b, sq.h, sq.s, sk.b, sk.h, sk.s, sv.b, sv.h, sv.s, so.b, so.h, so.s, c.causal, c.window, mb, mh, mq,
		so.b, so.h, so.s, sq.b, sq.h, sq.s, sk.b, sk.h, sk.s, sv.b, sv.h, sv.s, scale)
	if c.fused { // one buffer holds all three: sum the references into it
		hd := c.heads * c.d
		for i, g := range ref.dk {
			ref.dq[hd+i] += g
		}
		for i, g := range ref.dv {
			ref.dq[2*hd+i] += g
		}
		near(t, name+"dqkv", dq, ref.dq, 1e-5)
		return
	}
	near(t, name+"dq", dq, ref.dq, 1e-5)
	near(t, name+"dk", dk, ref.dk, 1e-5)
	near(t, name+"dv", dv, ref.dv, 1e-5)
}

func TestAttentionAgainstLoops(t *testing.T) {
	cases := []attnCase{
		{batch: 1, heads: 1, kvHeads: 1, sq: 1, sk: 1, d: 1, dv: 1},
		{batch: 2, heads: 4, kvHeads: 4, sq: 64, sk: 64, d: 32, dv: 32, causal: 1, fused: true},
		{batch: 2, heads: 2, kvHeads: 2, sq: 13, sk: 17, d: 5, dv: 7},
		{batch: 2, heads: 3, kvHeads: 1, sq: 30, sk: 30, d: 16, dv: 24, causal: 1, headFirst: true},
		{batch: 1, heads: 4, kvHeads: 2, sq: 50, sk: 300, d: 20, dv: 16, mask: "all"},
		{batch: 1, heads: 2, kvHeads: 2, sq: 300, sk: 300, d: 16, dv: 16, causal: 1, headFirst: true, mask: "keys"},
		{batch: 1, heads: 1, kvHeads: 1, sq: 5, sk: 70, d: 33, dv: 34, causal: 66},
		{batch: 1, heads: 1, kvHeads: 1, sq: 7, sk: 9, d: 4, dv: 4, mask: "dead"},
		{batch: 1, heads: 1, kvHeads: 1, sq: 5, sk: 600, d: 8, dv: 8, causal: 1},
		{batch: 1, heads: 1, kvHeads: 1, sq: 9, sk: 11, d: 300, dv: 280},
		{batch: 1, heads: 2, kvHeads: 1, sq: 600, sk: 620, d: 8, dv: 12, causal: 21, window: 30},
		{batch: 1, heads: 1, kvHeads: 1, sq: 60, sk: 20, d: 8, dv: 8, causal: 1, window: 3},
	}
	onThreads(t, func(t *testing.T) {
		for _, c := range cases {
			c.run(t)
		}
	})
}
