// Element types by the codes that generated calls pass: see elem.go. Bodies that work on any type are instantiated by macro.
#ifndef GTC_ELEM_H
#define GTC_ELEM_H

#include <stdint.h>

enum {
	GTC_F32 = 1,
	GTC_F64 = 2,
	GTC_F16 = 3,
	GTC_BF16 = 4,
	GTC_I8 = 5,
	GTC_I16 = 6,
	GTC_I32 = 7,
	GTC_I64 = 8,
	GTC_U8 = 9,
	GTC_U16 = 10,
	GTC_U32 = 11,
	GTC_U64 = 12,
	GTC_BOOL = 13,
};

// GTC_ARITH(X) applies X(code, C type, accumulator type) to every type that C computes in. Integers wrap: they
// accumulate unsigned, in which overflow is defined.
#define GTC_ARITH(X)                 \
	X(GTC_F32, float, double)    \
	X(GTC_F64, double, double)   \
	X(GTC_I8, int8_t, uint64_t)  \
	X(GTC_I16, int16_t, uint64_t) \
	X(GTC_I32, int32_t, uint64_t) \
	X(GTC_I64, int64_t, uint64_t) \
	X(GTC_U8, uint8_t, uint64_t) \
	X(GTC_U16, uint16_t, uint64_t) \
	X(GTC_U32, uint32_t, uint64_t) \
	X(GTC_U64, uint64_t, uint64_t)

// gtc_elem_size is the bytes of one element.
static inline long gtc_elem_size(long elem) {
	static const char sizes[] = {0, 4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8, 1};
	return sizes[elem];
}

#endif
