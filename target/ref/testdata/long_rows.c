void long_rows(void *a0, void *a1, void *a2, void *work) {
	float *p0 = a0;
	float *p1 = a1;
	float *p2 = a2;
	double *s4 = (double *)((char *)work + 0);
	for (long j = 0; j < 9001; j++) s4[j] = 0.0f;
	for (long i0 = 0; i0 < 3; i0++) {
		double s1 = INFINITY;
		for (long i1 = 0; i1 < 9001; i1++) {
			const float v0 = p0[i0 * 9001 + i1];
			s1 = s1 > v0 || v0 != v0 ? v0 : s1;
		}
		const float v1 = s1;
		p2[i0] = v1;
		for (long i1 = 0; i1 < 9001; i1++) {
			const float v0 = p0[i0 * 9001 + i1];
			const float v3 = v0 - v1;
			s4[i1] = s4[i1] + v3;
		}
	}
	for (long j = 0; j < 9001; j++) p1[j] = s4[j];
}
