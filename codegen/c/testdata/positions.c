void positions(void *a0, void *a1) {
	const float *p0 = a0;
	float *p1 = a1;
	for (long r = 0; r < 48; r++) {
		const long i0 = r / 16;
		const long i1 = r / 1 % 16;
		const float *q3 = p0 + i0 * 256 + i1 * 16;
		float *q6 = p1 + i0 * 256 + i1 * 16;
		const int64_t v0 = 0 + i1;
		const float v4 = (-INFINITY);
		#pragma omp simd
		for (long j2 = 0; j2 < 16; j2++) {
			const int64_t v1 = 0 + j2;
			const int v2 = v1 > v0;
			const float v3 = q3[j2];
			const float v5 = v2 ? v4 : v3;
			q6[j2] = v5;
		}
	}
}
