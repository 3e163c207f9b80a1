void columns(void *a0, void *a1, void *a2, void *work) {
	float *p0 = a0;
	float *p1 = a1;
	float *p2 = a2;
	double *s1 = (double *)((char *)work + 0);
	for (long j = 0; j < 70; j++) s1[j] = 0.0f;
	double *s3 = (double *)((char *)work + 576);
	for (long j = 0; j < 1; j++) s3[j] = (-INFINITY);
	for (long i0 = 0; i0 < 50; i0++) {
		for (long i1 = 0; i1 < 70; i1++) {
			const float v0 = p0[i0 * 70 + i1];
			s1[i1] = s1[i1] + v0;
			const float v2 = gtc_absf(v0);
			s3[0] = s3[0] < v2 || v2 != v2 ? v2 : s3[0];
		}
	}
	for (long j = 0; j < 70; j++) p1[j] = s1[j];
	for (long j = 0; j < 1; j++) p2[j] = s3[j];
}
