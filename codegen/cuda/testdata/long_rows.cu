// workspace 108032

// long_rows: reduction, grid [3 1 1] block [512 1 1] args [{0 0} {1 0} {2 0} {-10 0}]
extern "C" __global__ void __launch_bounds__(512) NAME(const float *p0, float *p1, float *p2, char *ws)
{
	using namespace gtc;
	const int lane = threadIdx.x % 512;
	GTC_SHARED(float, room1, [16]);
	float a4[18][1];
	#pragma unroll
	for (int c = 0; c < 18; c++)
	#pragma unroll
		for (int e = 0; e < 1; e++) a4[c][e] = 0.0f;
	const int r0 = (int)blockIdx.x * 1;
	const int r = r0;
	const int i0 = r;
	float a1 = INFINITY;
	float q0[18];
	#pragma unroll
	for (int c = 0; c < 18; c++) {
		const int j = (c * 512 + lane) * 1;
		if (j < 9001) {
			const int j1 = j;
			q0[c] = *(p0 + i0 * 9001 + j1);
		}
	}
	#pragma unroll
	for (int c = 0; c < 18; c++) {
		const int j = (c * 512 + lane) * 1;
		if (j < 9001) {
			const int j1 = j;
			{
				const float v0 = q0[c];
				a1 = op_min::of(a1, (float)v0);
			}
		}
	}
	const float v1 = (float)over_block<op_min, 16>(a1, room1);
	if (lane == 0) p2[i0] = v1;
	#pragma unroll
	for (int c = 0; c < 18; c++) {
		const int j = (c * 512 + lane) * 1;
		if (j < 9001) {
			const int j1 = j;
			{
				const int e = 0;
				const float v0 = q0[c];
				const float v3 = v0 - v1;
				a4[c][e] = op_sum::of(a4[c][e], (float)v3);
			}
		}
	}
	#pragma unroll
	for (int c = 0; c < 18; c++) {
		const int j = (c * 512 + lane) * 1;
		#pragma unroll
		for (int e = 0; e < 1; e++) {
			if (j + e < 9001) {
				((float *)(ws + 0) + blockIdx.x * 9001)[j + e] = a4[c][e];
			}
		}
	}
}

// long_rows_sum: reduction, grid [141 1 1] block [256 1 1] args [{1 0} {-10 0}]
extern "C" __global__ void __launch_bounds__(256) NAME(float *p1, char *ws)
{
	using namespace gtc;
	GTC_SHARED(double, room, [256]);
	{
		const int j = (blockIdx.x - 0) * 64 + threadIdx.x % 64;
		const float *from = (const float *)(ws + 0) + (j < 9001 ? j : 0);
		float v = fold<op_sum, 3, 9001, 4>(from, (float)0.0f, (float *)room);
		if (threadIdx.x < 64 && j < 9001) p1[j] = v;
	}
}
