package cpu

/*
#cgo noescape gtc_gather_rows
#cgo nocallback gtc_gather_rows
#cgo noescape gtc_scatter_add_rows
#cgo nocallback gtc_scatter_add_rows
#include <stdint.h>
int64_t gtc_gather_rows(const float *table, const int64_t *idx, float *out, long rows, long width, long n);
int64_t gtc_scatter_add_rows(const int64_t *idx, const float *upd, float *out, long rows, long width, long n, long zero);
*/
import "C"
import "unsafe"

func init() {
	templates["GatherRows"] = template{call: GatherRows, workspace: GatherRowsWorkspace, half: asTheyAre}
	templates["ScatterAddRows"] = template{call: ScatterAddRows, workspace: ScatterAddRowsWorkspace}
}

// GatherRows copies out[i] = table[idx[i]] for i in [0, n): table [rows, width] and out [n, width] of any 4-byte type,
// idx int64 [n], negative indices counting from the end. The result is the position in idx of the first index out of
// range, or -1; such rows become zero. No workspace.
func GatherRows(table, idx, out, ws unsafe.Pointer, rows, width, n int) int64 {
	return int64(C.gtc_gather_rows((*C.float)(table), (*C.int64_t)(idx), (*C.float)(out), C.long(rows), C.long(width), C.long(n)))
}

// GatherRowsWorkspace gives the bytes of workspace of GatherRows: 0.
func GatherRowsWorkspace(rows, width, n int) int { return 0 }

// ScatterAddRows adds out[idx[i]] += upd[i] for i = 0, 1, … n-1 in that order, so the sums are the same on every run and
// thread count: idx int64 [n] (negative counts from the end), upd float32 [n, width], out float32 [rows, width], set to 0
// first when zero is 1. The result is the position of the first index out of range, or -1; when there is one, out is left
// as it was. No workspace.
func ScatterAddRows(idx, upd, out, ws unsafe.Pointer, rows, width, n, zero int) int64 {
	return int64(C.gtc_scatter_add_rows((*C.int64_t)(idx), (*C.float)(upd), (*C.float)(out), C.long(rows), C.long(width), C.long(n),
		C.long(zero)))
}

// ScatterAddRowsWorkspace gives the bytes of workspace of ScatterAddRows: 0.
func ScatterAddRowsWorkspace(rows, width, n, zero int) int { return 0 }
