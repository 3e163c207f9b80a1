// Checks of what kernels do to memory. GCC's -fsanitize=thread has every access call a function; these are ours, and no
// library of the compiler takes part.
#include <link.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <map>

#include "engine.h"

namespace engine {

// seconds is the time of the processor that this thread has had: a loaded machine makes no block late.
double seconds() {
	timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// own is where the image itself lies: tables of constants are read there.
struct Own {
	uintptr_t base = 0, low = ~uintptr_t(0), high = 0;
};

static int find_own(dl_phdr_info* info, size_t, void* out) {
	Own o;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr)& p = info->dlpi_phdr[i];
		if (p.p_type == PT_LOAD) {
			uintptr_t at = info->dlpi_addr + p.p_vaddr;
			o.low = at < o.low ? at : o.low;
			o.high = at + p.p_memsz > o.high ? at + p.p_memsz : o.high;
		}
	}
	uintptr_t here = uintptr_t(&find_own);
	if (o.low <= here && here < o.high) {
		o.base = info->dlpi_addr;
		*(Own*)out = o;
		return 1;
	}
	return 0;
}

static const Own& own() {
	static const Own o = [] {
		Own x;
		dl_iterate_phdr(find_own, &x);
		return x;
	}();
	return o;
}

// A place in the kernel is written as @0x..., an address within the image's file; who prints reports makes a line of it.
static std::string place(uint32_t pc) {
	char text[32];
	snprintf(text, sizeof text, "@0x%x", pc);
	return text;
}

static uint32_t relative(uintptr_t pc) { return uint32_t(pc - 1 - own().base); }

static const Object* object_at(uintptr_t a, size_t n) {
	for (const Object& o : self->objects) {
		if (o.low <= a && a + n <= o.high) {
			return &o;
		}
	}
	return nullptr;
}

static std::string offset_in(uintptr_t a) {
	for (const Object& o : self->objects) {
		if (o.low <= a && a < o.high + kRedZone) {
			return std::string("shared ") + o.name + ", byte " + std::to_string(a - o.low) + " of " + std::to_string(o.high - o.low);
		}
	}
	return "no shared array";
}

[[noreturn]] static void race(uintptr_t a, const Cell& c, bool write, bool other_writes, uint32_t pc) {
	int t = self->now, other = other_writes ? c.writer : c.reader;
	fault("race on %s: %s %s (%s), %s %s (%s), with no barrier between them", offset_in(a).c_str(), name_thread(other).c_str(),
	      other_writes ? "writes" : "reads", place(other_writes ? c.write_pc : c.read_pc).c_str(), name_thread(t).c_str(),
	      write ? "writes" : "reads", place(pc).c_str());
}

// apart reports whether an access of the epochs given, by thread other, is not ordered before one by t now.
static bool apart(int other, uint32_t block, uint32_t warp, int t) {
	const Worker* w = self;
	return other != t && block == w->epoch && (other / kWarp != t / kWarp || warp == w->warp[t / kWarp].epoch);
}

static void touch_shared(uintptr_t a, size_t n, bool write, bool atomic, uint32_t pc) {
	Worker* w = self;
	int t = w->now;
	uint32_t epoch = w->epoch, lane_epoch = w->warp[t / kWarp].epoch;
	if (object_at(a, n) == nullptr) {
		fault("%s %s %zu bytes outside of its shared arrays: %s (%s)", name_thread(t).c_str(), write ? "writes" : "reads", n,
		      offset_in(a).c_str(), place(pc).c_str());
	}
	for (Cell* c = &w->cells[a - uintptr_t(w->shared)]; n > 0; n--, c++, a++) {
		c->pending = c->pending && c->write_block >= w->first_epoch;  // copies end with their block
		if (c->pending) {
			fault("%s %s %s (%s), which an asynchronous copy of %s still writes (%s)", name_thread(t).c_str(),
			      write ? "writes" : "reads", offset_in(a).c_str(), place(pc).c_str(), name_thread(c->writer).c_str(),
			      place(c->write_pc).c_str());
		}
		if (!(atomic && c->atomic) && apart(c->writer, c->write_block, c->write_warp, t)) {
			race(a, *c, write, true, pc);
		}
		if (write) {
			bool unordered = c->read_block == epoch && (c->many_warps || apart(c->reader, c->read_block, c->read_warp, t) ||
				 (c->many_lanes && c->reader / kWarp == t / kWarp && c->read_warp == lane_epoch));
			if (unordered) {
				race(a, *c, write, false, pc);
			}
			if (atomic && !c->atomic && c->write_block == epoch) {
				continue;  // the plain write before it still races with atomic ones of others
			}
			c->write_block = epoch;
			c->write_warp = lane_epoch;
			c->writer = uint16_t(t);
			c->write_pc = pc;
			c->atomic = atomic;
			continue;
		}
		bool again = c->read_block == epoch;
		if (!again) {
			c->many_lanes = c->many_warps = false;
		} else if (c->reader / kWarp != t / kWarp) {
			c->many_warps = true;
		} else if (c->reader != t) {
			c->many_lanes = c->read_warp == lane_epoch;
		} else if (c->read_warp != lane_epoch) {
			c->many_lanes = false;
		}
		c->read_block = epoch;
		c->read_warp = lane_epoch;
		c->reader = uint16_t(t);
		c->read_pc = pc;
	}
}

// Global memory.

// shadows has the cells of each range, which outlive launches.
struct Shadow {
	Far* cells = nullptr;
	size_t bytes = 0;
};
static std::vector<Far*> shadows;

// kMaxShadowed is the largest memory whose bytes are watched for races.
constexpr size_t kMaxShadowed = 16 << 20;

void check_launch() {
	static std::map<uintptr_t, Shadow>& known = *new std::map<uintptr_t, Shadow>;
	Worker* w = self;
	w->launch_epoch = w->epoch;
	w->begun.clear();
	w->fenced = false;
	shadows.assign(range_count, nullptr);
	for (size_t i = 0; i < range_count; i++) {
		size_t n = ranges[i].high - ranges[i].low;
		if (n > kMaxShadowed) {
			continue;
		}
		Shadow& s = known[ranges[i].low];
		if (s.bytes < n) {
			if (s.cells != nullptr) {
				munmap(s.cells, s.bytes * sizeof(Far));
			}
			void* p = mmap(nullptr, n * sizeof(Far), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
			s = p == MAP_FAILED ? Shadow() : Shadow{(Far*)p, n};
		}
		shadows[i] = s.cells;
	}
}

// name_far names a thread that did something in an epoch of this launch.
static std::string name_far(int thread, uint32_t epoch) {
	const Worker* w = self;
	std::string name = name_thread(thread);
	if (epoch < w->first_epoch) {
		size_t b = size_t(std::upper_bound(w->begun.begin(), w->begun.end(), epoch) - w->begun.begin()) - 1;
		size_t x = gridDim.x, y = gridDim.y;
		name += " of block (" + std::to_string(b % x) + "," + std::to_string(b / x % y) + "," + std::to_string(b / (x * y)) + ")";
	}
	return name;
}

[[noreturn]] static void far_race(const gtc_image_range& r, uintptr_t a, const Far& c, bool write, bool other_writes, uint32_t pc) {
	int other = other_writes ? c.writer : c.reader;
	uint32_t epoch = other_writes ? c.write_epoch : c.read_epoch;
	fault("race on %s, byte %zu of %zu: %s %s (%s), %s %s (%s), with nothing that orders them", r.name, a - r.low, r.high - r.low,
	      name_far(other, epoch).c_str(), other_writes ? "writes" : "reads", place(other_writes ? c.write_pc : c.read_pc).c_str(),
	      name_thread(self->now).c_str(), write ? "writes" : "reads", place(pc).c_str());
}

// far_apart reports whether an access by thread other in an epoch is not ordered before one now. Threads of one warp are taken
// to be in order; so are blocks in a kernel whose blocks fence and then count, after they have counted.
static bool far_apart(int other, uint32_t epoch) {
	const Worker* w = self;
	if (epoch <= w->launch_epoch) {
		return false;
	}
	if (epoch < w->first_epoch) {
		return !(w->fenced && w->took_turn);
	}
	return epoch == w->epoch && other / kWarp != w->now / kWarp;
}

static void touch_far(const gtc_image_range& r, Far* c, uintptr_t a, size_t n, bool write, bool atomic, uint32_t pc) {
	Worker* w = self;
	int t = w->now;
	for (; n > 0; n--, c++, a++) {
		if (!(atomic && c->atomic) && far_apart(c->writer, c->write_epoch)) {
			far_race(r, a, *c, write, true, pc);
		}
		bool read_here = c->read_epoch > w->launch_epoch;
		if (write) {
			if (read_here && (far_apart(c->reader, c->read_epoch) || (c->many_blocks && !(w->fenced && w->took_turn)) ||
					  (c->many_warps && c->read_epoch == w->epoch))) {
				far_race(r, a, *c, write, false, pc);
			}
			if (atomic && !c->atomic && c->write_epoch >= w->first_epoch) {
				continue;  // as in shared memory
			}
			c->write_epoch = w->epoch;
			c->writer = uint16_t(t);
			c->write_pc = pc;
			c->atomic = atomic;
			continue;
		}
		c->many_blocks = read_here && (c->many_blocks || c->read_epoch < w->first_epoch);
		c->many_warps = c->read_epoch == w->epoch && (c->many_warps || c->reader / kWarp != t / kWarp);
		c->read_epoch = w->epoch;
		c->reader = uint16_t(t);
		c->read_pc = pc;
	}
}

// touch_global looks the address up among the memory that kernels may touch.
static void touch_global(uintptr_t a, size_t n, bool write, bool atomic, uint32_t pc) {
	static thread_local size_t last = 0;
	size_t at = last;
	if (at >= range_count || ranges[at].low > a || a + n > ranges[at].high) {
		size_t high = range_count;  // the first range that ends after a is among those from at on
		for (at = 0; at < high;) {
			size_t mid = (at + high) / 2;
			if (ranges[mid].high > a) {
				high = mid;
			} else {
				at = mid + 1;
			}
		}
	}
	if (at < range_count && ranges[at].low <= a && a + n <= ranges[at].high) {
		last = at;
		if (shadows[at] != nullptr) {
			touch_far(ranges[at], shadows[at] + (a - ranges[at].low), a, n, write, atomic, pc);
		}
		return;
	}
	if (!write && own().low <= a && a + n <= own().high) {
		return;
	}
	std::string near = "near nothing";
	if (at > 0 && (at == range_count || a - ranges[at - 1].high < ranges[at].low - a)) {
		near = std::to_string(a - ranges[at - 1].high) + " bytes after the end of " + ranges[at - 1].name;
	} else if (at < range_count) {
		near = a < ranges[at].low ? std::to_string(ranges[at].low - a) + " bytes before " + ranges[at].name
					  : std::string("over the end of ") + ranges[at].name;
	}
	fault("%s %s %zu bytes at %p, outside of all memory: %s (%s)", name_thread(self->now).c_str(), write ? "writes" : "reads", n,
	      (void*)a, near.c_str(), place(pc).c_str());
}

void check_access(const void* p, size_t n, bool write, bool atomic, uintptr_t pc) {
	Worker* w = self;
	if (w == nullptr) {
		return;  // the image's own constructors
	}
	uintptr_t a = uintptr_t(p);
	if ((++w->accesses & 0xffff) == 0 && seconds() > w->deadline) {
		fault("%s has not come to its end in time (%s)", name_thread(w->now).c_str(), place(relative(pc)).c_str());
	}
	if (a - uintptr_t(w->current->stack) < kStack || a - uintptr_t(&gtc_host_here) < sizeof gtc_host_here) {
		return;
	}
	if (profiling && !atomic) {
		profile_access(a, n, a - uintptr_t(w->shared) < kShared, relative(pc));
	}
	if (a - uintptr_t(w->shared) < kShared) {
		touch_shared(a, n, write, atomic, relative(pc));
		return;
	}
	touch_global(a, n, write, atomic, relative(pc));
}

void check_copy_begins(const Copy& c, uintptr_t pc) {
	if (profiling) {
		profile_access(uintptr_t(c.to), c.bytes, true, relative(pc));
		if (c.valid) {
			profile_access(uintptr_t(c.from), c.bytes, false, relative(pc) + 1);  // apart from the other, on the same line
		}
	}
	if (c.valid) {
		touch_global(uintptr_t(c.from), c.bytes, false, false, relative(pc));
	}
	touch_shared(uintptr_t(c.to), c.bytes, true, false, relative(pc));
	for (int i = 0; i < c.bytes; i++) {
		self->cells[uintptr_t(c.to) - uintptr_t(self->shared) + i].pending = true;
	}
}

void check_copy_ends(const Copy& c) {
	Cell* cells = &self->cells[uintptr_t(c.to) - uintptr_t(self->shared)];
	for (int i = 0; i < c.bytes; i++) {
		cells[i].pending = false;
		cells[i].write_block = self->epoch;
		cells[i].write_warp = self->warp[self->now / kWarp].epoch;
	}
}

}  // namespace engine

using namespace engine;

extern "C" {
void gtc_host_atomic(const void* p, int bytes) {
	self->took_turn = true;
	check_access(p, bytes, true, true, uintptr_t(__builtin_return_address(0)));
}
void gtc_host_volatile(const void* p, int bytes) {
	self->took_turn = true;
	check_access(p, bytes, false, true, uintptr_t(__builtin_return_address(0)));
}
void gtc_host_move(void* to, const void* from, int bytes) {
	uintptr_t pc = uintptr_t(__builtin_return_address(0));
	check_access(from, size_t(bytes), false, false, pc);
	check_access(to, size_t(bytes), true, false, pc);
	memcpy(to, from, size_t(bytes));
}
void gtc_host_fence() {
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	self->fenced = true;
}

#define PC uintptr_t(__builtin_return_address(0))
#define ACCESSES(N)                                                                            \
	void __tsan_read##N(void* p) { check_access(p, N, false, false, PC); }                 \
	void __tsan_write##N(void* p) { check_access(p, N, true, false, PC); }                 \
	void __tsan_unaligned_read##N(void* p) { check_access(p, N, false, false, PC); }       \
	void __tsan_unaligned_write##N(void* p) { check_access(p, N, true, false, PC); }       \
	void __tsan_volatile_read##N(void* p) { check_access(p, N, false, false, PC); }        \
	void __tsan_volatile_write##N(void* p) { check_access(p, N, true, false, PC); }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(void* p, size_t n) { check_access(p, n, false, false, PC); }
void __tsan_write_range(void* p, size_t n) { check_access(p, n, true, false, PC); }
void __tsan_init(void) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
}
