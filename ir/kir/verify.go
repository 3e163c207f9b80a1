package kir

import (
	"fmt"
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Verify checks what every printer relies on: that instructions read earlier values, of the types that their functions take;
// that no access leaves its buffer; that levels and stages are at least what the operands and accesses ask for; that
// what is read is not what the kernel writes in another place or at another time; and that the workspace has room for the
// partial accumulators.
func (k *Kernel) Verify() error {
	if len(k.Row) != len(k.Dims) {
		return fmt.Errorf("there are %d dims, but %d of them say whether they are of a row", len(k.Dims), len(k.Row))
	}
	points := 1
	for d, n := range k.Dims {
		if n < 0 || n > 0 && points > mostElems/n {
			return fmt.Errorf("dim %d has size %d", d, n)
		}
		points *= n
	}
	if k.Chunks < 1 {
		return fmt.Errorf("accumulators have %d chunks, but must have at least 1", k.Chunks)
	}
	for i, p := range k.Params {
		if p.DType == dtype.Invalid || p.Elems < 0 || p.Align < 0 {
			return fmt.Errorf("p%d is %s[%d] align=%d", i, p.DType, p.Elems, p.Align)
		}
	}
	v := verifier{k: k, points: points}
	for n := range k.Insts {
		if err := v.inst(n); err != nil {
			return fmt.Errorf("v%d = %s: %w", n, k.Insts[n].words(), err)
		}
	}
	return v.whole()
}

type verifier struct {
	k      *Kernel
	points int
	work   float64 // bytes that accumulators need
}

func (v *verifier) inst(n int) error {
	in := v.k.Insts[n]
	var types []dtype.DType
	level, stage := Uniform, 0
	for _, a := range in.Args {
		if a < 0 || a >= n {
			return fmt.Errorf("v%d does not come before it", a)
		}
		arg := v.k.Insts[a]
		if arg.Op == "store" || arg.Op == "acc" {
			return fmt.Errorf("v%d is not a value", a)
		}
		level, stage = max(level, arg.Level), max(stage, arg.Stage)
		types = append(types, arg.DType)
	}
	to, args := in.DType, 0
	var err error
	switch in.Op {
	case "load", "index":
		if level, err = max(level, v.levelOf(in.Access)), v.access(in); in.Op == "index" {
			to = dtype.I64
		}
	case "const":
		if whole := in.Value == math.Trunc(in.Value); !in.DType.IsFloat() && !whole || in.DType == dtype.Bool && in.Value != 0 && in.Value != 1 {
			err = fmt.Errorf("the constant is not of type %s", in.DType)
		}
	case "store", "acc", "reduce":
		if args = 1; len(types) == 1 && types[0] != in.DType {
			err = fmt.Errorf("it is %s, but v%d is %s", in.DType, in.Args[0], types[0])
		}
		if err == nil && in.Op != "store" {
			err = v.reduction(in)
		}
		if err == nil && in.Op != "reduce" {
			level, err = max(level, v.levelOf(in.Access)), v.write(in)
		}
		if in.Op == "reduce" {
			level, stage = PerRow, stage+1
		}
	default:
		f := Lookup(in.Op)
		if f == nil {
			return fmt.Errorf("there is no such instruction")
		}
		args = f.Args
		to, err = f.Result(in.DType, types...)
	}
	switch {
	case err != nil:
		return err
	case len(in.Args) != args:
		return fmt.Errorf("it has %d operands, but must have %d", len(in.Args), args)
	case to != in.DType || to == dtype.Invalid:
		return fmt.Errorf("it is %s, not %s", to, in.DType)
	case in.Level < level || in.Level > PerElem || in.Op == "reduce" && in.Level != PerRow:
		return fmt.Errorf("its level is %s at least, not %s", level, in.Level)
	case in.Stage < stage:
		return fmt.Errorf("it comes after %d reductions, not %d", stage, in.Stage)
	}
	return nil
}

// levelOf is over what an access varies.
func (v *verifier) levelOf(a Access) Level {
	l := Uniform
	for d, s := range a.Strides {
		switch {
		case s != 0 && v.k.Row[d]:
			return PerElem
		case s != 0:
			l = PerRow
		}
	}
	return l
}

// access checks the strides of a load, a store, an accumulation or an index, and that it stays in its buffer.
func (v *verifier) access(in Inst) error {
	a := in.Access
	if len(a.Strides) != len(v.k.Dims) {
		return fmt.Errorf("there are %d strides for %d dims", len(a.Strides), len(v.k.Dims))
	}
	if in.Op == "index" {
		return nil
	}
	if in.Param < 0 || in.Param >= len(v.k.Params) {
		return fmt.Errorf("there is no p%d", in.Param)
	}
	par := v.k.Params[in.Param]
	if par.DType != in.DType {
		return fmt.Errorf("it is %s, but p%d is %s", in.DType, in.Param, par.DType)
	}
	if v.points == 0 {
		return nil
	}
	lo, hi := a.Offset, a.Offset
	for d, s := range a.Strides {
		n := v.k.Dims[d] - 1
		if most := mostElems / max(n, 1); s > most || s < -most {
			return fmt.Errorf("a stride is %d, which is out of range", s)
		}
		reach := n * s
		lo, hi = lo+min(reach, 0), hi+max(reach, 0)
	}
	if lo < 0 || hi >= par.Elems {
		return fmt.Errorf("it reaches from element %d to %d of a param with %d elements", lo, hi, par.Elems)
	}
	return nil
}

// write checks the buffer of a store or an accumulation.
func (v *verifier) write(in Inst) error {
	if err := v.access(in); err != nil {
		return err
	}
	par := v.k.Params[in.Param]
	if !par.Out {
		return fmt.Errorf("p%d is not an output", in.Param)
	}
	if in.Op == "store" {
		return nil
	}
	for d, s := range in.Access.Strides {
		if s != 0 && !v.k.Row[d] {
			return fmt.Errorf("it varies over rows, by dim %d", d)
		}
	}
	v.work += float64(v.k.Chunks) * math.Ceil(float64(par.Elems)*float64(AccSize(par.DType))/64) * 64
	return nil
}

func (v *verifier) reduction(in Inst) error {
	if ReductionOf(in.Fn) == nil {
		return fmt.Errorf("there is no reduction %q", in.Fn)
	}
	if in.DType.IsSmallFloat() {
		return fmt.Errorf("nothing is computed with values of type %s", in.DType)
	}
	return nil
}

// whole checks what is true of all instructions together.
func (v *verifier) whole() error {
	if v.work > float64(v.k.Work) {
		return fmt.Errorf("accumulators take %.0f bytes of workspace, but there are %d", v.work, v.k.Work)
	}
	writer, reader, stages := make([]int, len(v.k.Params)), make([]int, len(v.k.Params)), 0 // the last instructions, -1 for none
	for i := range writer {
		writer[i], reader[i] = -1, -1
	}
	for n, in := range v.k.Insts {
		stages = max(stages, in.Stage)
		switch in.Op {
		case "load":
			reader[in.Param] = n
		case "store", "acc":
			if w := writer[in.Param]; w >= 0 {
				return fmt.Errorf("p%d is written by v%d and by v%d", in.Param, w, n)
			}
			writer[in.Param] = n
		}
	}
	for i, p := range v.k.Params {
		r, w := reader[i], writer[i]
		switch {
		case p.Out && w < 0:
			return fmt.Errorf("p%d is an output, but nothing writes it", i)
		case r >= 0 && w >= 0 && (r > w || stages > 0 || v.k.Insts[w].Op == "acc" || !slices.Equal(v.k.Insts[r].Access.Strides, v.k.Insts[w].Access.Strides)):
			return fmt.Errorf("p%d is read by v%d and written by v%d in another order or at another place", i, r, w)
		}
	}
	return nil
}
