// Counts of how well the lanes of a warp share what they ask of memory, which costs time on a GPU only: of global memory,
// sectors of 32 bytes; of shared memory, passes over its 32 banks of 4 bytes. One instruction's requests are those that the
// lanes of a warp make at one place of the code, the first of each lane, then the second of each, and so on.
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine.h"

namespace engine {

const bool profiling = checked && getenv("GTC_HOST_PROFILE") != nullptr;

// kProfiled is how many blocks of a launch are counted: the first ones.
constexpr size_t kProfiled = 4;

struct Request {
	uint32_t lanes = 0;
	size_t bytes = 0;
	uintptr_t at[kWarp];
};

// Pending has a warp's requests at one place that not all lanes have made.
struct Pending {
	size_t first = 0;  // number of list[0]
	std::vector<Request> list;
	size_t made[kWarp] = {};  // by lane
};

struct Count {
	uint64_t requests = 0, bytes = 0, parts = 0, least = 0;  // parts: sectors, or passes; least: as few as the bytes need
};

typedef std::pair<uint32_t, bool> Spot;  // in the code, and whether of shared memory
static std::map<Spot, Count>& counts = *new std::map<Spot, Count>;
static std::map<std::pair<Spot, int>, Pending>& pending = *new std::map<std::pair<Spot, int>, Pending>;

static void count_global(const Request& r, Count& c) {
	std::set<uintptr_t> sectors, words;
	size_t bytes = 0;
	for (int l = 0; l < kWarp; l++) {
		if (r.lanes >> l & 1) {
			sectors.insert(r.at[l] / 32);
			sectors.insert((r.at[l] + r.bytes - 1) / 32);
			bytes += words.insert(r.at[l]).second ? r.bytes : 0;
		}
	}
	c.parts += sectors.size();
	c.least += (bytes + 31) / 32;
	c.bytes += bytes;
}

// count_shared: lanes that ask for 8 or 16 bytes are served in halves or quarters of a warp; lanes that ask for one word share it.
static void count_shared(const Request& r, Count& c) {
	int group = r.bytes <= 4 ? 32 : r.bytes == 8 ? 16 : 8;
	for (int start = 0; start < kWarp; start += group) {
		std::set<uintptr_t> words;
		for (int l = start; l < start + group; l++) {
			for (size_t b = 0; r.lanes >> l & 1 && b < std::max<size_t>(r.bytes, 4); b += 4) {
				words.insert(r.at[l] / 4 + b / 4);
			}
		}
		size_t deepest = 0, banks[32] = {};
		for (uintptr_t w : words) {
			deepest = std::max(deepest, ++banks[w % 32]);
		}
		c.parts += deepest;
		c.least += (words.size() + 31) / 32;
		c.bytes += 4 * words.size();
	}
}

static void finish(const Spot& at, const Request& r) {
	Count& c = counts[at];
	c.requests++;
	if (at.second) {
		count_shared(r, c);
	} else {
		count_global(r, c);
	}
}

void profile_access(uintptr_t address, size_t bytes, bool shared, uint32_t pc) {
	Worker* w = self;
	if (w->begun.size() > kProfiled) {
		return;
	}
	Spot at = {pc, shared};
	Pending& p = pending[{at, w->now / kWarp}];
	int lane = w->now % kWarp;
	size_t n = p.made[lane]++ - p.first;
	if (n >= p.list.size()) {
		p.list.resize(n + 1);
	}
	Request& r = p.list[n];
	r.lanes |= 1u << lane;
	r.bytes = bytes;
	r.at[lane] = address;
	if (r.lanes == w->warp[w->now / kWarp].all && n == 0) {
		finish(at, r);
		p.list.erase(p.list.begin());
		p.first++;
	}
}

void profile_block() {
	for (auto& p : pending) {
		for (const Request& r : p.second.list) {
			finish(p.first.first, r);
		}
	}
	pending.clear();
}

void profile_launch() {
	for (auto& c : counts) {
		printf("profile %s %s %lu %lu %lu %lu @0x%x\n", self->launch->kernel->name, c.first.second ? "shared" : "global",
		       (unsigned long)c.second.requests, (unsigned long)c.second.bytes, (unsigned long)c.second.parts, (unsigned long)c.second.least,
		       c.first.first);
	}
	fflush(stdout);
	counts.clear();
}

}  // namespace engine
