// A stand-in for cuBLASLt: the functions that gtc calls, by the same names and rules as in cublasLt.h, on this processor. It
// refuses what the library refuses, and what the library would misuse: wrong leading dimensions, missing vectors of epilogues,
// algorithms of other products. Work is queued on the stream where a (stand-in) driver is loaded, else done at once.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cmath>
#include <dlfcn.h>
#include <cstdlib>
#include <vector>

typedef int status_t;
enum { OK = 0, NOT_INITIALIZED = 1, INVALID = 7, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16F = 2, R_16BF = 14 };
enum { DEFAULT = 1, RELU = 2, BIAS = 4, GELU = 32, DGELU = 64 | 128, AUX = 128, BGRADA = 256, BGRADB = 512 };

namespace {

const uint64_t kHandle = 0x6c7468616e646c65, kAlgo = 0x6c74616c676f7269;

struct Handle {
	uint64_t magic;
};
struct Layout {
	int32_t type, batch;
	uint64_t rows, cols;
	int64_t ld, stride;
};
struct Desc {
	int32_t compute, scale, transa, transb;
	uint32_t epilogue;
	void *bias, *aux;
	int64_t aux_ld, aux_stride, bias_stride;
};
struct Preference {
	uint64_t workspace;
	uint32_t align[4];
};
struct Algo {
	uint64_t data[8];
};
struct Result {
	Algo algo;
	size_t workspace;
	status_t state;
	float waves;
	int reserved[4];
};
static_assert(sizeof(Algo) == 64 && sizeof(Result) == 96, "as in cublasLt.h");

double get(const void *p, int type, int64_t i)
{
	if (type == R_32F)
		return ((const float *)p)[i];
	uint16_t h = ((const uint16_t *)p)[i];
	if (type == R_16BF) {
		uint32_t bits = uint32_t(h) << 16;
		float f;
		memcpy(&f, &bits, 4);
		return f;
	}
	int exponent = h >> 10 & 31, mantissa = h & 1023;
	double v = exponent == 0 ? ldexp(mantissa, -24) : exponent == 31 ? (mantissa ? NAN : INFINITY) : ldexp(1024 + mantissa, exponent - 25);
	return h & 0x8000 ? -v : v;
}

void put(void *p, int type, int64_t i, double v)
{
	if (type == R_32F) {
		((float *)p)[i] = float(v);
		return;
	}
	if (type == R_16BF) {
		float f = float(v);
		uint32_t bits;
		memcpy(&bits, &f, 4);
		((uint16_t *)p)[i] = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
		return;
	}
	int e;
	double m = frexp(fabs(v), &e); // |v| = m 2^e, m in [1/2, 1)
	uint16_t h;
	if (fabs(v) >= 65520)
		h = 0x7c00;
	else if (e < -13)
		h = uint16_t(nearbyint(ldexp(fabs(v), 24)));
	else
		h = uint16_t(nearbyint(ldexp(m, 11)) + ((e + 13) << 10));
	((uint16_t *)p)[i] = uint16_t(h | (std::signbit(v) ? 0x8000 : 0));
}

bool known(int type) { return type == R_32F || type == R_16F || type == R_16BF; }

// hash tells problems apart, as an algorithm belongs to one.
uint64_t hash(const Desc *d, const Layout *a, const Layout *b, const Layout *c)
{
	uint64_t h = 14695981039346656037u;
	auto mix = [&](uint64_t x) { h = (h ^ x) * 1099511628211u; };
	for (const Layout *l : {a, b, c}) {
		mix(l->type), mix(l->batch), mix(l->rows), mix(l->cols), mix(l->ld), mix(l->stride);
	}
	mix(d->compute), mix(d->transa), mix(d->transb), mix(d->epilogue);
	return h;
}

// wrong is what a product is refused with; OK for none.
status_t wrong(const Desc *d, const Layout *a, const Layout *b, const Layout *c, const Layout *r)
{
	if (!d || !a || !b || !c || !r)
		return INVALID;
	if (!known(a->type) || a->type != b->type || c->type != r->type || (r->type != a->type && r->type != R_32F))
		return NOT_SUPPORTED;
	if (d->scale != R_32F || (d->compute != 68 && !(d->compute == 77 && a->type == R_32F)))
		return NOT_SUPPORTED;
	for (const Layout *l : {a, b, c, r})
		if (l->ld < int64_t(l->rows) || l->rows == 0 || l->cols == 0 || l->batch != r->batch)
			return INVALID;
	uint64_t m = d->transa ? a->cols : a->rows, k = d->transa ? a->rows : a->cols;
	uint64_t kb = d->transb ? b->cols : b->rows, n = d->transb ? b->rows : b->cols;
	if (k != kb || r->rows != m || r->cols != n || c->rows != m || c->cols != n)
		return INVALID;
	if (r->batch > 1 && r->stride < r->ld * int64_t(r->cols - 1) + int64_t(r->rows))
		return INVALID;
	switch (d->epilogue) {
	case DEFAULT:
	case RELU:
	case BIAS:
	case RELU | BIAS:
	case GELU:
	case GELU | BIAS:
		break;
	case GELU | AUX:
	case GELU | AUX | BIAS:
	case DGELU:
		if (!d->aux || d->aux_ld % 8 || d->aux_ld < int64_t(m) || d->aux_stride % 8)
			return INVALID;
		break;
	case BGRADA:
	case BGRADB:
		if (r->batch > 1 || getenv("STANDIN_NO_SUMS"))
			return NOT_SUPPORTED;
		break;
	default:
		return NOT_SUPPORTED;
	}
	if (d->epilogue & (BIAS | BGRADA | BGRADB) && !d->bias)
		return INVALID;
	return OK;
}

struct Work {
	Desc d;
	Layout a, b, c, r;
	float alpha, beta;
	const void *pa, *pb, *pc;
	void *pr;
};

double gelu(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double dgelu(double x)
{
	double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
	return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

double left(const Work *w, int64_t batch, int64_t i, int64_t k)
{
	return get(w->pa, w->a.type, batch * w->a.stride + (w->d.transa ? k + i * w->a.ld : i + k * w->a.ld));
}
double right(const Work *w, int64_t batch, int64_t k, int64_t j)
{
	return get(w->pb, w->b.type, batch * w->b.stride + (w->d.transb ? j + k * w->b.ld : k + j * w->b.ld));
}

// perform does a product. Its work is not freed: a graph does it again.
void perform(void *p)
{
	Work *w = (Work *)p;
	int64_t m = w->r.rows, n = w->r.cols, K = w->d.transa ? w->a.rows : w->a.cols;
	uint32_t e = w->d.epilogue;
	for (int64_t z = 0; z < w->r.batch; z++)
		for (int64_t j = 0; j < n; j++)
			for (int64_t i = 0; i < m; i++) {
				double sum = 0;
				for (int64_t k = 0; k < K; k++)
					sum += left(w, z, i, k) * right(w, z, k, j);
				sum *= w->alpha;
				int64_t at = z * w->r.stride + i + j * w->r.ld, aux = z * w->d.aux_stride + i + j * w->d.aux_ld;
				if (w->beta != 0)
					sum += w->beta * get(w->pc, w->c.type, z * w->c.stride + i + j * w->c.ld);
				if (e & BIAS)
					sum += get(w->d.bias, w->r.type, i);
				if (e == DGELU)
					sum *= dgelu(get(w->d.aux, w->r.type, aux));
				else if (e & AUX)
					put(w->d.aux, w->r.type, aux, sum);
				if (e & RELU)
					sum = sum > 0 ? sum : 0;
				if (e & GELU && e != DGELU)
					sum = gelu(sum);
				put(w->pr, w->r.type, at, sum);
			}
	if (e & (BGRADA | BGRADB))
		for (int64_t i = 0; i < (e == BGRADA ? m : n); i++) {
			double sum = 0;
			for (int64_t k = 0; k < K; k++)
				sum += e == BGRADA ? left(w, 0, i, k) : right(w, 0, k, i);
			put(w->d.bias, w->r.type, i, sum);
		}
}

int algos()
{
	const char *text = getenv("STANDIN_ALGOS");
	return text ? atoi(text) : 3;
}

template <class T> status_t assign(T &field, const void *value, size_t size)
{
	if (!value || size != sizeof(T))
		return INVALID;
	memcpy(&field, value, size);
	return OK;
}

} // namespace

extern "C" {

size_t cublasLtGetVersion() { return 130002; }
const char *cublasLtGetStatusName(status_t s) { return s == OK ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_OTHER"; }
status_t cublasLtCreate(Handle **h)
{
	*h = new Handle{kHandle};
	return OK;
}
status_t cublasLtDestroy(Handle *h)
{
	if (!h || h->magic != kHandle)
		return NOT_INITIALIZED;
	delete h;
	return OK;
}

status_t cublasLtMatrixLayoutCreate(Layout **l, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
	*l = new Layout{type, 1, rows, cols, ld, 0};
	return OK;
}
status_t cublasLtMatrixLayoutDestroy(Layout *l)
{
	delete l;
	return OK;
}
status_t cublasLtMatrixLayoutSetAttribute(Layout *l, int attr, const void *value, size_t size)
{
	switch (attr) {
	case 5:
		return assign(l->batch, value, size);
	case 6:
		return assign(l->stride, value, size);
	}
	return INVALID;
}

status_t cublasLtMatmulDescCreate(Desc **d, int compute, int scale)
{
	*d = new Desc{compute, scale, 0, 0, DEFAULT, nullptr, nullptr, 0, 0, 0};
	return OK;
}
status_t cublasLtMatmulDescDestroy(Desc *d)
{
	delete d;
	return OK;
}
status_t cublasLtMatmulDescSetAttribute(Desc *d, int attr, const void *value, size_t size)
{
	switch (attr) {
	case 3:
		return assign(d->transa, value, size);
	case 4:
		return assign(d->transb, value, size);
	case 7:
		return assign(d->epilogue, value, size);
	case 8:
		return assign(d->bias, value, size);
	case 11:
		return assign(d->aux, value, size);
	case 12:
		return assign(d->aux_ld, value, size);
	case 13:
		return assign(d->aux_stride, value, size);
	}
	return INVALID;
}

status_t cublasLtMatmulPreferenceCreate(Preference **p)
{
	*p = new Preference{0, {256, 256, 256, 256}};
	return OK;
}
status_t cublasLtMatmulPreferenceDestroy(Preference *p)
{
	delete p;
	return OK;
}
status_t cublasLtMatmulPreferenceSetAttribute(Preference *p, int attr, const void *value, size_t size)
{
	if (attr == 1)
		return assign(p->workspace, value, size);
	if (attr >= 5 && attr <= 8)
		return assign(p->align[attr - 5], value, size);
	return INVALID;
}

// The second algorithm is one that the product is too large for, as happens; the others need some workspace.
status_t cublasLtMatmulAlgoGetHeuristic(Handle *h, Desc *d, Layout *a, Layout *b, Layout *c, Layout *r, Preference *p, int want, Result *list, int *found)
{
	if (!h || h->magic != kHandle)
		return NOT_INITIALIZED;
	if (!p || !list || !found || want < 1)
		return INVALID;
	if (status_t s = wrong(d, a, b, c, r))
		return s;
	*found = 0;
	for (int i = 0; i < want && i < algos(); i++) {
		list[i] = Result{{{kAlgo, hash(d, a, b, r), uint64_t(i)}}, size_t(i) << 20, i == 1 ? NOT_SUPPORTED : OK, 1, {}};
		if (list[i].workspace <= p->workspace)
			++*found;
	}
	return *found ? OK : NOT_SUPPORTED;
}

status_t cublasLtMatmulAlgoCheck(Handle *h, Desc *d, Layout *a, Layout *b, Layout *c, Layout *r, const Algo *algo, Result *result)
{
	if (!h || h->magic != kHandle)
		return NOT_INITIALIZED;
	if (status_t s = wrong(d, a, b, c, r))
		return s;
	if (algo->data[0] != kAlgo || algo->data[1] != hash(d, a, b, r) || algo->data[2] == 1)
		return INVALID;
	*result = Result{*algo, size_t(algo->data[2]) << 20, OK, 1, {}};
	return OK;
}

status_t cublasLtMatmul(Handle *h, Desc *d, const float *alpha, const void *pa, Layout *a, const void *pb, Layout *b, const float *beta, const void *pc,
			Layout *c, void *pr, Layout *r, const Algo *algo, void *workspace, size_t bytes, void *stream)
{
	Result checked;
	if (status_t s = cublasLtMatmulAlgoCheck(h, d, a, b, c, r, algo, &checked))
		return s;
	if (!alpha || !beta || !pa || !pb || !pr || (*beta != 0 && !pc) || bytes < checked.workspace || (checked.workspace && !workspace))
		return INVALID;
	for (const void *p : {pa, pb, pc, (const void *)pr, (const void *)d->bias, (const void *)d->aux})
		if (uintptr_t(p) % 64)
			return INVALID; // gtc tells the heuristic that all are
	Work *w = new Work{*d, *a, *b, *c, *r, *alpha, *beta, pa, pb, pc, pr};
	typedef int launch_t(void *, void (*)(void *), void *);
	launch_t *launch = (launch_t *)dlsym(RTLD_DEFAULT, "cuLaunchHostFunc");
	if (launch && stream)
		return launch(stream, perform, w) ? 13 : OK;
	perform(w);
	return OK;
}

} // extern "C"
