package cpu

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

func TestXentAgainstLoops(t *testing.T) {
	onThreads(t, func(t *testing.T) {
		for _, classes := range []int{2, 10, 16, 31, 65, 500} {
			for _, weighted := range []bool{false, true} {
				checkXent(t, 77, classes, weighted)
			}
		}
	})
}

func checkXent(t *testing.T, rows, classes int, weighted bool) {
	r := rand.New(rand.NewPCG(7, uint64(classes)))
	x, weight, target := randn(r, rows*classes), randn(r, rows), make([]int64, rows)
	for i := range x {
		x[i] *= 10
	}
	loss, grad := make([]float64, rows), make([]float64, rows*classes)
	for i := range rows {
		if target[i] = int64(r.IntN(classes)); i%5 == 4 {
			target[i] = -100
			continue
		}
		sum, w := 0.0, 1.0
		if weighted {
			w = float64(weight[i])
		}
		row := x[i*classes : (i+1)*classes]
		for _, v := range row {
			sum += math.Exp(float64(v))
		}
		loss[i] = w * (math.Log(sum) - float64(row[target[i]]))
		for j, v := range row {
			grad[i*classes+j] = w * math.Exp(float64(v)) / sum
		}
		grad[i*classes+int(target[i])] -= w
	}
	var wp unsafe.Pointer
	if weighted {
		wp = ptr(weight)
	}
	gl, gg, l2, lse, g2 := make([]float32, rows), filled(rows*classes, 9), make([]float32, rows), make([]float32, rows), filled(rows*classes, 9)
	if bad := XentFwdBwd(ptr(x), ptr(target), wp, ptr(gl), ptr(gg), nil, rows, classes, -100); bad != -1 {
		t.Errorf("classes %d: first bad row %d, want none", classes, bad)
	}
	XentFwd(ptr(x), ptr(target), wp, ptr(l2), ptr(lse), nil, rows, classes, -100)
	XentBwd(ptr(x), ptr(target), wp, ptr(lse), ptr(g2), nil, rows, classes, -100)
	// Losses are differences of numbers near 30: 1e-6 of the norm is what remains of 24 bits.
	near(t, "loss", gl, loss, 1e-6)
	near(t, "loss without gradient", l2, loss, 1e-6)
	near(t, "gradient", gg, grad, 1e-6)
	near(t, "gradient from lse", g2, grad, 1e-5)
}

func TestXentReportsFirstBadRow(t *testing.T) {
	x, target := make([]float32, 4*3), []int64{0, -1, 3, 2}
	loss, grad := make([]float32, 4), make([]float32, 12)
	if bad := XentFwdBwd(ptr(x), ptr(target), nil, ptr(loss), ptr(grad), nil, 4, 3, -1); bad != 2 {
		t.Errorf("with ignoreIndex -1: first bad row %d, want 2", bad)
	}
	if bad := XentFwd(ptr(x), ptr(target), nil, ptr(loss), nil, nil, 4, 3, -100); bad != 1 {
		t.Errorf("with ignoreIndex -100: first bad row %d, want 1", bad)
	}
}

func TestGatherAndScatterRows(t *testing.T) {
	onThreads(t, func(t *testing.T) {
		for _, width := range []int{1, 5, 16, 100, 1500} {
			r := rand.New(rand.NewPCG(8, 9))
			const rows, n = 23, 200
			table, upd, idx := randn(r, rows*width), randn(r, n*width), make([]int64, n)
			out, want, sum, sum64 := make([]float32, n*width), make([]float32, n*width), filled(rows*width, 1), make([]float64, rows*width)
			for i := range idx {
				idx[i] = int64(r.IntN(2*rows) - rows)
				row := (int(idx[i]) + rows) % rows
				copy(want[i*width:], table[row*width:(row+1)*width])
				for j := range width {
					sum64[row*width+j] += float64(upd[i*width+j])
				}
			}
			if bad := GatherRows(ptr(table), ptr(idx), ptr(out), nil, rows, width, n); bad != -1 {
				t.Errorf("gather: first bad index %d, want none", bad)
			}
			near(t, "gather", out, want, 0)
			ScatterAddRows(ptr(idx), ptr(upd), ptr(sum), nil, rows, width, n, 1)
			near(t, "scatter", sum, sum64, 1e-6)
			ScatterAddRows(ptr(idx), ptr(upd), ptr(sum), nil, rows, width, n, 0)
			for i := range sum64 {
				sum64[i] *= 2
			}
			near(t, "scatter into", sum, sum64, 1e-6)
			idx[7], idx[9] = rows, -rows-1
			if bad := GatherRows(ptr(table), ptr(idx), ptr(out), nil, rows, width, n); bad != 7 {
				t.Errorf("gather: first bad index %d, want 7", bad)
			}
			if bad := ScatterAddRows(ptr(idx), ptr(upd), ptr(sum), nil, rows, width, n, 1); bad != 7 {
				t.Errorf("scatter: first bad index %d, want 7", bad)
			}
			near(t, "scatter with a bad index", sum, sum64, 1e-6)
		}
	})
}
