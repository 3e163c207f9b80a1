// What an image, a shared library of kernels compiled for this processor, shows to those who load it: the stand-in driver
// and the program that tests run kernels with.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define GTC_IMAGE_VERSION 1

struct gtc_image_kernel {
	const char* name;
	void* function;
	unsigned parameters;   // all pointers
	unsigned max_threads;  // of a block, as __launch_bounds__ says
};

struct gtc_image_launch {
	const gtc_image_kernel* kernel;
	unsigned grid[3], block[3];
	unsigned shared;  // dynamic, bytes
	void* const* arguments;
};

// gtc_image_range is memory that kernels may touch. name is for reports.
struct gtc_image_range {
	uintptr_t low, high;
	const char* name;
};

// gtc_image_table is found under the symbol gtc_image.
struct gtc_image_table {
	int version;
	int checked;  // compiled with checks
	unsigned count;
	const gtc_image_kernel* kernels;
	// run executes a grid; ranges are sorted and only needed by checks. It returns 0, or 1 with the fault in report.
	int (*run)(const gtc_image_launch* launch, const gtc_image_range* ranges, size_t count, char* report, size_t size);
};
