// workspace 64

// total: reduction, grid [5 1 1] block [256 1 1] args [{0 0} {1 0} {-10 0}]
extern "C" __global__ void __launch_bounds__(256) NAME(const float *p0, float *p1, char *ws)
{
	using namespace gtc;
	float a2 = 0.0f;
	const int b = blockIdx.x;
	pack<float, 4> q0[1];
	{
		const int c = 0;
		const int j = (b * 256 + c * 256 + (int)threadIdx.x) * 4;
		if (j < 5000) {
			const int j0 = j;
			get<4>(q0[c], p0 + j0);
		}
	}
	{
		const int c = 0;
		const int j = (b * 256 + c * 256 + (int)threadIdx.x) * 4;
		if (j < 5000) {
			const int j0 = j;
			#pragma unroll
			for (int e = 0; e < 4; e++) {
				const float v0 = q0[c].x[e];
				const float v1 = v0 * v0;
				a2 = op_sum::of(a2, (float)v1);
			}
		}
	}
	GTC_SHARED(float, room2, [8]);
	a2 = over_block<op_sum, 8>(a2, room2);
	if (threadIdx.x == 0) ((float *)(ws + 0))[blockIdx.x] = a2;
}

// total_sum: reduction, grid [1 1 1] block [256 1 1] args [{1 0} {-10 0}]
extern "C" __global__ void __launch_bounds__(256) NAME(float *p1, char *ws)
{
	using namespace gtc;
	GTC_SHARED(double, room, [256]);
	{
		const int j = (blockIdx.x - 0) * 1 + threadIdx.x % 1;
		const float *from = (const float *)(ws + 0) + (j < 1 ? j : 0);
		float v = fold<op_sum, 5, 1, 256>(from, (float)0.0f, (float *)room);
		if (threadIdx.x < 1 && j < 1) p1[j] = v;
	}
}
