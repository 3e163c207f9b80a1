void strided(void *a0, void *a1) {
	double *p0 = a0;
	double *p1 = a1;
	for (long i0 = 0; i0 < 300; i0++) {
		const double v0 = p0[3 + i0 * 2];
		const double v1 = gtc_sigmoid64(v0);
		p1[i0] = v1;
	}
}
