// workspace 0

// softmax: reduction, grid [20 1 1] block [64 1 1] args [{0 0} {1 0}]
extern "C" __global__ void __launch_bounds__(64) NAME(const float *p0, float *p1)
{
	using namespace gtc;
	const int lane = threadIdx.x % 32;
	float h3[6][4];
	const int r0 = (int)blockIdx.x * 2;
	const int r = r0 + threadIdx.x / 32;
	const int i0 = r;
	float a1 = (-INFINITY);
	pack<float, 4> q0[6];
	#pragma unroll
	for (int c = 0; c < 6; c++) {
		const int j = (c * 32 + lane) * 4;
		const int j1 = j;
		get<4>(q0[c], p0 + i0 * 768 + j1);
	}
	#pragma unroll
	for (int c = 0; c < 6; c++) {
		const int j = (c * 32 + lane) * 4;
		const int j1 = j;
		#pragma unroll
		for (int e = 0; e < 4; e++) {
			const float v0 = q0[c].x[e];
			a1 = op_max::of(a1, (float)v0);
		}
	}
	const float v1 = (float)over_lanes<op_max, 32>(a1);
	float a4 = 0.0f;
	#pragma unroll
	for (int c = 0; c < 6; c++) {
		const int j = (c * 32 + lane) * 4;
		const int j1 = j;
		#pragma unroll
		for (int e = 0; e < 4; e++) {
			const float v0 = q0[c].x[e];
			const float v2 = v0 - v1;
			const float v3 = gtc_expf(v2);
			h3[c][e] = v3;
			a4 = op_sum::of(a4, (float)v3);
		}
	}
	const float v4 = (float)over_lanes<op_sum, 32>(a4);
	#pragma unroll
	for (int c = 0; c < 6; c++) {
		const int j = (c * 32 + lane) * 4;
		const int j1 = j;
		pack<float, 4> s6;
		#pragma unroll
		for (int e = 0; e < 4; e++) {
			const float v3 = h3[c][e];
			const float v5 = v3 / v4;
			s6.x[e] = v5;
		}
		put<4>(p1 + i0 * 768 + j1, s6);
	}
}
