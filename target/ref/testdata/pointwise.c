void pointwise(void *a0, void *a1, void *a2, void *a3) {
	float *p0 = a0;
	float *p1 = a1;
	float *p2 = a2;
	float *p3 = a3;
	for (long i0 = 0; i0 < 64; i0++) {
		const float v2 = p2[0];
		for (long i1 = 0; i1 < 256; i1++) {
			const float v0 = p0[i0 * 256 + i1];
			const float v1 = p1[i1];
			const float v3 = v0 * v1;
			const float v4 = v3 + v2;
			const float v5 = v4 < 0.0f ? 0.0f : v4;
			p3[i0 * 256 + i1] = v5;
		}
	}
}
