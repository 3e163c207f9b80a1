// A stand-in for cuDNN: the functions that gtc calls, by the same names and rules as in cudnn_ops.h and cudnn_cnn.h, for f32 on
// this processor. It refuses what the library refuses: descriptors that do not fit one another, workspace that is too small,
// algorithms that it did not offer. Work is queued on the stream where a (stand-in) driver is loaded, else done at once.
#include <cstddef>
#include <cstdint>
#include <dlfcn.h>
#include <functional>
#include <vector>

typedef int status_t;
enum { OK = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000 };

namespace {

const uint64_t kHandle = 0x646e6e68616e646c;
const size_t kRoom = 4096; // workspace that algorithm 1 needs

struct Handle {
	uint64_t magic;
	void *stream;
};
struct Tensor {
	int type, d[4];
};
struct Conv {
	int pad[2], stride[2], dil[2], groups, math, compute;
};
struct Perf {
	int algo, status;
	float time;
	size_t memory;
	int deterministic, math, reserved[3];
};
static_assert(sizeof(Perf) == 48, "as in cudnn_cnn.h");

// wrong is what a convolution is refused with; OK for none.
status_t wrong(const Tensor *x, const Tensor *w, const Conv *c, const Tensor *y)
{
	if (!x || !w || !c || !y)
		return BAD_PARAM;
	if (x->type != 0 || w->type != 0 || y->type != 0 || c->compute != 0 || (c->math != 3 && c->math != 0))
		return NOT_SUPPORTED;
	if (x->d[0] != y->d[0] || w->d[0] != y->d[1] || w->d[1] * c->groups != x->d[1] || w->d[0] % c->groups != 0)
		return BAD_PARAM;
	for (int i = 0; i < 2; i++)
		if ((x->d[2 + i] + 2 * c->pad[i] - c->dil[i] * (w->d[2 + i] - 1) - 1) / c->stride[i] + 1 != y->d[2 + i])
			return BAD_PARAM;
	return OK;
}

// each calls f with the places in x, w and y of every term.
template <class F> void each(const Tensor *x, const Tensor *w, const Conv *c, const Tensor *y, F f)
{
	for (int n = 0; n < y->d[0]; n++)
		for (int o = 0; o < y->d[1]; o++)
			for (int k = 0; k < w->d[1]; k++)
				for (int a = 0; a < y->d[2]; a++)
					for (int b = 0; b < y->d[3]; b++)
						for (int p = 0; p < w->d[2]; p++)
							for (int q = 0; q < w->d[3]; q++) {
								int h = a * c->stride[0] - c->pad[0] + p * c->dil[0], v = b * c->stride[1] - c->pad[1] + q * c->dil[1];
								if (h < 0 || v < 0 || h >= x->d[2] || v >= x->d[3])
									continue;
								int in = o / (w->d[0] / c->groups) * w->d[1] + k;
								f(((n * x->d[1] + in) * x->d[2] + h) * x->d[3] + v, ((o * w->d[1] + k) * w->d[2] + p) * w->d[3] + q,
								  ((n * y->d[1] + o) * y->d[2] + a) * y->d[3] + b);
							}
}

int count(const Tensor *t) { return t->d[0] * t->d[1] * t->d[2] * t->d[3]; }

// scaled makes out alpha * sums + beta * out.
void scaled(float *out, const std::vector<double> &sums, float alpha, float beta)
{
	for (size_t i = 0; i < sums.size(); i++)
		out[i] = float(alpha * sums[i]) + (beta == 0 ? 0 : beta * out[i]);
}

// perform does work, which stays: a graph may do it again.
void perform(void *work) { (*(std::function<void()> *)work)(); }

status_t queue(const Handle *h, std::function<void()> work)
{
	auto *w = new std::function<void()>(work);
	typedef int launch_t(void *, void (*)(void *), void *);
	launch_t *launch = (launch_t *)dlsym(RTLD_DEFAULT, "cuLaunchHostFunc");
	if (launch && h->stream) // a test without a device has none
		return launch(h->stream, perform, w) ? 5000 : OK;
	perform(w);
	return OK;
}

float number(const void *p) { return *(const float *)p; }

status_t offer(status_t bad, int requested, int *returned, Perf *list)
{
	if (bad)
		return bad;
	Perf all[] = {{0, OK, 1, 0, 0, 3, {}}, {1, OK, 2, kRoom, 1, 3, {}}, {2, OK, 3, size_t(1) << 40, 1, 3, {}}, {3, NOT_SUPPORTED, -1, 0, 1, 3, {}}};
	*returned = 0;
	for (const Perf &p : all)
		if (*returned < requested)
			list[(*returned)++] = p;
	return OK;
}

status_t may(const Handle *h, status_t bad, int algo, void *work, size_t room)
{
	if (!h || h->magic != kHandle)
		return BAD_PARAM;
	if (bad)
		return bad;
	return algo == 1 && work && room >= kRoom ? OK : NOT_SUPPORTED;
}

} // namespace

extern "C" {

size_t cudnnGetVersion() { return 92800; }
status_t cudnnCreate(Handle **h) { return *h = new Handle{kHandle, nullptr}, OK; }
status_t cudnnDestroy(Handle *h) { return delete h, OK; }
status_t cudnnSetStream(Handle *h, void *stream) { return h && h->magic == kHandle ? (h->stream = stream, OK) : BAD_PARAM; }

status_t cudnnCreateTensorDescriptor(Tensor **t) { return *t = new Tensor(), OK; }
status_t cudnnDestroyTensorDescriptor(Tensor *t) { return delete t, OK; }
status_t cudnnSetTensor4dDescriptor(Tensor *t, int format, int type, int n, int c, int h, int w)
{
	if (format != 0)
		return NOT_SUPPORTED;
	*t = Tensor{type, {n, c, h, w}};
	return OK;
}
status_t cudnnCreateFilterDescriptor(Tensor **t) { return *t = new Tensor(), OK; }
status_t cudnnDestroyFilterDescriptor(Tensor *t) { return delete t, OK; }
status_t cudnnSetFilter4dDescriptor(Tensor *t, int type, int format, int k, int c, int h, int w) { return cudnnSetTensor4dDescriptor(t, format, type, k, c, h, w); }
status_t cudnnCreateConvolutionDescriptor(Conv **c) { return *c = new Conv(), OK; }
status_t cudnnDestroyConvolutionDescriptor(Conv *c) { return delete c, OK; }
status_t cudnnSetConvolution2dDescriptor(Conv *c, int ph, int pw, int u, int v, int dh, int dw, int mode, int compute)
{
	if (mode != 1)
		return NOT_SUPPORTED;
	*c = Conv{{ph, pw}, {u, v}, {dh, dw}, 1, 0, compute};
	return OK;
}
status_t cudnnSetConvolutionGroupCount(Conv *c, int groups) { return c->groups = groups, OK; }
status_t cudnnSetConvolutionMathType(Conv *c, int math) { return c->math = math, OK; }

status_t cudnnAddTensor(Handle *h, const void *alpha, Tensor *a, const float *bias, const void *beta, Tensor *t, float *y)
{
	if (a->d[0] != 1 || a->d[1] != t->d[1] || a->d[2] != 1 || a->d[3] != 1)
		return BAD_PARAM;
	float f = number(alpha), g = number(beta);
	Tensor d = *t;
	return queue(h, [=] {
		for (int i = 0; i < count(&d); i++)
			y[i] = f * bias[i / (d.d[2] * d.d[3]) % d.d[1]] + g * y[i];
	});
}

status_t cudnnGetConvolutionForwardAlgorithm_v7(Handle *, Tensor *x, Tensor *w, Conv *c, Tensor *y, int n, int *got, Perf *list)
{
	return offer(wrong(x, w, c, y), n, got, list);
}
status_t cudnnGetConvolutionBackwardDataAlgorithm_v7(Handle *, Tensor *w, Tensor *dy, Conv *c, Tensor *dx, int n, int *got, Perf *list)
{
	return offer(wrong(dx, w, c, dy), n, got, list);
}
status_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(Handle *, Tensor *x, Tensor *dy, Conv *c, Tensor *dw, int n, int *got, Perf *list)
{
	return offer(wrong(x, dw, c, dy), n, got, list);
}

status_t cudnnConvolutionForward(Handle *h, const void *alpha, Tensor *xd, const float *x, Tensor *wd, const float *w, Conv *c, int algo, void *work, size_t room,
				 const void *beta, Tensor *yd, float *y)
{
	if (status_t bad = may(h, wrong(xd, wd, c, yd), algo, work, room))
		return bad;
	Tensor tx = *xd, tw = *wd, ty = *yd;
	Conv shape = *c;
	float f = number(alpha), g = number(beta);
	return queue(h, [=] {
		std::vector<double> sums(count(&ty));
		each(&tx, &tw, &shape, &ty, [&](int i, int k, int o) { sums[o] += double(x[i]) * w[k]; });
		scaled(y, sums, f, g);
	});
}
status_t cudnnConvolutionBackwardData(Handle *h, const void *alpha, Tensor *wd, const float *w, Tensor *yd, const float *dy, Conv *c, int algo, void *work, size_t room,
				      const void *beta, Tensor *xd, float *dx)
{
	if (status_t bad = may(h, wrong(xd, wd, c, yd), algo, work, room))
		return bad;
	Tensor tx = *xd, tw = *wd, ty = *yd;
	Conv shape = *c;
	float f = number(alpha), g = number(beta);
	return queue(h, [=] {
		std::vector<double> sums(count(&tx));
		each(&tx, &tw, &shape, &ty, [&](int i, int k, int o) { sums[i] += double(dy[o]) * w[k]; });
		scaled(dx, sums, f, g);
	});
}
status_t cudnnConvolutionBackwardFilter(Handle *h, const void *alpha, Tensor *xd, const float *x, Tensor *yd, const float *dy, Conv *c, int algo, void *work, size_t room,
					const void *beta, Tensor *wd, float *dw)
{
	if (status_t bad = may(h, wrong(xd, wd, c, yd), algo, work, room))
		return bad;
	Tensor tx = *xd, tw = *wd, ty = *yd;
	Conv shape = *c;
	float f = number(alpha), g = number(beta);
	return queue(h, [=] {
		std::vector<double> sums(count(&tw));
		each(&tx, &tw, &shape, &ty, [&](int i, int k, int o) { sums[k] += double(dy[o]) * x[i]; });
		scaled(dw, sums, f, g);
	});
}

} // extern "C"
