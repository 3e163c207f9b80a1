// workspace 0

// layer_norm: reduction, grid [9 1 1] block [64 1 1] args [{0 0} {1 0} {2 0} {3 0} {4 0}]
extern "C" __global__ void __launch_bounds__(64) NAME(const gtc_bf16 *p0, const float *p1, const float *p2, gtc_bf16 *p3, float *p4)
{
	using namespace gtc;
	const float v3 = 0.010416667f;
	const float v10 = 1e-05f;
	const int lane = threadIdx.x % 16;
	const int r0 = (int)blockIdx.x * 4;
	const bool live = r0 + threadIdx.x / 16 < 33;
	const int r = live ? r0 + threadIdx.x / 16 : 32;
	const int i0 = r;
	float a2 = 0.0f;
	pack<gtc_bf16, 8> q0[1];
	{
		const int c = 0;
		const int j = (c * 16 + lane) * 8;
		if (j < 96 && live) {
			const int j1 = j;
			get<8>(q0[c], p0 + i0 * 96 + j1);
		}
	}
	{
		const int c = 0;
		const int j = (c * 16 + lane) * 8;
		if (j < 96 && live) {
			const int j1 = j;
			#pragma unroll
			for (int e = 0; e < 8; e++) {
				const float v0 = gtc_bf16_get(q0[c].x[e]);
				const float v1 = (float)v0;
				a2 = op_sum::of(a2, (float)v1);
			}
		}
	}
	const float v2 = (float)over_lanes<op_sum, 16>(a2);
	const float v4 = v2 * v3;
	if (lane == 0 && live) p4[i0] = v4;
	float a8 = 0.0f;
	{
		const int c = 0;
		const int j = (c * 16 + lane) * 8;
		if (j < 96 && live) {
			const int j1 = j;
			#pragma unroll
			for (int e = 0; e < 8; e++) {
				const float v0 = gtc_bf16_get(q0[c].x[e]);
				const float v1 = (float)v0;
				const float v6 = v1 - v4;
				const float v7 = v6 * v6;
				a8 = op_sum::of(a8, (float)v7);
			}
		}
	}
	const float v8 = (float)over_lanes<op_sum, 16>(a8);
	const float v9 = v8 * v3;
	const float v11 = v9 + v10;
	const float v12 = gtc_rsqrtf(v11);
	{
		pack<float, 8> q14[1];
		pack<float, 8> q16[1];
		{
			const int c = 0;
			const int j = (c * 16 + lane) * 8;
			if (j < 96 && live) {
				const int j1 = j;
				get<4>(q14[c], p1 + j1);
				get<4>(q16[c], p2 + j1);
			}
		}
		{
			const int c = 0;
			const int j = (c * 16 + lane) * 8;
			if (j < 96 && live) {
				const int j1 = j;
				pack<gtc_bf16, 8> s19;
				#pragma unroll
				for (int e = 0; e < 8; e++) {
					const float v0 = gtc_bf16_get(q0[c].x[e]);
					const float v1 = (float)v0;
					const float v6 = v1 - v4;
					const float v13 = v6 * v12;
					const float v14 = q14[c].x[e];
					const float v15 = v13 * v14;
					const float v16 = q16[c].x[e];
					const float v17 = v15 + v16;
					const float v18 = gtc_bf16_get(gtc_bf16_put((float)v17));
					s19.x[e] = gtc_bf16_put(v17);
				}
				put<8>(p3 + i0 * 96 + j1, s19);
			}
		}
	}
}
