// workspace 1920

// norm_grad: reduction, grid [10 1 1] block [64 1 1] args [{0 0} {1 0} {2 0} {3 0} {-10 0}]
extern "C" __global__ void __launch_bounds__(64) NAME(const float *p0, const float *p1, float *p2, float *p3, char *ws)
{
	using namespace gtc;
	const int lane = threadIdx.x % 16;
	float a3[1][4];
	#pragma unroll
	for (int c = 0; c < 1; c++)
	#pragma unroll
		for (int e = 0; e < 4; e++) a3[c][e] = 0.0f;
	const int r0 = (int)blockIdx.x * 4;
	const bool live = r0 + threadIdx.x / 16 < 37;
	const int r = live ? r0 + threadIdx.x / 16 : 36;
	const int i0 = r;
	float a4 = 0.0f;
	pack<float, 4> q0[1];
	pack<float, 4> q1[1];
	{
		const int c = 0;
		const int j = (c * 16 + lane) * 4;
		if (j < 48 && live) {
			const int j1 = j;
			get<4>(q0[c], p0 + i0 * 48 + j1);
			get<4>(q1[c], p1 + i0 * 48 + j1);
		}
	}
	{
		const int c = 0;
		const int j = (c * 16 + lane) * 4;
		if (j < 48 && live) {
			const int j1 = j;
			#pragma unroll
			for (int e = 0; e < 4; e++) {
				const float v0 = q0[c].x[e];
				const float v1 = q1[c].x[e];
				const float v2 = v0 * v1;
				a3[c][e] = op_sum::of(a3[c][e], (float)v2);
				a4 = op_sum::of(a4, (float)v2);
			}
		}
	}
	const float v4 = (float)over_lanes<op_sum, 16>(a4);
	{
		const int c = 0;
		const int j = (c * 16 + lane) * 4;
		if (j < 48 && live) {
			const int j1 = j;
			pack<float, 4> s7;
			#pragma unroll
			for (int e = 0; e < 4; e++) {
				const float v0 = q0[c].x[e];
				const float v1 = q1[c].x[e];
				const float v5 = v1 * v4;
				const float v6 = v0 - v5;
				s7.x[e] = v6;
			}
			put<4>(p3 + i0 * 48 + j1, s7);
		}
	}
	GTC_SHARED(float, sums3, [48]);
	for (int g = 0; g < 4; g++) {
		if (threadIdx.x / 16 == g) {
			#pragma unroll
			for (int c = 0; c < 1; c++) {
				const int j = (c * 16 + lane) * 4;
				#pragma unroll
				for (int e = 0; e < 4; e++) {
					if (j + e < 48) {
						sums3[j + e] = g == 0 ? a3[c][e] : op_sum::of(sums3[j + e], a3[c][e]);
					}
				}
			}
		}
		sync();
	}
	for (int j = threadIdx.x; j < 48; j += 64) ((float *)(ws + 0) + blockIdx.x * 48)[j] = sums3[j];
}

// norm_grad_sum: reduction, grid [2 1 1] block [256 1 1] args [{2 0} {-10 0}]
extern "C" __global__ void __launch_bounds__(256) NAME(float *p2, char *ws)
{
	using namespace gtc;
	GTC_SHARED(double, room, [256]);
	{
		const int j = (blockIdx.x - 0) * 32 + threadIdx.x % 32;
		const float *from = (const float *)(ws + 0) + (j < 48 ? j : 0);
		float v = fold<op_sum, 10, 48, 8>(from, (float)0.0f, (float *)room);
		if (threadIdx.x < 32 && j < 48) p2[j] = v;
	}
}
