void few_rows(void *a0, void *a1, void *a2) {
	float *p0 = a0;
	float *p1 = a1;
	float *p2 = a2;
	for (long i0 = 0; i0 < 2; i0++) {
		double s1 = (-INFINITY);
		for (long i1 = 0; i1 < 16384; i1++) {
			const float v0 = p0[i0 * 16384 + i1];
			s1 = s1 < v0 || v0 != v0 ? v0 : s1;
		}
		const float v1 = s1;
		p2[i0] = v1;
		for (long i1 = 0; i1 < 16384; i1++) {
			const float v0 = p0[i0 * 16384 + i1];
			const float v3 = v0 - v1;
			p1[i0 * 16384 + i1] = v3;
		}
	}
}
