void columns(void *a0, void *a1, void *a2, void *a3) {
	const float *p0 = a0;
	float *p1 = a1;
	float *p2 = a2;
	char *ws = a3;
	for (long c = 0; c < 4; c++) {
		float *acc1 = (float *)(ws + 0 + c * 320);
		for (long j = 0; j < 70; j++) acc1[j] = 0.0f;
		double *acc3 = (double *)(ws + 1280 + c * 64);
		acc3[0] = (-INFINITY);
		for (long r = c * 50 / 4; r < (c + 1) * 50 / 4; r++) {
			const long i0 = r;
			const float *q0 = p0 + i0 * 70;
			float v3 = (-INFINITY);
			int n3 = 0;
			#pragma omp simd reduction(max:v3) reduction(|:n3)
			for (long j1 = 0; j1 < 70; j1++) {
				const float v0 = q0[j1];
				acc1[j1] = acc1[j1] + v0;
				const float v2 = gtc_absf(v0);
				v3 = v3 < v2 ? v2 : v3;
				n3 |= v2 != v2;
			}
			v3 = n3 ? NAN : v3;
			acc3[0] = acc3[0] < v3 || v3 != v3 ? v3 : acc3[0];
		}
	}
	#pragma omp simd
	for (long j = 0; j < 70; j++) {
		float s = ((float *)(ws + 0))[j];
		for (long c = 1; c < 4; c++) s = s + ((float *)(ws + 0 + c * 320))[j];
		p1[j] = s;
	}
	for (long j = 0; j < 1; j++) {
		double s = ((double *)(ws + 1280))[j];
		for (long c = 1; c < 4; c++) s = s < ((double *)(ws + 1280 + c * 64))[j] || ((double *)(ws + 1280 + c * 64))[j] != ((double *)(ws + 1280 + c * 64))[j] ? ((double *)(ws + 1280 + c * 64))[j] : s;
		p2[j] = s;
	}
}
