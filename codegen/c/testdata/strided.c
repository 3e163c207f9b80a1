void strided(void *a0, void *a1) {
	const double *p0 = a0;
	double *p1 = a1;
	const double *q0 = p0 + 3;
	double *q2 = p1;
	#pragma omp simd
	for (long j0 = 0; j0 < 300; j0++) {
		const double v0 = q0[j0 * 2];
		const double v1 = gtc_sigmoid64(v0);
		q2[j0] = v1;
	}
}
