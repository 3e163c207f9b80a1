void small_floats(void *a0, void *a1, void *a2) {
	uint8_t *p0 = a0;
	float *p1 = a1;
	uint8_t *p2 = a2;
	for (long i0 = 0; i0 < 256; i0++) {
		const float v0 = gtc_f8_e4m3_get(p0[i0]);
		const float v1 = (float)v0;
		const float v2 = p1[i0];
		const float v3 = v1 * v2;
		const float v4 = gtc_f8_e5m2_get(gtc_f8_e5m2_put((float)v3));
		p2[i0] = gtc_f8_e5m2_put(v3);
	}
}
