// workspace 0

// parallel: pointwise, grid [40 1 1] block [256 1 1] args [{0 0} {1 0}]
extern "C" __global__ void __launch_bounds__(256) NAME(const float *p0, float *p1)
{
	using namespace gtc;
	const int b = blockIdx.x;
	pack<float, 4> q0[1];
	{
		const int c = 0;
		const int j = (b * 256 + c * 256 + (int)threadIdx.x) * 4;
		if (j < 40000) {
			const int j0 = j;
			get<4>(q0[c], p0 + j0);
		}
	}
	{
		const int c = 0;
		const int j = (b * 256 + c * 256 + (int)threadIdx.x) * 4;
		if (j < 40000) {
			const int j0 = j;
			pack<float, 4> s2;
			#pragma unroll
			for (int e = 0; e < 4; e++) {
				const float v0 = q0[c].x[e];
				const float v1 = gtc_tanhf(v0);
				s2.x[e] = v1;
			}
			put<4>(p1 + j0, s2);
		}
	}
}
