package ref

func init() {
	templates["TopK"] = template{pointers: "T *x, T *values, int64_t *at", ints: "outer n inner k largest elem", body: `
	for (long l = 0; l < outer * inner; l++) {
		const long from = l / inner * n * inner + l % inner, to = l / inner * k * inner + l % inner;
		for (long j = 0; j < k; j++) { // the best of those that are worse than the one before
			long best = -1, last = j > 0 ? at[to + (j - 1) * inner] : -1;
			for (long i = 0; i < n; i++) {
				const T v = x[from + i * inner];
				if (last >= 0) {
					const T w = x[from + last * inner];
					const int above = v != v ? w == w : v > w, below = w != w ? v == v : w > v;
					if ((largest ? above : below) || (!above && !below && i <= last)) continue;
				}
				if (best >= 0) {
					const T w = x[from + best * inner];
					const int above = v != v ? w == w : v > w, below = w != w ? v == v : w > v;
					if (!(largest ? above : below)) continue;
				}
				best = i;
			}
			values[to + j * inner] = x[from + best * inner];
			at[to + j * inner] = best;
		}
	}
`}
	templates["Scan"] = template{pointers: "T *x, T *y", ints: "outer n inner elem product exclusive reverse", body: `
	for (long l = 0; l < outer * inner; l++) {
		S sum = product;
		for (long i = 0; i < n; i++) {
			const long at = (l / inner * n + (reverse ? n - 1 - i : i)) * inner + l % inner;
			const S next = product ? sum * (S)x[at] : sum + (S)x[at];
			y[at] = (T)(exclusive ? sum : next);
			sum = next;
		}
	}
`}
}
