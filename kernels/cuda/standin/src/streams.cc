// Streams, events and copies.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "driver.h"

namespace driver {

static std::set<Stream*> streams;
static std::set<Event*> events;

// work_off is a stream's thread.
static void work_off(Stream* s) {
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the program's; fibres have no room for its handlers
	unsigned dice = unsigned(uintptr_t(s) >> 4);
	std::unique_lock<std::mutex> lock(mutex);
	for (;;) {
		changed.wait(lock, [&] { return s->ends || (!s->queue.empty() && s->done < s->allowed); });
		if (s->queue.empty()) {
			return;
		}
		if (at_random && (dice = dice * 1664525 + 1013904223) >> 30 == 0) {
			lock.unlock();
			usleep(dice >> 8 & 1023);
			lock.lock();
		}
		Op op = std::move(s->queue.front());
		s->queue.pop_front();
		perform(lock, s->context, op);
		s->done++;
		changed.notify_all();
	}
}

void perform(std::unique_lock<std::mutex>& lock, Context* c, Op& op) {
	if (op.wait != nullptr) {
		demand(op.from, op.sequence);
		changed.wait(lock, [&] { return op.wait->completed >= op.version; });
	}
	if (op.work && c->error == kSuccess) {
		lock.unlock();
		op.work(c);
		lock.lock();
		passed(op.cost);
	}
	if (op.record != nullptr) {
		op.record->completed = std::max(op.record->completed, op.version);
		op.record->time = now();
		changed.notify_all();
	}
}

void enqueue(Stream* s, Op op) {
	s->queue.push_back(std::move(op));
	s->queued++;
	if (!lazy) {
		s->allowed = s->queued;
	}
	changed.notify_all();
}

void demand(Stream* s, uint64_t sequence) {
	if (s != nullptr && s->allowed < sequence) {
		s->allowed = sequence;
		changed.notify_all();
	}
}

void finish(std::unique_lock<std::mutex>& lock, Stream* s, uint64_t sequence) {
	demand(s, sequence);
	changed.wait(lock, [&] { return s->done >= sequence; });
}

void finish_all(std::unique_lock<std::mutex>& lock) {
	std::vector<Stream*> list(streams.begin(), streams.end());
	for (Stream* s : list) {
		demand(s, s->queued);
	}
	for (Stream* s : list) {
		finish(lock, s, s->queued);
	}
}

bool capturing() {
	return std::any_of(streams.begin(), streams.end(), [](Stream* s) { return s->capture != nullptr && s->capture->global; });
}

static Stream* make_stream(Context* c) {
	Stream* s = new Stream;
	s->context = c;
	streams.insert(s);
	s->worker = std::thread(work_off, s);
	return s;
}

Stream* stream_of(void* handle) {
	if (uintptr_t(handle) <= 2) {  // the default ones: one of each device
		static std::map<Context*, Stream*> defaults;
		Stream*& s = defaults[current];
		if (s == nullptr) {
			s = make_stream(current);
		}
		return s;
	}
	return streams.count((Stream*)handle) ? (Stream*)handle : nullptr;
}

Event* event_of(void* handle) { return events.count((Event*)handle) ? (Event*)handle : nullptr; }

EnterStream::EnterStream(void* handle) {
	if (result == kSuccess && (stream = stream_of(handle)) == nullptr) {
		result = kInvalidHandle;
	}
}

EnterEvent::EnterEvent(void* handle) {
	if (result == kSuccess && (event = event_of(handle)) == nullptr) {
		result = kInvalidHandle;
	}
}

static Result copy(uintptr_t to, uintptr_t from, size_t n, void* stream, bool to_device, bool from_device) {
	EnterStream e(stream);
	if (e.result != kSuccess) {
		return e.result;
	}
	Stream* s = e.stream;
	if (n == 0) {
		return kSuccess;
	}
	if ((to_device && device_range(to, n) == nullptr) || (from_device && device_range(from, n) == nullptr) || to == 0 || from == 0) {
		return kInvalidValue;
	}
	Op op;
	op.work = [=](Context*) { memmove((void*)to, (const void*)from, n); };
	return submit(s, std::move(op));
}

static Result fill(uintptr_t at, size_t n, size_t width, uint32_t value, void* stream) {
	EnterStream e(stream);
	if (e.result != kSuccess) {
		return e.result;
	}
	Stream* s = e.stream;
	if (n > 0 && (device_range(at, n * width) == nullptr || at % width != 0)) {
		return kInvalidValue;
	}
	Op op;
	op.work = [=](Context*) {
		for (size_t i = 0; i < n; i++) {
			memcpy((char*)at + i * width, &value, width);
		}
	};
	return submit(s, std::move(op));
}

// Copy2D is CUDA_MEMCPY2D.
struct Copy2D {
	struct End {
		size_t x, y;
		unsigned kind;  // 1 host, 2 device, 4 either
		uintptr_t host, device;
		void* array;
		size_t pitch;
		uintptr_t start() const { return (kind == 1 ? host : device) + y * pitch + x; }
	} from, to;
	size_t width, height;
};

}  // namespace driver

using namespace driver;

GTC_API int cuMemcpyHtoDAsync_v2(uintptr_t to, uintptr_t from, size_t n, void* s) { return copy(to, from, n, s, true, false); }
GTC_API int cuMemcpyDtoHAsync_v2(uintptr_t to, uintptr_t from, size_t n, void* s) { return copy(to, from, n, s, false, true); }
GTC_API int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t n, void* s) { return copy(to, from, n, s, true, true); }
GTC_API int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t n, void* s) { return copy(to, from, n, s, false, false); }
GTC_API int cuMemsetD8Async(uintptr_t at, unsigned char x, size_t n, void* s) { return fill(at, n, 1, x, s); }
GTC_API int cuMemsetD16Async(uintptr_t at, unsigned short x, size_t n, void* s) { return fill(at, n, 2, x, s); }
GTC_API int cuMemsetD32Async(uintptr_t at, unsigned x, size_t n, void* s) { return fill(at, n, 4, x, s); }

GTC_API int cuMemcpy2DAsync_v2(const Copy2D* given, void* stream) {
	EnterStream e(stream);
	if (e.result != kSuccess) {
		return e.result;
	}
	Stream* s = e.stream;
	Copy2D c = *given;
	if (c.width == 0 || c.height == 0) {
		return kSuccess;
	}
	for (const Copy2D::End* end : {&c.from, &c.to}) {
		size_t bytes = (c.height - 1) * end->pitch + c.width;
		bool known = end->kind == 1 || end->kind == 4 || (end->kind == 2 && device_range(end->start(), bytes) != nullptr);
		if (!known || end->start() == 0 || (end->pitch < c.width && c.height > 1)) {
			return kInvalidValue;
		}
	}
	Op op;
	op.work = [c](Context*) {
		for (size_t i = 0; i < c.height; i++) {
			memmove((char*)c.to.start() + i * c.to.pitch, (const char*)c.from.start() + i * c.from.pitch, c.width);
		}
	};
	return submit(s, std::move(op));
}

GTC_API int cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
	EnterStream e(stream);
	if (e.result != kSuccess) {
		return e.result;
	}
	Stream* s = e.stream;
	Op op;
	op.work = [=](Context*) { function(argument); };
	return submit(s, std::move(op));
}

GTC_API int cuStreamCreate(void** stream, unsigned) {
	Enter e;
	if (e.result == kSuccess) {
		*stream = make_stream(current);
	}
	return e.result;
}

GTC_API int cuStreamCreateWithPriority(void** stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }

GTC_API int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
	*least = 0;
	*greatest = -5;
	return kSuccess;
}

GTC_API int cuStreamDestroy_v2(void* stream) {
	Enter e(false);
	if (streams.count((Stream*)stream) == 0) {
		return kInvalidHandle;
	}
	Stream* s = (Stream*)stream;
	finish(e.lock, s, s->queued);
	s->ends = true;
	changed.notify_all();
	e.lock.unlock();
	s->worker.join();
	e.lock.lock();
	streams.erase(s);  // its memory stays: events may have been recorded in it
	return kSuccess;
}

GTC_API int cuStreamSynchronize(void* stream) {
	EnterStream e(stream);
	if (e.result != kSuccess) {
		return e.result;
	}
	Stream* s = e.stream;
	if (s->capture != nullptr) {
		return invalidate(s);
	}
	finish(e.lock, s, s->queued);
	return current->error;
}

GTC_API int cuStreamQuery(void* stream) {
	EnterStream e(stream);
	if (e.result != kSuccess) {
		return e.result;
	}
	Stream* s = e.stream;
	if (s->capture != nullptr) {
		return invalidate(s);
	}
	demand(s, s->queued);
	return s->done < s->queued ? kNotReady : current->error;
}

GTC_API int cuEventCreate(void** event, unsigned) {
	Enter e;
	if (e.result == kSuccess) {
		*event = *events.insert(new Event).first;
	}
	return e.result;
}

GTC_API int cuEventDestroy_v2(void* event) {
	Enter e(false);
	return events.erase((Event*)event) == 1 ? kSuccess : kInvalidHandle;  // its memory stays: queues may name it
}

GTC_API int cuEventRecordWithFlags(void* event, void* stream, unsigned flags) {
	Enter e;
	if (e.result != kSuccess) {
		return e.result;
	}
	Event* v = event_of(event);
	Stream* s = stream_of(stream);
	if (v == nullptr || s == nullptr) {
		return kInvalidHandle;
	}
	if (flags > 1) {
		return kInvalidValue;
	}
	bool external = flags == 1;  // CU_EVENT_RECORD_EXTERNAL: a node of the graph, rather than an edge
	if (s->capture != nullptr && !external) {
		v->capture = s->capture;
		v->after = s->after;
		return kSuccess;
	}
	Op op;
	op.record = v;
	v->capture = nullptr;
	if (s->capture == nullptr) {
		op.version = ++v->recorded;
		v->stream = s;
		v->sequence = s->queued + 1;
	}
	return submit(s, std::move(op));
}

GTC_API int cuEventRecord(void* event, void* stream) { return cuEventRecordWithFlags(event, stream, 0); }

GTC_API int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
	Enter e;
	if (e.result != kSuccess) {
		return e.result;
	}
	Event* v = event_of(event);
	Stream* s = stream_of(stream);
	if (v == nullptr || s == nullptr) {
		return kInvalidHandle;
	}
	if (flags > 1) {
		return kInvalidValue;
	}
	Op op;
	op.wait = v;
	if (s->capture != nullptr && flags == 1) {  // CU_EVENT_WAIT_EXTERNAL
		return submit(s, std::move(op));
	}
	if (v->capture != nullptr) {
		if (s->capture == nullptr) {
			s->capture = v->capture;
			s->capture->streams.push_back(s);
			s->after.clear();
		} else if (s->capture != v->capture) {
			return invalidate(s), kCaptureIsolation;
		}
		for (int n : v->after) {
			if (std::find(s->after.begin(), s->after.end(), n) == s->after.end()) {
				s->after.push_back(n);
			}
		}
		return kSuccess;
	}
	if (s->capture != nullptr) {
		return invalidate(s), kCaptureIsolation;
	}
	op.version = v->recorded;
	op.from = v->stream;
	op.sequence = v->sequence;
	return submit(s, std::move(op));
}

GTC_API int cuEventSynchronize(void* event) {
	EnterEvent e(event);
	if (e.result != kSuccess) {
		return e.result;
	}
	Event* v = e.event;
	if (v->capture != nullptr) {
		return kCaptureUnsupported;
	}
	uint64_t version = v->recorded;
	demand(v->stream, v->sequence);
	changed.wait(e.lock, [&] { return v->completed >= version; });
	return current->error;
}

GTC_API int cuEventQuery(void* event) {
	EnterEvent e(event);
	if (e.result != kSuccess) {
		return e.result;
	}
	Event* v = e.event;
	if (v->capture != nullptr) {
		return kCaptureUnsupported;
	}
	demand(v->stream, v->sequence);
	return v->completed < v->recorded ? kNotReady : current->error;
}

GTC_API int cuEventElapsedTime_v2(float* milliseconds, void* start, void* end) {
	Enter e;
	Event *a = event_of(start), *b = event_of(end);
	if (a == nullptr || b == nullptr || a->recorded == 0 || b->recorded == 0) {
		return kInvalidHandle;
	}
	if (a->completed < a->recorded || b->completed < b->recorded) {
		return kNotReady;
	}
	*milliseconds = float(1e3 * (b->time - a->time));
	return e.result;
}

GTC_API int cuEventElapsedTime(float* milliseconds, void* start, void* end) { return cuEventElapsedTime_v2(milliseconds, start, end); }
