void parallel(void *a0, void *a1) {
	const float *p0 = a0;
	float *p1 = a1;
	const float *q0 = p0;
	float *q2 = p1;
	#pragma omp parallel for simd schedule(static) num_threads(gtc_threads) if (parallel: gtc_threads > 1)
	for (long j0 = 0; j0 < 40000; j0++) {
		const float v0 = q0[j0];
		const float v1 = gtc_tanhf(v0);
		q2[j0] = v1;
	}
}
