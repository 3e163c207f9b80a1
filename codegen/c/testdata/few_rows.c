void few_rows(void *a0, void *a1, void *a2) {
	const float *p0 = a0;
	float *p1 = a1;
	float *p2 = a2;
	#pragma omp parallel for schedule(static) num_threads(gtc_threads) if (parallel: gtc_threads > 1)
	for (long r = 0; r < 2; r++) {
		const long i0 = r;
		const float *q0 = p0 + i0 * 16384;
		float *q2 = p2 + i0;
		float *q4 = p1 + i0 * 16384;
		float v1 = (-INFINITY);
		int n1 = 0;
		#pragma omp simd reduction(max:v1) reduction(|:n1)
		for (long j1 = 0; j1 < 16384; j1++) {
			const float v0 = q0[j1];
			v1 = v1 < v0 ? v0 : v1;
			n1 |= v0 != v0;
		}
		v1 = n1 ? NAN : v1;
		q2[0] = v1;
		#pragma omp simd
		for (long j1 = 0; j1 < 16384; j1++) {
			const float v0 = q0[j1];
			const float v3 = v0 - v1;
			q4[j1] = v3;
		}
	}
}
