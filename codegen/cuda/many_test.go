package cuda_test

import (
	"math"
	"math/rand/v2"
	"testing"

	gencuda "github.com/gtc-compiler/gtc/codegen/cuda"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/kernels/cuda/cudatest"
)

// update is p - s*tanh(g) of tensors of dims, in place and as bf16, with the sum of g*g when sum is set.
func update(dims []int, sum bool) *kir.Kernel {
	k := &kir.Kernel{Dims: dims, Row: make([]bool, len(dims)), Chunks: 1}
	n := 1
	a := kir.Access{Strides: make([]int, len(dims))}
	for d := len(dims) - 1; d >= 0; d-- {
		k.Row[d] = d == len(dims)-1
		a.Strides[d] = n
		n *= dims[d]
	}
	one := kir.Access{Strides: make([]int, len(dims))}
	k.Params = []kir.Param{{DType: dtype.F32, Elems: n, Out: true}, {DType: dtype.F32, Elems: n}, {DType: dtype.F32, Elems: 1}, {DType: dtype.BF16, Elems: n, Out: true}}
	elem := func(op string, args ...int) kir.Inst {
		return kir.Inst{Op: op, DType: dtype.F32, Args: args, Level: kir.PerElem}
	}
	k.Insts = []kir.Inst{
		{Op: "load", DType: dtype.F32, Param: 0, Access: a, Level: kir.PerElem}, {Op: "load", DType: dtype.F32, Param: 1, Access: a, Level: kir.PerElem},
		{Op: "load", DType: dtype.F32, Param: 2, Access: one}, elem("tanh", 1), elem("mul", 2, 3), elem("sub", 0, 4),
		{Op: "store", DType: dtype.F32, Args: []int{5}, Param: 0, Access: a, Level: kir.PerElem},
		{Op: "cast", DType: dtype.BF16, Args: []int{5}, Level: kir.PerElem},
		{Op: "store", DType: dtype.BF16, Args: []int{7}, Param: 3, Access: a, Level: kir.PerElem},
	}
	if sum {
		k.Params = append(k.Params, kir.Param{DType: dtype.F32, Elems: 1, Out: true})
		k.Insts = append(k.Insts, elem("mul", 1, 1), kir.Inst{Op: "acc", Fn: "sum", DType: dtype.F32, Args: []int{9}, Param: 4, Access: one, Level: kir.PerElem})
	}
	return k
}

// TestMany updates tensors of many sizes in one launch, and adds up their gradients' squares in two.
func TestMany(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, sum := range []bool{false, true} {
		for _, odd := range []int{0, 4} { // bytes by which the tensors are not aligned
			var calls []gencuda.Call
			var want [][][]float64
			arena := make([]byte, 0, 1<<20)
			scale := fill(r, dtype.F32, 1)
			place := func(d dtype.DType, x []float64, odd int) int {
				for len(arena)%64 != odd {
					arena = append(arena, 0)
				}
				arena = append(arena, cudatest.Bytes(d, x...)...)
				return len(arena) - len(x)*d.Size()
			}
			for _, dims := range [][]int{{7}, {64, 33}, {5000}, {3, 4, 1025}, {2}, {8192}} {
				k := update(dims, sum)
				c := gencuda.Call{Kernel: k}
				var bufs [][]float64
				for j, p := range k.Params {
					x := fill(r, p.DType, p.Elems)
					if j == 2 {
						x = scale
						c.At = append(c.At, 0)
					} else {
						c.At = append(c.At, place(p.DType, x, odd))
					}
					bufs = append(bufs, x)
				}
				eval(k, bufs)
				calls, want = append(calls, c), append(want, bufs)
			}
			key := calls[0].Key()
			if key == "" || calls[4].Key() != key || calls[5].Key() != key {
				t.Fatalf("keys %q, %q, %q", key, calls[4].Key(), calls[5].Key())
			}
			list, work, err := gencuda.Many("update", calls)
			if err != nil {
				t.Fatal(err)
			}
			cudatest.Run(t, &cuda.Plan{Kernels: list, Workspace: work}, arena, nil, cudatest.Bytes(dtype.F32, scale...), nil, nil)
			for i, c := range calls {
				for j, p := range c.Kernel.Params {
					if j == 2 {
						continue
					}
					got := cudatest.Numbers(p.DType, arena[c.At[j]:c.At[j]+p.Elems*p.DType.Size()])
					if err := differ(got, want[i][j], p.DType); err != nil {
						t.Errorf("sum %v odd %d tensor %d param %d: %v\n%s", sum, odd, i, j, err, list[0].Text)
					}
				}
			}
		}
	}
}

// TestManyRefuses: what no launch does together.
func TestManyRefuses(t *testing.T) {
	at := []int{0, 64, 128, 192, 256}
	key := func(k *kir.Kernel) string { return gencuda.Call{Kernel: k, At: at}.Key() }
	a := key(update([]int{64}, false))
	other := update([]int{64}, false)
	other.Insts[3].Op = "exp"
	turned := update([]int{8, 8}, false)
	turned.Insts[1].Access.Strides = []int{1, 8}
	rows := update([]int{8, 8}, false)
	rows.Insts[3] = kir.Inst{Op: "reduce", Fn: "sum", DType: dtype.F32, Args: []int{1}, Level: kir.PerRow, Stage: 1}
	if a == "" || key(other) == a || key(turned) != "" || key(rows) != "" || key(update([]int{1}, false)) != gencuda.Scalars || key(update([]int{1}, true)) != "" {
		t.Error("a key is wrong")
	}
}

// TestInOrder: a number that one kernel makes is read by the next in the same launch.
func TestInOrder(t *testing.T) {
	k := update([]int{1}, false)
	arena := cudatest.Bytes(dtype.F32, 0.5, 0.25, 2, 0, 0, 0)
	first := gencuda.Call{Kernel: k, At: []int{0, 4, 8, 16}}
	second := gencuda.Call{Kernel: k, At: []int{4, 0, 8, 20}} // reads what first has written
	list, at, err := gencuda.InOrder("numbers", []gencuda.Call{first, second})
	if err != nil {
		t.Fatal(err)
	}
	k0 := list[0]
	for i, r := range k0.Args {
		k0.Args[i] = cuda.Ref{Arg: 0, Offset: at[r.Arg]}
	}
	cudatest.Run(t, &cuda.Plan{Kernels: list}, arena)
	a := 0.5 - 2*math.Tanh(0.25)
	b := 0.25 - 2*math.Tanh(a)
	if err := differ(cudatest.Numbers(dtype.F32, arena)[:2], []float64{a, b}, dtype.F32); err != nil {
		t.Error(err)
	}
}
