void small_floats(void *a0, void *a1, void *a2) {
	const uint8_t *p0 = a0;
	const float *p1 = a1;
	uint8_t *p2 = a2;
	const uint8_t *q0 = p0;
	const float *q2 = p1;
	uint8_t *q5 = p2;
	#pragma omp simd
	for (long j0 = 0; j0 < 256; j0++) {
		const float v0 = gtc_f8_e4m3_get(q0[j0]);
		const float v1 = (float)v0;
		const float v2 = q2[j0];
		const float v3 = v1 * v2;
		const float v4 = gtc_f8_e5m2_get(gtc_f8_e5m2_put((float)v3));
		q5[j0] = gtc_f8_e5m2_put(v3);
	}
}
