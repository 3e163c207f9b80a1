#include "textflag.h"

// func addF32(d, a, b *float32, n int)
// All loads of a round come before its stores, so d may be a or b.
TEXT ·addF32(SB), NOSPLIT, $0-32
	MOVQ d+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ n+24(FP), CX

loop:
	MOVUPS (SI), X0
	MOVUPS 16(SI), X1
	MOVUPS 32(SI), X2
	MOVUPS 48(SI), X3
	MOVUPS (DX), X4
	MOVUPS 16(DX), X5
	MOVUPS 32(DX), X6
	MOVUPS 48(DX), X7
	ADDPS  X4, X0
	ADDPS  X5, X1
	ADDPS  X6, X2
	ADDPS  X7, X3
	MOVUPS X0, (DI)
	MOVUPS X1, 16(DI)
	MOVUPS X2, 32(DI)
	MOVUPS X3, 48(DI)
	ADDQ   $64, SI
	ADDQ   $64, DX
	ADDQ   $64, DI
	SUBQ   $16, CX
	JNE    loop
	RET

// func widenBF16(d *float32, s *uint16, n int)
// A bf16 is the upper half of an f32: interleave with zeros.
TEXT ·widenBF16(SB), NOSPLIT, $0-24
	MOVQ d+0(FP), DI
	MOVQ s+8(FP), SI
	MOVQ n+16(FP), CX

wide:
	MOVOU     (SI), X0
	PXOR      X1, X1
	PXOR      X2, X2
	PUNPCKLWL X0, X1
	PUNPCKHWL X0, X2
	MOVOU     X1, (DI)
	MOVOU     X2, 16(DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	SUBQ      $8, CX
	JNE       wide
	RET

// ROUND leaves in v the bf16 of the four floats in it, sign-extended: add
// 0x7fff and the last bit kept (to nearest even), or for NaN set the quiet bit.
// X5 is 0x400000, X6 is 1 and X7 is 0x7fff in each lane; t, m and q are free.
#define ROUND(v, t, m, q) \
	MOVO  v, t     \
	PSRLL $16, t   \
	PAND  X6, t    \
	PADDL X7, t    \
	PADDL v, t     \
	MOVO  v, m     \
	CMPPS v, m, $3 \
	MOVO  v, q     \
	POR   X5, q    \
	PAND  m, q     \
	PANDN t, m     \
	POR   q, m     \
	MOVO  m, v     \
	PSRAL $16, v

// func narrowBF16(d *uint16, s *float32, n int)
TEXT ·narrowBF16(SB), NOSPLIT, $0-24
	MOVQ   d+0(FP), DI
	MOVQ   s+8(FP), SI
	MOVQ   n+16(FP), CX
	MOVL   $0x400000, AX
	MOVQ   AX, X5
	PSHUFL $0, X5, X5
	MOVL   $1, AX
	MOVQ   AX, X6
	PSHUFL $0, X6, X6
	MOVL   $0x7fff, AX
	MOVQ   AX, X7
	PSHUFL $0, X7, X7

narrow:
	MOVOU    (SI), X0
	MOVOU    16(SI), X4
	ROUND(X0, X1, X2, X3)
	ROUND(X4, X1, X2, X3)
	PACKSSLW X4, X0
	MOVOU    X0, (DI)
	ADDQ     $32, SI
	ADDQ     $16, DI
	SUBQ     $8, CX
	JNE      narrow
	RET
