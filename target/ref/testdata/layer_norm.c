void layer_norm(void *a0, void *a1, void *a2, void *a3, void *a4) {
	gtc_bf16 *p0 = a0;
	float *p1 = a1;
	float *p2 = a2;
	gtc_bf16 *p3 = a3;
	float *p4 = a4;
	for (long i0 = 0; i0 < 33; i0++) {
		const float v3 = 0.010416667f;
		const float v10 = 1e-05f;
		double s2 = 0.0f;
		for (long i1 = 0; i1 < 96; i1++) {
			const float v0 = gtc_bf16_get(p0[i0 * 96 + i1]);
			const float v1 = (float)v0;
			s2 = s2 + v1;
		}
		const float v2 = s2;
		const float v4 = v2 * v3;
		p4[i0] = v4;
		double s8 = 0.0f;
		for (long i1 = 0; i1 < 96; i1++) {
			const float v0 = gtc_bf16_get(p0[i0 * 96 + i1]);
			const float v1 = (float)v0;
			const float v6 = v1 - v4;
			const float v7 = v6 * v6;
			s8 = s8 + v7;
		}
		const float v8 = s8;
		const float v9 = v8 * v3;
		const float v11 = v9 + v10;
		const float v12 = gtc_rsqrtf(v11);
		for (long i1 = 0; i1 < 96; i1++) {
			const float v0 = gtc_bf16_get(p0[i0 * 96 + i1]);
			const float v1 = (float)v0;
			const float v6 = v1 - v4;
			const float v13 = v6 * v12;
			const float v14 = p1[i1];
			const float v15 = v13 * v14;
			const float v16 = p2[i1];
			const float v17 = v15 + v16;
			const float v18 = gtc_bf16_get(gtc_bf16_put((float)v17));
			p3[i0 * 96 + i1] = gtc_bf16_put(v17);
		}
	}
}
