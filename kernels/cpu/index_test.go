package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// number is any type that the templates compute in.
type number interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// small makes n numbers of at most 7, below zero too where T has such.
func small[T number](r *rand.Rand, n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = T(r.IntN(8))
		if r.IntN(2) == 0 {
			out[i] = -out[i]
		}
	}
	return out
}

func eachElem(t *testing.T, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64 func(t *testing.T, elem int)) {
	onThreads(t, func(t *testing.T) {
		for i, f := range []func(t *testing.T, elem int){f32, f64, nil, nil, i8, i16, i32, i64, u8, u16, u32, u64} {
			if f != nil {
				f(t, ElemF32+i)
			}
		}
	})
}

func TestScatterRowsOfEveryType(t *testing.T) {
	eachElem(t, checkScatter[float32], checkScatter[float64], checkScatter[int8], checkScatter[int16], checkScatter[int32],
		checkScatter[int64], checkScatter[uint8], checkScatter[uint16], checkScatter[uint32], checkScatter[uint64])
}

func checkScatter[T number](t *testing.T, elem int) {
	r := rand.New(rand.NewPCG(1, uint64(elem)))
	for _, size := range [][2]int{{1, 40}, {3, 40}, {1500, 40}, {1, 40000}} { // by rows on one thread, by columns, by rows
		const rows = 11
		width, n := size[0], size[1]
		data, upd, idx := small[T](r, rows*width), small[T](r, n*width), make([]int64, n)
		for i := range idx {
			idx[i] = int64(r.IntN(2*rows) - rows)
		}
		for how := ScatterSet; how <= ScatterMin; how++ {
			if how == ScatterMul && n > 40 {
				continue // beyond what floats hold
			}
			want := slices.Clone(data)
			for i, at := range idx {
				for w := range width {
					o, u := &want[(int(at)+rows)%rows*width+w], upd[i*width+w]
					switch how {
					case ScatterSet:
						*o = u
					case ScatterAdd:
						*o += u
					case ScatterMul:
						*o *= u
					case ScatterMax:
						*o = max(*o, u)
					case ScatterMin:
						*o = min(*o, u)
					}
				}
			}
			got := make([]T, len(data))
			bad := ScatterRows(ptr(data), ptr(idx), ptr(upd), ptr(got), nil, rows, width, n, elem, how)
			if bad != -1 || !slices.Equal(got, want) {
				t.Errorf("elem %d, width %d, how %d: status %d, or wrong elements", elem, width, how, bad)
			}
		}
	}
}

func TestScatterRowsRefuses(t *testing.T) {
	data, upd, out := []float32{1, 2, 3}, []float32{7, 8, 9}, make([]float32, 3)
	if bad := ScatterRows(ptr(data), ptr([]int64{2, 3, -4}), ptr(upd), ptr(out), nil, 3, 1, 3, ElemF32, ScatterAdd); bad != 1 {
		t.Errorf("status %d, want 1", bad)
	}
	if !slices.Equal(out, data) {
		t.Errorf("out is %v, want the data unchanged", out)
	}
	nan := float32(math.NaN())
	ScatterRows(ptr(data), ptr([]int64{0, 0, 1}), ptr([]float32{nan, 5, 0}), ptr(out), nil, 3, 1, 3, ElemF32, ScatterMax)
	if out[0] == out[0] || out[1] != 2 || out[2] != 3 {
		t.Errorf("maxima %v, want NaN to win", out)
	}
}

func TestTakeRows(t *testing.T) {
	onThreads(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(2, 2))
		for _, bytes := range []int{1, 2, 4, 8, 12, 6000} {
			const outer, size, n = 3, 7, 50
			table, idx, narrow := make([]byte, outer*size*bytes), make([]int64, n), make([]int32, n)
			for i := range table {
				table[i] = byte(r.Uint32())
			}
			want := make([]byte, outer*n*bytes)
			for i := range idx {
				idx[i] = int64(r.IntN(2*size) - size)
				narrow[i] = int32(idx[i])
				for o := range outer {
					row := (int(idx[i]) + size) % size
					copy(want[(o*n+i)*bytes:], table[(o*size+row)*bytes:][:bytes])
				}
			}
			for idx32, p := range []unsafe.Pointer{ptr(idx), ptr(narrow)} {
				got := make([]byte, len(want))
				if bad := Take(ptr(table), p, ptr(got), nil, outer, size, bytes, n, idx32); bad != -1 || !slices.Equal(got, want) {
					t.Errorf("rows of %d bytes, idx32 %d: status %d or wrong rows", bytes, idx32, bad)
				}
			}
			idx[9], idx[30] = size, -size-1
			if bad := Take(ptr(table), ptr(idx), ptr(want), nil, outer, size, bytes, n, 0); bad != 9 {
				t.Errorf("status %d, want 9", bad)
			}
		}
	})
}

func TestTopKOfEveryType(t *testing.T) {
	eachElem(t, checkTopK[float32], checkTopK[float64], checkTopK[int8], checkTopK[int16], checkTopK[int32],
		checkTopK[int64], checkTopK[uint8], checkTopK[uint16], checkTopK[uint32], checkTopK[uint64])
}

func checkTopK[T number](t *testing.T, elem int) {
	r := rand.New(rand.NewPCG(3, uint64(elem)))
	for _, n := range []int{1, 2, 17, 100} {
		for _, k := range []int{1, n/5 + 1, n} {
			for largest := range 2 {
				const outer, inner = 30, 5
				x := small[T](r, outer*n*inner)
				values, at := make([]T, outer*k*inner), make([]int64, outer*k*inner)
				TopK(ptr(x), ptr(values), ptr(at), nil, outer, n, inner, k, largest, elem)
				for lane := range outer * inner {
					o, w := lane/inner, lane%inner
					order := make([]int, n)
					for i := range order {
						order[i] = i
					}
					v := func(i int) T { return x[(o*n+i)*inner+w] }
					slices.SortStableFunc(order, func(i, j int) int {
						switch {
						case v(i) == v(j):
							return 0
						case v(i) > v(j) == (largest == 1):
							return -1
						}
						return 1
					})
					for j := range k {
						if p := (o*k+j)*inner + w; at[p] != int64(order[j]) || values[p] != v(order[j]) {
							t.Fatalf("elem %d, %d of %d, largest %d: place %d is %v at %d, want %v at %d", elem, k, n, largest, j, values[p], at[p],
								v(order[j]), order[j])
						}
					}
				}
			}
		}
	}
}

// NaN is greater than infinity, both zeros are equal, and half precision has the same order.
func TestTopKOfSpecialFloats(t *testing.T) {
	nan, inf, zero := float32(math.NaN()), float32(math.Inf(1)), float32(0)
	x := []float32{1, -inf, nan, -zero, inf, 0, -2}
	want := []int64{2, 4, 0, 3, 5, 6, 1}
	half := []uint16{0x3c00, 0xfc00, 0x7e00, 0x8000, 0x7c00, 0, 0xc000}
	brain := []uint16{0x3f80, 0xff80, 0x7fc0, 0x8000, 0x7f80, 0, 0xc000}
	values, at := make([]uint64, 7), make([]int64, 7)
	for elem, p := range map[int]unsafe.Pointer{ElemF32: ptr(x), ElemF16: ptr(half), ElemBF16: ptr(brain)} {
		if TopK(p, ptr(values), ptr(at), nil, 1, 7, 1, 7, 1, elem); !slices.Equal(at, want) {
			t.Errorf("elem %d: falling order %v, want %v", elem, at, want)
		}
		if TopK(p, ptr(values), ptr(at), nil, 1, 7, 1, 7, 0, elem); at[0] != 1 || at[2] != 3 || at[6] != 2 {
			t.Errorf("elem %d: rising order %v", elem, at)
		}
	}
}

func TestScanOfEveryType(t *testing.T) {
	eachElem(t, checkScan[float32], checkScan[float64], checkScan[int8], checkScan[int16], checkScan[int32],
		checkScan[int64], checkScan[uint8], checkScan[uint16], checkScan[uint32], checkScan[uint64])
}

func checkScan[T number](t *testing.T, elem int) {
	r := rand.New(rand.NewPCG(4, uint64(elem)))
	const outer, n = 60, 9
	for _, inner := range []int{1, 70} {
		x := small[T](r, outer*n*inner)
		for mode := range 8 {
			product, exclusive, reverse := mode&1, mode>>1&1, mode>>2
			want, got := make([]T, len(x)), make([]T, len(x))
			for lane := range outer * inner {
				acc := T(product)
				for i := range n {
					if reverse == 1 {
						i = n - 1 - i
					}
					p, before := (lane/inner*n+i)*inner+lane%inner, acc
					if product == 1 {
						acc *= x[p]
					} else {
						acc += x[p]
					}
					if want[p] = acc; exclusive == 1 {
						want[p] = before
					}
				}
			}
			Scan(ptr(x), ptr(got), nil, outer, n, inner, elem, product, exclusive, reverse)
			if !slices.Equal(got, want) {
				t.Errorf("elem %d, inner %d, product %d, exclusive %d, reverse %d: wrong", elem, inner, product, exclusive, reverse)
			}
		}
	}
}

func TestGemmOfEveryType(t *testing.T) {
	eachElem(t, checkGemmAny[float32], checkGemmAny[float64], checkGemmAny[int8], checkGemmAny[int16], checkGemmAny[int32],
		checkGemmAny[int64], checkGemmAny[uint8], checkGemmAny[uint16], checkGemmAny[uint32], checkGemmAny[uint64])
}

func checkGemmAny[T number](t *testing.T, elem int) {
	r := rand.New(rand.NewPCG(5, uint64(elem)))
	const batch, m, n, k = 2, 7, 300, 11
	a, b, bias := small[T](r, batch*m*k), small[T](r, batch*n*k), small[T](r, n)
	for mode := range 8 {
		transA, transB, with := mode&1, mode>>1&1, mode>>2
		want, got := make([]T, batch*m*n), make([]T, batch*m*n)
		for e := range want {
			s, i, j := e/(m*n), e/n%m, e%n
			for l := range k {
				p, q := i*k+l, l*n+j
				if transA == 1 {
					p = l*m + i
				}
				if transB == 1 {
					q = j*k + l
				}
				want[e] += a[s*m*k+p] * b[s*n*k+q]
			}
			if with == 1 {
				want[e] += bias[j]
			}
		}
		p := unsafe.Pointer(nil)
		if with == 1 {
			p = ptr(bias)
		}
		GemmAny(ptr(a), ptr(b), p, ptr(got), nil, batch, m, n, k, transA, transB, m*k, n*k, m*n, elem)
		if !slices.Equal(got, want) {
			t.Errorf("elem %d, transA %d, transB %d, bias %d: wrong product", elem, transA, transB, with)
		}
	}
}

// New rows that take the place of old ones touch no others, on any number of threads, and equal updates of a row are one.
func TestScatterRowsSameInPlace(t *testing.T) {
	onThreads(t, func(t *testing.T) {
		const rows, width, n = 5000, 16, 600
		r := rand.New(rand.NewPCG(3, 4))
		data, upd, idx := small[float32](r, rows*width), make([]float32, n*width), make([]int64, n)
		want := slices.Clone(data)
		for i := range idx {
			at := r.IntN(rows) / 7
			idx[i] = int64(at)
			if i%2 == 1 {
				idx[i] -= rows
			}
			for w := range width {
				upd[i*width+w] = float32(at*width + w)
				want[at*width+w] = float32(at*width + w)
			}
		}
		if bad := ScatterRows(ptr(data), ptr(idx), ptr(upd), ptr(data), nil, rows, width, n, ElemF32, ScatterSame); bad != -1 || !slices.Equal(data, want) {
			t.Errorf("status %d, or wrong rows", bad)
		}
	})
}
