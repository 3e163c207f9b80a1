void positions(void *a0, void *a1) {
	float *p0 = a0;
	float *p1 = a1;
	for (long i0 = 0; i0 < 3; i0++) {
		for (long i1 = 0; i1 < 16; i1++) {
			const int64_t v0 = i1;
			const float v4 = (-INFINITY);
			for (long i2 = 0; i2 < 16; i2++) {
				const int64_t v1 = i2;
				const int v2 = v1 > v0;
				const float v3 = p0[i0 * 256 + i1 * 16 + i2];
				const float v5 = v2 ? v4 : v3;
				p1[i0 * 256 + i1 * 16 + i2] = v5;
			}
		}
	}
}
