package cuda

import (
	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	templates["XentFwdBwd"] = template{xentTypes(4), func(c Call) (*Plan, error) {
		return xentForward(c, append(operands(c.Types, 3, "logits", "target", "weight", "loss"), nothing("float", "lse"), result(c, 4, "dlogits")), true)
	}}
	templates["XentFwd"] = template{xentTypes(-1), func(c Call) (*Plan, error) {
		p := operands(c.Types, 3, "logits", "target", "weight", "loss", "lse")
		return xentForward(c, append(p, nothing(cType(c.Types, 0), "dlogits")), false)
	}}
}

// xentTypes takes logits, weight and the results of any float type; the gradient, pointer number grad, is of the logits' type.
func xentTypes(grad int) func(types []dtype.DType) bool {
	return func(types []dtype.DType) bool {
		if len(types) != 5 || !isFloat(types[0]) || types[1] != dtype.I64 || grad >= 0 && types[grad] != types[0] {
			return false
		}
		for _, d := range types[2:] {
			if !isFloat(d) && d != dtype.Invalid {
				return false
			}
		}
		return types[3] != dtype.Invalid
	}
}

// nothing is a parameter that gets a null pointer.
func nothing(typ, name string) param { return param{typ, name, Ref{Arg: Nil}} }

// result is the parameter of the call's pointer number i, which the kernel writes.
func result(c Call, i int, name string) param { return param{cType(c.Types, i), name, Ref{Arg: i}} }

// Limits of xent.cuh.
const (
	sharedLimit = 99 << 10 // shared memory of a block on every GPU from sm_80 on
	warpRow     = 512      // classes of a row that one warp keeps in registers
)

// xentForward plans XentFwd and XentFwdBwd. Rows of some hundred classes take a warp each; longer ones a block, whose
// shared memory keeps as much of the row as fits for the gradient: 50,304 classes of 2 bytes do, and two such blocks are
// on an sm_90 multiprocessor at once.
func xentForward(c Call, p []param, grad bool) (*Plan, error) {
	rows, classes, ignore := c.Ints[0], c.Ints[1], c.Ints[2]
	x, w, l, e := cType(c.Types, 0), cType(c.Types, 2), p[3].typ, p[4].typ
	p = append(p, status)
	if classes <= warpRow {
		const threads = 128
		k := kernelOf("xent", "reduction", "xent_warp", threads, p, x, w, l, e, rows, classes, ignore, threads)
		k.Include, k.Grid = []string{"xent.cuh"}, [3]int{divUp(rows, threads/32), 1, 1}
		return &Plan{Kernels: []Kernel{k}}, nil
	}
	vecs, keep := classes*c.Types[0].Size()/16, 0
	threads := xentThreads(vecs)
	if grad {
		keep = min(vecs, sharedLimit/16-32)
	}
	k := kernelOf("xent", "reduction", "xent_block", threads, p, x, w, l, e, classes, ignore, threads, keep)
	k.Include, k.Grid, k.Shared = []string{"xent.cuh"}, [3]int{rows, 1, 1}, 16*keep
	return &Plan{Kernels: []Kernel{k}}, nil
}

// xentThreads gives each thread four accesses of a row at least, so that they are under way together.
func xentThreads(vecs int) int { return min(max(divUp(divUp(vecs, 4), 32)*32, 32), 512) }
