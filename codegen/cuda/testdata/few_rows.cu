// workspace 64

// few_rows_stage0: reduction, grid [4 2 1] block [256 1 1] args [{0 0} {1 0} {2 0} {-10 0}]
extern "C" __global__ void __launch_bounds__(256) NAME(const float *p0, float *p1, float *p2, char *ws)
{
	using namespace gtc;
	const int r = blockIdx.y;
	const int i0 = r;
	const int start = blockIdx.x * 4096, stop = start + 4096 < 16384 ? start + 4096 : 16384;
	float a1 = (-INFINITY);
	for (int b = start; b < stop; b += 4096) {
		pack<float, 4> q0[4];
		#pragma unroll
		for (int c = 0; c < 4; c++) {
			const int j = b + (c * 256 + (int)threadIdx.x) * 4;
			if (j < stop) {
				const int j1 = j;
				get<4>(q0[c], p0 + i0 * 16384 + j1);
			}
		}
		#pragma unroll
		for (int c = 0; c < 4; c++) {
			const int j = b + (c * 256 + (int)threadIdx.x) * 4;
			if (j < stop) {
				const int j1 = j;
				#pragma unroll
				for (int e = 0; e < 4; e++) {
					const float v0 = q0[c].x[e];
					a1 = op_max::of(a1, (float)v0);
				}
			}
		}
	}
	GTC_SHARED(float, room1, [8]);
	a1 = over_block<op_max, 8>(a1, room1);
	if (threadIdx.x == 0) ((float *)(ws + 0))[r * 4 + blockIdx.x] = a1;
}

// few_rows_stage1: reduction, grid [4 2 1] block [256 1 1] args [{0 0} {1 0} {2 0} {-10 0}]
extern "C" __global__ void __launch_bounds__(256) NAME(const float *p0, float *p1, float *p2, char *ws)
{
	using namespace gtc;
	const int r = blockIdx.y;
	const int i0 = r;
	float a1 = (-INFINITY);
	for (int k = threadIdx.x % 32; k < 4; k += 32) a1 = op_max::of(a1, ((const float *)(ws + 0))[r * 4 + k]);
	const float v1 = (float)over_lanes<op_max, 32>(a1);
	if (blockIdx.x == 0 && threadIdx.x == 0) p2[i0] = v1;
	const int start = blockIdx.x * 4096, stop = start + 4096 < 16384 ? start + 4096 : 16384;
	for (int b = start; b < stop; b += 4096) {
		pack<float, 4> q0[4];
		#pragma unroll
		for (int c = 0; c < 4; c++) {
			const int j = b + (c * 256 + (int)threadIdx.x) * 4;
			if (j < stop) {
				const int j1 = j;
				get<4>(q0[c], p0 + i0 * 16384 + j1);
			}
		}
		#pragma unroll
		for (int c = 0; c < 4; c++) {
			const int j = b + (c * 256 + (int)threadIdx.x) * 4;
			if (j < stop) {
				const int j1 = j;
				pack<float, 4> s4;
				#pragma unroll
				for (int e = 0; e < 4; e++) {
					const float v0 = q0[c].x[e];
					const float v3 = v0 - v1;
					s4.x[e] = v3;
				}
				put<4>(p1 + i0 * 16384 + j1, s4);
			}
		}
	}
}
