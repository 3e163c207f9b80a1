// workspace 64

// columns: reduction, grid [5 1 1] block [256 1 1] args [{0 0} {1 0} {2 0} {-10 0}]
extern "C" __global__ void __launch_bounds__(256) NAME(const float *p0, float *p1, float *p2, char *ws)
{
	using namespace gtc;
	const int column = (blockIdx.x * 8 + threadIdx.x % 8) * 2;
	const int r0 = (int)blockIdx.y * 50, r1 = r0 + 50 < 50 ? r0 + 50 : 50;
	float a1[2];
	#pragma unroll
	for (int e = 0; e < 2; e++) a1[e] = 0.0f;
	float a3 = (-INFINITY);
	for (int r = r0 + threadIdx.x / 8; r < r1; r += 32) {
		pack<float, 2> q0[1];
		{
			const int c = 0;
			const int q = r + c * 32;
			const int i0 = q;
			const int j = column;
			if (q < r1 && j < 70) {
				const int j1 = j;
				get<2>(q0[c], p0 + i0 * 70 + j1);
			}
		}
		{
			const int c = 0;
			const int q = r + c * 32;
			const int i0 = q;
			const int j = column;
			if (q < r1 && j < 70) {
				const int j1 = j;
				#pragma unroll
				for (int e = 0; e < 2; e++) {
					const float v0 = q0[c].x[e];
					a1[e] = op_sum::of(a1[e], (float)v0);
					const float v2 = gtc_absf(v0);
					a3 = op_max::of(a3, (float)v2);
				}
			}
		}
	}
	GTC_SHARED(float, room1, [256]);
	#pragma unroll
	for (int e = 0; e < 2; e++) {
		a1[e] = over_lines<op_sum, 8, 32>(a1[e], room1);
		sync();
		if (threadIdx.x < 8 && column + e < 70) p1[column + e] = a1[e];
	}
	GTC_SHARED(float, room3, [8]);
	a3 = over_block<op_max, 8>(a3, room3);
	if (threadIdx.x == 0) ((float *)(ws + 0))[blockIdx.y * 5 + blockIdx.x] = a3;
}

// columns_sum: reduction, grid [1 1 1] block [256 1 1] args [{2 0} {-10 0}]
extern "C" __global__ void __launch_bounds__(256) NAME(float *p2, char *ws)
{
	using namespace gtc;
	GTC_SHARED(double, room, [256]);
	{
		const int j = (blockIdx.x - 0) * 1 + threadIdx.x % 1;
		const float *from = (const float *)(ws + 0) + (j < 1 ? j : 0);
		float v = fold<op_max, 5, 1, 256>(from, (float)(-INFINITY), (float *)room);
		if (threadIdx.x < 1 && j < 1) p2[j] = v;
	}
}
