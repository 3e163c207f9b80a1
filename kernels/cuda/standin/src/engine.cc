// The engine runs the grid of a kernel on this processor. Threads of a block are called one after the other on one fibre
// until one has to wait; it keeps its fibre then, and the next thread gets another. So kernels without barriers are plain
// loops of calls. A warp's lanes take turns in order, and the last that comes to an exchange does it for all.
#include "engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

GTC_HOST_TLS gtc_host_place gtc_host_here;

extern "C" const gtc_image_kernel gtc_image_kernels[];
extern "C" const unsigned gtc_image_kernel_count;
extern "C" const int gtc_image_checked;

namespace engine {

__thread Worker* self;
const gtc_image_range* ranges;
size_t range_count;

// Fibres.

#if defined(__x86_64__)
extern "C" void gtc_host_switch(void** save, void* load);
__asm__(
    ".text\n.p2align 4\n.type gtc_host_switch,@function\n.hidden gtc_host_switch\ngtc_host_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size gtc_host_switch,.-gtc_host_switch\n");
static void fresh(Fibre* f, void (*entry)()) {
	void** sp = (void**)f->top;
	*--sp = nullptr;  // where the entry would return to; it also aligns the stack as a call does
	*--sp = (void*)entry;
	for (int i = 0; i < 6; i++) {
		*--sp = nullptr;
	}
	f->sp = sp;
}
#else
#include <ucontext.h>
// Slow, for processors without the assembly above: each switch makes a system call. sp points at a ucontext_t.
static void gtc_host_switch(void** save, void* load) {
	ucontext_t here;
	*save = &here;
	swapcontext(&here, (ucontext_t*)load);
}
static void fresh(Fibre* f, void (*entry)()) {
	ucontext_t* u = (ucontext_t*)f->stack;
	getcontext(u);
	u->uc_stack.ss_sp = f->stack + sizeof *u;
	u->uc_stack.ss_size = f->top - f->stack - sizeof *u;
	u->uc_link = nullptr;
	makecontext(u, entry, 0);
	f->sp = u;
}
#endif

static void fibre_main();

static Fibre* unpark(Worker* w) {
	if (!w->parked.empty()) {
		Fibre* f = w->parked.back();
		w->parked.pop_back();
		return f;
	}
	Fibre* f = new Fibre;
	f->stack = (char*)mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (f->stack == (char*)MAP_FAILED) {
		fprintf(stderr, "gtc's host engine: no address space for the stacks of %zu threads\n", w->fibres.size() + 1);
		abort();
	}
	// The tops are spread, so that the frames of many fibres do not share the same few lines of the caches.
	f->top = f->stack + kStack - w->fibres.size() % 61 * 576;
	f->top -= uintptr_t(f->top) % 16;
	fresh(f, fibre_main);
	w->fibres.push_back(f);
	return f;
}

// next is the thread that runs after t: lanes of t's warp first. -1 when none can run.
static int next(Worker* w, int t) {
	int at = t / kWarp, lane = t % kWarp;
	if (uint32_t m = w->warp[at].runnable) {
		uint32_t later = m & ~((uint32_t(2) << lane) - 1);
		return at * kWarp + __builtin_ctz(later ? later : m);
	}
	for (int i = 1; i < w->warps; i++) {
		int k = at + i < w->warps ? at + i : at + i - w->warps;
		if (uint32_t m = w->warp[k].runnable) {
			return k * kWarp + __builtin_ctz(m);
		}
	}
	return -1;
}

// run_next leaves the thread that runs, which waits, and returns when it runs again.
static void run_next(Worker* w, int n) {
	Fibre* from = w->current;
	int t = w->now;
	w->thread[t].fibre = from;
	Fibre* to = w->thread[n].fibre;
	if (to == nullptr) {
		to = unpark(w);
		to->start = n;
		w->thread[n].fibre = to;
	}
	w->now = n;
	w->current = to;
	threadIdx = w->index[n];
	gtc_host_switch(&from->sp, to->sp);
}

template <size_t... I> static void call_with(void* function, void* const* a, std::index_sequence<I...>) {
	((void (*)(decltype((void)I, (void*)0)...))function)(a[I]...);
}

constexpr unsigned kMaxArguments = 512;

// call calls the kernel with as many pointers as it takes, or more, which do no harm.
static void call(const gtc_image_launch* l) {
	unsigned n = l->kernel->parameters;
	void* f = l->kernel->function;
	if (n <= 6) {
		void* few[6] = {};
		for (unsigned i = 0; i < n; i++) {
			few[i] = l->arguments[i];
		}
		call_with(f, few, std::make_index_sequence<6>());
		return;
	}
	void* padded[kMaxArguments];  // on this stack; only what is passed is written
	unsigned pass = n <= 16 ? 16 : n <= 64 ? 64 : kMaxArguments;
	for (unsigned i = 0; i < pass; i++) {
		padded[i] = i < n ? l->arguments[i] : nullptr;
	}
	if (pass == 16) {
		call_with(f, padded, std::make_index_sequence<16>());
	} else if (pass == 64) {
		call_with(f, padded, std::make_index_sequence<64>());
	} else {
		call_with(f, padded, std::make_index_sequence<kMaxArguments>());
	}
}

static void waits_in_vain(Worker* w, int warp);

// ended takes note that the running thread has returned and says which one runs next, or -1 at the end of the block.
static int ended(Worker* w) {
	int t = w->now, at = t / kWarp;
	Thread& me = w->thread[t];
	if (!me.copies.empty()) {
		gtc_host_copy_commit();
		gtc_host_copy_wait(0);
	}
	Warp& warp = w->warp[at];
	warp.runnable &= ~(1u << t % kWarp);
	warp.done |= 1u << t % kWarp;
	w->done++;
	if (w->at_barrier > 0) {
		fault("%s ends while others are at the barrier at %s:%d", name_thread(t).c_str(), w->barrier.file, w->barrier.line);
	}
	if (warp.waiting && !warp.runnable) {
		waits_in_vain(w, at);
	}
	return w->done == w->threads ? -1 : next(w, t);
}

// fibre_main calls kernels for the threads that the fibre is given, and parks between them.
static void fibre_main() {
	for (;;) {
		Worker* w = self;
		Fibre* me = w->current;
		for (int t = me->start; t >= 0;) {
			w->now = t;
			w->thread[t].fibre = me;
			threadIdx = w->index[t];
			call(w->launch);
			w->thread[t].fibre = nullptr;
			int n = ended(w);
			if (n < 0) {  // the end of the block
				w->parked.push_back(me);
				gtc_host_switch(&me->sp, w->main_sp);
				break;
			}
			if (w->thread[n].fibre != nullptr) {
				w->parked.push_back(me);
				w->now = n;
				w->current = w->thread[n].fibre;
				threadIdx = w->index[n];
				gtc_host_switch(&me->sp, w->current->sp);
				break;
			}
			t = n;
		}
	}
}

// Faults.

static std::mutex report_mutex;
static std::string report;
static std::atomic<bool> stop{false};

std::string name_thread(int t) {
	const gtc_host_index& i = self->index[t];
	return "thread (" + std::to_string(i.x) + "," + std::to_string(i.y) + "," + std::to_string(i.z) + ")";
}

void fault(const char* format, ...) {
	char text[1024];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	Worker* w = self;
	char where[256];
	snprintf(where, sizeof where, "kernel %s, block (%u,%u,%u): ", w->launch->kernel->name, blockIdx.x, blockIdx.y, blockIdx.z);
	{
		std::lock_guard<std::mutex> lock(report_mutex);
		if (report.empty()) {
			report = std::string(where) + text;
		}
	}
	stop = true;
	w->failed = true;
	// The fibres hold frames of kernels that nobody goes on with.
	w->parked.clear();
	for (Fibre* f : w->fibres) {
		fresh(f, fibre_main);
		w->parked.push_back(f);
	}
	void* nowhere;
	gtc_host_switch(&nowhere, w->main_sp);
	abort();
}

static void waits_in_vain(Worker* w, int at) {
	Warp& warp = w->warp[at];
	int waits = __builtin_ctz(warp.waiting);
	uint32_t others = warp.all & ~warp.waiting;
	int other = others ? __builtin_ctz(others) : 0;
	const char* does = warp.done >> other & 1 ? "has ended" : "is at a barrier of the block";
	static const char* const names[] = {"shfl", "shfl_xor", "shfl_down", "shfl_up", "warp_ballot", "sync_warp", "ldmatrix", "ldmatrix", "mma"};
	fault("%s waits for its warp in %s, but %s %s", name_thread(at * kWarp + waits).c_str(),
	      names[w->thread[at * kWarp + waits].x.kind], name_thread(at * kWarp + other).c_str(), does);
}

// Barriers.

static void barrier(Worker* w, const char* file, int line) {
	int t = w->now;
	Warp& warp = w->warp[t / kWarp];
	if (w->done > 0) {
		fault("%s is at the barrier at %s:%d, but %d threads of the block have ended", name_thread(t).c_str(), file, line, w->done);
	}
	if (w->at_barrier == 0) {
		w->barrier = Place{file, line};
	} else if (w->barrier.line != line || strcmp(w->barrier.file, file) != 0) {
		fault("%s is at the barrier at %s:%d while others are at the one at %s:%d", name_thread(t).c_str(), file, line,
		      w->barrier.file, w->barrier.line);
	}
	warp.runnable &= ~(1u << t % kWarp);
	warp.at_barrier |= 1u << t % kWarp;
	if (++w->at_barrier < w->threads) {
		if (warp.waiting && !warp.runnable) {
			waits_in_vain(w, t / kWarp);
		}
		run_next(w, next(w, t));
		return;
	}
	w->at_barrier = 0;
	w->epoch++;
	for (int i = 0; i < w->warps; i++) {
		w->warp[i].runnable = w->warp[i].all;
		w->warp[i].at_barrier = 0;
	}
	// The last one goes on; the first warp then comes in turn.
}

void exchange() {
	Worker* w = self;
	int t = w->now, at = t / kWarp, lane = t % kWarp;
	Warp& warp = w->warp[at];
	int kind = w->thread[t].x.kind;
	if (warp.all != 0xffffffffu && kind != kSyncWarp) {
		fault("%s exchanges within a warp of %d lanes", name_thread(t).c_str(), __builtin_popcount(warp.all));
	}
	if (warp.waiting) {
		int other = at * kWarp + __builtin_ctz(warp.waiting);
		if (w->thread[other].x.kind != kind) {
			fault("%s and %s of one warp are at different exchanges", name_thread(other).c_str(), name_thread(t).c_str());
		}
	}
	warp.runnable &= ~(1u << lane);
	warp.waiting |= 1u << lane;
	if (warp.waiting != warp.all) {
		if (!warp.runnable) {
			waits_in_vain(w, at);
		}
		run_next(w, next(w, t));
		return;
	}
	perform(w, at);
	warp.waiting = 0;
	warp.runnable = warp.all;
}

// Blocks.

static Worker* make_worker() {
	Worker* w = new Worker();
	w->shared = (char*)mmap(nullptr, kShared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (checked) {
		w->cells = (Cell*)mmap(nullptr, kShared * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	}
	return w;
}

static void begin_launch(Worker* w, const gtc_image_launch* l) {
	w->launch = l;
	w->threads = int(l->block[0] * l->block[1] * l->block[2]);
	w->warps = (w->threads + kWarp - 1) / kWarp;
	w->index.resize(w->threads);
	for (int t = 0; t < w->threads; t++) {
		unsigned u = unsigned(t), x = l->block[0], y = l->block[1];
		w->index[t] = gtc_host_index{u % x, u / x % y, u / (x * y)};
	}
	gridDim = gtc_host_index{l->grid[0], l->grid[1], l->grid[2]};
	blockDim = gtc_host_index{l->block[0], l->block[1], l->block[2]};
}

static void run_block(Worker* w) {
	for (int i = 0; i < w->warps; i++) {
		int lanes = w->threads - i * kWarp;
		uint32_t all = lanes >= kWarp ? 0xffffffffu : (1u << lanes) - 1;
		w->warp[i] = Warp{all, all, 0, 0, 0, w->warp[i].epoch + 1};
	}
	for (int t = 0; t < w->threads; t++) {
		w->thread[t].fibre = nullptr;
		w->thread[t].copies.clear();
		w->thread[t].groups = 0;
	}
	w->at_barrier = w->done = 0;
	w->failed = false;
	w->used = 0;
	w->objects.clear();
	w->stamp++;
	w->first_epoch = ++w->epoch;
	if (w->launch->shared > 0) {
		memset(w->shared + kDynamic, 0xff, w->launch->shared);  // no number
		uintptr_t low = uintptr_t(w->shared) + kDynamic;
		w->objects.push_back(Object{low, low + w->launch->shared, "dynamic shared memory"});
	}
	if (checked) {
		w->deadline = seconds() + 60;
	}
	Fibre* f = unpark(w);
	f->start = 0;
	w->now = 0;
	w->current = f;
	gtc_host_switch(&w->main_sp, f->sp);
}

static std::atomic<uint64_t> next_block;

static void run_blocks(const gtc_image_launch* l) {
	if (self == nullptr) {
		self = make_worker();
	}
	begin_launch(self, l);
	uint64_t count = uint64_t(l->grid[0]) * l->grid[1] * l->grid[2];
	for (uint64_t b; !stop && (b = next_block++) < count;) {
		uint64_t x = l->grid[0], y = l->grid[1];
		blockIdx = gtc_host_index{unsigned(b % x), unsigned(b / x % y), unsigned(b / (x * y))};
		run_block(self);
	}
}

// One more thread takes blocks of large grids. It is never joined: images stay loaded.
struct Second {
	std::mutex mutex;
	std::condition_variable changed;
	const gtc_image_launch* work = nullptr;
	bool busy = false, started = false;

	void loop() {
		std::unique_lock<std::mutex> lock(mutex);
		for (;;) {
			changed.wait(lock, [&] { return work != nullptr; });
			const gtc_image_launch* l = work;
			work = nullptr;
			lock.unlock();
			run_blocks(l);
			lock.lock();
			busy = false;
			changed.notify_all();
		}
	}
	void begin(const gtc_image_launch* l) {
		std::lock_guard<std::mutex> lock(mutex);
		if (!started) {
			started = true;
			std::thread([this] { loop(); }).detach();
		}
		work = l;
		busy = true;
		changed.notify_all();
	}
	void wait() {
		std::unique_lock<std::mutex> lock(mutex);
		changed.wait(lock, [&] { return !busy; });
	}
};
static Second& second = *new Second;
static std::mutex launch_mutex;

static int run(const gtc_image_launch* l, const gtc_image_range* r, size_t n, char* text, size_t size) {
	std::lock_guard<std::mutex> lock(launch_mutex);
	ranges = r;
	range_count = n;
	report.clear();
	stop = false;
	next_block = 0;
	uint64_t blocks = uint64_t(l->grid[0]) * l->grid[1] * l->grid[2];
	uint64_t threads = uint64_t(l->block[0]) * l->block[1] * l->block[2];
	if (threads > kMaxThreads || threads == 0 || l->shared > kMaxAll || l->kernel->parameters > kMaxArguments) {
		snprintf(text, size, "kernel %s: cannot run %lu threads with %u bytes of shared memory and %u parameters", l->kernel->name,
			 (unsigned long)threads, l->shared, l->kernel->parameters);
		return 1;
	}
	bool two = !checked && blocks > 1 && blocks * threads >= 8192;
	if (two) {
		second.begin(l);
	}
	run_blocks(l);
	if (two) {
		second.wait();
	}
	snprintf(text, size, "%s", report.c_str());
	return stop ? 1 : 0;
}

const bool checked = gtc_image_checked != 0;

static std::atomic<int> sites{0};

// place gives a shared array its memory in the block that runs.
static void* place(Worker* w, gtc_host_site* site) {
	int n = __atomic_load_n(&site->number, __ATOMIC_RELAXED);
	if (n < 0) {
		int mine = sites++;
		n = -1;
		if (__atomic_compare_exchange_n(&site->number, &n, mine, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
			n = mine;
		}
	}
	if (size_t(n) >= w->slots.size()) {
		w->slots.resize(n + 1);
	}
	Slot& s = w->slots[n];
	if (s.stamp != w->stamp) {
		s.stamp = w->stamp;
		s.place = w->shared + w->used + w->objects.size() * kRedZone;
		w->used += (site->size + 15) / 16 * 16;
		if (w->used > kMaxStatic) {
			fault("its static shared memory is of more than %zu bytes, with array %s", kMaxStatic, site->name);
		}
		if (w->used + w->launch->shared > kMaxAll) {
			fault("its shared memory is of more than %zu bytes, with array %s", kMaxAll, site->name);
		}
		memset(s.place, 0xff, site->size);
		w->objects.push_back(Object{uintptr_t(s.place), uintptr_t(s.place) + site->size, site->name});
	}
	return s.place;
}

}  // namespace engine

using namespace engine;

extern "C" {
__attribute__((visibility("default"))) extern const gtc_image_table gtc_image;
const gtc_image_table gtc_image = {GTC_IMAGE_VERSION, gtc_image_checked, gtc_image_kernel_count, gtc_image_kernels, run};

void gtc_host_sync(const char* file, int line) { barrier(self, file, line); }
void* gtc_host_shared(gtc_host_site* site) { return place(self, site); }
void* gtc_host_dynamic() { return self->shared + kDynamic; }
void gtc_host_misaligned(const void* p, int bytes) {
	fault("%s accesses %d bytes at %p, which is no multiple of that", name_thread(self->now).c_str(), bytes, p);
}
}
