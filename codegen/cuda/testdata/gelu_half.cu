// workspace 0

// gelu_half: pointwise, grid [1 1 1] block [256 1 1] args [{0 0} {1 0}]
extern "C" __global__ void __launch_bounds__(256) NAME(const gtc_f16 *p0, gtc_f16 *p1)
{
	using namespace gtc;
	const int b = blockIdx.x;
	pack<gtc_f16, 8> q0[1];
	{
		const int c = 0;
		const int j = (b * 256 + c * 256 + (int)threadIdx.x) * 8;
		const int j0 = j;
		get<8>(q0[c], p0 + j0);
	}
	{
		const int c = 0;
		const int j = (b * 256 + c * 256 + (int)threadIdx.x) * 8;
		const int j0 = j;
		pack<gtc_f16, 8> s4;
		#pragma unroll
		for (int e = 0; e < 8; e++) {
			const float v0 = gtc_f16_get(q0[c].x[e]);
			const float v1 = gtc_fast_ncdff(v0);
			const float v2 = v0 * v1;
			const float v3 = gtc_f16_get(gtc_f16_put((float)v2));
			s4.x[e] = gtc_f16_put(v2);
		}
		put<8>(p1 + j0, s4);
	}
}
