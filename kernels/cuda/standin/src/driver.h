// The stand-in driver: the functions of the CUDA driver API that gtc uses, by their names and numbers in cuda.h 13.0, with
// this processor for a device. Streams are queues that threads of their own work off in order; nothing is done in the call
// that asks for it, so that a program that does not wait finds out.
//
// The environment:
//
//	GTC_STANDIN_MEMORY   bytes of a device's memory; 16 GiB when it is not set
//	GTC_STANDIN_DEVICES  number of devices; 1
//	GTC_STANDIN_ORDER    "lazy": a stream does nothing before somebody waits for it or asks, and graphs run what is ready
//	                     last-made first; "random": streams pause now and then
//	GTC_STANDIN_CLOCK    "work": time passes by what is done, 10 us for each kernel and 1 us for each 1,000 bytes of its
//	                     dynamic shared memory, 1 us for all else, so that what is chosen by its time is the same in
//	                     each run
#pragma once
#include <stdint.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <deque>
#include <map>
#include <vector>

#include "image.h"

namespace driver {

// Codes of CUresult.
enum Result {
	kSuccess = 0,
	kInvalidValue = 1,
	kOutOfMemory = 2,
	kNotInitialized = 3,
	kNoDevice = 100,
	kInvalidDevice = 101,
	kInvalidImage = 200,
	kInvalidContext = 201,
	kNoBinary = 209,
	kInvalidHandle = 400,
	kNotFound = 500,
	kNotReady = 600,
	kIllegalAddress = 700,
	kOutOfResources = 701,
	kAlreadyRegistered = 712,
	kNotRegistered = 713,
	kLaunchFailed = 719,
	kNotSupported = 801,
	kCaptureUnsupported = 900,
	kCaptureInvalidated = 901,
	kCaptureUnmatched = 903,
	kCaptureUnjoined = 904,
	kCaptureIsolation = 905,
};

struct Stream;
struct Event;
struct Capture;

// Context is the primary context of a device: its memory and, once a kernel has failed, what all calls say from then on.
struct Context {
	int device = 0, users = 0;
	size_t total = 0, used = 0;
	Result error = kSuccess;
	std::string report;
};

// Range is memory that devices reach: theirs, or the host's that was allocated or registered for it.
struct Range {
	uintptr_t low, high;
	Context* context;  // null: the host's
	bool mapped;       // it came from here, and goes back
};

// Op is something for a stream to do: a kernel, a copy, or what orders streams.
struct Op {
	std::function<void(Context*)> work;
	Event* record = nullptr;  // the event that is over after it
	Event* wait = nullptr;    // or the one that has to be over before
	uint64_t version = 0;     // of the event
	Stream* from = nullptr;   // which the event waited for was recorded in
	uint64_t sequence = 0;    // there
	double cost = 1e-6;       // seconds that it takes by the clock of work
};

// Node of a graph: it comes after those that before lists.
struct Node {
	Op op;
	std::vector<int> before;
};

struct Graph {
	std::vector<Node> nodes;
};

struct Capture {
	std::shared_ptr<Graph> graph = std::make_shared<Graph>();
	Stream* origin = nullptr;
	std::vector<Stream*> streams;
	bool invalid = false, global = true;  // global: no call that could wait is allowed anywhere
};

struct Event {
	uint64_t recorded = 0, completed = 0;  // how often
	Stream* stream = nullptr;              // of the last record
	uint64_t sequence = 0;
	double time = 0;
	std::shared_ptr<Capture> capture;  // of the last record, if it was captured
	std::vector<int> after;            // nodes there
};

struct Stream {
	Context* context = nullptr;
	std::deque<Op> queue;
	uint64_t queued = 0, done = 0;  // how many
	uint64_t allowed = 0;           // how many may be done: all, unless lazy
	bool ends = false;
	std::thread worker;
	std::shared_ptr<Capture> capture;
	std::vector<int> after;  // the nodes that the next one comes after
};

// Everything below is under one lock; changed is told of every change.
extern std::mutex mutex;
extern std::condition_variable changed;
extern bool initialized, lazy, at_random;
extern std::vector<std::unique_ptr<Context>> contexts;
extern std::map<uintptr_t, Range> memory;
extern thread_local Context* current;

// enter is what every call begins with: it locks, and *result says whether the call can go on.
class Enter {
       public:
	explicit Enter(bool needs_context = true);
	std::unique_lock<std::mutex> lock;
	Result result;
};

// stream_of finds a stream by its handle, that of number 0 included; null when there is none.
Stream* stream_of(void* handle);
Event* event_of(void* handle);

// EnterStream and EnterEvent begin a call on a stream or an event: the result tells of a handle that is none, too.
class EnterStream : public Enter {
       public:
	explicit EnterStream(void* handle);
	Stream* stream = nullptr;
};
class EnterEvent : public Enter {
       public:
	explicit EnterEvent(void* handle);
	Event* event = nullptr;
};

// submit adds an op to a stream, or to the graph that is captured there.
Result submit(Stream* s, Op op);
// enqueue adds it to the stream's queue.
void enqueue(Stream* s, Op op);
// demand lets a stream go on to its op of that number.
void demand(Stream* s, uint64_t sequence);
// finish waits until a stream has done so many ops.
void finish(std::unique_lock<std::mutex>& lock, Stream* s, uint64_t sequence);
void finish_all(std::unique_lock<std::mutex>& lock);
// perform does an op's work, waits included; the lock is held before and after.
void perform(std::unique_lock<std::mutex>& lock, Context* c, Op& op);

// capturing reports whether any stream is being captured: calls that cannot be are refused then.
bool capturing();
// invalidate makes the capture of a stream fail at its end.
Result invalidate(Stream* s);

// device_range is where a device's or registered memory with those bytes is; null when it is not.
const Range* device_range(uintptr_t at, size_t bytes);

// now is the time in seconds, of the clock that the environment has chosen; the lock is held.
double now();
// passed says that work of so many seconds is done.
void passed(double seconds);

}  // namespace driver

#define GTC_API extern "C" __attribute__((visibility("default")))
