void scalars(void *a0, void *a1, void *a2) {
	const double *p0 = a0;
	const float *p1 = a1;
	float *p2 = a2;
	const double *q0 = p0;
	const float *q2 = p1;
	float *q6 = p2;
	const double v0 = q0[0];
	const float v1 = (float)v0;
	const float v2 = q2[0];
	const float v3 = 2.0f;
	const float v4 = v2 * v2;
	const float v5 = v1 + v4;
	q6[0] = v5;
}
