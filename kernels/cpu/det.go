package cpu

/*
#cgo noescape gtc_det
#cgo nocallback gtc_det
#cgo noescape gtc_cofactor
#cgo nocallback gtc_cofactor
void gtc_det(const void *x, void *y, long bytes, long batch, long n);
void gtc_cofactor(const void *x, void *y, long bytes, long batch, long n);
*/
import "C"
import "unsafe"

func init() {
	templates["Det"] = template{call: Det, workspace: DetWorkspace}
	templates["Cofactor"] = template{call: Cofactor, workspace: CofactorWorkspace}
}

// Det computes y[batch], the determinants of x[batch,n,n], by elimination with partial pivoting in double precision.
// Elements are float32 or float64, as bytes says: 4 or 8. No workspace.
func Det(x, y, ws unsafe.Pointer, bytes, batch, n int) {
	C.gtc_det(x, y, C.long(bytes), C.long(batch), C.long(n))
}

// DetWorkspace gives the bytes of workspace of Det: 0, since threads keep their own scratch.
func DetWorkspace(bytes, batch, n int) int { return 0 }

// Cofactor computes y[batch,n,n], the cofactors of x[batch,n,n], which are the derivatives of its determinants: det times
// the transposed inverse, or, where det is 0, the signed minors. Elements as in Det. No workspace.
func Cofactor(x, y, ws unsafe.Pointer, bytes, batch, n int) {
	C.gtc_cofactor(x, y, C.long(bytes), C.long(batch), C.long(n))
}

// CofactorWorkspace gives the bytes of workspace of Cofactor: 0.
func CofactorWorkspace(bytes, batch, n int) int { return 0 }
