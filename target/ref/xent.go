package ref

func init() {
	templates["XentFwd"] = template{status: true, pointers: "T *logits, int64_t *target, T *weight, T *loss, T *lse", ints: "rows classes ignore", body: crossEntropy("if (lse) lse[i] = l;", "")}
	templates["XentFwdBwd"] = template{status: true, pointers: "T *logits, int64_t *target, T *weight, T *loss, T *dlogits", ints: "rows classes ignore", body: crossEntropy("", softmax)}
}

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
