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

// limit is how many seconds of the processor a block may take under checks: GTC_HOST_SECONDS, or 60.
static double limit() {
	static const char* const text = getenv("GTC_HOST_SECONDS");
	return text != nullptr ? atof(text) : 60;
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
	if (checked) {
		w->begun.push_back(w->epoch);
		w->took_turn = false;
	}
	if (w->launch->shared > 0) {
		memset(w->shared + kDynamic, 0xff, w->launch->shared);  // no number
		uintptr_t low = uintptr_t(w->shared) + kDynamic;
		w->objects.push_back(Object{low, low + w->launch->shared, "dynamic shared memory"});
	}
	if (checked) {
		w->deadline = seconds() + limit();
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
	if (checked) {
		check_launch();
	}
	uint64_t count = uint64_t(l->grid[0]) * l->grid[1] * l->grid[2];
	for (uint64_t b; !stop && (b = next_block++) < count;) {
		uint64_t x = l->grid[0], y = l->grid[1];
		blockIdx = gtc_host_index{unsigned(b % x), unsigned(b / x % y), unsigned(b / (x * y))};
		run_block(self);
		if (profiling) {
			profile_block();
		}
	}
	if (profiling) {
		profile_launch();
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

void* gtc_host_shared(gtc_host_site* site) { return place(self, site); }
void* gtc_host_dynamic() { return self->shared + kDynamic; }
void gtc_host_misaligned(const void* p, int bytes) {
	fault("%s accesses %d bytes at %p, which is no multiple of that", name_thread(self->now).c_str(), bytes, p);
}
}
