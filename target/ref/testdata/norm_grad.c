void norm_grad(void *a0, void *a1, void *a2, void *a3, void *work) {
	float *p0 = a0;
	float *p1 = a1;
	float *p2 = a2;
	float *p3 = a3;
	double *s3 = (double *)((char *)work + 0);
	for (long j = 0; j < 48; j++) s3[j] = 0.0f;
	for (long i0 = 0; i0 < 37; i0++) {
		double s4 = 0.0f;
		for (long i1 = 0; i1 < 48; i1++) {
			const float v0 = p0[i0 * 48 + i1];
			const float v1 = p1[i0 * 48 + i1];
			const float v2 = v0 * v1;
			s3[i1] = s3[i1] + v2;
			s4 = s4 + v2;
		}
		const float v4 = s4;
		for (long i1 = 0; i1 < 48; i1++) {
			const float v0 = p0[i0 * 48 + i1];
			const float v1 = p1[i0 * 48 + i1];
			const float v5 = v1 * v4;
			const float v6 = v0 - v5;
			p3[i0 * 48 + i1] = v6;
		}
	}
	for (long j = 0; j < 48; j++) p2[j] = s3[j];
}
