void scalars(void *a0, void *a1, void *a2) {
	double *p0 = a0;
	float *p1 = a1;
	float *p2 = a2;
	const double v0 = p0[0];
	const float v1 = (float)v0;
	const float v2 = p1[0];
	const float v3 = 2.0f;
	const float v4 = v2 * v2;
	const float v5 = v1 + v4;
	p2[0] = v5;
}
