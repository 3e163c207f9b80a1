void gelu_half(void *a0, void *a1) {
	const gtc_f16 *p0 = a0;
	gtc_f16 *p1 = a1;
	const gtc_f16 *q0 = p0;
	gtc_f16 *q4 = p1;
	#pragma omp simd
	for (long j0 = 0; j0 < 2048; j0++) {
		const float v0 = gtc_f16_get(q0[j0]);
		const float v1 = gtc_ncdff(v0);
		const float v2 = v0 * v1;
		const float v3 = gtc_f16_get(gtc_f16_put((float)v2));
		q4[j0] = gtc_f16_put(v2);
	}
}
