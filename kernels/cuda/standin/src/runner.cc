// A program that runs kernels of an image:
//
//	runner IMAGE JOBS
//
// JOBS has a line for each thing to do:
//
//	case NUMBER                              what follows belongs to case NUMBER; its memory is its own
//	buffer NAME BYTES FILE                   memory number 0, 1, ..., with the file's contents, or all ones without (-)
//	span NAME FROM TO                        these bytes of buffer 0 may be touched; without any span, all of it
//	launch KERNEL gx gy gz bx by bz SHARED ARGUMENT...   an argument is BUFFER+OFFSET, or nil
//	write BUFFER FILE                        writes memory to a file
//
// It prints "begin NUMBER" for each case, and "fault REPORT" when a launch fails, after which the case's launches are left
// out; "end" at the end.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "image.h"

struct Buffer {
	std::string name;
	char* at;
	size_t bytes, mapped;
};

struct Span {
	std::string name;
	size_t from, to;
};

static std::vector<Buffer> buffers;
static std::vector<Span> spans;

static void fail(const std::string& why) {
	std::cerr << why << "\n";
	exit(2);
}

static void forget() {
	for (Buffer& b : buffers) {
		munmap(b.at, b.mapped);
	}
	buffers.clear();
	spans.clear();
}

static void add_buffer(std::istringstream& words) {
	Buffer b;
	std::string file;
	words >> b.name >> b.bytes >> file;
	b.mapped = (b.bytes + 8191) / 4096 * 4096;  // at least a page that is not the next buffer's
	b.at = (char*)mmap(nullptr, b.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b.at == (char*)MAP_FAILED) {
		fail("no memory for a buffer");
	}
	if (file == "-") {
		std::fill(b.at, b.at + b.bytes, char(0xff));
	} else {
		std::ifstream in(file, std::ios::binary);
		in.read(b.at, std::streamsize(b.bytes));
		if (size_t(in.gcount()) != b.bytes) {
			fail(file + " is too short");
		}
	}
	buffers.push_back(b);
}

static bool launch(const gtc_image_table* image, std::istringstream& words) {
	std::string name;
	gtc_image_launch l = {};
	words >> name >> l.grid[0] >> l.grid[1] >> l.grid[2] >> l.block[0] >> l.block[1] >> l.block[2] >> l.shared;
	for (unsigned i = 0; i < image->count; i++) {
		if (name == image->kernels[i].name) {
			l.kernel = &image->kernels[i];
		}
	}
	if (l.kernel == nullptr) {
		fail("the image has no kernel " + name);
	}
	std::vector<void*> arguments;
	for (std::string a; words >> a;) {
		size_t plus = a.find('+');
		arguments.push_back(a == "nil" ? nullptr : buffers.at(std::stoul(a)).at + std::stoul(a.substr(plus + 1)));
	}
	if (arguments.size() != l.kernel->parameters) {
		fail("kernel " + name + " has " + std::to_string(l.kernel->parameters) + " parameters, not " + std::to_string(arguments.size()));
	}
	if (l.block[0] * l.block[1] * l.block[2] > l.kernel->max_threads) {
		std::cout << "fault kernel " << name << ": more threads in a block than its __launch_bounds__ say\n";
		return false;
	}
	l.arguments = arguments.data();
	std::vector<gtc_image_range> ranges;
	for (const Span& s : spans) {
		ranges.push_back({uintptr_t(buffers[0].at) + s.from, uintptr_t(buffers[0].at) + s.to, s.name.c_str()});
	}
	for (const Buffer& b : buffers) {
		if (&b == &buffers[0] && !spans.empty()) {
			continue;
		}
		ranges.push_back({uintptr_t(b.at), uintptr_t(b.at) + b.bytes, b.name.c_str()});
	}
	std::sort(ranges.begin(), ranges.end(), [](auto& a, auto& b) { return a.low < b.low; });
	char report[2048];
	if (image->run(&l, ranges.data(), ranges.size(), report, sizeof report) != 0) {
		std::cout << "fault " << report << "\n";
		return false;
	}
	return true;
}

int main(int argc, char** argv) {
	if (argc != 3) {
		fail("runner IMAGE JOBS");
	}
	void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (library == nullptr) {
		fail(dlerror());
	}
	auto* image = (const gtc_image_table*)dlsym(library, "gtc_image");
	if (image == nullptr || image->version != GTC_IMAGE_VERSION) {
		fail("this is no image of this version");
	}
	std::ifstream jobs(argv[2]);
	bool good = true;
	for (std::string line; std::getline(jobs, line);) {
		std::istringstream words(line);
		std::string what;
		words >> what;
		if (what == "case") {
			std::string number;
			words >> number;
			std::cout << "begin " << number << std::endl;
			forget();
			good = true;
		} else if (what == "buffer") {
			add_buffer(words);
		} else if (what == "span") {
			spans.emplace_back();
			words >> spans.back().name >> spans.back().from >> spans.back().to;
		} else if (what == "launch") {
			good = good && launch(image, words);
		} else if (what == "write") {
			size_t n;
			std::string file;
			words >> n >> file;
			std::ofstream(file, std::ios::binary).write(buffers.at(n).at, std::streamsize(buffers.at(n).bytes));
		} else if (!what.empty()) {
			fail("unknown: " + line);
		}
	}
	std::cout << "end" << std::endl;
	_Exit(0);  // the engine's second thread goes on
}
