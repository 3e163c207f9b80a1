void turn(void *a0, void *a1, void *a2) {
	const float *p0 = a0;
	const float *p1 = a1;
	float *p2 = a2;
	for (long r = 0; r < 40; r++) {
		const long i0 = r;
		const float *q0 = p0 + i0;
		const float *q1 = p1 + i0 * 70;
		float *q3 = p2 + i0 * 70;
		#pragma omp simd
		for (long j1 = 0; j1 < 70; j1++) {
			const float v0 = q0[j1 * 40];
			const float v1 = q1[j1];
			const float v2 = v0 + v1;
			q3[j1] = v2;
		}
	}
}
