// gtc.cuh on a CPU: kernels are C++ functions, run once for every thread of a block on a stack of its own (a fibre). Threads
// of a block take turns: one runs until it meets a barrier or an exchange. Engine, in standin/src, runs them; this is what
// kernels see of it.
//
// Compiled with GTC_HOST_CHECK and -fsanitize=thread, every access to memory calls the engine, which then finds races,
// addresses outside of everything, and reads of what an asynchronous copy has not brought yet.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__ __attribute__((visibility("default"), used))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct gtc_host_index {
	unsigned x, y, z;
};

// gtc_host_site is a shared array where it is declared. The engine gives it a place in each block that comes by.
struct gtc_host_site {
	const char* name;
	unsigned size;
	int number;  // of the site, once it has one
};

extern "C" {
#define GTC_HOST_TLS __thread __attribute__((tls_model("initial-exec")))
extern GTC_HOST_TLS struct gtc_host_place {
	gtc_host_index thread, block, threads, blocks;
} gtc_host_here;

void gtc_host_sync(const char* file, int line);
void gtc_host_sync_warp(const char* file, int line);
uint64_t gtc_host_shuffle(int kind, uint64_t bits, int argument);
void gtc_host_ldmatrix(uint32_t* r, const void* row, int matrices, bool trans);
void gtc_host_mma(float* d, const uint32_t* a, const uint32_t* b, int kind);
void gtc_host_copy(void* smem, const void* gmem, int bytes, bool valid);
void gtc_host_copy_commit(void);
void gtc_host_copy_wait(int groups);
void* gtc_host_shared(gtc_host_site* site);
void* gtc_host_dynamic(void);
void gtc_host_atomic(const void* p, int bytes);
void gtc_host_volatile(const void* p, int bytes);
void gtc_host_fence(void);
void gtc_host_move(void* to, const void* from, int bytes);
void gtc_host_misaligned(const void* p, int bytes);
}

#define threadIdx gtc_host_here.thread
#define blockIdx gtc_host_here.block
#define blockDim gtc_host_here.threads
#define gridDim gtc_host_here.blocks

#define GTC_SHARED(T, name, ...)                                                          \
	static gtc_host_site gtc_host_site_##name = {#name, sizeof(T __VA_ARGS__), -1}; \
	T(&name) __VA_ARGS__ = *(T(*) __VA_ARGS__)gtc_host_shared(&gtc_host_site_##name)

#define GTC_DYNAMIC_SHARED(T, name) T* name = (T*)gtc_host_dynamic()

// CUDA's own functions that C++ lacks.

static __forceinline__ float __uint_as_float(unsigned x) {
	float y;
	memcpy(&y, &x, 4);
	return y;
}
static __forceinline__ unsigned __float_as_uint(float x) {
	unsigned y;
	memcpy(&y, &x, 4);
	return y;
}
static __forceinline__ float __int_as_float(int x) { return __uint_as_float(unsigned(x)); }
static __forceinline__ int __float_as_int(float x) { return int(__float_as_uint(x)); }
static __forceinline__ double __longlong_as_double(long long x) {
	double y;
	memcpy(&y, &x, 8);
	return y;
}
static __forceinline__ long long __double_as_longlong(double x) {
	long long y;
	memcpy(&y, &x, 8);
	return y;
}
static __forceinline__ float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static __forceinline__ double rsqrt(double x) { return 1.0 / sqrt(x); }
static __forceinline__ float normcdff(float x) { return 0.5f * erfcf(-0.70710678118654752f * x); }
static __forceinline__ double normcdf(double x) { return 0.5 * erfc(-0.70710678118654752440 * x); }
// The C library has functions of these names, for itself.
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
static __forceinline__ float __fdividef(float x, float y) { return x / y; }
static __forceinline__ float __frcp_rn(float x) { return 1.0f / x; }
static __forceinline__ float __fmul_rn(float x, float y) {
	float z = x * y;
	__asm__("" : "+m"(z));  // so that it is not fused with an addition
	return z;
}
static __forceinline__ float __fadd_rn(float x, float y) {
	float z = x + y;
	__asm__("" : "+m"(z));
	return z;
}
static __forceinline__ int __popc(unsigned x) { return __builtin_popcount(x); }
static __forceinline__ int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static __forceinline__ int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static __forceinline__ int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static __forceinline__ int __ffs(int x) { return __builtin_ffs(x); }
static __forceinline__ unsigned __umulhi(unsigned x, unsigned y) { return unsigned((unsigned long long)x * y >> 32); }
static __forceinline__ unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
	return (unsigned long long)((unsigned __int128)x * y >> 64);
}
template <class T> static __forceinline__ T __ldg(const T* p) { return *p; }
template <class T> static __forceinline__ T __ldcs(const T* p) { return *p; }
template <class T> static __forceinline__ void __stcs(T* p, T x) { *p = x; }

#define GTC_HOST_MINMAX(T)                                                  \
	static __forceinline__ T min(T a, T b) { return a < b ? a : b; } \
	static __forceinline__ T max(T a, T b) { return a > b ? a : b; }
GTC_HOST_MINMAX(int)
GTC_HOST_MINMAX(unsigned)
GTC_HOST_MINMAX(long)
GTC_HOST_MINMAX(unsigned long)
GTC_HOST_MINMAX(long long)
GTC_HOST_MINMAX(unsigned long long)
static __forceinline__ float min(float a, float b) { return fminf(a, b); }
static __forceinline__ float max(float a, float b) { return fmaxf(a, b); }
static __forceinline__ double min(double a, double b) { return fmin(a, b); }
static __forceinline__ double max(double a, double b) { return fmax(a, b); }

// Vectors that NVRTC has.
#define GTC_HOST_VECTORS(T, NAME, ALIGN)                                                                                 \
	struct alignas(2 * sizeof(T)) NAME##2 {                                                                          \
		T x, y;                                                                                                  \
	};                                                                                                               \
	struct alignas(ALIGN) NAME##4 {                                                                                  \
		T x, y, z, w;                                                                                            \
	};                                                                                                               \
	static __forceinline__ NAME##2 make_##NAME##2(T x, T y) { return NAME##2{x, y}; }                                \
	static __forceinline__ NAME##4 make_##NAME##4(T x, T y, T z, T w) { return NAME##4{x, y, z, w}; }
GTC_HOST_VECTORS(float, float, 16)
GTC_HOST_VECTORS(double, double, 16)
GTC_HOST_VECTORS(int, int, 16)
GTC_HOST_VECTORS(unsigned, uint, 16)
GTC_HOST_VECTORS(unsigned short, ushort, 8)

namespace gtc {

#define GTC_PTX static __forceinline__

// Numbers.

GTC_PTX float to_float(f16 x) {
#ifdef __F16C__
	typedef short halves __attribute__((vector_size(16)));
	return __builtin_ia32_vcvtph2ps(halves{short(x.bits)})[0];
#else
	uint32_t sign = uint32_t(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
	if (rest >= 0x7c00) {
		return __uint_as_float(sign | 0x7f800000u | rest << 13);
	}
	return __uint_as_float(sign) + (sign ? -1.0f : 1.0f) * (__uint_as_float(rest << 13) * 0x1p112f);
#endif
}
GTC_PTX f16 to_f16(float x) {
#ifdef __F16C__
	typedef float floats __attribute__((vector_size(16)));
	return f16{u16(__builtin_ia32_vcvtps2ph(floats{x}, 0)[0])};
#else
	uint32_t u = __float_as_uint(x), sign = u >> 16 & 0x8000, m = u & 0x7fffffff;
	if (m > 0x7f800000) {
		return f16{u16(sign | 0x7e00 | (m >> 13 & 0x3ff))};
	}
	if (m >= 0x477ff000) {  // 65520 and more
		return f16{u16(sign | 0x7c00)};
	}
	if (m < 0x38800000) {  // below 2^-14: adding 1/2 leaves multiples of 2^-24 in the last bits
		return f16{u16(sign | (__float_as_uint(__uint_as_float(m) + 0.5f) - 0x3f000000))};
	}
	return f16{u16(sign | (m + 0xfff + (m >> 13 & 1) - 0x38000000) >> 13)};
#endif
}
GTC_PTX bf16 to_bf16(float x) {
	uint32_t u = __float_as_uint(x);
	if ((u & 0x7fffffff) > 0x7f800000) {
		return bf16{0x7fff};  // the NaN that the instruction gives
	}
	return bf16{u16((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}
GTC_PTX u32 pack_bf16(float lo, float hi) { return to_bf16(lo).bits | u32(to_bf16(hi).bits) << 16; }
GTC_PTX u32 pack_f16(float lo, float hi) { return to_f16(lo).bits | u32(to_f16(hi).bits) << 16; }
GTC_PTX u32 to_tf32(float x) {
	u32 u = __float_as_uint(x);
	return (u & 0x7f800000) == 0x7f800000 ? u : (u + 0x1000) & ~0x1fffu;
}

GTC_PTX float fast_exp(float x) { return expf(x); }
GTC_PTX float fast_exp2(float x) { return exp2f(x); }
GTC_PTX float fast_tanh(float x) { return tanhf(x); }
GTC_PTX float fast_log(float x) { return logf(x); }
GTC_PTX float fast_reciprocal(float x) { return 1.0f / x; }

GTC_PTX void check_aligned(const void* p, int bytes) {
	if (__builtin_expect((uintptr_t(p) & uintptr_t(bytes - 1)) != 0, 0)) {
		gtc_host_misaligned(p, bytes);
	}
}

// Barriers and exchange.

GTC_PTX void sync(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { gtc_host_sync(file, line); }
GTC_PTX void sync_warp(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { gtc_host_sync_warp(file, line); }
GTC_PTX void fence() { gtc_host_fence(); }

template <class T> GTC_PTX T gtc_host_exchange(int kind, T x, int argument) {
	static_assert(sizeof(T) == 4 || sizeof(T) == 8, "4 or 8 bytes are exchanged");
	uint64_t bits = 0;
	memcpy(&bits, &x, sizeof(T));
	bits = gtc_host_shuffle(kind, bits, argument);
	memcpy(&x, &bits, sizeof(T));
	return x;
}
template <class T> GTC_PTX T shfl(T x, int lane) { return gtc_host_exchange(0, x, lane); }
template <class T> GTC_PTX T shfl_xor(T x, int mask) { return gtc_host_exchange(1, x, mask); }
template <class T> GTC_PTX T shfl_down(T x, int n) { return gtc_host_exchange(2, x, n); }
template <class T> GTC_PTX T shfl_up(T x, int n) { return gtc_host_exchange(3, x, n); }
GTC_PTX u32 warp_ballot(bool x) { return u32(gtc_host_shuffle(4, x, 0)); }

// Atomics. Blocks may run on several processors.

#ifdef GTC_HOST_CHECK
#define GTC_HOST_ATOMIC static __attribute__((noinline, unused, no_sanitize("thread")))
#define GTC_HOST_TOUCH(p) gtc_host_atomic(p, sizeof *(p))
#else
#define GTC_HOST_ATOMIC GTC_PTX
#define GTC_HOST_TOUCH(p) check_aligned(p, sizeof *(p))
#endif

// gtc_host_update replaces *p by f(*p).
#define GTC_HOST_UPDATE(NAME, T, BITS, EXPRESSION)                                                                   \
	GTC_HOST_ATOMIC T NAME(T* p, T x) {                                                                          \
		GTC_HOST_TOUCH(p);                                                                                   \
		BITS had = __atomic_load_n((BITS*)p, __ATOMIC_RELAXED), next;                                        \
		T old;                                                                                               \
		do {                                                                                                 \
			__builtin_memcpy(&old, &had, sizeof old);                                                    \
			T to = EXPRESSION;                                                                           \
			__builtin_memcpy(&next, &to, sizeof next);                                                   \
		} while (!__atomic_compare_exchange_n((BITS*)p, &had, next, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)); \
		return old;                                                                                          \
	}
GTC_HOST_UPDATE(atomic_add, float, uint32_t, old + x)
GTC_HOST_UPDATE(atomic_add, double, uint64_t, old + x)
GTC_HOST_UPDATE(atomic_add, i32, uint32_t, i32(u32(old) + u32(x)))
GTC_HOST_UPDATE(atomic_add, u32, uint32_t, old + x)
GTC_HOST_UPDATE(atomic_add, i64, uint64_t, i64(u64(old) + u64(x)))
GTC_HOST_UPDATE(atomic_add, u64, uint64_t, old + x)
GTC_HOST_UPDATE(atomic_min, i32, uint32_t, x < old ? x : old)
GTC_HOST_UPDATE(atomic_min, i64, uint64_t, x < old ? x : old)
GTC_HOST_UPDATE(atomic_min, u64, uint64_t, x < old ? x : old)
GTC_HOST_UPDATE(atomic_max, i32, uint32_t, x > old ? x : old)
GTC_HOST_UPDATE(atomic_max, i64, uint64_t, x > old ? x : old)
GTC_HOST_UPDATE(atomic_max, u64, uint64_t, x > old ? x : old)
GTC_HOST_UPDATE(atomic_exchange, u32, uint32_t, x)
GTC_PTX u32 atomic_inc(u32* p) { return atomic_add(p, u32(1)); }
GTC_HOST_ATOMIC u32 atomic_cas(u32* p, u32 expected, u32 x) {
	GTC_HOST_TOUCH(p);
	__atomic_compare_exchange_n(p, &expected, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return expected;
}
GTC_HOST_ATOMIC u64 atomic_cas(u64* p, u64 expected, u64 x) {
	GTC_HOST_TOUCH(p);
	__atomic_compare_exchange_n(p, &expected, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return expected;
}

GTC_PTX int block_again() { return int(blockIdx.x); }

template <class T> GTC_HOST_ATOMIC T load_volatile(const T* p) {
#ifdef GTC_HOST_CHECK
	gtc_host_volatile(p, sizeof *p);
#endif
	return *const_cast<const volatile T*>(p);
}

// Asynchronous copies: done when they are waited for, not before.

GTC_PTX void cp_async16(void* smem, const void* gmem, bool valid) { gtc_host_copy(smem, gmem, 16, valid); }
GTC_PTX void cp_async8(void* smem, const void* gmem, bool valid) { gtc_host_copy(smem, gmem, 8, valid); }
GTC_PTX void cp_async4(void* smem, const void* gmem, bool valid) { gtc_host_copy(smem, gmem, 4, valid); }
GTC_PTX void cp_async_commit() { gtc_host_copy_commit(); }
template <int N> GTC_PTX void cp_async_wait() { gtc_host_copy_wait(N); }

// Tensor cores.

GTC_PTX void ldmatrix_x4(u32 (&r)[4], const void* smem) { gtc_host_ldmatrix(r, smem, 4, false); }
GTC_PTX void ldmatrix_x4_trans(u32 (&r)[4], const void* smem) { gtc_host_ldmatrix(r, smem, 4, true); }
GTC_PTX void ldmatrix_x2(u32 (&r)[2], const void* smem) { gtc_host_ldmatrix(r, smem, 2, false); }
GTC_PTX void ldmatrix_x2_trans(u32 (&r)[2], const void* smem) { gtc_host_ldmatrix(r, smem, 2, true); }
GTC_PTX void mma_16816(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], bf16) { gtc_host_mma(d, a, b, 0); }
GTC_PTX void mma_16816(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], f16) { gtc_host_mma(d, a, b, 1); }
GTC_PTX void mma_1688_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { gtc_host_mma(d, a, b, 2); }

}  // namespace gtc
