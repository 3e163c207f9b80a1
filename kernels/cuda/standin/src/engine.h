// The engine's own: what runs a block's threads, each on a fibre, and what its checks know.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtc.cuh"  // after the library's own headers: it defines words that they use
#include "image.h"

namespace engine {

constexpr int kMaxThreads = 1024, kWarp = 32, kMaxWarps = kMaxThreads / kWarp;
constexpr unsigned kMaxArguments = 512;
constexpr size_t kStack = 256 << 10;  // address space of one fibre

// The shared memory of a block: static arrays from the start on, dynamic memory from kDynamic on.
constexpr size_t kDynamic = 128 << 10, kShared = kDynamic + (256 << 10);
constexpr size_t kMaxStatic = 48 << 10, kMaxAll = 227 << 10;  // what sm_90 allows
constexpr size_t kRedZone = 128;                             // that nobody may touch, behind each array

// Fibre is a stack. Between threads it waits in Worker::parked.
struct Fibre {
	void* sp;
	char* stack;  // kStack bytes
	char* top;
	int start;  // the thread that it begins with when it is switched to
};

struct Place {
	const char* file;
	int line;
};

struct Copy {
	void* to;
	const void* from;
	int bytes;
	bool valid;
	unsigned group;
};

// Exchange is what a lane brings to an operation of its warp.
enum Kind { kIndex, kXor, kDown, kUp, kBallot, kSyncWarp, kMatrix, kMatrixTrans, kProduct };
struct Exchange {
	int kind, argument;
	uint64_t bits;
	void *to, *from, *more;
};

struct Thread {
	Fibre* fibre;
	Place at;
	Exchange x;
	std::vector<Copy> copies;
	unsigned groups;  // committed
};

// Warp has a bit for each lane.
struct Warp {
	uint32_t all, runnable, waiting, at_barrier, done;
	uint32_t epoch;  // counts what orders lanes
};

// Cell is what a check knows of a byte of shared memory. Epochs are of the block's barriers and of the warp; those of the
// block never repeat, so that nothing needs clearing between blocks.
struct Cell {
	uint32_t write_block, write_warp, read_block, read_warp;
	uint32_t write_pc, read_pc;
	uint16_t writer, reader;
	bool atomic, many_lanes, many_warps, pending;
};

// Far is what a check knows of a byte of global memory. The epoch tells the block, too.
struct Far {
	uint32_t write_epoch, read_epoch, write_pc, read_pc;
	uint16_t writer, reader;
	bool atomic, many_warps, many_blocks;
};

struct Object {
	uintptr_t low, high;
	const char* name;
};

struct Slot {
	uint32_t stamp;
	void* place;
};

// Worker runs one block after the other on one thread of the operating system.
struct Worker {
	void* main_sp;
	const gtc_image_launch* launch;
	int threads, warps, at_barrier, done;
	int now;      // the thread that runs
	bool failed;  // the block is given up
	uint32_t stamp;
	Fibre* current;
	Place barrier;
	char* shared;
	size_t used;  // of static shared memory
	std::vector<Fibre*> parked, fibres;
	std::vector<Slot> slots;
	std::vector<Object> objects;
	std::vector<gtc_host_index> index;
	Thread thread[kMaxThreads];
	Warp warp[kMaxWarps];
	// Of checks.
	Cell* cells;
	uint32_t epoch, first_epoch;  // first_epoch is that in which the block began
	uint32_t launch_epoch;        // that before its first block
	std::vector<uint32_t> begun;  // by block: the epoch in which it began
	bool fenced, took_turn;       // a block of the launch fenced; this one has done an atomic operation
	uint64_t accesses;
	double deadline;
};

extern __thread Worker* self __attribute__((tls_model("initial-exec")));

// Of the launch in progress.
extern const gtc_image_range* ranges;
extern size_t range_count;
extern const bool checked;

// fresh makes a fibre begin with entry when it is switched to; unpark gives one that is not in use and runs fibre_main, which
// calls kernels. gtc_host_switch leaves this stack for another.
void fresh(Fibre* f, void (*entry)());
Fibre* unpark(Worker* w);
void fibre_main();
extern "C" void gtc_host_switch(void** save, void* load);

// fault gives the block up and never returns.
[[noreturn]] void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));

// name_thread is "thread (x,y,z)".
std::string name_thread(int t);

// exchange brings what self->thread[now].x holds to the warp and returns when all lanes have.
void exchange();
void perform(Worker* w, int warp);

// check_* are called by kernels compiled with checks, and for what the engine itself does to memory for them.
void check_access(const void* p, size_t bytes, bool write, bool atomic, uintptr_t pc);
void check_launch();
void check_copy_begins(const Copy& c, uintptr_t pc);
void check_copy_ends(const Copy& c);
double seconds();

// profile_* count, where GTC_HOST_PROFILE is set, how the lanes of a warp share their accesses to memory.
extern const bool profiling;
void profile_access(uintptr_t address, size_t bytes, bool shared, uint32_t pc);
void profile_block();   // at the end of a block
void profile_launch();  // at the end of a launch: prints

}  // namespace engine
