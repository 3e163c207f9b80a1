// workspace 0

// first_dim: reduction, grid [3 1 1] block [256 1 1] args [{0 0} {1 0}]
extern "C" __global__ void __launch_bounds__(256) NAME(const float *p0, float *p1)
{
	using namespace gtc;
	const int lane = threadIdx.x / 128;
	GTC_SHARED(float, room1, [256]);
	const int r0 = (int)blockIdx.x * 128;
	const bool live = r0 + threadIdx.x % 128 < 300;
	const int r = live ? r0 + threadIdx.x % 128 : 299;
	const int i1 = r;
	float a1 = 0.0f;
	float q0[6];
	#pragma unroll
	for (int c = 0; c < 6; c++) {
		const int j = (c * 2 + lane) * 1;
		if (live) {
			const int j0 = j;
			q0[c] = *(p0 + i1 + j0 * 300);
		}
	}
	#pragma unroll
	for (int c = 0; c < 6; c++) {
		const int j = (c * 2 + lane) * 1;
		if (live) {
			const int j0 = j;
			{
				const float v0 = q0[c];
				a1 = op_sum::of(a1, (float)v0);
			}
		}
	}
	const float v1 = (float)over_lines<op_sum, 128, 2>(a1, room1);
	#pragma unroll
	for (int c = 0; c < 6; c++) {
		const int j = (c * 2 + lane) * 1;
		if (live) {
			const int j0 = j;
			{
				const float v0 = q0[c];
				const float v2 = v0 - v1;
				*(p1 + i1 + j0 * 300) = v2;
			}
		}
	}
}
