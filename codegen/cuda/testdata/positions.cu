// workspace 0

// positions: pointwise, grid [1 1 1] block [192 1 1] args [{0 0} {1 0}]
extern "C" __global__ void __launch_bounds__(192) NAME(const float *p0, float *p1)
{
	using namespace gtc;
	const float v4 = (-INFINITY);
	const int b = blockIdx.x;
	pack<float, 4> q3[1];
	{
		const int c = 0;
		const int j = (b * 192 + c * 192 + (int)threadIdx.x) * 4;
		const int j2 = j % 16;
		const int j1 = j / 16 % 16;
		const int j0 = j / 256;
		get<4>(q3[c], p0 + j0 * 256 + j1 * 16 + j2);
	}
	{
		const int c = 0;
		const int j = (b * 192 + c * 192 + (int)threadIdx.x) * 4;
		const int j2 = j % 16;
		const int j1 = j / 16 % 16;
		const int j0 = j / 256;
		pack<float, 4> s6;
		#pragma unroll
		for (int e = 0; e < 4; e++) {
			const int64_t v0 = 0 + j1;
			const int64_t v1 = 0 + j2 + e * 1;
			const int v2 = v1 > v0;
			const float v3 = q3[c].x[e];
			const float v5 = v2 ? v4 : v3;
			s6.x[e] = v5;
		}
		put<4>(p1 + j0 * 256 + j1 * 16 + j2, s6);
	}
}
