// gtc.cuh on a GPU, sm_80 and later. Instructions are those of NVIDIA's "PTX ISA", whose tables of fragments gtc_host.h
// follows, too.
#pragma once

// GTC_SHARED(float, tile, [32][33]) is a shared array of a block, GTC_SHARED(int, last, ) a shared variable. Both start at a
// multiple of 16 bytes.
#define GTC_SHARED(T, name, ...) __shared__ __align__(16) T name __VA_ARGS__

// GTC_DYNAMIC_SHARED(T, name) declares name, a T* to the launch's dynamic shared memory, which starts at a multiple of 128.
#define GTC_DYNAMIC_SHARED(T, name)                                  \
	extern __shared__ __align__(128) unsigned char gtc_dynamic_shared[]; \
	T* name = reinterpret_cast<T*>(gtc_dynamic_shared)

namespace gtc {

#define GTC_PTX __device__ __forceinline__

// Numbers.

GTC_PTX float to_float(f16 x) {
	float y;
	asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
	return y;
}
GTC_PTX bf16 to_bf16(float x) {
	bf16 y;
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
	return y;
}
GTC_PTX f16 to_f16(float x) {
	f16 y;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
	return y;
}
GTC_PTX u32 pack_bf16(float lo, float hi) {
	u32 y;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
	return y;
}
GTC_PTX u32 pack_f16(float lo, float hi) {
	u32 y;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
	return y;
}

// to_tf32 rounds to 10 bits of mantissa, ties away from zero.
GTC_PTX u32 to_tf32(float x) {
	u32 y;
	asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
	return y;
}

// Approximations, for what becomes half precision: fast_exp and fast_exp2 err by some 2^-21 of the result, fast_tanh by
// 2^-11, fast_reciprocal by 1 ulp.
GTC_PTX float fast_exp(float x) { return __expf(x); }
GTC_PTX float fast_exp2(float x) {
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}
GTC_PTX float fast_tanh(float x) {
	float y;
	asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}
GTC_PTX float fast_log(float x) { return __logf(x); }
GTC_PTX float fast_reciprocal(float x) {
	float y;
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

// check_aligned is for the host: hardware refuses by itself.
GTC_PTX void check_aligned(const void*, int) {}

// Barriers and exchange.

GTC_PTX void sync() { __syncthreads(); }
GTC_PTX void sync_warp() { __syncwarp(); }

// fence orders the thread's writes before it and those after it, as seen from all of the device.
GTC_PTX void fence() { __threadfence(); }

template <class T> GTC_PTX T shfl(T x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
template <class T> GTC_PTX T shfl_xor(T x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
template <class T> GTC_PTX T shfl_down(T x, int n) { return __shfl_down_sync(0xffffffffu, x, n); }
template <class T> GTC_PTX T shfl_up(T x, int n) { return __shfl_up_sync(0xffffffffu, x, n); }

// warp_ballot has the bit of every lane whose argument is true.
GTC_PTX u32 warp_ballot(bool x) { return __ballot_sync(0xffffffffu, x); }

// Atomics, on global or shared memory. All return what was there.

GTC_PTX float atomic_add(float* p, float x) { return atomicAdd(p, x); }
GTC_PTX double atomic_add(double* p, double x) { return atomicAdd(p, x); }
GTC_PTX i32 atomic_add(i32* p, i32 x) { return atomicAdd(p, x); }
GTC_PTX u32 atomic_add(u32* p, u32 x) { return atomicAdd(p, x); }
GTC_PTX i64 atomic_add(i64* p, i64 x) { return i64(atomicAdd(reinterpret_cast<u64*>(p), u64(x))); }
GTC_PTX u64 atomic_add(u64* p, u64 x) { return atomicAdd(p, x); }
GTC_PTX i32 atomic_min(i32* p, i32 x) { return atomicMin(p, x); }
GTC_PTX i64 atomic_min(i64* p, i64 x) { return atomicMin(p, x); }
GTC_PTX u64 atomic_min(u64* p, u64 x) { return atomicMin(p, x); }
GTC_PTX i32 atomic_max(i32* p, i32 x) { return atomicMax(p, x); }
GTC_PTX i64 atomic_max(i64* p, i64 x) { return atomicMax(p, x); }
GTC_PTX u64 atomic_max(u64* p, u64 x) { return atomicMax(p, x); }
GTC_PTX u32 atomic_inc(u32* p) { return atomicAdd(p, 1u); }
GTC_PTX u32 atomic_cas(u32* p, u32 expected, u32 x) { return atomicCAS(p, expected, x); }
GTC_PTX u64 atomic_cas(u64* p, u64 expected, u64 x) { return atomicCAS(p, expected, x); }
GTC_PTX u32 atomic_exchange(u32* p, u32 x) { return atomicExch(p, x); }

// block_again is blockIdx.x, asked for again: what it says is not kept in registers from before.
GTC_PTX int block_again() {
	int b;
	asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(b));
	return b;
}

// load_volatile reads what other blocks may be writing.
template <class T> GTC_PTX T load_volatile(const T* p) { return *const_cast<const volatile T*>(p); }

// Asynchronous copies.

GTC_PTX u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

// cp_async16 starts to copy 16 bytes from global to shared memory, both at multiples of 16; 16 zero bytes when not valid, and
// then nothing is read. They are there for this thread after cp_async_commit and cp_async_wait, for others after a barrier more.
GTC_PTX void cp_async16(void* smem, const void* gmem, bool valid) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(smem)), "l"(gmem), "r"(valid ? 16 : 0)
		     : "memory");
}
// cp_async4 and cp_async8 copy less: for rows whose starts are not multiples of 16.
GTC_PTX void cp_async8(void* smem, const void* gmem, bool valid) {
	asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(smem)), "l"(gmem), "r"(valid ? 8 : 0)
		     : "memory");
}
GTC_PTX void cp_async4(void* smem, const void* gmem, bool valid) {
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(smem)), "l"(gmem), "r"(valid ? 4 : 0)
		     : "memory");
}

// cp_async_commit closes a group of copies.
GTC_PTX void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// cp_async_wait waits until all but the last N groups have arrived.
template <int N> GTC_PTX void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Tensor cores.

// ldmatrix_x4 reads four matrices of 8 rows of 16 bytes. Lane l gives the address of row l%8 of matrix l/8, a multiple of 16;
// r[i] of lane l is then elements 2*(l%4) and 2*(l%4)+1 of row l/4 of matrix i. With _trans it is of that column instead.
GTC_PTX void ldmatrix_x4(u32 (&r)[4], const void* smem) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(shared_address(smem))
		     : "memory");
}
GTC_PTX void ldmatrix_x4_trans(u32 (&r)[4], const void* smem) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(shared_address(smem))
		     : "memory");
}

// ldmatrix_x2 reads two matrices; the addresses are those of lanes 0 to 15.
GTC_PTX void ldmatrix_x2(u32 (&r)[2], const void* smem) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
		     : "=r"(r[0]), "=r"(r[1])
		     : "r"(shared_address(smem))
		     : "memory");
}
GTC_PTX void ldmatrix_x2_trans(u32 (&r)[2], const void* smem) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
		     : "=r"(r[0]), "=r"(r[1])
		     : "r"(shared_address(smem))
		     : "memory");
}

// mma_16816 adds to d the product of a, 16 x 16, and b, 16 x 8. With g = lane/4 and t = lane%4, d[0], d[1] are row g, columns
// 2t and 2t+1; d[2], d[3] the same of row g+8. a[0] is row g, columns 2t and 2t+1; a[1] of row g+8; a[2], a[3] those at columns
// 2t+8 and 2t+9. b[0] is rows 2t and 2t+1 of column g; b[1] rows 2t+8 and 2t+9.
GTC_PTX void mma_16816(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], bf16) {
	asm volatile(
	    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
	    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
GTC_PTX void mma_16816(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], f16) {
	asm volatile(
	    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
	    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// mma_1688_tf32 adds to d the product of a, 16 x 8, and b, 8 x 8, of numbers that to_tf32 made. a[0] is row g, column t; a[1]
// row g+8; a[2], a[3] those of column t+4. b[0] is row t of column g, b[1] row t+4. d is as above.
GTC_PTX void mma_1688_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
	asm volatile(
	    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
	    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace gtc
