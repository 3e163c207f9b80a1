// What device code of gtc stands on: element types, vectors of one access, barriers, exchange within a warp, reductions,
// atomics, asynchronous copies and tensor cores. Kernels use these names and no instruction of their own, so that the same
// text compiles with NVRTC (gtc_device.cuh has the PTX) and, with GTC_HOST defined, with a C++17 compiler, where tests
// execute it on a CPU (gtc_host.h).
//
// Both forms know threadIdx, blockIdx, blockDim, gridDim, __restrict__, "#pragma unroll", CUDA's mathematical functions
// (expf, rsqrtf, ...) and min and max of two of a kind.
#pragma once

namespace gtc {

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned u32;
typedef long long i64;
typedef unsigned long long u64;

// bf16 and f16 are stored numbers; arithmetic is done in float.
struct bf16 {
	u16 bits;
};
struct f16 {
	u16 bits;
};

template <class T, class U> struct same {
	static constexpr bool value = false;
};
template <class T> struct same<T, T> {
	static constexpr bool value = true;
};

}  // namespace gtc

#ifdef GTC_HOST
#include "gtc_host.h"
#else
#include "gtc_device.cuh"
#endif

// GTC_FN marks a function of device code.
#define GTC_FN __device__ __forceinline__

namespace gtc {

// Numbers.

GTC_FN float to_float(float x) { return x; }
GTC_FN float to_float(double x) { return float(x); }
GTC_FN float to_float(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }

// from_float rounds to the nearest T, ties to even.
template <class T> GTC_FN T from_float(float x) {
	if constexpr (same<T, bf16>::value) {
		return to_bf16(x);
	} else if constexpr (same<T, f16>::value) {
		return to_f16(x);
	} else {
		return T(x);
	}
}

// pack2 rounds two numbers into one register as tensor cores take them: lo, the element of the lower column, in the lower half.
template <class T> GTC_FN u32 pack2(float lo, float hi);
template <> GTC_FN u32 pack2<bf16>(float lo, float hi) { return pack_bf16(lo, hi); }
template <> GTC_FN u32 pack2<f16>(float lo, float hi) { return pack_f16(lo, hi); }

template <class T> GTC_FN void unpack2(u32 r, float& lo, float& hi) {
	lo = to_float(T{u16(r)});
	hi = to_float(T{u16(r >> 16)});
}

GTC_FN float inf() { return __uint_as_float(0x7f800000u); }
GTC_FN float quiet_nan() { return __uint_as_float(0x7fc00000u); }

constexpr __device__ __host__ int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Vectors.

// vec is N elements that are read or written in one access; sizeof(T)*N is 1, 2, 4, 8 or 16 bytes.
template <class T, int N> struct alignas(sizeof(T) * N) vec {
	static_assert(sizeof(T) * N <= 16, "one access is of 16 bytes at most");
	T v[N];
	GTC_FN T& operator[](int i) { return v[i]; }
	GTC_FN const T& operator[](int i) const { return v[i]; }
};

// load reads N elements at p, a multiple of their size together.
template <int N, class T> GTC_FN vec<T, N> load(const T* p) {
	check_aligned(p, sizeof(vec<T, N>));
#ifdef GTC_HOST_CHECK
	vec<T, N> x;  // as one access, which the compiler would take apart
	gtc_host_move(&x, p, sizeof x);
	return x;
#else
	return *reinterpret_cast<const vec<T, N>*>(p);
#endif
}

// store writes N elements at p, a multiple of their size together.
template <class T, int N> GTC_FN void store(T* p, const vec<T, N>& x) {
	check_aligned(p, sizeof(vec<T, N>));
#ifdef GTC_HOST_CHECK
	gtc_host_move(p, &x, sizeof x);
#else
	*reinterpret_cast<vec<T, N>*>(p) = x;
#endif
}

// Threads of a warp. All 32 lanes must call.

// thread_id is the thread's number in its block, x fastest.
GTC_FN int thread_id() { return int(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)); }
GTC_FN int lane_id() { return thread_id() & 31; }
GTC_FN int warp_id() { return thread_id() >> 5; }

template <class T> GTC_FN T warp_sum(T x) {
#pragma unroll
	for (int m = 16; m > 0; m >>= 1) {
		x += shfl_xor(x, m);
	}
	return x;
}

// greater is a NaN if one of its arguments is.
GTC_FN float greater(float a, float b) { return a > b || a != a ? a : b; }
GTC_FN double greater(double a, double b) { return a > b || a != a ? a : b; }
GTC_FN i32 greater(i32 a, i32 b) { return a > b ? a : b; }
GTC_FN i64 greater(i64 a, i64 b) { return a > b ? a : b; }

// warp_max is a NaN if one of the lanes' numbers is.
template <class T> GTC_FN T warp_max(T x) {
#pragma unroll
	for (int m = 16; m > 0; m >>= 1) {
		x = greater(x, shfl_xor(x, m));
	}
	return x;
}

// Threads of a block of THREADS, a multiple of 32. All must call; smem is shared scratch of 32 elements, which the calls of a
// kernel may have in common. Every thread gets the result.

template <int THREADS, class T> GTC_FN T block_sum(T x, T* smem) {
	x = warp_sum(x);
	if (THREADS == 32) {
		return x;
	}
	sync();  // the scratch may still be read for the call before
	if (lane_id() == 0) {
		smem[warp_id()] = x;
	}
	sync();
	return warp_sum(lane_id() < THREADS / 32 ? smem[lane_id()] : T(0));
}

template <int THREADS, class T> GTC_FN T block_max(T x, T* smem) {
	x = warp_max(x);
	if (THREADS == 32) {
		return x;
	}
	sync();  // as above
	if (lane_id() == 0) {
		smem[warp_id()] = x;
	}
	sync();
	return warp_max(smem[lane_id() < THREADS / 32 ? lane_id() : 0]);
}

}  // namespace gtc
