// workspace 0

// channels: pointwise, grid [2 1 1] block [256 1 1] args [{0 0} {1 0} {2 0}]
extern "C" __global__ void __launch_bounds__(256) NAME(const float *p0, const float *p1, float *p2)
{
	using namespace gtc;
	const int b = blockIdx.x;
	pack<float, 4> q0[1];
	pack<float, 4> q1[1];
	{
		const int c = 0;
		const int j = (b * 256 + c * 256 + (int)threadIdx.x) * 4;
		if (j < 1176) {
			get<4>(q0[c], p0 + j);
			#pragma unroll
			for (int e = 0; e < 4; e++) {
				const int x2 = (j + e) % 49;
				const int x1 = (j + e) / 49 % 6;
				const int x0 = (j + e) / 294;
				q1[c].x[e] = (p1)[x1];
			}
		}
	}
	{
		const int c = 0;
		const int j = (b * 256 + c * 256 + (int)threadIdx.x) * 4;
		if (j < 1176) {
			pack<float, 4> s3;
			#pragma unroll
			for (int e = 0; e < 4; e++) {
				const int x2 = (j + e) % 49;
				const int x1 = (j + e) / 49 % 6;
				const int x0 = (j + e) / 294;
				const float v0 = q0[c].x[e];
				const float v1 = q1[c].x[e];
				const float v2 = v0 * v1;
				s3.x[e] = v2;
			}
			put<4>(p2 + j, s3);
		}
	}
}
