package cuda

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	templates["AttnFwd"] = template{attnTypes(6, 0), attnForward}
	templates["AttnBwd"] = template{attnTypes(10, 0), attnBackward}
	templates["AttnFwdDropout"] = template{attnTypes(6, 2), attnForward}
	templates["AttnBwdDropout"] = template{attnTypes(10, 2), attnBackward}
}

// attnTypes takes n operands and results of one float type, a mask (or none) of any, and log-sum-exps of float32; for
// dropout, int64 behind them: the step's counter and a number for each head.
func attnTypes(n, dropout int) func(types []dtype.DType) bool {
	return func(types []dtype.DType) bool {
		if len(types) != n+dropout || !isFloat(types[0]) {
			return false
		}
		for i, d := range types {
			switch {
			case i >= n:
				if d != dtype.I64 {
					return false
				}
			case i == 3:
				if !isFloat(d) && d != dtype.Invalid {
					return false
				}
			case i == 5:
				if d != dtype.F32 && (d != dtype.Invalid || n > 6) {
					return false
				}
			case d != types[0]:
				return false
			}
		}
		return true
	}
}

// attnShape is an attention problem: kernels/cpu's integers of AttnFwd and AttnBwd by name, and for dropout's forms, which have
// two pointers, one integer and one float more, the seed and the probability of zero.
type attnShape struct {
	batch, heads, kvHeads, sq, sk, d, dv int
	q, k, v, out                         [3]int // strides of batch, head and sequence
	causal, window                       int
	mask                                 [3]int
	dout, dq, dk, dvGrad                 [3]int // backward only
	scale                                float32
	masked, half                         bool
	element                              string // its name in gtc.cuh
	p                                    float64
	seed                                 int
}

func attnShapeOf(c Call) (attnShape, error) {
	backward, dropout := strings.HasPrefix(c.Name, "AttnBwd"), strings.HasSuffix(c.Name, "Dropout")
	n, floats := 24, 1
	if backward {
		n += 12
	}
	if dropout {
		n, floats = n+1, 2
	}
	if len(c.Ints) != n || len(c.Floats) != floats {
		return attnShape{}, fmt.Errorf("BUG: template %s is called with %d integers and %d floats", c.Name, len(c.Ints), len(c.Floats))
	}
	x, at := c.Ints, 7
	three := func() [3]int {
		at += 3
		return [3]int(x[at-3:])
	}
	s := attnShape{batch: x[0], heads: x[1], kvHeads: x[2], sq: x[3], sk: x[4], d: x[5], dv: x[6], scale: float32(c.Floats[0]),
		masked: c.Types[3] != dtype.Invalid, half: c.Types[0] != dtype.F32, element: cType(c.Types, 0)}
	s.q, s.k, s.v, s.out = three(), three(), three(), three()
	s.causal, s.window = x[at], x[at+1]
	at += 2
	if s.mask = three(); backward {
		s.dout, s.dq, s.dk, s.dvGrad = three(), three(), three(), three()
	}
	if dropout {
		s.seed, s.p = x[at], c.Floats[1]
	}
	return s, nil
}

// tensor reports whether the kernels for tensor cores take the shape: half precision, depths of up to 256, and pieces of 16 bytes.
func (s attnShape) tensor() bool {
	all := slices.Concat([]int{s.d, s.dv}, s.q[:], s.k[:], s.v[:], s.out[:], s.dout[:], s.dq[:], s.dk[:], s.dvGrad[:])
	return s.half && s.d <= 256 && s.dv <= 256 && !slices.ContainsFunc(all, func(n int) bool { return n%8 != 0 })
}

// first reports whether scores are scaled before their maximum is taken.
func (s attnShape) first() bool { return s.masked || !(s.scale > 0) }

// sizes writes attn_sizes, strides attn_strides.
func (s attnShape) sizes() string {
	return fmt.Sprintf("gtc::attn_sizes<%d, %d, %d, %d, %d, %d, %d, %d, %#xu>", s.heads, s.kvHeads, s.sq, s.sk, s.d, s.dv, s.causal, s.window, math.Float32bits(s.scale))
}

// dropout writes attn_dropout. A number r of 24 bits, r/2^24 in [0,1), is kept from p on.
func (s attnShape) dropout() string {
	if s.p == 0 {
		return "gtc::attn_dropout<0, 0, 0, 0, 0, 0>"
	}
	word := func(n int) uint64 { // of the seed of a hash, as in ir/ops
		z := uint64(4*s.seed+n)*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return (z ^ z>>31) >> 33
	}
	return fmt.Sprintf("gtc::attn_dropout<%d, %#xu, %#xu, %#xu, %#xu, %#xu>", int(math.Ceil(s.p*(1<<24))), math.Float32bits(float32(1/(1-s.p))),
		word(0), word(1), word(2), word(3))
}

// dice are the parameters of dropout, pointers from number `from` on; null without.
func (s attnShape) dice(from int) []param {
	p := []param{nothing("const gtc::i64", "counter"), nothing("const gtc::i64", "numbers")}
	if s.p > 0 {
		p[0].ref, p[1].ref = Ref{Arg: from}, Ref{Arg: from + 1}
	}
	return p
}

func attnStrides(s [3]int) string {
	return fmt.Sprintf("gtc::attn_strides<%d, %d, %d>", s[0], s[1], s[2])
}

// pitch is tile_pitch of attn.cuh for a depth.
func attnPitch(d int) int { return divUp(d, 32) * 32 }

// blocks sets a kernel's grid and shared memory.
func attnLaunch(k Kernel, blocks, shared int, include string) Kernel {
	k.Grid, k.Shared, k.Include = [3]int{blocks, 1, 1}, shared, []string{include}
	return k
}

// Of attn_simt.cuh: rows of a tile, columns of a chunk, threads, and shared memory in bytes.
const (
	simtTile    = 64
	simtChunk   = 128
	simtThreads = 256
	simtShared  = 4 * (2*32*(simtTile+4) + simtTile*(simtTile+4) + simtTile*(simtChunk+4))
)

// attnTile is how a kernel for tensor cores is cut: warps of 16*rows rows each, and the rows of a step of its loop.
type attnTile struct{ warps, rows, step, stages int }

func (t attnTile) height() int { return 16 * t.warps * t.rows }

// forwardTile gives a warp 32 queries where registers hold their output (32 of depth 128 are 128 of a thread's 255), for half the reads
// of keys and values from shared memory: with 16, these bound the speed. Above, 16, and one tile of keys at a time for its size.
func (s attnShape) forwardTile() attnTile {
	switch {
	case s.p > 0:
		return attnTile{4, 1, 32, 2} // hashes are most of the work, and few are written out
	case max(s.d, s.dv) > 128:
		return attnTile{min(8, max(4, divUp(s.sq, 16))), 1, 64, 1}
	case s.sq <= 64:
		return attnTile{4, 1, 64, 2}
	}
	return attnTile{4, 2, 64, 2}
}

func attnForward(c Call) (*Plan, error) {
	s, err := attnShapeOf(c)
	if err != nil || s.batch*s.heads*s.sq == 0 {
		return &Plan{}, err
	}
	p := append(operands(c.Types, 4, "q", "k", "v", "mask", "out", "lse"), s.dice(6)...)
	args := []any{s.element, s.sizes(), s.dropout(), attnStrides(s.q), attnStrides(s.k), attnStrides(s.v), attnStrides(s.out), attnStrides(s.mask)}
	if !s.tensor() {
		k := kernelOf("attention", "attention", "attn_simt_fwd", simtThreads, p, args...)
		return &Plan{Kernels: []Kernel{attnLaunch(k, divUp(s.sq, simtTile)*s.heads*s.batch*divUp(s.dv, simtChunk), simtShared, "attn_simt.cuh")}}, nil
	}
	t := s.forwardTile()
	k := kernelOf("attention", "attention", "attn_fwd", 32*t.warps, p, append(args, t.warps, t.rows, t.step, t.stages, s.first())...)
	shared := 2 * (t.height()*max(attnPitch(s.d), attnPitch(s.dv)) + t.stages*t.step*(attnPitch(s.d)+attnPitch(s.dv)))
	return &Plan{Kernels: []Kernel{attnLaunch(k, divUp(s.sq, t.height())*s.heads*s.batch, shared, "attn_fwd.cuh")}}, nil
}

// queryTile and keyTile are the cuts of attn_bwd_queries and attn_bwd_keys, by what registers hold.
func (s attnShape) queryTile() attnTile {
	switch most := max(s.d, s.dv); {
	case most > 128 || s.p > 0:
		return attnTile{4, 1, 32, 2}
	case s.sq <= 64:
		return attnTile{4, 1, 32, 2}
	case most > 64 || s.first():
		return attnTile{4, 2, 32, 2}
	}
	return attnTile{4, 2, 64, 2}
}

func (s attnShape) keyTile() attnTile {
	switch most := max(s.d, s.dv); {
	case most > 128 || most > 96 && s.first() || s.p > 0:
		return attnTile{4, 1, 32, 2}
	case most > 64 || s.sk <= 64:
		return attnTile{4, 1, 64, 2}
	}
	return attnTile{4, 2, 32, 2}
}

// attnBackward plans the pass over rows of out, the pass for dq, and that for dk and dv, in two where registers do not hold both.
func attnBackward(c Call) (*Plan, error) {
	s, err := attnShapeOf(c)
	if err != nil || s.batch*s.heads == 0 {
		return &Plan{}, err
	}
	p := operands(c.Types, 7, "q", "k", "v", "mask", "out", "lse", "dout", "dq", "dk", "dv")
	stats := param{"float", "stats", Ref{Arg: Workspace}}
	height := divUp(s.sq, 128) * 128 // attn_height
	plan := &Plan{Workspace: 8 * s.batch * s.heads * height}
	k := kernelOf("attention_stats", "attention", "attn_stats", 256, []param{p[4], p[5], p[6], stats}, s.element, s.sizes(), attnStrides(s.out), attnStrides(s.dout), s.tensor())
	plan.Add(attnLaunch(k, s.batch*s.heads*height/8, 0, "attn_bwd.cuh"))
	stats.typ = "const float"
	in := append([]param{p[0], p[1], p[2], p[3], p[6], stats}, s.dice(10)...)
	args := []any{s.element, s.sizes(), s.dropout(), attnStrides(s.q), attnStrides(s.k), attnStrides(s.v), attnStrides(s.dout)}
	toQ, toKV := slices.Concat(in, p[7:8]), slices.Concat(in, p[8:])
	argsQ := slices.Concat(args, []any{attnStrides(s.dq), attnStrides(s.mask)})
	argsKV := slices.Concat(args, []any{attnStrides(s.dk), attnStrides(s.dvGrad), attnStrides(s.mask)})
	if !s.tensor() {
		k := kernelOf("attention_dq", "attention", "attn_simt_bwd_queries", simtThreads, toQ, argsQ...)
		plan.Add(attnLaunch(k, divUp(s.sq, simtTile)*s.heads*s.batch*divUp(s.d, simtChunk), simtShared, "attn_simt.cuh"))
		k = kernelOf("attention_dkv", "attention", "attn_simt_bwd_keys", simtThreads, toKV, argsKV...)
		plan.Add(attnLaunch(k, divUp(s.sk, simtTile)*s.kvHeads*s.batch*divUp(max(s.d, s.dv), simtChunk), simtShared, "attn_simt.cuh"))
		return plan, nil
	}
	both := attnPitch(s.d) + attnPitch(s.dv)
	t := s.queryTile()
	k = kernelOf("attention_dq", "attention", "attn_bwd_queries", 32*t.warps, toQ, append(argsQ, t.warps, t.rows, t.step, t.stages, s.first())...)
	plan.Add(attnLaunch(k, divUp(s.sq, t.height())*s.heads*s.batch, 2*(t.height()+t.stages*t.step)*both, "attn_bwd.cuh"))
	t = s.keyTile()
	for _, want := range s.keyPasses() {
		k = kernelOf("attention_dkv", "attention", "attn_bwd_keys", 32*t.warps, toKV, slices.Concat(argsKV, []any{t.warps, t.rows, t.step, want[0], want[1], s.first()})...)
		plan.Add(attnLaunch(k, divUp(s.sk, t.height())*s.kvHeads*s.batch, 2*(t.height()+t.stages*t.step)*both+8*t.stages*t.step, "attn_bwd.cuh"))
	}
	return plan, nil
}

// keyPasses says which of dk and dv each run of attn_bwd_keys makes.
func (s attnShape) keyPasses() [][2]bool {
	if most := max(s.d, s.dv); most > 128 || most > 64 && s.p > 0 {
		return [][2]bool{{true, false}, {false, true}}
	}
	return [][2]bool{{true, true}}
}
