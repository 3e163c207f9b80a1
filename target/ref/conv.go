package ref

func init() {
	templates["ConvFwd"] = template{pointers: "T *x, T *w, T *bias, T *y", ints: convInts, body: `
	for (long o = 0; o < N * O * OH * OW; o++) y[o] = bias ? bias[o / (OH * OW) % O] : 0;
` + taps("y[out] += x[in] * w[weight];")}
	templates["ConvBwdData"] = template{pointers: "T *y, T *w, T *x", ints: convInts, body: `
	for (long i = 0; i < N * C * H * W; i++) x[i] = 0;
` + taps("x[in] += y[out] * w[weight];")}
	templates["ConvBwdWeight"] = template{pointers: "T *x, T *y, T *w", ints: convInts, body: `
	for (long i = 0; i < O * (C / groups) * KH * KW; i++) w[i] = 0;
` + taps("w[weight] += x[in] * y[out];")}
}

// convInts are the sizes of convolutions.
const convInts = "N C H W O KH KW OH OW padT padL strideH strideW dilH dilW groups"

// taps does each for every pair of an input and an output that a weight joins.
func taps(each string) string {
	return `	for (long out = 0; out < N * O * OH * OW; out++)
		for (long c = 0; c < C / groups; c++)
			for (long kh = 0; kh < KH; kh++)
				for (long kw = 0; kw < KW; kw++) {
					const long o = out / (OH * OW) % O, h = out / OW % OH * strideH + kh * dilH - padT, w0 = out % OW * strideW + kw * dilW - padL;
					if (h < 0 || h >= H || w0 < 0 || w0 >= W) continue;
					const long in = ((out / (O * OH * OW) * C + o / (O / groups) * (C / groups) + c) * H + h) * W + w0;
					const long weight = ((o * (C / groups) + c) * KH + kh) * KW + kw;
					` + each + `
				}
`
}
