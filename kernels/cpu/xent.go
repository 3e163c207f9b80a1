package cpu

/*
#cgo noescape gtc_xent
#cgo nocallback gtc_xent
#cgo noescape gtc_xent_bwd
#cgo nocallback gtc_xent_bwd
#include <stdint.h>
int64_t gtc_xent(const float *logits, const int64_t *target, const float *weight, float *loss, float *lse, float *dlogits, long rows,
		 long classes, int64_t ignore);
void gtc_xent_bwd(const float *logits, const int64_t *target, const float *weight, const float *lse, float *dlogits, long rows, long classes,
		  int64_t ignore);
*/
import "C"
import "unsafe"

func init() {
	templates["XentFwd"] = template{call: XentFwd, workspace: XentFwdWorkspace}
	templates["XentBwd"] = template{call: XentBwd, workspace: XentBwdWorkspace}
	templates["XentFwdBwd"] = template{call: XentFwdBwd, workspace: XentFwdBwdWorkspace}
}

// XentFwdBwd computes the softmax cross entropy of each row and its gradient in one go.
//
// logits is float32 [rows, classes], target int64 [rows], weight float32 [rows] or nil (all ones). With w = weight[i] and
// t = target[i]: lossRow[i] = w (logsumexp(logits[i]) - logits[i][t]) and dlogits[i] = w (softmax(logits[i]) - onehot(t));
// both are 0 where t is ignoreIndex. Dividing by a count is the caller's, through weight. dlogits may be logits.
//
// The result is the index of the first row whose target is neither ignoreIndex nor in [0, classes), or -1; such rows are
// treated as ignored. No workspace.
func XentFwdBwd(logits, target, weight, lossRow, dlogits, ws unsafe.Pointer, rows, classes, ignoreIndex int) int64 {
	return int64(C.gtc_xent((*C.float)(logits), (*C.int64_t)(target), (*C.float)(weight), (*C.float)(lossRow), nil, (*C.float)(dlogits),
		C.long(rows), C.long(classes), C.int64_t(ignoreIndex)))
}

// XentFwdBwdWorkspace gives the bytes of workspace of XentFwdBwd: 0.
func XentFwdBwdWorkspace(rows, classes, ignoreIndex int) int { return 0 }

// XentFwd is XentFwdBwd without the gradient; lse [rows] (or nil) gets each row's log of the sum of exponentials (0 where
// ignored), which XentBwd takes.
func XentFwd(logits, target, weight, lossRow, lse, ws unsafe.Pointer, rows, classes, ignoreIndex int) int64 {
	return int64(C.gtc_xent((*C.float)(logits), (*C.int64_t)(target), (*C.float)(weight), (*C.float)(lossRow), (*C.float)(lse), nil,
		C.long(rows), C.long(classes), C.int64_t(ignoreIndex)))
}

// XentFwdWorkspace gives the bytes of workspace of XentFwd: 0.
func XentFwdWorkspace(rows, classes, ignoreIndex int) int { return 0 }

// XentBwd computes dlogits[i] = weight[i] (softmax(logits[i]) - onehot(target[i])) from XentFwd's lse, 0 where the target
// is ignoreIndex or out of range. dlogits may be logits.
func XentBwd(logits, target, weight, lse, dlogits, ws unsafe.Pointer, rows, classes, ignoreIndex int) {
	C.gtc_xent_bwd((*C.float)(logits), (*C.int64_t)(target), (*C.float)(weight), (*C.float)(lse), (*C.float)(dlogits), C.long(rows),
		C.long(classes), C.int64_t(ignoreIndex))
}

// XentBwdWorkspace gives the bytes of workspace of XentBwd: 0.
func XentBwdWorkspace(rows, classes, ignoreIndex int) int { return 0 }
