void channels(void *a0, void *a1, void *a2) {
	float *p0 = a0;
	float *p1 = a1;
	float *p2 = a2;
	for (long i0 = 0; i0 < 4; i0++) {
		for (long i1 = 0; i1 < 6; i1++) {
			for (long i2 = 0; i2 < 49; i2++) {
				const float v0 = p0[i0 * 294 + i1 * 49 + i2];
				const float v1 = p1[i1];
				const float v2 = v0 * v1;
				p2[i0 * 294 + i1 * 49 + i2] = v2;
			}
		}
	}
}
