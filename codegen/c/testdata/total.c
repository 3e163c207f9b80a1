void total(void *a0, void *a1, void *a2) {
	const float *p0 = a0;
	float *p1 = a1;
	char *ws = a2;
	for (long c = 0; c < 1; c++) {
		double *acc2 = (double *)(ws + 0 + c * 64);
		acc2[0] = 0.0f;
		for (long r = c * 1 / 1; r < (c + 1) * 1 / 1; r++) {
			const float *q0 = p0;
			float v2 = 0.0f;
			#pragma omp simd reduction(+:v2)
			for (long j0 = 0; j0 < 5000; j0++) {
				const float v0 = q0[j0];
				const float v1 = v0 * v0;
				v2 = v2 + v1;
			}
			acc2[0] = acc2[0] + v2;
		}
	}
	for (long j = 0; j < 1; j++) {
		double s = ((double *)(ws + 0))[j];
		for (long c = 1; c < 1; c++) s = s + ((double *)(ws + 0 + c * 64))[j];
		p1[j] = s;
	}
}
