package ref

func init() {
	templates["CappedSum"] = template{pointers: "T *x, T *y", ints: "rows n", floats: "cap", body: `
	for (long i = 0; i < rows; i++) {
		double sum = 0;
		for (long j = 0; j < n; j++) sum += cap * tanh(x[i * n + j] / cap);
		y[i] = (T)sum;
	}
`}
}
