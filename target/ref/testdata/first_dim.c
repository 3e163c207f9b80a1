void first_dim(void *a0, void *a1) {
	float *p0 = a0;
	float *p1 = a1;
	for (long i1 = 0; i1 < 300; i1++) {
		double s1 = 0.0f;
		for (long i0 = 0; i0 < 12; i0++) {
			const float v0 = p0[i0 * 300 + i1];
			s1 = s1 + v0;
		}
		const float v1 = s1;
		for (long i0 = 0; i0 < 12; i0++) {
			const float v0 = p0[i0 * 300 + i1];
			const float v2 = v0 - v1;
			p1[i0 * 300 + i1] = v2;
		}
	}
}
