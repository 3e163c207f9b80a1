void softmax(void *a0, void *a1) {
	const float *p0 = a0;
	float *p1 = a1;
	#pragma omp parallel for schedule(static) num_threads(gtc_threads) if (parallel: gtc_threads > 1)
	for (long r = 0; r < 40; r++) {
		const long i0 = r;
		const float *q0 = p0 + i0 * 768;
		float *q6 = p1 + i0 * 768;
		float t3[768] __attribute__((aligned(64)));
		float v1 = (-INFINITY);
		int n1 = 0;
		#pragma omp simd reduction(max:v1) reduction(|:n1)
		for (long j1 = 0; j1 < 768; j1++) {
			const float v0 = q0[j1];
			v1 = v1 < v0 ? v0 : v1;
			n1 |= v0 != v0;
		}
		v1 = n1 ? NAN : v1;
		float v4 = 0.0f;
		#pragma omp simd reduction(+:v4)
		for (long j1 = 0; j1 < 768; j1++) {
			const float v0 = q0[j1];
			const float v2 = v0 - v1;
			const float v3 = gtc_expf(v2);
			t3[j1] = v3;
			v4 = v4 + v3;
		}
		#pragma omp simd
		for (long j1 = 0; j1 < 768; j1++) {
			const float v3 = t3[j1];
			const float v5 = v3 / v4;
			q6[j1] = v5;
		}
	}
}
