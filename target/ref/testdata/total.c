void total(void *a0, void *a1, void *work) {
	float *p0 = a0;
	float *p1 = a1;
	double *s2 = (double *)((char *)work + 0);
	for (long j = 0; j < 1; j++) s2[j] = 0.0f;
	for (long i0 = 0; i0 < 5000; i0++) {
		const float v0 = p0[i0];
		const float v1 = v0 * v0;
		s2[0] = s2[0] + v1;
	}
	for (long j = 0; j < 1; j++) p1[j] = s2[j];
}
