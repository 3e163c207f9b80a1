// workspace 0

// scalars: pointwise, grid [1 1 1] block [32 1 1] args [{-4 0} {-3 0}] table [1 0 64 128]
extern "C" __global__ void __launch_bounds__(32) NAME(char *base, const uint64_t *row)
{
	using namespace gtc;
	if (threadIdx.x != 0) return;
	for (uint64_t calls = *row++; calls > 0; calls--) {
		const double *p0 = (const double *)(base + *row++);
		const float *p1 = (const float *)(base + *row++);
		float *p2 = (float *)(base + *row++);
		const double v0 = p0[0];
		const float v1 = (float)v0;
		const float v2 = p1[0];
		const float v3 = 2.0f;
		const float v4 = v2 * v2;
		const float v5 = v1 + v4;
		p2[0] = v5;
	}
}
