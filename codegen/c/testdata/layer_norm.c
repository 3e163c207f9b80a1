void layer_norm(void *a0, void *a1, void *a2, void *a3, void *a4) {
	const gtc_bf16 *p0 = a0;
	const float *p1 = a1;
	const float *p2 = a2;
	gtc_bf16 *p3 = a3;
	float *p4 = a4;
	for (long r = 0; r < 33; r++) {
		const long i0 = r;
		const gtc_bf16 *q0 = p0 + i0 * 96;
		float *q5 = p4 + i0;
		const float *q14 = p1;
		const float *q16 = p2;
		gtc_bf16 *q19 = p3 + i0 * 96;
		const float v3 = 0.010416667f;
		const float v10 = 1e-05f;
		float v2 = 0.0f;
		#pragma omp simd reduction(+:v2)
		for (long j1 = 0; j1 < 96; j1++) {
			const float v0 = gtc_bf16_get(q0[j1]);
			const float v1 = (float)v0;
			v2 = v2 + v1;
		}
		const float v4 = v2 * v3;
		q5[0] = v4;
		float v8 = 0.0f;
		#pragma omp simd reduction(+:v8)
		for (long j1 = 0; j1 < 96; j1++) {
			const float v0 = gtc_bf16_get(q0[j1]);
			const float v1 = (float)v0;
			const float v6 = v1 - v4;
			const float v7 = v6 * v6;
			v8 = v8 + v7;
		}
		const float v9 = v8 * v3;
		const float v11 = v9 + v10;
		const float v12 = gtc_rsqrtf(v11);
		#pragma omp simd
		for (long j1 = 0; j1 < 96; j1++) {
			const float v0 = gtc_bf16_get(q0[j1]);
			const float v1 = (float)v0;
			const float v6 = v1 - v4;
			const float v13 = v6 * v12;
			const float v14 = q14[j1];
			const float v15 = v13 * v14;
			const float v16 = q16[j1];
			const float v17 = v15 + v16;
			const float v18 = gtc_bf16_get(gtc_bf16_put((float)v17));
			q19[j1] = gtc_bf16_put(v17);
		}
	}
}
