// workspace 0

// turn: pointwise, grid [6 1 1] block [256 1 1] args [{0 0} {1 0} {2 0}]
extern "C" __global__ void __launch_bounds__(256) NAME(const float *p0, const float *p1, float *p2)
{
	using namespace gtc;
	GTC_SHARED(float, tile0, [32][33]);
	const int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
	const int along = blockIdx.x % 3 * 32, across = blockIdx.x / 3 % 2 * 32;
	#pragma unroll
	for (int c = 0; c < 4; c++) {
		const int i1 = along + ty + c * 8;
		const int i0 = across + tx;
		if (i1 < 70 && i0 < 40) {
			tile0[ty + c * 8][tx] = *(p0 + i0 + i1 * 40);
		}
	}
	sync();
	float q1[4];
	#pragma unroll
	for (int c = 0; c < 4; c++) {
		const int i0 = across + ty + c * 8;
		const int i1 = along + tx;
		if (i1 < 70 && i0 < 40) {
			q1[c] = *(p1 + i0 * 70 + i1);
		}
	}
	#pragma unroll
	for (int c = 0; c < 4; c++) {
		const int i0 = across + ty + c * 8;
		const int i1 = along + tx;
		if (i1 < 70 && i0 < 40) {
			{
				const float v0 = tile0[tx][ty + c * 8];
				const float v1 = q1[c];
				const float v2 = v0 + v1;
				*(p2 + i0 * 70 + i1) = v2;
			}
		}
	}
}
