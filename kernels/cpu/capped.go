package cpu

/*
#cgo noescape gtc_capped_sum
#cgo nocallback gtc_capped_sum
void gtc_capped_sum(const float *x, float *y, long rows, long n, float cap);
*/
import "C"
import "unsafe"

func init() { templates["CappedSum"] = template{call: CappedSum, workspace: CappedSumWorkspace} }

// CappedSum computes y[rows], the sums of cap*tanh(x/cap) over the rows of x[rows,n]. No workspace.
func CappedSum(x, y, ws unsafe.Pointer, rows, n int, limit float32) {
	C.gtc_capped_sum((*C.float)(x), (*C.float)(y), C.long(rows), C.long(n), C.float(limit))
}

// CappedSumWorkspace gives the bytes of workspace of CappedSum: 0.
func CappedSumWorkspace(rows, n int) int { return 0 }
