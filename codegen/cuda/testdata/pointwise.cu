// workspace 0

// pointwise: pointwise, grid [16 1 1] block [256 1 1] args [{0 0} {1 0} {2 0} {3 0}]
extern "C" __global__ void __launch_bounds__(256) NAME(const float *p0, const float *p1, const float *p2, float *p3)
{
	using namespace gtc;
	const float v2 = p2[0];
	const int b = blockIdx.x;
	pack<float, 4> q0[1];
	pack<float, 4> q1[1];
	{
		const int c = 0;
		const int j = (b * 256 + c * 256 + (int)threadIdx.x) * 4;
		const int j1 = j % 256;
		const int j0 = j / 256;
		get<4>(q0[c], p0 + j0 * 256 + j1);
		get<4>(q1[c], p1 + j1);
	}
	{
		const int c = 0;
		const int j = (b * 256 + c * 256 + (int)threadIdx.x) * 4;
		const int j1 = j % 256;
		const int j0 = j / 256;
		pack<float, 4> s6;
		#pragma unroll
		for (int e = 0; e < 4; e++) {
			const float v0 = q0[c].x[e];
			const float v1 = q1[c].x[e];
			const float v3 = v0 * v1;
			const float v4 = v3 + v2;
			const float v5 = v4 < 0.0f ? 0.0f : v4;
			s6.x[e] = v5;
		}
		put<4>(p3 + j0 * 256 + j1, s6);
	}
}
