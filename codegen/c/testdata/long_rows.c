void long_rows(void *a0, void *a1, void *a2, void *a3) {
	const float *p0 = a0;
	float *p1 = a1;
	float *p2 = a2;
	char *ws = a3;
	#pragma omp parallel for schedule(static) num_threads(gtc_threads) if (parallel: gtc_threads > 1)
	for (long c = 0; c < 3; c++) {
		float *acc4 = (float *)(ws + 0 + c * 36032);
		for (long j = 0; j < 9001; j++) acc4[j] = 0.0f;
		for (long r = c * 3 / 3; r < (c + 1) * 3 / 3; r++) {
			const long i0 = r;
			const float *q0 = p0 + i0 * 9001;
			float *q2 = p2 + i0;
			float v1 = INFINITY;
			int n1 = 0;
			#pragma omp simd reduction(min:v1) reduction(|:n1)
			for (long j1 = 0; j1 < 9001; j1++) {
				const float v0 = q0[j1];
				v1 = v1 > v0 ? v0 : v1;
				n1 |= v0 != v0;
			}
			v1 = n1 ? NAN : v1;
			q2[0] = v1;
			#pragma omp simd
			for (long j1 = 0; j1 < 9001; j1++) {
				const float v0 = q0[j1];
				const float v3 = v0 - v1;
				acc4[j1] = acc4[j1] + v3;
			}
		}
	}
	#pragma omp simd
	for (long j = 0; j < 9001; j++) {
		float s = ((float *)(ws + 0))[j];
		for (long c = 1; c < 3; c++) s = s + ((float *)(ws + 0 + c * 36032))[j];
		p1[j] = s;
	}
}
