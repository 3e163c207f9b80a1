package ref

func init() {
	templates["Gemm"] = template{pointers: "T *a, T *b, T *bias, T *c",
		ints: "batch m n k transA transB strideA strideB strideC epilogue accumulate", body: product}
	templates["GemmAny"] = template{pointers: "T *a, T *b, T *bias, T *c", ints: "batch m n k transA transB strideA strideB strideC elem", body: product}
}

const product = `
	for (long i = 0; i < batch * m * n; i++) {
		const long b0 = i / (m * n), r = i / n % m, j = i % n;
		S sum = bias ? (S)bias[j] : 0;
		for (long l = 0; l < k; l++)
			sum += (S)a[b0 * strideA + (transA ? l * m + r : r * k + l)] * (S)b[b0 * strideB + (transB ? j * k + l : l * n + j)];
		c[b0 * strideC + r * n + j] = (T)sum;
	}
`
