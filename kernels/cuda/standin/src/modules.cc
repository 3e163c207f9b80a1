// Modules, which are images for this processor, and launches of their kernels.
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "driver.h"

namespace driver {

// Module is a loaded image. It stays loaded: its engine has a thread.
struct Module {
	const gtc_image_table* image;
};

struct Function {
	const gtc_image_table* image;
	const gtc_image_kernel* kernel;
	unsigned dynamic = 48 << 10;  // shared memory that a launch may ask for
};

static std::set<Module*> modules;
static std::map<std::pair<Module*, std::string>, Function*> functions;
static std::map<std::string, const gtc_image_table*> loaded;  // by contents

static bool known(Function* f) {
	return std::any_of(functions.begin(), functions.end(), [&](auto& x) { return x.second == f; });
}

// size_of is the length of an ELF file, whose last part is the table of its sections.
static size_t size_of(const void* image) {
	const Elf64_Ehdr* h = (const Elf64_Ehdr*)image;
	if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_type != ET_DYN) {
		return 0;
	}
	return h->e_shoff + size_t(h->e_shentsize) * h->e_shnum;
}

static const gtc_image_table* load(const std::string& bytes) {
	int file = memfd_create("gtc-image", 0);
	if (file < 0) {
		return nullptr;
	}
	for (size_t at = 0; at < bytes.size();) {
		ssize_t n = write(file, bytes.data() + at, bytes.size() - at);
		if (n <= 0) {
			close(file);
			return nullptr;
		}
		at += size_t(n);
	}
	void* library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
	if (library == nullptr) {
		fprintf(stderr, "gtc stand-in: %s\n", dlerror());
		close(file);
		return nullptr;
	}
	// The file stays open, so that the path names it for as long as the image is loaded.
	auto* image = (const gtc_image_table*)dlsym(library, "gtc_image");
	return image != nullptr && image->version == GTC_IMAGE_VERSION ? image : nullptr;
}

// execute runs a kernel; a fault becomes the context's error.
static void execute(Context* c, const Function& f, const gtc_image_launch& l) {
	std::vector<gtc_image_range> ranges;
	if (f.image->checked) {
		std::lock_guard<std::mutex> lock(mutex);
		for (auto& m : memory) {
			ranges.push_back({m.second.low, m.second.high, m.second.context != nullptr ? "device memory" : "pinned memory"});
		}
	}
	char report[2048];
	if (f.image->run(&l, ranges.data(), ranges.size(), report, sizeof report) == 0) {
		return;
	}
	fprintf(stderr, "gtc stand-in: %s\n", report);
	std::lock_guard<std::mutex> lock(mutex);
	c->report = report;
	c->error = strstr(report, "outside of all memory") != nullptr ? kIllegalAddress : kLaunchFailed;
}

}  // namespace driver

using namespace driver;

GTC_API int cuModuleLoadData(void** module, const void* image) {
	Enter e;
	if (e.result != kSuccess) {
		return e.result;
	}
	size_t n = size_of(image);
	if (n == 0) {
		return memcmp(image, ELFMAG, SELFMAG) == 0 ? kNoBinary : kInvalidImage;
	}
	std::string bytes((const char*)image, n);
	const gtc_image_table*& table = loaded[bytes];
	if (table == nullptr && (table = load(bytes)) == nullptr) {
		return kInvalidImage;
	}
	*module = *modules.insert(new Module{table}).first;
	return kSuccess;
}

GTC_API int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) { return cuModuleLoadData(module, image); }

GTC_API int cuModuleUnload(void* module) {
	Enter e(false);
	finish_all(e.lock);
	for (auto f = functions.begin(); f != functions.end();) {
		f = f->first.first == module ? functions.erase(f) : std::next(f);
	}
	return modules.erase((Module*)module) == 1 ? kSuccess : kInvalidHandle;
}

GTC_API int cuModuleGetFunction(void** function, void* module, const char* name) {
	Enter e;
	if (e.result != kSuccess) {
		return e.result;
	}
	if (modules.count((Module*)module) == 0) {
		return kInvalidHandle;
	}
	const gtc_image_table* image = ((Module*)module)->image;
	Function*& f = functions[{(Module*)module, name}];
	for (unsigned i = 0; f == nullptr && i < image->count; i++) {
		if (strcmp(image->kernels[i].name, name) == 0) {
			f = new Function{image, &image->kernels[i]};
		}
	}
	*function = f;
	if (f == nullptr) {
		functions.erase({(Module*)module, name});
		return kNotFound;
	}
	return kSuccess;
}

enum { kMaxThreadsPerBlock = 0, kMaxDynamicShared = 8 };  // CUfunction_attribute

GTC_API int cuFuncSetAttribute(void* function, int attribute, int value) {
	Enter e;
	Function* f = (Function*)function;
	if (e.result != kSuccess || !known(f)) {
		return e.result != kSuccess ? e.result : kInvalidHandle;
	}
	if (attribute == kMaxDynamicShared) {
		if (value < 0 || value > 227 << 10) {
			return kInvalidValue;
		}
		f->dynamic = unsigned(value);
	}
	return kSuccess;
}

GTC_API int cuFuncGetAttribute(int* value, int attribute, void* function) {
	Enter e;
	Function* f = (Function*)function;
	if (e.result != kSuccess || !known(f)) {
		return e.result != kSuccess ? e.result : kInvalidHandle;
	}
	*value = attribute == kMaxThreadsPerBlock ? int(f->kernel->max_threads) : attribute == kMaxDynamicShared ? int(f->dynamic) : 0;
	return kSuccess;
}

GTC_API int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
			   void* stream, void** parameters, void** extra) {
	Enter e;
	if (e.result != kSuccess) {
		return e.result;
	}
	Stream* s = stream_of(stream);
	Function* f = (Function*)function;
	if (s == nullptr || !known(f)) {
		return kInvalidHandle;
	}
	uint64_t threads = uint64_t(bx) * by * bz;
	if (gx == 0 || gy == 0 || gz == 0 || gx > 0x7fffffff || gy > 65535 || gz > 65535 || threads == 0 || threads > 1024 || bz > 64 || shared > f->dynamic) {
		return kInvalidValue;
	}
	if (threads > f->kernel->max_threads) {
		return kOutOfResources;
	}
	unsigned count = f->kernel->parameters;
	std::vector<void*> arguments(count);
	if (parameters != nullptr) {
		for (unsigned i = 0; i < count; i++) {
			arguments[i] = *(void**)parameters[i];
		}
	} else if (extra != nullptr) {
		const char* buffer = nullptr;
		size_t size = 0;
		for (void** x = extra; *x != nullptr; x += 2) {  // CU_LAUNCH_PARAM_END
			if (uintptr_t(*x) == 1) {                // CU_LAUNCH_PARAM_BUFFER_POINTER
				buffer = (const char*)x[1];
			} else if (uintptr_t(*x) == 2) {  // CU_LAUNCH_PARAM_BUFFER_SIZE
				size = *(size_t*)x[1];
			}
		}
		if (buffer == nullptr || size != count * sizeof(void*)) {
			return kInvalidValue;
		}
		memcpy(arguments.data(), buffer, size);
	} else if (count > 0) {
		return kInvalidValue;
	}
	Function copied = *f;
	Op op;
	op.cost = 1e-5 + 1e-9 * shared;
	op.work = [=](Context* c) {
		gtc_image_launch l = {copied.kernel, {gx, gy, gz}, {bx, by, bz}, shared, arguments.data()};
		execute(c, copied, l);
	};
	return submit(s, std::move(op));
}
