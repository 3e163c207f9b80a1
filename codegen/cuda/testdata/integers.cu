// workspace 0

// integers: pointwise, grid [1 1 1] block [32 1 1] args [{0 0} {1 0} {2 0} {3 0}]
extern "C" __global__ void __launch_bounds__(32) NAME(const int8_t *p0, const int8_t *p1, int8_t *p2, uint16_t *p3)
{
	using namespace gtc;
	const int b = blockIdx.x;
	pack<int8_t, 8> q0[1];
	pack<int8_t, 8> q1[1];
	{
		const int c = 0;
		const int j = (b * 32 + c * 32 + (int)threadIdx.x) * 8;
		if (j < 200) {
			const int j0 = j;
			get<8>(q0[c], p0 + j0);
			get<8>(q1[c], p1 + j0);
		}
	}
	{
		const int c = 0;
		const int j = (b * 32 + c * 32 + (int)threadIdx.x) * 8;
		if (j < 200) {
			const int j0 = j;
			pack<int8_t, 8> s5;
			pack<uint16_t, 8> s10;
			#pragma unroll
			for (int e = 0; e < 8; e++) {
				const int8_t v0 = q0[c].x[e];
				const int8_t v1 = q1[c].x[e];
				const int8_t v2 = (int8_t)((uint32_t)v0 * (uint32_t)v1);
				const int8_t v3 = (int8_t)(gtc_div_s(v2, v1));
				const int8_t v4 = v3 < 0 ? (int8_t)(0 - (uint32_t)v3) : v3;
				s5.x[e] = v4;
				const uint16_t v6 = (uint16_t)(v0);
				const uint16_t v7 = (uint16_t)(v1);
				const uint16_t v8 = (uint16_t)(gtc_shr_u(v6, (uint64_t)v7, 16));
				const uint16_t v9 = (uint16_t)((uint32_t)v8 - (uint32_t)v7);
				s10.x[e] = v9;
			}
			put<8>(p2 + j0, s5);
			put<8>(p3 + j0, s10);
		}
	}
}
