// Checks of what kernels do to memory. GCC's -fsanitize=thread has every access call a function; these are ours, and no
// library of the compiler takes part.
#include <link.h>
#include <stdio.h>
#include <time.h>

#include "engine.h"

namespace engine {

double seconds() {
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
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

// touch_global looks the address up among the memory that kernels may touch.
static void touch_global(uintptr_t a, size_t n, bool write, uint32_t pc) {
	static thread_local size_t last = 0;
	if (last < range_count && ranges[last].low <= a && a + n <= ranges[last].high) {
		return;
	}
	size_t low = 0, high = range_count;  // the first range that ends after a is among them
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (ranges[mid].high > a) {
			high = mid;
		} else {
			low = mid + 1;
		}
	}
	if (low < range_count && ranges[low].low <= a && a + n <= ranges[low].high) {
		last = low;
		return;
	}
	if (!write && own().low <= a && a + n <= own().high) {
		return;
	}
	std::string near = "near nothing";
	if (low > 0 && (low == range_count || a - ranges[low - 1].high < ranges[low].low - a)) {
		near = std::to_string(a - ranges[low - 1].high) + " bytes after the end of " + ranges[low - 1].name;
	} else if (low < range_count) {
		near = a < ranges[low].low ? std::to_string(ranges[low].low - a) + " bytes before " + ranges[low].name
					   : std::string("over the end of ") + ranges[low].name;
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
		fault("%s has not come to its end in a minute (%s)", name_thread(w->now).c_str(), place(relative(pc)).c_str());
	}
	if (a - uintptr_t(w->current->stack) < kStack || a - uintptr_t(&gtc_host_here) < sizeof gtc_host_here) {
		return;
	}
	if (a - uintptr_t(w->shared) < kShared) {
		touch_shared(a, n, write, atomic, relative(pc));
		return;
	}
	touch_global(a, n, write, relative(pc));
}

void check_copy_begins(const Copy& c, uintptr_t pc) {
	if (c.valid) {
		touch_global(uintptr_t(c.from), c.bytes, false, relative(pc));
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
void gtc_host_atomic(const void* p, int bytes) { check_access(p, bytes, true, true, uintptr_t(__builtin_return_address(0))); }
void gtc_host_fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

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
