package cuda_test

import (
	"math"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// eval is what k does to buffers, which hold values of the params' types: instruction by instruction over the whole space, in
// float64 with loads and stores of the right types. Only operations that the tests use are there.
func eval(k *kir.Kernel, bufs [][]float64) {
	n := k.Rows() * k.RowElems()
	idx := points(k.Dims)
	row := make([]int, n) // number of each point's row
	for p := range n {
		for d, size := range k.Dims {
			if !k.Row[d] {
				row[p] = row[p]*size + idx[p][d]
			}
		}
	}
	vals := make([][]float64, len(k.Insts))
	for i, in := range k.Insts {
		v := make([]float64, n)
		arg := func(a, p int) float64 { return vals[in.Args[a]][p] }
		switch in.Op {
		case "load":
			for p := range v {
				v[p] = bufs[in.Param][position(in.Access, idx[p])]
			}
		case "index":
			for p := range v {
				v[p] = float64(position(in.Access, idx[p]))
			}
		case "store":
			for p := range v {
				bufs[in.Param][position(in.Access, idx[p])] = in.DType.Round(arg(0, p))
			}
		case "reduce":
			sums := make([]float64, k.Rows())
			for r := range sums {
				sums[r] = identity(in.Fn)
			}
			for p := range v {
				sums[row[p]] = combine(in.Fn, sums[row[p]], arg(0, p))
			}
			for p := range v {
				v[p] = sums[row[p]]
			}
		case "acc":
			out := bufs[in.Param]
			for j := range out {
				out[j] = identity(in.Fn)
			}
			for p := range v {
				j := position(in.Access, idx[p])
				out[j] = combine(in.Fn, out[j], arg(0, p))
			}
			for j := range out {
				out[j] = in.DType.Round(out[j])
			}
		default:
			for p := range v {
				args := make([]float64, len(in.Args))
				for a := range args {
					args[a] = arg(a, p)
				}
				v[p] = apply(in, args)
			}
		}
		vals[i] = v
	}
}

func points(dims []int) [][]int {
	out := [][]int{{}}
	for _, n := range dims {
		var next [][]int
		for _, p := range out {
			for i := range n {
				next = append(next, append(append(make([]int, 0, len(dims)), p...), i))
			}
		}
		out = next
	}
	return out
}

func position(a kir.Access, idx []int) int {
	at := a.Offset
	for d, s := range a.Strides {
		at += s * idx[d]
	}
	return at
}

func identity(fn string) float64 {
	return map[string]float64{"sum": 0, "prod": 1, "max": math.Inf(-1), "min": math.Inf(1)}[fn]
}

func combine(fn string, a, b float64) float64 {
	switch fn {
	case "sum":
		return a + b
	case "prod":
		return a * b
	case "max":
		return math.Max(a, b) // NaN when either is
	}
	return math.Min(a, b)
}

func apply(in kir.Inst, x []float64) float64 {
	switch in.Op {
	case "const":
		return in.Value
	case "cast":
		if in.DType.IsInt() {
			return math.Trunc(x[0])
		}
		if in.DType == dtype.Bool {
			return truth(x[0] != 0)
		}
		return in.DType.Round(x[0])
	case "add":
		return x[0] + x[1]
	case "sub":
		return x[0] - x[1]
	case "mul":
		return x[0] * x[1]
	case "max", "min":
		return combine(in.Op, x[0], x[1])
	case "tanh":
		return math.Tanh(x[0])
	case "exp":
		return math.Exp(x[0])
	case "neg":
		return -x[0]
	case "lt":
		return truth(x[0] < x[1])
	case "select":
		if x[0] != 0 {
			return x[1]
		}
		return x[2]
	}
	panic("no " + in.Op)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
