package ref

func init() {
	templates["MaxPoolFwd"] = template{pointers: "T *x, T *y, int32_t *idx", ints: maxInts, body: planes + windows(maxBegin, maxTap, maxEnd)}
	templates["MaxPoolBwd"] = template{pointers: "T *dy, int32_t *idx, T *dx", ints: maxInts, body: planes + maxBack}
	templates["AvgPoolFwd"] = template{pointers: "T *x, T *y", ints: meanInts, body: planes + windows(meanBegin, meanTap, meanEnd)}
	templates["AvgPoolBwd"] = template{pointers: "T *dy, T *dx", ints: meanInts, body: planes + zero + windows(backBegin, backTap, "")}
	templates["MaxPool3Fwd"] = template{pointers: "T *x, T *y, int32_t *idx", ints: pool3Ints, body: windows(maxBegin, maxTap, maxEnd)}
	templates["MaxPool3Bwd"] = template{pointers: "T *dy, int32_t *idx, T *dx", ints: pool3Ints, body: maxBack}
	templates["AvgPool3Fwd"] = template{pointers: "T *x, T *y", ints: pool3Ints, body: windows(meanBegin, meanTap, meanEnd)}
	templates["AvgPool3Bwd"] = template{pointers: "T *dy, T *dx", ints: pool3Ints, body: zero + windows(backBegin, backTap, "")}
}

// Sizes of pooling: of planes, and of volumes, which planes are with one layer.
const (
	maxInts   = "N C H W KH KW OH OW lowH lowW strideH strideW dilH dilW"
	meanInts  = "N C H W KH KW OH OW lowH lowW highH highW strideH strideW dilH dilW mode"
	pool3Ints = "planes D H W KD KH KW OD OH OW lowD lowH lowW highD highH highW strideD strideH strideW dilD dilH dilW mode elem"
	planes    = `	const long planes = N * C, D = 1, KD = 1, OD = 1, lowD = 0, highD = 0, strideD = 1, dilD = 1;
`
	zero = `	for (long i = 0; i < planes * D * H * W; i++) dx[i] = 0;
`
)

// windows does begin for every output o, tap for every element p of its window that is in the image, and end. inside counts
// those, before counts the ones before the padded end.
func windows(begin, tap, end string) string {
	return `	for (long o = 0; o < planes * OD * OH * OW; o++) {
		const long plane = o / (OD * OH * OW), d0 = o / (OH * OW) % OD * strideD - lowD, h0 = o / OW % OH * strideH - lowH, w0 = o % OW * strideW - lowW;
		` + begin + `
		for (long q = 0; q < KD * KH * KW; q++) {
			const long d = d0 + q / (KH * KW) * dilD, h = h0 + q / KW % KH * dilH, w = w0 + q % KW * dilW;
			if (d < 0 || d >= D || h < 0 || h >= H || w < 0 || w >= W) continue;
			const long at = (d * H + h) * W + w, p = plane * D * H * W + at;
			` + tap + `
		}
		` + end + `
	}
`
}

// counted is what a window's sum is divided by.
const counted = `double count = 0;
		for (long q = 0; q < KD * KH * KW; q++) {
			const long d = d0 + q / (KH * KW) * dilD, h = h0 + q / KW % KH * dilH, w = w0 + q % KW * dilW;
			const int inside = d >= 0 && d < D && h >= 0 && h < H && w >= 0 && w < W;
			const int before = d < D + highD && h < H + highH && w < W + highW;
			count += mode == 0 ? inside : before;
		}
		if (count < 1 || mode == 2) count = 1;`

const (
	maxBegin = "T best = 0;\n\t\tlong from = -1;"
	maxTap   = "if (from < 0 || x[p] > best || (x[p] != x[p] && best == best)) best = x[p], from = at;"
	maxEnd   = "y[o] = best, idx[o] = (int32_t)from;"
	maxBack  = `	for (long i = 0; i < planes * D * H * W; i++) dx[i] = 0;
	for (long o = 0; o < planes * OD * OH * OW; o++)
		if (idx[o] >= 0) dx[o / (OD * OH * OW) * D * H * W + idx[o]] += dy[o];
`
	meanBegin = "double sum = 0;\n\t\t" + counted
	meanTap   = "sum += x[p];"
	meanEnd   = "y[o] = (T)(sum / count);"
	backBegin = counted
	backTap   = "dx[p] += (T)(dy[o] / count);"
)
