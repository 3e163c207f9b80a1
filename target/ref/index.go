package ref

func init() {
	templates["GatherRows"] = template{status: true, moves: true, pointers: "int32_t *table, int64_t *idx, int32_t *out", ints: "rows width n", body: `
	for (long i = 0; i < n; i++) {
		const long r = idx[i] < 0 ? idx[i] + rows : idx[i];
		if ((r < 0 || r >= rows) && bad < 0) bad = i;
		for (long j = 0; j < width; j++) out[i * width + j] = r < 0 || r >= rows ? 0 : table[r * width + j];
	}
`}
	templates["Take"] = template{status: true, moves: true, pointers: "char *table, void *idx, char *out", ints: "outer size bytes n idx32", body: `
	for (long i = 0; i < outer * n; i++) {
		const long at = idx32 ? ((int32_t *)idx)[i % n] : ((int64_t *)idx)[i % n], r = at < 0 ? at + size : at;
		if (r < 0 || r >= size) {
			for (long j = 0; j < outer * n * bytes; j++) out[j] = 0;
			return i;
		}
		for (long j = 0; j < bytes; j++) out[i * bytes + j] = table[(i / n * size + r) * bytes + j];
	}
`}
	templates["ScatterAddRows"] = template{status: true, pointers: "int64_t *idx, float *upd, float *out", ints: "rows width n zero", body: `
	for (long i = 0; i < n; i++)
		if (idx[i] < -rows || idx[i] >= rows) return i;
	if (zero)
		for (long j = 0; j < rows * width; j++) out[j] = 0;
	for (long i = 0; i < n; i++)
		for (long j = 0; j < width; j++) out[(idx[i] < 0 ? idx[i] + rows : idx[i]) * width + j] += upd[i * width + j];
`}
	templates["ScatterRows"] = template{status: true, moves: true, pointers: "T *data, int64_t *idx, T *upd, T *out", ints: "rows width n elem how", body: `
	if (out != data)
		for (long j = 0; j < rows * width; j++) out[j] = data[j];
	for (long i = 0; i < n; i++)
		if (idx[i] < -rows || idx[i] >= rows) return i;
	for (long i = 0; i < n; i++)
		for (long j = 0; j < width; j++) {
			T *o = out + (idx[i] < 0 ? idx[i] + rows : idx[i]) * width + j;
			const T u = upd[i * width + j];
			switch (how) {
			case 1: *o = (T)((S)*o + (S)u); break;
			case 2: *o = (T)((S)*o * (S)u); break;
			case 3: *o = u > *o || u != u ? u : *o; break;
			case 4: *o = u < *o || u != u ? u : *o; break;
			default: *o = u;
			}
		}
`}
}
