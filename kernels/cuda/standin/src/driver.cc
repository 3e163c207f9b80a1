// Devices, contexts, memory and errors.
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

namespace driver {

std::mutex mutex;
std::condition_variable changed;
bool initialized, lazy, at_random;
std::vector<std::unique_ptr<Context>> contexts;
std::map<uintptr_t, Range> memory;
thread_local Context* current;

static bool by_work;
static double worked;

void passed(double seconds) { worked += seconds; }

double now() {
	if (by_work) {
		return worked;
	}
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

Enter::Enter(bool needs_context) : lock(mutex), result(kSuccess) {
	if (!initialized) {
		result = kNotInitialized;
	} else if (needs_context && current == nullptr) {
		result = kInvalidContext;
	} else if (needs_context) {
		result = current->error;
	}
}

const Range* device_range(uintptr_t at, size_t bytes) {
	auto after = memory.upper_bound(at);
	if (after == memory.begin()) {
		return nullptr;
	}
	const Range& r = std::prev(after)->second;
	return at >= r.low && at + bytes <= r.high ? &r : nullptr;
}

static size_t number(const char* name, size_t otherwise) {
	const char* text = getenv(name);
	return text != nullptr && *text != 0 ? strtoull(text, nullptr, 10) : otherwise;
}

// visible counts the devices that CUDA_VISIBLE_DEVICES leaves of n: up to the first that is not there.
static size_t visible(size_t n) {
	const char* text = getenv("CUDA_VISIBLE_DEVICES");
	if (text == nullptr) {
		return n;
	}
	size_t count = 0;
	for (char* end; *text != 0; text = *end == ',' ? end + 1 : end) {
		size_t k = strtoull(text, &end, 10);
		if (end == text || k >= n) {
			break;
		}
		count++;
	}
	return count;
}

static char* map_bytes(size_t n) {
	void* p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? nullptr : (char*)p;
}

static size_t whole_pages(size_t n) { return (n + 4095) / 4096 * 4096; }

// allocate maps memory with a page behind it that is nobody's. What is there at first is no number.
static Result allocate(void** at, size_t n, Context* c) {
	if (n == 0 || at == nullptr) {
		return kInvalidValue;
	}
	if (capturing()) {
		return kCaptureUnsupported;
	}
	if (c != nullptr && n > c->total - c->used) {
		return kOutOfMemory;
	}
	char* p = map_bytes(whole_pages(n) + 4096);
	if (p == nullptr) {
		return kOutOfMemory;
	}
	mprotect(p + whole_pages(n), 4096, PROT_NONE);
	if (n <= size_t(256) << 20) {  // of more, too much memory would be touched
		memset(p, 0xff, n);
	}
	if (c != nullptr) {
		c->used += n;
	}
	memory[uintptr_t(p)] = Range{uintptr_t(p), uintptr_t(p) + n, c, true};
	*at = p;
	return kSuccess;
}

static Result release(std::unique_lock<std::mutex>& lock, uintptr_t at, bool device, bool mapped) {
	auto found = memory.find(at);
	if (found == memory.end() || (found->second.context != nullptr) != device || found->second.mapped != mapped) {
		return kInvalidValue;
	}
	if (capturing()) {
		return kCaptureUnsupported;
	}
	finish_all(lock);
	Range r = memory[at];
	memory.erase(at);
	if (r.context != nullptr) {
		r.context->used -= r.high - r.low;
	}
	if (mapped) {
		munmap((void*)r.low, whole_pages(r.high - r.low) + 4096);
	}
	return kSuccess;
}

struct Name {
	int code;
	const char *name, *text;
};

static const Name names[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kNoBinary, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {kAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {kNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {kCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {kCaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {kCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
};

static const Name* name_of(int code) {
	for (const Name& n : names) {
		if (n.code == code) {
			return &n;
		}
	}
	return nullptr;
}

static Context* device(int number) {
	return number >= 0 && size_t(number) < contexts.size() ? contexts[size_t(number)].get() : nullptr;
}

}  // namespace driver

using namespace driver;

// gtcStandIn tells that this is no GPU. It gives the report of the last kernel that failed, or "".
GTC_API const char* gtcStandIn() {
	static thread_local std::string text;
	std::lock_guard<std::mutex> lock(mutex);
	text = "";
	for (auto& c : contexts) {
		if (!c->report.empty()) {
			text = c->report;
		}
	}
	return text.c_str();
}

GTC_API int cuInit(unsigned flags) {
	std::lock_guard<std::mutex> lock(mutex);
	if (flags != 0) {
		return kInvalidValue;
	}
	if (initialized) {
		return contexts.empty() ? kNoDevice : kSuccess;
	}
	const char* order = getenv("GTC_STANDIN_ORDER");
	lazy = order != nullptr && strcmp(order, "lazy") == 0;
	at_random = order != nullptr && strcmp(order, "random") == 0;
	const char* clock = getenv("GTC_STANDIN_CLOCK");
	by_work = clock != nullptr && strcmp(clock, "work") == 0;
	size_t n = visible(number("GTC_STANDIN_DEVICES", 1));
	for (size_t i = 0; i < n; i++) {
		contexts.push_back(std::make_unique<Context>());
		contexts.back()->device = int(i);
		contexts.back()->total = number("GTC_STANDIN_MEMORY", size_t(16) << 30);
	}
	initialized = true;
	return n == 0 ? kNoDevice : kSuccess;
}

GTC_API int cuDriverGetVersion(int* version) {
	*version = 13000;
	return kSuccess;
}

GTC_API int cuGetErrorName(int code, const char** text) {
	const Name* n = name_of(code);
	*text = n != nullptr ? n->name : nullptr;
	return n != nullptr ? kSuccess : kInvalidValue;
}

GTC_API int cuGetErrorString(int code, const char** text) {
	const Name* n = name_of(code);
	*text = n != nullptr ? n->text : nullptr;
	return n != nullptr ? kSuccess : kInvalidValue;
}

GTC_API int cuDeviceGetCount(int* count) {
	Enter e(false);
	*count = int(contexts.size());
	return e.result;
}

GTC_API int cuDeviceGet(int* dev, int number) {
	Enter e(false);
	if (e.result == kSuccess && device(number) == nullptr) {
		return kInvalidDevice;
	}
	*dev = number;
	return e.result;
}

GTC_API int cuDeviceGetName(char* name, int size, int dev) {
	snprintf(name, size_t(size), "gtc stand-in %d", dev);
	return device(dev) != nullptr ? kSuccess : kInvalidDevice;
}

GTC_API int cuDeviceGetUuid_v2(unsigned char* id, int dev) {
	memset(id, 0, 16);
	memcpy(id, "gtc stand-in", 12);
	id[15] = (unsigned char)dev;
	return device(dev) != nullptr ? kSuccess : kInvalidDevice;
}

GTC_API int cuDeviceGetPCIBusId(char* text, int size, int dev) {
	snprintf(text, size_t(size), "0000:%02X:00.0", dev + 1);
	return device(dev) != nullptr ? kSuccess : kInvalidDevice;
}

GTC_API int cuDeviceTotalMem_v2(size_t* bytes, int dev) {
	Enter e(false);
	if (device(dev) == nullptr) {
		return kInvalidDevice;
	}
	*bytes = device(dev)->total;
	return e.result;
}

GTC_API int cuDeviceGetAttribute(int* value, int attribute, int dev) {
	if (device(dev) == nullptr) {
		return kInvalidDevice;
	}
	// Those of an H100, as far as anybody asks; one processor.
	static const std::map<int, int> values = {
	    {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 0x7fffffff}, {6, 65535}, {7, 65535}, {8, 48 << 10}, {10, 32}, {12, 65536},
	    {13, 1000000}, {16, 1}, {31, 1}, {38, 50 << 20}, {39, 2048}, {40, 3}, {41, 1}, {75, 9}, {76, 0}, {81, 228 << 10},
	    {82, 65536}, {97, 227 << 10}, {106, 32}, {111, 1 << 10}};
	auto found = values.find(attribute);
	*value = found != values.end() ? found->second : 0;
	return kSuccess;
}

GTC_API int cuDevicePrimaryCtxRetain(void** context, int dev) {
	Enter e(false);
	if (e.result != kSuccess) {
		return e.result;
	}
	Context* c = device(dev);
	if (c == nullptr) {
		return kInvalidDevice;
	}
	c->users++;
	*context = c;
	return kSuccess;
}

GTC_API int cuDevicePrimaryCtxRelease_v2(int dev) {
	Enter e(false);
	Context* c = device(dev);
	if (c == nullptr) {
		return kInvalidDevice;
	}
	return c->users-- > 0 ? kSuccess : kInvalidContext;
}

GTC_API int cuCtxSetCurrent(void* context) {
	Enter e(false);
	for (auto& c : contexts) {
		if (c.get() == context) {
			current = c.get();
			return e.result;
		}
	}
	current = nullptr;
	return context == nullptr ? e.result : kInvalidContext;
}

GTC_API int cuCtxGetCurrent(void** context) {
	*context = current;
	return kSuccess;
}

GTC_API int cuCtxGetDevice(int* dev) {
	Enter e;
	*dev = current != nullptr ? current->device : 0;
	return e.result;
}

GTC_API int cuCtxSynchronize() {
	Enter e;
	if (e.result != kSuccess) {
		return e.result;
	}
	if (capturing()) {
		return kCaptureUnsupported;
	}
	finish_all(e.lock);
	return current->error;
}

GTC_API int cuMemGetInfo_v2(size_t* free, size_t* total) {
	Enter e;
	if (e.result == kSuccess) {
		*total = current->total;
		*free = current->total - current->used;
	}
	return e.result;
}

GTC_API int cuMemAlloc_v2(void** at, size_t n) {
	Enter e;
	return e.result != kSuccess ? e.result : allocate(at, n, current);
}

GTC_API int cuMemFree_v2(uintptr_t at) {
	Enter e;
	return e.result != kSuccess || at == 0 ? e.result : release(e.lock, at, true, true);
}

GTC_API int cuMemHostAlloc(void** at, size_t n, unsigned) {
	Enter e;
	return e.result != kSuccess ? e.result : allocate(at, n, nullptr);
}

GTC_API int cuMemAllocHost_v2(void** at, size_t n) { return cuMemHostAlloc(at, n, 0); }

GTC_API int cuMemFreeHost(uintptr_t at) {
	Enter e;
	return e.result != kSuccess ? e.result : release(e.lock, at, false, true);
}

GTC_API int cuMemHostRegister_v2(uintptr_t at, size_t n, unsigned) {
	Enter e;
	if (e.result != kSuccess || n == 0) {
		return e.result != kSuccess ? e.result : kInvalidValue;
	}
	if (device_range(at, 1) != nullptr || device_range(at + n - 1, 1) != nullptr) {
		return kAlreadyRegistered;
	}
	memory[at] = Range{at, at + n, nullptr, false};
	return kSuccess;
}

GTC_API int cuMemHostUnregister(uintptr_t at) {
	Enter e;
	if (e.result != kSuccess) {
		return e.result;
	}
	return release(e.lock, at, false, false) == kSuccess ? kSuccess : kNotRegistered;
}

GTC_API int cuMemHostGetDevicePointer_v2(uintptr_t* at, uintptr_t host, unsigned) {
	Enter e;
	*at = host;
	return e.result != kSuccess || device_range(host, 1) != nullptr ? e.result : kInvalidValue;
}

// cuGetProcAddress_v2 finds a function by its name without the suffix.
GTC_API int cuGetProcAddress_v2(const char* name, void** at, int, uint64_t, int* status) {
	*at = nullptr;
	for (const char* suffix : {"_v3", "_v2", ""}) {
		if (*at == nullptr) {
			*at = dlsym(RTLD_DEFAULT, (std::string(name) + suffix).c_str());
		}
	}
	if (status != nullptr) {
		*status = *at == nullptr ? 1 : 0;
	}
	return *at == nullptr ? kNotFound : kSuccess;
}
