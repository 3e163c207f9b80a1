package cpu

/*
#cgo noescape gtc_take
#cgo nocallback gtc_take
#cgo noescape gtc_scatter_rows
#cgo nocallback gtc_scatter_rows
#cgo noescape gtc_topk
#cgo nocallback gtc_topk
#cgo noescape gtc_scan
#cgo nocallback gtc_scan
#include "index.h"
*/
import "C"
import "unsafe"

func init() {
	templates["Take"] = template{call: Take, workspace: TakeWorkspace, half: asTheyAre}
	templates["ScatterRows"] = template{call: ScatterRows, workspace: ScatterRowsWorkspace, half: asTheyAre}
	templates["TopK"] = template{call: TopK, workspace: TopKWorkspace}
	templates["Scan"] = template{call: Scan, workspace: ScanWorkspace}
}

// Take copies out[o,i] = table[o,idx[i]], rows of rowBytes bytes: table [outer, size], idx [n] of int64, or of int32 when
// idx32 is 1, negative ones counting from the end; out [outer, n]. The result is the position in idx of the first
// index out of range, or -1; when there is one, out is zero. No workspace.
func Take(table, idx, out, ws unsafe.Pointer, outer, size, rowBytes, n, idx32 int) int64 {
	return int64(C.gtc_take(table, idx, out, C.long(outer), C.long(size), C.long(rowBytes), C.long(n), C.long(idx32)))
}

// TakeWorkspace gives the bytes of workspace of Take: 0.
func TakeWorkspace(outer, size, rowBytes, n, idx32 int) int { return 0 }

// How an update of ScatterRows joins the element that is there.
const (
	ScatterSet  = 0 // replaces it; the last update of a row wins
	ScatterAdd  = 1 // is added
	ScatterMul  = 2 // multiplies it
	ScatterMax  = 3 // the greater of the two; NaN wins
	ScatterMin  = 4 // the smaller of the two; NaN wins
	ScatterSame = 5 // replaces it; all updates of a row are equal
)

// ScatterRows copies data [rows, width] to out and joins update i with row idx[i] of it, for i = 0, 1, … n-1 in that
// order: idx int64 [n] (negative counts from the end), upd [n, width], all of the element type that elem codes (any for
// ScatterSet and ScatterSame, else an integer type, ElemF32 or ElemF64). out may be data. The result is the position of the first
// index out of range, or -1; when there is one, out is data unchanged. No workspace.
func ScatterRows(data, idx, upd, out, ws unsafe.Pointer, rows, width, n, elem, how int) int64 {
	return int64(C.gtc_scatter_rows(data, (*C.int64_t)(idx), upd, out, C.long(rows), C.long(width), C.long(n), C.long(elem), C.long(how)))
}

// ScatterRowsWorkspace gives the bytes of workspace of ScatterRows: 0.
func ScatterRowsWorkspace(rows, width, n, elem, how int) int { return 0 }

// TopK finds, in each lane of n elements of x [outer, n, inner], the k greatest (or least, when largest is 0), best
// first: values [outer, k, inner] of x's element type, which elem codes, and at int64, their positions in the lane. Of
// equal elements the earlier comes first; NaN counts as greater than all numbers. k equal to n sorts. No workspace.
func TopK(x, values, at, ws unsafe.Pointer, outer, n, inner, k, largest, elem int) {
	d := C.topk_dims{outer: C.long(outer), n: C.long(n), inner: C.long(inner), k: C.long(k), largest: C.long(largest), elem: C.long(elem)}
	C.gtc_topk(x, values, (*C.int64_t)(at), &d)
}

// TopKWorkspace gives the bytes of workspace of TopK: 0.
func TopKWorkspace(outer, n, inner, k, largest, elem int) int { return 0 }

// Scan gives the running sums (products when product is 1) y of x [outer, n, inner] along n; exclusive 1 leaves out the
// element itself, reverse 1 runs from the end. elem codes an integer type, which wraps, ElemF32 or ElemF64, whose
// totals are kept in double. y may be x. No workspace.
func Scan(x, y, ws unsafe.Pointer, outer, n, inner, elem, product, exclusive, reverse int) {
	d := C.scan_dims{outer: C.long(outer), n: C.long(n), inner: C.long(inner), elem: C.long(elem), product: C.long(product),
		exclusive: C.long(exclusive), reverse: C.long(reverse)}
	C.gtc_scan(x, y, &d)
}

// ScanWorkspace gives the bytes of workspace of Scan: 0.
func ScanWorkspace(outer, n, inner, elem, product, exclusive, reverse int) int { return 0 }
