/* A stand-in for libnccl and the CUDA driver, for tests on machines without a GPU: device memory is host memory, streams
 * do everything at once, and the ranks of a communicator are threads of this process. Names, arguments and numbers are
 * those of nccl.h 2.28.3 and cuda.h 12, written down here a second time, so that a slip in the Go side shows.
 *
 * GTC_STANDIN_LOSE=N in the environment makes the N-th all-reduce after a group was made never end, until it is aborted. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the CUDA driver ---- */

int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *dev, int ordinal) { *dev = ordinal + 40; return ordinal < 2 ? 0 : 101; }
int cuDevicePrimaryCtxRetain(void **ctx, int dev) { *ctx = (void *)(intptr_t)(1000 + dev); return dev >= 40 ? 0 : 101; }
static __thread void *current;
int cuCtxSetCurrent(void *ctx) { current = ctx; return ctx ? 0 : 201; }
int cuMemAlloc_v2(uint64_t *at, size_t n) { *at = (uint64_t)(uintptr_t)malloc(n); return !current ? 201 : n ? 0 : 1; }
int cuMemFree_v2(uint64_t at) { free((void *)(uintptr_t)at); return 0; }
int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t n, void *stream) {
	memcpy((void *)(uintptr_t)dst, src, n);
	return current && stream ? 0 : 201;
}
int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t n, void *stream) {
	memcpy(dst, (void *)(uintptr_t)src, n);
	return current && stream ? 0 : 201;
}
int cuStreamCreate(void **stream, unsigned flags) { *stream = malloc(8); return flags == 1 ? 0 : 1; }
int cuStreamDestroy_v2(void *stream) { free(stream); return 0; }
int cuStreamSynchronize(void *stream) { return stream ? 0 : 400; }
int cuGetErrorName(int code, const char **text) {
	*text = code == 201 ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR_OTHER";
	return 0;
}

/* ---- NCCL ---- */

typedef struct { char internal[128]; } ncclUniqueId;
enum { MAX_RANKS = 16 };

struct message { struct message *next; size_t n; char data[]; };

struct group {
	struct group *next;
	ncclUniqueId id;
	int ranks, joined, arrived, aborted;
	unsigned long phase;
	void *given[MAX_RANKS];
	struct message *box[MAX_RANKS][MAX_RANKS]; /* from, to */
};
struct comm { struct group *g; int rank; };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct group *groups;
static int ids, allReduces;

int ncclGetVersion(int *v) { *v = 22803; return 0; }
const char *ncclGetErrorString(int code) { return code == 4 ? "invalid argument" : code == 5 ? "invalid usage" : "remote error"; }

int ncclGetUniqueId(ncclUniqueId *id) {
	pthread_mutex_lock(&mu);
	for (int i = 0; i < 128; i++)
		id->internal[i] = (char)(i * 7 + 3);
	snprintf(id->internal + 100, 28, "%d", ++ids); /* near the end, so that a cut id shows */
	pthread_mutex_unlock(&mu);
	return 0;
}

/* meet waits until all ranks of g are here; with mu held. */
static int meet(struct group *g) {
	unsigned long phase = g->phase;
	if (++g->arrived == g->ranks) {
		g->arrived = 0;
		g->phase++;
		pthread_cond_broadcast(&changed);
	}
	while (g->phase == phase && !g->aborted)
		pthread_cond_wait(&changed, &mu);
	return g->aborted ? 6 : 0;
}

int ncclCommInitRank(struct comm **out, int ranks, ncclUniqueId id, int rank) {
	if (!current || ranks < 1 || ranks > MAX_RANKS || rank < 0 || rank >= ranks)
		return 4;
	pthread_mutex_lock(&mu);
	struct group *g = groups;
	while (g && memcmp(&g->id, &id, sizeof id) != 0)
		g = g->next;
	if (!g) {
		allReduces = 0;
		g = calloc(1, sizeof *g);
		g->id = id, g->ranks = ranks, g->next = groups;
		groups = g;
	}
	int code = g->ranks != ranks || ++g->joined > ranks ? 5 : meet(g);
	pthread_mutex_unlock(&mu);
	*out = malloc(sizeof **out);
	(*out)->g = g, (*out)->rank = rank;
	return code;
}

int ncclCommDestroy(struct comm *c) { free(c); return 0; }
int ncclCommAbort(struct comm *c) {
	pthread_mutex_lock(&mu);
	c->g->aborted = 1;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
	return 0;
}

static const int sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

static float fromHalf(uint16_t h) {
	int e = h >> 10 & 31, m = h & 1023;
	float f = e ? (float)(m + 1024) : (float)m;
	for (int i = e ? e : 1; i < 25; i++) f /= 2;
	for (int i = 25; i < e; i++) f *= 2;
	if (e == 31) f = m ? 0.0f / 0.0f : 1.0f / 0.0f;
	return h & 0x8000 ? -f : f;
}
static uint16_t toHalf(float f) {
	/* The nearest of all, found by bisection: slow and plain. */
	uint16_t sign = f < 0 || (f == 0 && 1 / f < 0) ? 0x8000 : 0;
	float a = f < 0 ? -f : f;
	if (f != f) return 0x7e00;
	if (a >= 65520) return sign | 0x7c00;
	uint16_t lo = 0, hi = 0x7bff;
	while (hi - lo > 1) {
		uint16_t mid = (uint16_t)((lo + hi) / 2);
		if (fromHalf(mid) <= a) lo = mid; else hi = mid;
	}
	float low = a - fromHalf(lo), up = fromHalf(hi) - a;
	return sign | (low < up || (low == up && !(lo & 1)) ? lo : hi);
}
static float fromBfloat(uint16_t h) { uint32_t b = (uint32_t)h << 16; float f; memcpy(&f, &b, 4); return f; }
static uint16_t toBfloat(float f) { uint32_t b; memcpy(&b, &f, 4); return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16); }

#define FOLD(T, ACC, GET, PUT, AVG) do { \
	for (size_t i = 0; i < n; i++) { \
		ACC a = GET(((T *)g->given[0])[at + i]); \
		for (int r = 1; r < g->ranks; r++) { \
			ACC b = GET(((T *)g->given[r])[at + i]); \
			a = op == 0 || op == 4 ? (ACC)(a + b) : op == 1 ? (ACC)(a * b) : op == 2 ? (a > b ? a : b) : (a < b ? a : b); \
		} \
		if (op == 4) a = (ACC)(a / (AVG)g->ranks); \
		((T *)dst)[i] = (T)PUT(a); \
	} } while (0)
#define SAME(x) (x)

static void fold(struct group *g, void *dst, size_t at, size_t n, int dt, int op) {
	switch (dt) {
	case 0: FOLD(int8_t, int8_t, SAME, SAME, int8_t); break;
	case 1: FOLD(uint8_t, uint8_t, SAME, SAME, uint8_t); break;
	case 2: FOLD(int32_t, int32_t, SAME, SAME, int32_t); break;
	case 3: FOLD(uint32_t, uint32_t, SAME, SAME, uint32_t); break;
	case 4: FOLD(int64_t, int64_t, SAME, SAME, int64_t); break;
	case 5: FOLD(uint64_t, uint64_t, SAME, SAME, uint64_t); break;
	case 6: FOLD(uint16_t, float, fromHalf, toHalf, float); break;
	case 7: FOLD(float, float, SAME, SAME, float); break;
	case 8: FOLD(double, double, SAME, SAME, double); break;
	case 9: FOLD(uint16_t, float, fromBfloat, toBfloat, float); break;
	}
}

/* give has all ranks see a copy of what each gives, and calls use, with mu held. */
static int give(struct comm *c, const void *src, size_t bytes, void (*use)(struct comm *, void *), void *arg) {
	struct group *g = c->g;
	void *copy = malloc(bytes + 1);
	memcpy(copy, src, bytes);
	pthread_mutex_lock(&mu);
	g->given[c->rank] = copy;
	int code = meet(g);
	if (code == 0) {
		use(c, arg);
		code = meet(g);
	}
	pthread_mutex_unlock(&mu);
	if (code == 0)
		free(copy);
	return code;
}

struct reduction { void *dst; size_t at, n; int dt, op, only; };
static void reduceInto(struct comm *c, void *arg) {
	struct reduction *r = arg;
	if (r->only < 0 || r->only == c->rank)
		fold(c->g, r->dst, r->at, r->n, r->dt, r->op);
}
static int usable(int dt, int op, void *stream) { return dt >= 0 && dt <= 9 && op >= 0 && op <= 4 && stream && current; }

int ncclAllReduce(const void *src, void *dst, size_t n, int dt, int op, struct comm *c, void *stream) {
	if (!usable(dt, op, stream)) return 4;
	const char *lose = getenv("GTC_STANDIN_LOSE");
	pthread_mutex_lock(&mu);
	int lost = lose && ++allReduces == atoi(lose);
	while (lost && !c->g->aborted)
		pthread_cond_wait(&changed, &mu);
	pthread_mutex_unlock(&mu);
	struct reduction r = {dst, 0, n, dt, op, -1};
	return give(c, src, n * sizes[dt], reduceInto, &r);
}
int ncclReduce(const void *src, void *dst, size_t n, int dt, int op, int root, struct comm *c, void *stream) {
	if (!usable(dt, op, stream)) return 4;
	struct reduction r = {dst, 0, n, dt, op, root};
	return give(c, src, n * sizes[dt], reduceInto, &r);
}
int ncclReduceScatter(const void *src, void *dst, size_t n, int dt, int op, struct comm *c, void *stream) {
	if (!usable(dt, op, stream)) return 4;
	struct reduction r = {dst, n * c->rank, n, dt, op, -1};
	return give(c, src, n * sizes[dt] * c->g->ranks, reduceInto, &r);
}

struct move { char *dst; size_t bytes; int root; };
static void broadcastInto(struct comm *c, void *arg) {
	struct move *m = arg;
	memcpy(m->dst, c->g->given[m->root], m->bytes);
}
static void gatherInto(struct comm *c, void *arg) {
	struct move *m = arg;
	for (int r = 0; r < c->g->ranks; r++)
		memcpy(m->dst + r * m->bytes, c->g->given[r], m->bytes);
}
int ncclBroadcast(const void *src, void *dst, size_t n, int dt, int root, struct comm *c, void *stream) {
	if (!usable(dt, 0, stream)) return 4;
	struct move m = {dst, n * sizes[dt], root};
	return give(c, src, c->rank == root ? m.bytes : 0, broadcastInto, &m);
}
int ncclAllGather(const void *src, void *dst, size_t n, int dt, struct comm *c, void *stream) {
	if (!usable(dt, 0, stream)) return 4;
	struct move m = {dst, n * sizes[dt], 0};
	return give(c, src, m.bytes, gatherInto, &m);
}

static int post(const void *src, size_t bytes, int peer, struct comm *c) {
	struct message *m = malloc(sizeof *m + bytes);
	m->next = NULL, m->n = bytes;
	memcpy(m->data, src, bytes);
	pthread_mutex_lock(&mu);
	struct message **end = &c->g->box[c->rank][peer];
	while (*end)
		end = &(*end)->next;
	*end = m;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
	return 0;
}
static int take(void *dst, size_t bytes, int peer, struct comm *c) {
	pthread_mutex_lock(&mu);
	struct message **box = &c->g->box[peer][c->rank];
	while (!*box && !c->g->aborted)
		pthread_cond_wait(&changed, &mu);
	struct message *m = *box;
	if (m)
		*box = m->next;
	pthread_mutex_unlock(&mu);
	if (!m)
		return 6;
	int code = m->n == bytes ? 0 : 5;
	if (code == 0)
		memcpy(dst, m->data, bytes);
	free(m);
	return code;
}

/* Receipts of a group wait for its end, as NCCL's do. */
static __thread struct { void *dst; size_t n; int peer; struct comm *c; } pending[MAX_RANKS];
static __thread int depth, waiting;
int ncclGroupStart(void) { depth++; return 0; }
int ncclGroupEnd(void) {
	int code = 0;
	if (--depth == 0) {
		for (int i = 0; i < waiting && code == 0; i++)
			code = take(pending[i].dst, pending[i].n, pending[i].peer, pending[i].c);
		waiting = 0;
	}
	return code;
}
int ncclSend(const void *src, size_t n, int dt, int peer, struct comm *c, void *stream) {
	return usable(dt, 0, stream) && peer < c->g->ranks ? post(src, n * sizes[dt], peer, c) : 4;
}
int ncclRecv(void *dst, size_t n, int dt, int peer, struct comm *c, void *stream) {
	if (!usable(dt, 0, stream) || peer >= c->g->ranks) return 4;
	if (depth == 0) return take(dst, n * sizes[dt], peer, c);
	pending[waiting].dst = dst, pending[waiting].n = n * sizes[dt], pending[waiting].peer = peer, pending[waiting++].c = c;
	return 0;
}
