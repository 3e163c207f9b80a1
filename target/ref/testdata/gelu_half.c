void gelu_half(void *a0, void *a1) {
	gtc_f16 *p0 = a0;
	gtc_f16 *p1 = a1;
	for (long i0 = 0; i0 < 2048; i0++) {
		const float v0 = gtc_f16_get(p0[i0]);
		const float v1 = gtc_ncdff(v0);
		const float v2 = v0 * v1;
		const float v3 = gtc_f16_get(gtc_f16_put((float)v2));
		p1[i0] = gtc_f16_put(v2);
	}
}
