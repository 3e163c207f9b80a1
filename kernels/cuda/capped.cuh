// Sums of softly capped terms, a row to a block.
#pragma once
#include "gtc.cuh"

namespace gtc {

// capped_sum makes y of x[rows, N]; CAP is a float's bits.
template <int N, u32 CAP, int THREADS> __device__ void capped_sum(const float* x, float* y) {
	GTC_SHARED(float, shared, [32]);
	const i64 row = blockIdx.x;
	const float cap = __uint_as_float(CAP);
	float sum = 0;
	for (int j = int(threadIdx.x); j < N; j += THREADS) sum += cap * tanhf(x[row * N + j] / cap);
	sum = block_sum<THREADS>(sum, shared);
	if (threadIdx.x == 0) y[row] = sum;
}

} // namespace gtc
