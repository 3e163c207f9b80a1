void first_dim(void *a0, void *a1) {
	const float *p0 = a0;
	float *p1 = a1;
	for (long r = 0; r < 300; r++) {
		const long i1 = r;
		const float *q0 = p0 + i1;
		float *q3 = p1 + i1;
		float v1 = 0.0f;
		#pragma omp simd reduction(+:v1)
		for (long j0 = 0; j0 < 12; j0++) {
			const float v0 = q0[j0 * 300];
			v1 = v1 + v0;
		}
		#pragma omp simd
		for (long j0 = 0; j0 < 12; j0++) {
			const float v0 = q0[j0 * 300];
			const float v2 = v0 - v1;
			q3[j0 * 300] = v2;
		}
	}
}
