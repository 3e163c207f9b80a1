void pointwise(void *a0, void *a1, void *a2, void *a3) {
	const float *p0 = a0;
	const float *p1 = a1;
	const float *p2 = a2;
	float *p3 = a3;
	#pragma omp parallel for schedule(static) num_threads(gtc_threads) if (parallel: gtc_threads > 1)
	for (long r = 0; r < 64; r++) {
		const long i0 = r;
		const float *q0 = p0 + i0 * 256;
		const float *q1 = p1;
		const float *q2 = p2;
		float *q6 = p3 + i0 * 256;
		const float v2 = q2[0];
		#pragma omp simd
		for (long j1 = 0; j1 < 256; j1++) {
			const float v0 = q0[j1];
			const float v1 = q1[j1];
			const float v3 = v0 * v1;
			const float v4 = v3 + v2;
			const float v5 = v4 < 0.0f ? 0.0f : v4;
			q6[j1] = v5;
		}
	}
}
