void parallel(void *a0, void *a1) {
	float *p0 = a0;
	float *p1 = a1;
	for (long i0 = 0; i0 < 40000; i0++) {
		const float v0 = p0[i0];
		const float v1 = gtc_tanhf(v0);
		p1[i0] = v1;
	}
}
