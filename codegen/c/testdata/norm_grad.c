void norm_grad(void *a0, void *a1, void *a2, void *a3, void *a4) {
	const float *p0 = a0;
	const float *p1 = a1;
	float *p2 = a2;
	float *p3 = a3;
	char *ws = a4;
	for (long c = 0; c < 2; c++) {
		float *acc3 = (float *)(ws + 0 + c * 192);
		for (long j = 0; j < 48; j++) acc3[j] = 0.0f;
		for (long r = c * 37 / 2; r < (c + 1) * 37 / 2; r++) {
			const long i0 = r;
			const float *q0 = p0 + i0 * 48;
			const float *q1 = p1 + i0 * 48;
			float *q7 = p3 + i0 * 48;
			float v4 = 0.0f;
			#pragma omp simd reduction(+:v4)
			for (long j1 = 0; j1 < 48; j1++) {
				const float v0 = q0[j1];
				const float v1 = q1[j1];
				const float v2 = v0 * v1;
				acc3[j1] = acc3[j1] + v2;
				v4 = v4 + v2;
			}
			#pragma omp simd
			for (long j1 = 0; j1 < 48; j1++) {
				const float v0 = q0[j1];
				const float v1 = q1[j1];
				const float v5 = v1 * v4;
				const float v6 = v0 - v5;
				q7[j1] = v6;
			}
		}
	}
	#pragma omp simd
	for (long j = 0; j < 48; j++) {
		float s = ((float *)(ws + 0))[j];
		for (long c = 1; c < 2; c++) s = s + ((float *)(ws + 0 + c * 192))[j];
		p2[j] = s;
	}
}
