package cpu

/*
#cgo noescape gtc_attn_fwd
#cgo nocallback gtc_attn_fwd
#cgo noescape gtc_attn_bwd
#cgo nocallback gtc_attn_bwd
#include "attn.h"
*/
import "C"
import "unsafe"

func init() {
	templates["AttnFwd"] = template{call: AttnFwd, workspace: AttnFwdWorkspace}
	templates["AttnBwd"] = template{call: AttnBwd, workspace: AttnBwdWorkspace}
}

// AttnFwd computes out = softmax(scale Q K^T + mask) V per batch and head, and lse, the log of each row's sum of
// exponentials, which AttnBwd needs.
//
// Element (b, h, i, x) of q is at q + b*qB + h*qH + i*qS + x elements, and so on for k, v and out: strides serve
// [B,S,H,D], [B,H,S,D] and slices of a fused [B,S,3,H,D] buffer alike; the last dim is contiguous. q has heads heads of
// depth d, k and v have kvHeads (a divisor of heads; query head h reads head h / (heads/kvHeads)), v and out have depth
// dv. lse is dense [batch, heads, sq], or nil.
//
// mask is float32, added to the scaled scores, or nil; element (b, h, i, j) is at b*maskB + h*maskH + i*maskQ + j, a
// stride of 0 broadcasts. causal 0 lets every query see every key; causal c > 0 lets query i see keys j < i + c, so 1 is
// the usual triangle (PyTorch's is_causal) and 1 + sk - sq aligns it to the last key. window w > 0, with causal, hides all
// but the last w of those. A row that sees no key gives 0 and lse -inf, as PyTorch's safe softmax does. No workspace.
func AttnFwd(q, k, v, mask, out, lse, ws unsafe.Pointer,
	batch, heads, kvHeads, sq, sk, d, dv, qB, qH, qS, kB, kH, kS, vB, vH, vS, oB, oH, oS, causal, window, maskB, maskH, maskQ int, scale float32) {
	s := C.attn_dims{
		batch: C.long(batch), heads: C.long(heads), kvHeads: C.long(kvHeads), sq: C.long(sq), sk: C.long(sk),
		d: C.long(d), dv: C.long(dv), qB: C.long(qB), qH: C.long(qH), qS: C.long(qS), kB: C.long(kB),
		kH: C.long(kH), kS: C.long(kS), vB: C.long(vB), vH: C.long(vH), vS: C.long(vS), oB: C.long(oB),
		oH: C.long(oH), oS: C.long(oS), causal: C.long(causal), window: C.long(window), maskB: C.long(maskB), maskH: C.long(maskH),
		maskQ: C.long(maskQ), scale: C.float(scale),
	}
	C.gtc_attn_fwd((*C.float)(q), (*C.float)(k), (*C.float)(v), (*C.float)(mask), (*C.float)(out), (*C.float)(lse), &s)
}

// AttnFwdWorkspace gives the bytes of workspace of AttnFwd: 0, since threads keep their own scratch.
func AttnFwdWorkspace(batch, heads, kvHeads, sq, sk, d, dv, qB, qH, qS, kB, kH, kS, vB, vH, vS, oB, oH, oS, causal, window, maskB, maskH, maskQ int) int {
	return 0
}

// AttnBwd computes the gradients of AttnFwd: gradQ, gradK and gradV from the forward operands, out, lse and dout, with
// probabilities computed again from lse. The integers are those of AttnFwd and then the strides (batch, head, sequence)
// of dout (g...), gradQ (dq...), gradK (dk...) and gradV (dv...); heads that share a key head are summed. Gradients are
// overwritten, never added to. The mask gets no gradient. No workspace.
func AttnBwd(q, k, v, mask, out, lse, dout, gradQ, gradK, gradV, ws unsafe.Pointer,
	batch, heads, kvHeads, sq, sk, d, dv, qB, qH, qS, kB, kH, kS, vB, vH, vS, oB, oH, oS, causal, window, maskB, maskH, maskQ,
	gB, gH, gS, dqB, dqH, dqS, dkB, dkH, dkS, dvB, dvH, dvS int, scale float32) {
	s := C.attn_dims{
		batch: C.long(batch), heads: C.long(heads), kvHeads: C.long(kvHeads), sq: C.long(sq), sk: C.long(sk),
		d: C.long(d), dv: C.long(dv), qB: C.long(qB), qH: C.long(qH), qS: C.long(qS), kB: C.long(kB),
		kH: C.long(kH), kS: C.long(kS), vB: C.long(vB), vH: C.long(vH), vS: C.long(vS), oB: C.long(oB),
		oH: C.long(oH), oS: C.long(oS), causal: C.long(causal), window: C.long(window), maskB: C.long(maskB), maskH: C.long(maskH),
		maskQ: C.long(maskQ), scale: C.float(scale),
	}
	z := C.bwd_strides{
		gB: C.long(gB), gH: C.long(gH), gS: C.long(gS), dqB: C.long(dqB), dqH: C.long(dqH), dqS: C.long(dqS),
		dkB: C.long(dkB), dkH: C.long(dkH), dkS: C.long(dkS), dvB: C.long(dvB), dvH: C.long(dvH),
		dvS: C.long(dvS),
	}
	C.gtc_attn_bwd((*C.float)(q), (*C.float)(k), (*C.float)(v), (*C.float)(mask), (*C.float)(out), (*C.float)(lse), (*C.float)(dout),
		(*C.float)(gradQ), (*C.float)(gradK), (*C.float)(gradV), &s, &z)
}

// AttnBwdWorkspace gives the bytes of workspace of AttnBwd: 0, since threads keep their own scratch.
func AttnBwdWorkspace(batch, heads, kvHeads, sq, sk, d, dv, qB, qH, qS, kB, kH, kS, vB, vH, vS, oB, oH, oS, causal, window, maskB, maskH, maskQ,
	gB, gH, gS, dqB, dqH, dqS, dkB, dkH, dkS, dvB, dvH, dvS int) int {
	return 0
}
