// workspace 0

// strided: pointwise, grid [1 1 1] block [160 1 1] args [{0 0} {1 0}]
extern "C" __global__ void __launch_bounds__(160) NAME(const double *p0, double *p1)
{
	using namespace gtc;
	const int b = blockIdx.x;
	pack<double, 2> q0[1];
	{
		const int c = 0;
		const int j = (b * 160 + c * 160 + (int)threadIdx.x) * 2;
		if (j < 300) {
			const int j0 = j;
			#pragma unroll
			for (int e = 0; e < 2; e++) {
				q0[c].x[e] = (p0 + 3 + j0 * 2)[e * 2];
			}
		}
	}
	{
		const int c = 0;
		const int j = (b * 160 + c * 160 + (int)threadIdx.x) * 2;
		if (j < 300) {
			const int j0 = j;
			pack<double, 2> s2;
			#pragma unroll
			for (int e = 0; e < 2; e++) {
				const double v0 = q0[c].x[e];
				const double v1 = gtc_sigmoid64(v0);
				s2.x[e] = v1;
			}
			put<2>(p1 + j0, s2);
		}
	}
}
