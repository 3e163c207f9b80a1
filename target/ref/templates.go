package ref

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/target"
)

// template is a hand-made kernel: a C function of pointers, in which sizes are constants. T is the type of the first pointer's
// elements, S that of sums of them. Everything else is as kernels/cpu documents it.
type template struct {
	pointers, ints, body string
	status               bool // bad is the first row that is refused, or -1
	moves                bool // elements are moved, whatever they are
}

// Types of elements and of sums in the text of a template.
var elemType, sumType = regexp.MustCompile(`\bT\b`), regexp.MustCompile(`\bS\b`)

// function is the C function NAME of a call.
func (t template) function(c target.Call) (string, error) {
	pointers, ints := strings.Split(t.pointers, ", "), strings.Fields(t.ints)
	if len(ints) != len(c.Ints) || len(pointers) != len(c.Types) {
		return "", fmt.Errorf("BUG: template %s of the reference target takes (%s; %s), not %d pointers and %v", c.Name, t.pointers, t.ints, len(c.Types), c.Ints)
	}
	var b strings.Builder
	result := "void"
	if t.status {
		result = "long"
	}
	fmt.Fprintf(&b, "%s NAME(", result)
	for i := range pointers {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "void *a%d", i)
	}
	b.WriteString(") {\n")
	for i, p := range pointers {
		value := fmt.Sprintf("a%d", i)
		if c.Types[i] == dtype.Invalid {
			value = "0"
		}
		fmt.Fprintf(&b, "\t%s = %s;\n", p, value)
	}
	for i, name := range ints {
		fmt.Fprintf(&b, "\tconst long %s = %d;\n", name, c.Ints[i])
	}
	if t.status {
		b.WriteString("\tlong bad = -1;\n")
	}
	b.WriteString(strings.TrimPrefix(t.body, "\n"))
	if t.status {
		b.WriteString("\treturn bad;\n")
	}
	b.WriteString("}\n")
	elem, sum := scalar.MemType(c.Types[0]), "double"
	if !c.Types[0].IsFloat() {
		sum = "uint64_t" // sums wrap
	}
	return sumType.ReplaceAllString(elemType.ReplaceAllString(b.String(), elem), sum), nil
}

var templates = map[string]template{
	"Gemm": {pointers: "T *a, T *b, T *bias, T *c",
		ints: "batch m n k transA transB strideA strideB strideC epilogue accumulate", body: product},
	"GemmAny": {pointers: "T *a, T *b, T *bias, T *c", ints: "batch m n k transA transB strideA strideB strideC elem", body: product},

	"ConvFwd": {pointers: "T *x, T *w, T *bias, T *y", ints: convInts, body: `
	for (long o = 0; o < N * O * OH * OW; o++) y[o] = bias ? bias[o / (OH * OW) % O] : 0;
` + taps("y[out] += x[in] * w[weight];")},
	"ConvBwdData": {pointers: "T *y, T *w, T *x", ints: convInts, body: `
	for (long i = 0; i < N * C * H * W; i++) x[i] = 0;
` + taps("x[in] += y[out] * w[weight];")},
	"ConvBwdWeight": {pointers: "T *x, T *y, T *w", ints: convInts, body: `
	for (long i = 0; i < O * (C / groups) * KH * KW; i++) w[i] = 0;
` + taps("w[weight] += x[in] * y[out];")},

	"MaxPoolFwd": {pointers: "T *x, T *y, int32_t *idx", ints: maxInts, body: planes + windows(maxBegin, maxTap, maxEnd)},
	"MaxPoolBwd": {pointers: "T *dy, int32_t *idx, T *dx", ints: maxInts, body: planes + maxBack},
	"AvgPoolFwd": {pointers: "T *x, T *y", ints: meanInts, body: planes + windows(meanBegin, meanTap, meanEnd)},
	"AvgPoolBwd": {pointers: "T *dy, T *dx", ints: meanInts, body: planes + zero + windows(backBegin, backTap, "")},

	"MaxPool3Fwd": {pointers: "T *x, T *y, int32_t *idx", ints: pool3Ints, body: windows(maxBegin, maxTap, maxEnd)},
	"MaxPool3Bwd": {pointers: "T *dy, int32_t *idx, T *dx", ints: pool3Ints, body: maxBack},
	"AvgPool3Fwd": {pointers: "T *x, T *y", ints: pool3Ints, body: windows(meanBegin, meanTap, meanEnd)},
	"AvgPool3Bwd": {pointers: "T *dy, T *dx", ints: pool3Ints, body: zero + windows(backBegin, backTap, "")},

	"GatherRows": {status: true, moves: true, pointers: "int32_t *table, int64_t *idx, int32_t *out", ints: "rows width n", body: `
	for (long i = 0; i < n; i++) {
		const long r = idx[i] < 0 ? idx[i] + rows : idx[i];
		if ((r < 0 || r >= rows) && bad < 0) bad = i;
		for (long j = 0; j < width; j++) out[i * width + j] = r < 0 || r >= rows ? 0 : table[r * width + j];
	}
`},
	"Take": {status: true, moves: true, pointers: "char *table, void *idx, char *out", ints: "outer size bytes n idx32", body: `
	for (long i = 0; i < outer * n; i++) {
		const long at = idx32 ? ((int32_t *)idx)[i % n] : ((int64_t *)idx)[i % n], r = at < 0 ? at + size : at;
		if (r < 0 || r >= size) {
			for (long j = 0; j < outer * n * bytes; j++) out[j] = 0;
			return i;
		}
		for (long j = 0; j < bytes; j++) out[i * bytes + j] = table[(i / n * size + r) * bytes + j];
	}
`},
	"ScatterAddRows": {status: true, pointers: "int64_t *idx, float *upd, float *out", ints: "rows width n zero", body: `
	for (long i = 0; i < n; i++)
		if (idx[i] < -rows || idx[i] >= rows) return i;
	if (zero)
		for (long j = 0; j < rows * width; j++) out[j] = 0;
	for (long i = 0; i < n; i++)
		for (long j = 0; j < width; j++) out[(idx[i] < 0 ? idx[i] + rows : idx[i]) * width + j] += upd[i * width + j];
`},
	"ScatterRows": {status: true, moves: true, pointers: "T *data, int64_t *idx, T *upd, T *out", ints: "rows width n elem how", body: `
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
`},
	"TopK": {pointers: "T *x, T *values, int64_t *at", ints: "outer n inner k largest elem", body: `
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
`},
	"Scan": {pointers: "T *x, T *y", ints: "outer n inner elem product exclusive reverse", body: `
	for (long l = 0; l < outer * inner; l++) {
		S sum = product;
		for (long i = 0; i < n; i++) {
			const long at = (l / inner * n + (reverse ? n - 1 - i : i)) * inner + l % inner;
			const S next = product ? sum * (S)x[at] : sum + (S)x[at];
			y[at] = (T)(exclusive ? sum : next);
			sum = next;
		}
	}
`},
	"XentFwd":    {status: true, pointers: "T *logits, int64_t *target, T *weight, T *loss, T *lse", ints: "rows classes ignore", body: crossEntropy("if (lse) lse[i] = l;", "")},
	"XentFwdBwd": {status: true, pointers: "T *logits, int64_t *target, T *weight, T *loss, T *dlogits", ints: "rows classes ignore", body: crossEntropy("", softmax)},
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

// crossEntropy is that of each row, after which it does then with l, the log of the sum of exponentials, and gradient with w, the
// weight, unless the row does not count.
func crossEntropy(then, gradient string) string {
	return `
	for (long i = 0; i < rows; i++) {
		const T *x = logits + i * classes;
		const int64_t t = target[i];
		const int out = t != ignore && (t < 0 || t >= classes), counts = t != ignore && !out;
		const double w = !counts ? 0 : weight ? weight[i] : 1;
		double top = x[0], sum = 0, l = 0;
		if (out && bad < 0) bad = i;
		if (counts) {
			for (long j = 1; j < classes; j++) top = x[j] > top ? x[j] : top;
			if (top == -INFINITY) top = 0;
			for (long j = 0; j < classes; j++) sum += exp(x[j] - top);
			l = top + log(sum);
		}
		loss[i] = counts ? (T)(w * (l - x[t])) : 0;
		` + then + `
		` + gradient + `
	}
`
}

const softmax = "for (long j = 0; j < classes; j++) dlogits[i * classes + j] = counts ? (T)(w * (exp(x[j] - l) - (j == t))) : 0;"
