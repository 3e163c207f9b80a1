void integers(void *a0, void *a1, void *a2, void *a3) {
	int8_t *p0 = a0;
	int8_t *p1 = a1;
	int8_t *p2 = a2;
	uint16_t *p3 = a3;
	for (long i0 = 0; i0 < 200; i0++) {
		const int8_t v0 = p0[i0];
		const int8_t v1 = p1[i0];
		const int8_t v2 = (int8_t)((uint32_t)v0 * (uint32_t)v1);
		const int8_t v3 = (int8_t)(gtc_div_s(v2, v1));
		const int8_t v4 = v3 < 0 ? (int8_t)(0 - (uint32_t)v3) : v3;
		p2[i0] = v4;
		const uint16_t v6 = (uint16_t)(v0);
		const uint16_t v7 = (uint16_t)(v1);
		const uint16_t v8 = (uint16_t)(gtc_shr_u(v6, (uint64_t)v7, 16));
		const uint16_t v9 = (uint16_t)((uint32_t)v8 - (uint32_t)v7);
		p3[i0] = v9;
	}
}
