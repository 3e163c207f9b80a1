package cuda_test

import (
	"math"
	"math/rand/v2"
	"slices"
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
		k.Params, k.Work = append(k.Params, kir.Param{DType: dtype.F32, Elems: 1, Out: true}), 64
		k.Insts = append(k.Insts, elem("mul", 1, 1), kir.Inst{Op: "acc", Fn: "sum", DType: dtype.F32, Args: []int{9}, Param: 4, Access: one, Level: kir.PerElem})
	}
	return k
}

// TestMultiTensor updates tensors of many sizes in one launch, and adds up their gradients' squares in two.
func TestMultiTensor(t *testing.T) {
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
				eval(t, k, bufs)
				calls, want = append(calls, c), append(want, bufs)
			}
			key := calls[0].Key()
			if key == "" || calls[4].Key() != key || calls[5].Key() != key {
				t.Fatalf("keys %q, %q, %q", key, calls[4].Key(), calls[5].Key())
			}
			list, work, err := gencuda.MultiTensor("update", calls)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range list {
				var offsets []int
				for _, i := range k.Refs {
					offsets = append(offsets, int(k.Table[i]))
				}
				for _, c := range calls {
					for j, at := range c.At {
						if j != 2 && !slices.Contains(offsets, at) {
							t.Errorf("offset %d is in no entry that %s says to be one", at, k.Name)
						}
					}
				}
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

// TestMultiTensorRefuses: what no launch does together.
func TestMultiTensorRefuses(t *testing.T) {
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

// inOrder runs calls of numbers in one launch on the arena.
func inOrder(t *testing.T, arena []byte, calls ...gencuda.Call) cuda.Kernel {
	t.Helper()
	list, err := gencuda.InOrder("numbers", calls)
	if err != nil {
		t.Fatal(err)
	}
	cudatest.Run(t, &cuda.Plan{Kernels: list}, arena)
	return list[0]
}

// TestInOrder: a number that one kernel makes is read by the next in the same launch.
func TestInOrder(t *testing.T) {
	k := update([]int{1}, false)
	arena := cudatest.Bytes(dtype.F32, 0.5, 0.25, 2, 0, 0, 0)
	first := gencuda.Call{Kernel: k, At: []int{0, 4, 8, 16}}
	second := gencuda.Call{Kernel: k, At: []int{4, 0, 8, 20}} // reads what first has written
	inOrder(t, arena, first, second)
	a := 0.5 - 2*math.Tanh(0.25)
	b := 0.25 - 2*math.Tanh(a)
	if err := differ(cudatest.Numbers(dtype.F32, arena)[:2], []float64{a, b}, dtype.F32); err != nil {
		t.Error(err)
	}
}

// total is the square root of the sum of n numbers of f32, collected in f64, onto the sum so far where more is set; without end
// it is the sum so far.
func total(n int, more, end bool) *kir.Kernel {
	k := &kir.Kernel{Dims: []int{1}, Row: []bool{true}, Chunks: 1}
	a := kir.Access{Strides: []int{0}}
	add := func(in kir.Inst) int {
		k.Insts = append(k.Insts, in)
		return len(k.Insts) - 1
	}
	sum := -1
	for i := range n {
		d := dtype.F32
		if more && i == 0 {
			d = dtype.F64
		}
		k.Params = append(k.Params, kir.Param{DType: d, Elems: 1})
		x := add(kir.Inst{Op: "load", DType: d, Param: i, Access: a})
		if d == dtype.F32 {
			x = add(kir.Inst{Op: "cast", DType: dtype.F64, Args: []int{x}})
		}
		if sum >= 0 {
			x = add(kir.Inst{Op: "add", DType: dtype.F64, Args: []int{sum, x}})
		}
		sum = x
	}
	if end {
		sum = add(kir.Inst{Op: "sqrt", DType: dtype.F64, Args: []int{sum}})
	}
	k.Params = append(k.Params, kir.Param{DType: dtype.F64, Elems: 1, Out: true})
	add(kir.Inst{Op: "store", DType: dtype.F64, Args: []int{sum}, Param: n, Access: a})
	return k
}

// TestInOrderOfAnyLength: the sum of many numbers, in calls that each add some, has the same text for any number of them.
func TestInOrderOfAnyLength(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var text string
	for _, lengths := range [][]int{{5, 4, 3}, {14, 14, 14, 14, 9}, {14, 2, 14, 6, 7, 8, 9}} {
		x := fill(r, dtype.F32, 100)
		arena := append(cudatest.Bytes(dtype.F32, x...), make([]byte, 80)...)
		var calls []gencuda.Call
		sum, next, so := 0.0, 0, 400
		for i, n := range lengths {
			c := gencuda.Call{Kernel: total(n, i > 0, i == len(lengths)-1)}
			for j := range n {
				if i > 0 && j == 0 {
					c.At = append(c.At, so)
					continue
				}
				c.At = append(c.At, 4*next)
				x[next] = math.Abs(x[next])
				sum += x[next]
				next++
			}
			so += 8
			c.At = append(c.At, so)
			calls = append(calls, c)
		}
		copy(arena, cudatest.Bytes(dtype.F32, x...))
		k := inOrder(t, arena, calls...)
		if got := cudatest.Numbers(dtype.F64, arena[so:so+8])[0]; math.Abs(got-math.Sqrt(sum)) > 1e-12 {
			t.Errorf("%v numbers have the root %v, not %v\n%s", lengths, got, math.Sqrt(sum), k.Text)
		}
		if text != "" && k.Text != text {
			t.Errorf("%v numbers have another text than fewer:\n%s\n%s", lengths, k.Text, text)
		}
		text = k.Text
		if n := next + 2*len(lengths) - 1; len(k.Refs) != n {
			t.Errorf("%d entries of the table are offsets, not %d", len(k.Refs), n)
		}
	}
}
