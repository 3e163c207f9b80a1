void softmax(void *a0, void *a1) {
	float *p0 = a0;
	float *p1 = a1;
	for (long i0 = 0; i0 < 40; i0++) {
		double s1 = (-INFINITY);
		for (long i1 = 0; i1 < 768; i1++) {
			const float v0 = p0[i0 * 768 + i1];
			s1 = s1 < v0 || v0 != v0 ? v0 : s1;
		}
		const float v1 = s1;
		double s4 = 0.0f;
		for (long i1 = 0; i1 < 768; i1++) {
			const float v0 = p0[i0 * 768 + i1];
			const float v2 = v0 - v1;
			const float v3 = gtc_expf(v2);
			s4 = s4 + v3;
		}
		const float v4 = s4;
		for (long i1 = 0; i1 < 768; i1++) {
			const float v0 = p0[i0 * 768 + i1];
			const float v2 = v0 - v1;
			const float v3 = gtc_expf(v2);
			const float v5 = v3 / v4;
			p1[i0 * 768 + i1] = v5;
		}
	}
}
